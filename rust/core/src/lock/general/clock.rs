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

/// Policy units that take `ns` on this machine.
#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
pub(super) fn units_in(ns: u64) -> u64 {
    (ns as f64 / unit_ns()) as u64
}

/// What one policy unit takes.
#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
pub(super) fn unit_ns() -> f64 {
    crate::machine::pause::unit_ns()
}

/// A model's units are its looks: few are enough.
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
pub(super) fn units_in(_ns: u64) -> u64 {
    2
}

/// In a model a spin budget is some 20 looks, if it does not say otherwise.
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
pub(super) fn unit_ns() -> f64 {
    model::UNIT_NS.get()
}

/// Looks at a free lock after which a ticket ahead counts as abandoned.
#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
pub(super) const fn patience_looks() -> u32 {
    crate::policy::constants::PATIENCE_LOOKS
}

/// A model stops a thread for as long as it likes, which is no sign of an abandoned ticket.
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
pub(super) fn patience_looks() -> u32 {
    model::PATIENCE_LOOKS.get()
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
        pub(super) static UNIT_NS: Cell<f64> = const { Cell::new(500.0) };
        pub(super) static PATIENCE_LOOKS: Cell<u32> = const { Cell::new(2) };
    }

    /// How many looks a spinner is patient.
    pub fn patience_looks(looks: u32) {
        PATIENCE_LOOKS.set(looks);
    }

    /// How long a unit takes, and so how many looks a spinner has: 10 us worth of units.
    pub fn unit_ns(ns: f64) {
        UNIT_NS.set(ns);
    }

    /// How many CPUs there are: with one, nobody spins.
    pub fn cpus(count: u32) {
        CPUS.set(count);
    }
}
