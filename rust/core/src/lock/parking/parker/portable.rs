//! Sleeping where there is no futex: the standard library's thread parking, or a model checker's.
//!
//! It does not return on a signal: whoever must notice one sleeps in slices.

use super::Woke;
use crate::sync::{self, AtomicU32, Thread};

/// The thread that sleeps.
pub(super) struct Sleeper(Thread);

/// The thread to be woken.
pub(crate) struct Handle(Thread);

impl Sleeper {
    pub(super) fn new() -> Self {
        Self(sync::current())
    }

    pub(super) fn handle(&self, _word: &AtomicU32) -> Handle {
        Handle(self.0.clone())
    }

    /// Sleeps until called (or without reason), or until `until_ns`. A call before the sleep ends it at once.
    #[allow(clippy::unused_self)] // it is the caller's own
    pub(super) fn sleep(&self, _word: &AtomicU32, _expected: u32, until_ns: Option<u64>) -> Woke {
        let Some(until_ns) = until_ns else {
            sync::park();
            return Woke::Called;
        };
        sleep_until(until_ns)
    }
}

impl Handle {
    /// Wakes the waiter.
    pub(crate) fn wake(self) {
        self.0.unpark();
    }
}

#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
fn sleep_until(until_ns: u64) -> Woke {
    use crate::machine::clock::now_ns;

    std::thread::park_timeout(core::time::Duration::from_nanos(until_ns.saturating_sub(now_ns())));
    if now_ns() >= until_ns { Woke::TimedOut } else { Woke::Called }
}

/// A model has no time: a deadline passes whenever the schedule lets it.
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
fn sleep_until(until_ns: u64) -> Woke {
    sync::yield_now();
    crate::machine::clock::model::advance(until_ns);
    Woke::TimedOut
}

/// Sleeps a while: 50 us, the time that a bucket's lock is held at most while its holder runs.
#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
pub(crate) fn rest(_word: &AtomicU32, _expected: u32) {
    std::thread::sleep(core::time::Duration::from_micros(50));
}

/// Wakes nobody: those who [`rest`] wake by themselves.
#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
pub(crate) fn rouse(_word: &AtomicU32) {}
