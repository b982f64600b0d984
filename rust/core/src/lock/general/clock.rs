//! Deadlines, and what a wait must know of the machine.

use std::time::Duration;

pub(super) use crate::machine::clock::now_ns;

/// A moment after which a waiter gives up. As fine as the monotonic clock, at most 292 years away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(u64);

impl Deadline {
    /// `ns` nanoseconds from now; what is further away than the clock can count is at its end.
    #[must_use]
    pub fn after_ns(ns: u64) -> Self {
        Self(now_ns().saturating_add(ns))
    }

    /// `limit` from now.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        Self::after_ns(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Whether it has passed.
    #[must_use]
    pub fn passed(self) -> bool {
        now_ns() >= self.0
    }

    /// On the monotonic clock.
    pub(super) const fn ns(self) -> u64 {
        self.0
    }
}

/// CPUs that this process can use.
#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
pub(crate) fn cpus() -> u32 {
    crate::machine::usable_cpus()
}

/// CPUs of a model's machine.
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
pub(crate) fn cpus() -> u32 {
    model::CPUS.get()
}

/// What a model chooses.
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
pub mod model {
    use core::cell::Cell;

    thread_local! {
        // All threads of a model run on one thread of the operating system.
        pub(super) static CPUS: Cell<u32> = const { Cell::new(1) };
    }

    /// How many CPUs there are: with one, nobody spins.
    pub fn cpus(count: u32) {
        CPUS.set(count);
    }
}
