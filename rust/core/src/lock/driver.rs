//! Performs what a policy decides: real pauses, real reads, real yields.
//!
//! It has no idea of its own: when to pause, look, yield or sleep is the policy's. What it really did can be observed, and
//! is compared with the simulator's driver of the same policy (`rust/sim/tests/replay.rs`).

use crate::policy::{Action, Waiter};
use crate::sync;

/// One thing that the mechanism did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Paused this many units.
    Paused(u64),
    /// Read this number being served.
    Read(u32),
    /// Yielded the CPU.
    Yielded,
    /// Slept about this many units.
    Parked(u64),
}

/// Sees what the mechanism does. `()` sees nothing and costs nothing.
pub trait Observer {
    /// Called after each thing done.
    fn saw(&mut self, event: Event);
}

impl Observer for () {
    #[inline]
    fn saw(&mut self, _event: Event) {}
}

impl Observer for Vec<Event> {
    fn saw(&mut self, event: Event) {
        self.push(event);
    }
}

/// The four things a waiter can do.
pub(crate) trait Mechanism {
    fn pause(&mut self, units: u64);
    fn read(&mut self) -> u32;
    fn yield_now(&mut self);
    fn park(&mut self, units: u64);
    /// Uniform over `u32`; asked only for rules that want chance.
    fn chance(&mut self) -> u32;
}

/// Runs `waiter` until its lock is had.
#[inline]
pub(crate) fn drive(waiter: &mut Waiter, wants_chance: bool, mechanism: &mut impl Mechanism) {
    loop {
        match waiter.decide() {
            Action::Enter => return,
            Action::Pause(units) => mechanism.pause(units),
            Action::Yield => mechanism.yield_now(),
            Action::Park(units) => mechanism.park(units),
            Action::Poll => {
                let serving = mechanism.read();
                let chance = if wants_chance { mechanism.chance() } else { 0 };
                waiter.polled(serving, chance);
            }
        }
    }
}

/// Runs `waiter` while it pauses and polls. True if its lock is had, false if it wants to give up its CPU: for a lock whose
/// waiters then sleep elsewhere.
#[inline]
pub(crate) fn drive_until_idle(waiter: &mut Waiter, mechanism: &mut impl Mechanism) -> bool {
    loop {
        match waiter.decide() {
            Action::Enter => return true,
            Action::Pause(units) => mechanism.pause(units),
            Action::Yield | Action::Park(_) => return false,
            Action::Poll => {
                let serving = mechanism.read();
                waiter.polled(serving, 0);
            }
        }
    }
}

/// The real one. `read` is the lock's own acquire load.
pub(crate) struct Real<R, O> {
    pub(crate) read: R,
    pub(crate) random: u32,
    pub(crate) observer: O,
}

impl<R: FnMut() -> u32, O: Observer> Mechanism for Real<R, O> {
    #[inline]
    fn pause(&mut self, units: u64) {
        pause_units(units);
        self.observer.saw(Event::Paused(units));
    }

    #[inline]
    fn read(&mut self) -> u32 {
        let serving = (self.read)();
        self.observer.saw(Event::Read(serving));
        serving
    }

    fn yield_now(&mut self) {
        sync::yield_now();
        self.observer.saw(Event::Yielded);
    }

    fn park(&mut self, units: u64) {
        park_units(units);
        self.observer.saw(Event::Parked(units));
    }

    fn chance(&mut self) -> u32 {
        // xorshift32 (Marsaglia 2003); never zero.
        let mut x = self.random.max(1);
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.random = x;
        x
    }
}

#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
mod time {
    use core::time::Duration;

    use crate::machine::pause;
    use crate::policy::constants::UNIT_NS;

    #[inline]
    pub(crate) fn pause_units(units: u64) {
        pause::spin_units(units);
    }

    pub(super) fn park_units(units: u64) {
        std::thread::sleep(Duration::from_nanos((units as f64 * UNIT_NS) as u64));
    }
}

/// A model checker has no time: to pause is to let somebody else run.
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
mod time {
    use crate::sync;

    pub(crate) fn pause_units(_units: u64) {
        sync::yield_now();
    }

    pub(super) fn park_units(_units: u64) {
        sync::yield_now();
    }
}

use time::park_units;
pub(crate) use time::pause_units;
