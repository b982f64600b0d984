//! The spinners' line: waiters that run, in the order in which they came.
//!
//! How long a spinner pauses between its looks is the strict family's own policy: a spinner with `n` ahead behaves as a
//! waiter with `n` ahead would. A `Yield` of that policy means that the budget is spent, and ends the spinning.

use super::clock::{cpus, now_ns, patience_looks, unit_ns, units_in};
use super::{FREE, Lock, Wait, WaitStats};
use crate::lock::driver::{Observer, Real, drive_until_idle, pause_units};
use crate::lock::memory::Memory;
use crate::lock::parking::CROWDED;
use crate::policy::constants::{BRIEF_UNITS, PARK_COST_FIRST_NS};
use crate::policy::line::{Place, TICKET, has_room, spin_budget_units};
use crate::policy::{Backoff, Bounds, Collision, Delay, LockKey, Outcome, Waiter};
use crate::sync::Ordering;
use crate::sync::global::{self, AtomicU64};

/// One spinner more, and its ticket drawn: the sum of both halves' ones. The ticket's carry drops out at the top.
const ENTER: u32 = 1 | 1 << 16;

/// What a park was measured to cost lately, in ns: from the call of a waker to the first look of the woken. 0 before the first.
static PARK_COST_NS: AtomicU64 = AtomicU64::new(0);

/// A sample's weight in that average is 1/8: a few parks are enough to settle, one outlier is not.
const PARK_COST_WEIGHT: u64 = 8;

pub(super) fn park_cost_ns() -> u64 {
    match PARK_COST_NS.load(global::Ordering::Relaxed) {
        0 => PARK_COST_FIRST_NS,
        cost => cost,
    }
}

/// Takes one measured park into account.
pub(super) fn park_took(ns: u64) {
    let (cost, sample) = (park_cost_ns(), ns.min(1_000_000));
    let next = (cost * (PARK_COST_WEIGHT - 1) + sample) / PARK_COST_WEIGHT;
    PARK_COST_NS.store(next.max(1), global::Ordering::Relaxed);
}

impl Lock {
    /// A forked child inherits the counts of spinners that are gone: forgets them, once.
    #[inline]
    pub(super) fn adopt(&self) {
        // pairs with: the release below, so that nobody counts itself before the counts are reset.
        if self.fork.load(Ordering::Acquire) != crate::lock::parking::fork_generation() {
            self.adopt_now();
        }
    }

    #[cold]
    fn adopt_now(&self) {
        let generation = crate::lock::parking::fork_generation();
        let _queue = self.lane().lock();
        if self.fork.load(Ordering::Relaxed) != generation {
            self.line.store(0, Ordering::Relaxed);
            self.head.store(0, Ordering::Relaxed);
            // pairs with: the acquire above.
            self.fork.store(generation, Ordering::Release);
        }
    }

    /// Spins for the lock while that can pay. True if it was had.
    pub(super) fn spin(&self, wait: &Wait, stats: &mut WaitStats, key: LockKey) -> bool {
        let spinners = u32::from(self.line.load(Ordering::Relaxed) as u16);
        if !has_room(spinners, cpus()) || self.lane().bits() & CROWDED != 0 {
            return false;
        }
        // Short sections end before a place in line, which takes the cache line from the holder, or a look at the thread's
        // memory would pay.
        if spinners == 0 && self.spin_briefly(stats) {
            return true;
        }
        let mut turn = self.enter_line();
        let mut won = false;
        let memory = Memory::open(Backoff::Auto, Collision::Reset, key);
        let planned = memory.delay().wait_units(turn.place.ahead());
        let budget = spin_budget_units(park_cost_ns(), unit_ns(), memory.spin_score(), planned).min(units_left(wait));
        if budget > 0 {
            let spun = turn.drive(budget_bounds(budget as u32), memory.delay(), ()).0;
            stats.polls += spun.outcome.polls;
            won = spun.won;
            memory.close(Backoff::Auto, Collision::Reset, key, spun.outcome.delay, spun.outcome.peak, won);
        }
        turn.leave(won);
        won
    }

    /// Looks a few times while nobody is in line. Those who do so at the same time race each other, as arrivals do.
    fn spin_briefly(&self, stats: &mut WaitStats) -> bool {
        for _ in 0..BRIEF_UNITS {
            pause_units(1);
            stats.polls += 1;
            if self.line.load(Ordering::Relaxed) as u16 != 0 {
                return false;
            }
            if self.owner.load(Ordering::Relaxed) == FREE && self.raw_try_lock() {
                return true;
            }
        }
        false
    }

    /// One turn in the line of spinners, with what the mechanism did.
    #[doc(hidden)]
    pub fn spin_in_line<O: Observer>(&self, bounds: Bounds, delay: Delay, observer: O) -> (Spun, O) {
        let mut turn = self.enter_line();
        let (spun, observer) = turn.drive(bounds, delay, observer);
        turn.leave(spun.won);
        (spun, observer)
    }

    fn enter_line(&self) -> Turn<'_> {
        let before = self.line.fetch_add(ENTER, Ordering::Relaxed);
        let ticket = (before >> 16) as u16;
        if before as u16 == 0 {
            // The first of a line: the tickets of spinners that left are behind it.
            self.head.store(ticket, Ordering::Relaxed);
        }
        Turn { lock: self, ticket, place: Place::new(ticket, self.head.load(Ordering::Relaxed), patience_looks()) }
    }
}

/// A spinner in line.
struct Turn<'a> {
    lock: &'a Lock,
    ticket: u16,
    place: Place,
}

impl Turn<'_> {
    fn drive<O: Observer>(&mut self, bounds: Bounds, delay: Delay, observer: O) -> (Spun, O) {
        let (lock, place) = (self.lock, &mut self.place);
        let serving = place.serving();
        let mut waiter = Waiter::new(Backoff::Auto, bounds, TICKET, serving, delay);
        let read = || {
            let free = lock.owner.load(Ordering::Relaxed) == FREE;
            if place.looked(free, lock.head.load(Ordering::Relaxed)) && lock.raw_try_lock() {
                let head = lock.head.load(Ordering::Relaxed);
                lock.head.store(place.head_after(head), Ordering::Relaxed);
                return TICKET; // served
            }
            place.serving()
        };
        let mut mechanism = Real { read, random: 0, observer };
        let won = drive_until_idle(&mut waiter, &mut mechanism);
        (Spun { won, serving, outcome: waiter.outcome() }, mechanism.observer)
    }

    fn leave(self, won: bool) {
        if !won {
            // If it was our turn, it is our successor's now.
            let next = self.ticket.wrapping_add(1);
            let _ = self.lock.head.compare_exchange(self.ticket, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.lock.line.fetch_sub(1, Ordering::Relaxed);
    }
}

fn budget_bounds(budget: u32) -> Bounds {
    Bounds { yield_after_units: budget, yield_after_units_crowded: budget, ..bounds() }
}

/// A turn in the line of spinners.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spun {
    /// The lock was had; otherwise the budget was spent.
    pub won: bool,
    /// The number being served when it began, as the strict family's waiter with [`TICKET`] sees it.
    pub serving: u32,
    /// What the policy made of it.
    pub outcome: Outcome,
}

/// Units until the deadline.
fn units_left(wait: &Wait) -> u64 {
    wait.deadline.map_or(u64::MAX, |deadline| units_in(deadline.ns().saturating_sub(now_ns())))
}

#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
fn bounds() -> Bounds {
    Bounds::new(crate::machine::delay_cap(), cpus())
}

#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
fn bounds() -> Bounds {
    Bounds::new(16, cpus())
}
