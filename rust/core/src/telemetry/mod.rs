//! Where per-thread state lives: fixed-size records of 64-bit words, apart from the threads and locks they speak of.
//!
//! Records come from chunks that are never freed, one writer each, read by anybody: the shape of an exported segment.
//! Nothing here knows what a lock is.

#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
pub mod threads;
