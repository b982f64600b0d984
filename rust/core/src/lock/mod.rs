//! The locks: real atomics driven by the policies.
//!
//! [`Lock`] is the one to take unless there is a reason: it sleeps where it cannot be had soon. [`TicketLock`] is strict.
//!
//! **When not to use a strict ticket lock.** Its order is absolute: a waiter whose turn has come gets the lock, running or
//! not. With more threads than CPUs that waiter is often not running, and everybody behind it waits for the scheduler.
//! Measured on 2 CPUs with 32 threads: a spinning ticket lock falls to thousands of operations a second with waits of
//! seconds. The waiters here therefore yield and, when the line stands still, sleep, which keeps the lock usable; a lock
//! that parks is still the better choice there.

mod driver;
pub(crate) mod general;
mod memory;
mod parking;
mod ticket;
pub mod watch;

pub use driver::{Event, Observer};
#[doc(hidden)]
pub use general::Spun;
pub use general::{Deadline, Ended, Lock, LockGuard, Wait, WaitStats, Waiting};
pub use memory::{ThreadDelays, delays};
pub use ticket::{Draw, NotLocked, Queued, TicketGuard, TicketLock, Tuning, Waited, next_lock_id};

/// What a model chooses before it runs a lock.
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
#[doc(hidden)]
pub mod model {
    pub use super::general::model::{cpus, patience_looks, unit_ns};
    pub use super::parking::model::{hand_over_first, without_membarrier};
    pub use crate::machine::clock::model::restart;
}
