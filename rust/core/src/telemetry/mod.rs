//! What a process reports about its locks: fixed tables of 64-bit words that other processes can read.
//!
//! * [`layout`]: the format. * [`segment`]: the memory. * [`threads`], [`locks`], [`sites`], [`events`]: who writes what.
//! * [`reader`]: reading the segment of any process, whose every byte is taken as hostile.
//!
//! Rules: a writer never reads a clock or executes a read-modify-write for an acquisition that did not wait; what a wait took
//! is written after the release; every word is an aligned atomic; a failure disturbs nobody. Nothing here knows what a lock
//! does.

pub mod layout;

#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
pub mod events;
#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
pub mod locks;
#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
pub mod reader;
#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
pub mod segment;
#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
pub mod sites;
#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
pub mod threads;
