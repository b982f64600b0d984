//! Ticket locks whose back-off tunes itself, per thread and per lock.
//!
//! ```
//! use ticketlock::TicketLock;
//!
//! static LOCK: TicketLock = TicketLock::new();
//!
//! let guard = LOCK.lock();      // drawn in order, served in order
//! assert!(LOCK.is_locked());
//! drop(guard);
//! assert!(!LOCK.is_locked());
//! ```
//!
//! The crate is built in layers, and a module uses only what stands above it:
//!
//! 1. [`policy`]: what a waiter does next, as plain data and arithmetic: no atomics, no clock, no unsafe code.
//! 2. [`machine`]: what this computer is: hypervisor, pause cost, usable CPUs. `telemetry`: where per-thread state lives.
//! 3. [`lock`]: the locks, which perform what the policies decide.
//!
//! A strict ticket lock is for threads that have a CPU each: see [`lock`] for when not to use it.

pub mod lock;
pub mod machine;
#[forbid(unsafe_code)]
pub mod policy;
#[doc(hidden)]
pub mod sync;
pub mod telemetry;

pub use lock::{
    Deadline, Draw, Ended, Lock, LockGuard, NotLocked, Queued, TicketGuard, TicketLock, Tuning, Wait, WaitStats, Waited, Waiting,
    delays,
};
pub use policy::{Backoff, Fairness, UnknownFairness};
