//! One waiter of a ticket lock as a state machine.
//!
//! The driver (a lock, a simulator) alternates [`Waiter::decide`], whose [`Action`] it performs, and, after each
//! [`Action::Poll`], [`Waiter::polled`] with what it read. States:
//!
//! | phase | `decide` answers | then |
//! |---|---|---|
//! | `Waiting`, units left, budget left | `Pause(min(left, budget))` | `Waiting` |
//! | `Waiting`, units left, budget spent | `Yield`, or `Park` after a long stall | `Glance` |
//! | `Waiting`, no units left | `Poll` | `Polling`: the poll counts for tuning |
//! | `Glance` | `Poll` | `Polling`: the poll only looks, since a yield says nothing about the delay |
//! | `Served` | `Enter` | `Served` |

use super::backoff::Backoff;
use super::constants::{
    CAP_STORABLE_UNITS, CAP_V1_UNITS, PARK_AFTER_UNITS, PARK_UNITS, YIELD_AFTER_UNITS, YIELD_AFTER_UNITS_CROWDED,
    YIELD_COST_UNITS,
};
use super::delay::Delay;

/// What the driver does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Spin this many units. Counted in loops, never in time: a preempted waiter finishes them later.
    Pause(u64),
    /// Read the number being served and report it with [`Waiter::polled`].
    Poll,
    /// Give the CPU to another runnable thread.
    Yield,
    /// Sleep about this many units, or until kicked where the lock has kicks.
    Park(u64),
    /// The lock is ours.
    Enter,
}

/// The surroundings that a rule needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Largest delay, in units (1 to [`CAP_STORABLE_UNITS`]).
    pub cap_units: u32,
    /// CPUs that this process can use at once (at least 1).
    pub cpus: u32,
    /// Units before a yield while everybody in line can be running.
    pub yield_after_units: u32,
    /// Units before a yield while the line is longer than the CPUs.
    pub yield_after_units_crowded: u32,
    /// Units without progress of the line before sleeping.
    pub park_after_units: u32,
    /// Length of such a sleep, in units.
    pub park_units: u32,
}

impl Bounds {
    /// The default bounds for a cap and a number of usable CPUs; values out of range are clamped.
    #[must_use]
    pub const fn new(cap_units: u32, cpus: u32) -> Self {
        Self {
            cap_units: if cap_units == 0 {
                1
            } else if cap_units > CAP_STORABLE_UNITS {
                CAP_STORABLE_UNITS
            } else {
                cap_units
            },
            cpus: if cpus == 0 { 1 } else { cpus },
            yield_after_units: YIELD_AFTER_UNITS,
            yield_after_units_crowded: YIELD_AFTER_UNITS_CROWDED,
            park_after_units: PARK_AFTER_UNITS,
            park_units: PARK_UNITS,
        }
    }
}

/// What a finished wait was like: counts for statistics, and the delay to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The delay to store for this lock.
    pub delay: Delay,
    /// The largest delay during this wait.
    pub peak: Delay,
    /// Reads of the number being served.
    pub polls: u64,
    /// Units asked to pause.
    pub units: u64,
    /// Yields.
    pub yields: u64,
    /// Sleeps.
    pub parks: u64,
    /// The last planned wait ended after the lock was already ours.
    pub overslept: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Glance,
    Polling { counts: bool },
    Served,
}

/// One waiter. See the [module](self) for its states.
#[derive(Debug, Clone, Copy)]
pub struct Waiter {
    rule: Backoff,
    bounds: Bounds,
    ticket: u32,
    serving: u32,
    ahead: u32,
    left: u64,
    budget: u64,
    /// Units without progress of the line, yields at their cost.
    stalled: u64,
    phase: Phase,
    outcome: Outcome,
}

impl Waiter {
    /// A waiter that drew `ticket` and saw `serving`. The first distance is computed from that same snapshot: a second
    /// read could equal the ticket, and `ticket - serving - 1` would underflow to four billion.
    /// `delay` is the stored one (ignored by rules without tuning).
    #[must_use]
    #[inline]
    pub fn new(rule: Backoff, bounds: Bounds, ticket: u32, serving: u32, delay: Delay) -> Self {
        let mut waiter = Self {
            rule,
            bounds,
            ticket,
            serving,
            ahead: 0,
            left: 0,
            budget: 0,
            stalled: 0,
            phase: Phase::Served,
            outcome: Outcome { delay, peak: delay, polls: 0, units: 0, yields: 0, parks: 0, overslept: false },
        };
        if let Some(ahead) = waiters_ahead(ticket, serving) {
            waiter.ahead = ahead;
            waiter.budget = waiter.full_budget();
            waiter.phase = Phase::Waiting;
            waiter.plan();
        }
        waiter
    }

    /// The next thing to do.
    #[inline]
    pub fn decide(&mut self) -> Action {
        match self.phase {
            Phase::Served => Action::Enter,
            Phase::Glance => {
                self.phase = Phase::Polling { counts: false };
                Action::Poll
            }
            Phase::Polling { counts } => {
                // Asked again without an answer: the poll is still due.
                debug_assert!(false, "Waiter::decide called before Waiter::polled");
                self.phase = Phase::Polling { counts };
                Action::Poll
            }
            Phase::Waiting if self.left == 0 => {
                self.phase = Phase::Polling { counts: true };
                Action::Poll
            }
            Phase::Waiting if self.budget == 0 => {
                self.budget = self.full_budget();
                self.phase = Phase::Glance;
                if self.stalled >= u64::from(self.bounds.park_after_units) {
                    self.outcome.parks += 1;
                    Action::Park(u64::from(self.bounds.park_units))
                } else {
                    self.stalled += u64::from(YIELD_COST_UNITS);
                    self.outcome.yields += 1;
                    Action::Yield
                }
            }
            Phase::Waiting => {
                let units = self.left.min(self.budget);
                self.left -= units;
                self.budget -= units;
                self.stalled += units;
                self.outcome.units += units;
                Action::Pause(units)
            }
        }
    }

    /// The answer to [`Action::Poll`]. `chance` is uniform over `u32`; only rules with [`Backoff::wants_chance`] look at it.
    #[inline]
    pub fn polled(&mut self, serving: u32, chance: u32) {
        let counts = matches!(self.phase, Phase::Polling { counts: true });
        self.outcome.polls += 1;
        if serving != self.serving {
            self.serving = serving;
            self.stalled = 0;
        }
        let Some(ahead) = waiters_ahead(self.ticket, serving) else {
            if counts {
                self.woke_served();
            }
            self.phase = Phase::Served;
            return;
        };
        // A line never grows ahead of a ticket; a smaller distance shortens the rest of a wait that a yield cut.
        self.ahead = ahead;
        self.budget = self.budget.min(self.full_budget());
        self.phase = Phase::Waiting;
        if counts {
            self.woke_early(chance);
            self.plan();
        } else {
            self.left = self.left.min(self.planned_units());
        }
    }

    /// Waiters before this one, from the last look.
    #[must_use]
    pub fn waiters_ahead(&self) -> u32 {
        self.ahead
    }

    /// The counts so far, and the delay to keep.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Plans the next wait; the series grows the delay before every one, the first included.
    #[inline]
    fn plan(&mut self) {
        if matches!(self.rule, Backoff::Auto | Backoff::AutoShared) && self.ahead > 0 {
            self.set_delay(self.outcome.delay.grown(self.bounds.cap_units));
        }
        self.left = self.planned_units();
    }

    #[inline]
    fn planned_units(&self) -> u64 {
        let units = match self.rule {
            Backoff::None => 1,
            Backoff::Proportional(factor) => u64::from(factor) * u64::from(self.ahead),
            Backoff::ProportionalV1(factor) => u64::from(factor) * (u64::from(self.ahead) + 1),
            Backoff::Auto | Backoff::AutoShared => self.outcome.delay.wait_units(self.ahead),
            Backoff::AutoV1(_) => self.outcome.delay.wait_units(self.ahead.saturating_add(1)),
        };
        units.max(1)
    }

    #[inline]
    fn woke_early(&mut self, chance: u32) {
        if let Backoff::AutoV1(target) = self.rule {
            if chance % 8 < target.growth_eighths() {
                self.set_delay(self.outcome.delay.stepped_up(self.bounds.cap_units.min(CAP_V1_UNITS)));
            }
        }
    }

    #[inline]
    fn woke_served(&mut self) {
        match self.rule {
            // The next in line polls tightly: it cannot oversleep, and does not tune.
            Backoff::Auto | Backoff::AutoShared if self.ahead > 0 => {
                self.outcome.overslept = true;
                self.outcome.delay = self.outcome.delay.decayed();
            }
            Backoff::AutoV1(_) => {
                self.outcome.overslept = true;
                self.outcome.delay = self.outcome.delay.stepped_down();
            }
            _ => {}
        }
    }

    #[inline]
    fn set_delay(&mut self, delay: Delay) {
        self.outcome.delay = delay;
        if delay > self.outcome.peak {
            self.outcome.peak = delay;
        }
    }

    /// The line is the holder, the waiters ahead and this one.
    #[inline]
    fn full_budget(&self) -> u64 {
        let line = u64::from(self.ahead) + 2;
        u64::from(if line > u64::from(self.bounds.cpus) {
            self.bounds.yield_after_units_crowded
        } else {
            self.bounds.yield_after_units
        })
    }
}

/// Waiters between the one being served and `ticket`, or `None` if the ticket's turn has come. Wraps with the tickets, for
/// lines of up to 2^31 - 1, and is total for every pair of numbers.
///
/// A ticket already passed counts as served: with checked releases another thread may release an acquisition before its
/// waiter has noticed the grant, and the waiter must not wait for a number that will not come again.
#[must_use]
#[inline]
pub const fn waiters_ahead(ticket: u32, serving: u32) -> Option<u32> {
    let distance = ticket.wrapping_sub(serving);
    if distance == 0 || distance > i32::MAX as u32 { None } else { Some(distance - 1) }
}

#[cfg(test)]
mod tests {
    use super::super::backoff::PollTarget;
    use super::*;
    use Action::{Enter, Park, Pause, Poll, Yield};

    const WIDE: Bounds = Bounds::new(16_000, 64);

    /// Runs a waiter against a list of poll answers (the last repeats); returns the actions, `Enter` last.
    fn run(rule: Backoff, bounds: Bounds, ticket: u32, first: u32, answers: &[u32]) -> (Vec<Action>, Outcome) {
        let mut waiter = Waiter::new(rule, bounds, ticket, first, Delay::MIN);
        let (mut actions, mut answers) = (Vec::new(), answers.iter());
        loop {
            let action = waiter.decide();
            actions.push(action);
            match action {
                Action::Enter => return (actions, waiter.outcome()),
                Action::Poll => waiter.polled(*answers.next().expect("more polls than answers"), 0),
                _ => {}
            }
        }
    }

    #[test]
    fn plain_polls_with_one_pause() {
        let (actions, _) = run(Backoff::None, WIDE, 5, 2, &[2, 3, 5]);
        assert_eq!(actions, [Pause(1), Poll, Pause(1), Poll, Pause(1), Poll, Enter]);
    }

    #[test]
    fn proportional_waits_by_distance_and_polls_tightly_when_next() {
        let (actions, _) = run(Backoff::Proportional(50), WIDE, 3, 0, &[1, 2, 3]);
        assert_eq!(actions, [Pause(100), Poll, Pause(50), Poll, Pause(1), Poll, Enter]);
        let (actions, _) = run(Backoff::ProportionalV1(50), WIDE, 3, 0, &[1, 2, 3]);
        assert_eq!(actions, [Pause(150), Poll, Pause(100), Poll, Pause(50), Poll, Enter]);
    }

    /// Hand-computed: ticket 9, 7 ahead: grow to 292, wait 292*7/256 = 7; 6 ahead: 328, 7; then served: overslept, below two units.
    #[test]
    fn auto_grows_before_every_wait_and_decays_after_oversleeping() {
        let (actions, outcome) = run(Backoff::Auto, WIDE, 9, 1, &[2, 9]);
        assert_eq!(actions, [Pause(7), Poll, Pause(7), Poll, Enter]);
        assert!(outcome.overslept);
        assert_eq!((outcome.delay.bits(), outcome.peak.bits()), (328, 328));
        let mut waiter = Waiter::new(Backoff::Auto, WIDE, 9, 1, Delay::from_units(100));
        assert_eq!(waiter.decide(), Pause((25_600 + 36) * 7 / 256));
        assert_eq!(waiter.decide(), Poll);
        waiter.polled(9, 0);
        assert_eq!(waiter.outcome().delay.bits(), 25_636 - 25_636 / 32);
        assert_eq!(waiter.outcome().peak.bits(), 25_636);
    }

    #[test]
    fn the_next_in_line_does_not_tune() {
        let (actions, outcome) = run(Backoff::Auto, WIDE, 1, 0, &[0, 0, 1]);
        assert_eq!(actions.iter().filter(|a| **a == Action::Poll).count(), 3);
        assert_eq!((outcome.delay, outcome.overslept), (Delay::MIN, false));
    }

    #[test]
    fn v1_steps_by_chance_and_the_next_in_line_sleeps() {
        let rule = Backoff::AutoV1(PollTarget::TwoPointSeven);
        let mut waiter = Waiter::new(rule, WIDE, 1, 0, Delay::from_units(10));
        assert_eq!(waiter.decide(), Action::Pause(10));
        waiter.decide();
        waiter.polled(0, 2); // 2 % 8 < 3: up
        assert_eq!(waiter.outcome().delay, Delay::from_units(11));
        assert_eq!(waiter.decide(), Action::Pause(11));
        waiter.decide();
        waiter.polled(0, 3); // 3 % 8 >= 3: stays
        assert_eq!(waiter.outcome().delay, Delay::from_units(11));
        waiter.decide();
        waiter.decide();
        waiter.polled(1, 0);
        assert_eq!(waiter.outcome().delay, Delay::from_units(10));
    }

    #[test]
    fn a_spent_budget_yields_and_a_long_stall_parks() {
        let bounds = Bounds { yield_after_units: 4, park_after_units: 2 * (4 + YIELD_COST_UNITS), park_units: 9, ..WIDE };
        let (actions, outcome) = run(Backoff::Proportional(10), bounds, 2, 0, &[0, 0, 1, 2]);
        // 10 units: 4, yield, look, 4, yield, look, 2 more of the budget of 4, poll (one step on), tight, served.
        assert_eq!(actions, [Pause(4), Yield, Poll, Pause(4), Yield, Poll, Pause(2), Poll, Pause(1), Poll, Enter]);
        assert_eq!((outcome.yields, outcome.parks), (2, 0));
        let mut waiter = Waiter::new(Backoff::None, bounds, 1, 0, Delay::MIN);
        let mut parked = None;
        for step in 0..200 {
            match waiter.decide() {
                Poll => waiter.polled(0, 0),
                Park(units) => {
                    parked.get_or_insert((step, units));
                }
                _ => {}
            }
        }
        assert_eq!(parked.expect("never parked").1, 9);
        assert_eq!(waiter.outcome().yields, 2);
    }

    #[test]
    fn a_glance_after_a_yield_does_not_tune() {
        let bounds = Bounds { yield_after_units_crowded: 4, cpus: 1, ..WIDE };
        let mut waiter = Waiter::new(Backoff::Auto, bounds, 9, 0, Delay::from_units(100));
        assert_eq!(waiter.decide(), Action::Pause(4));
        assert_eq!(waiter.decide(), Action::Yield);
        assert_eq!(waiter.decide(), Action::Poll);
        waiter.polled(9, 0);
        assert_eq!(waiter.decide(), Action::Enter);
        assert!(!waiter.outcome().overslept);
        assert_eq!(waiter.outcome().delay.bits(), 25_636);
    }

    #[test]
    fn a_ticket_already_passed_enters() {
        assert_eq!(waiters_ahead(1, 2), None);
        assert_eq!(waiters_ahead(u32::MAX, 0), None);
        assert_eq!(waiters_ahead(0, u32::MAX), Some(0));
        assert_eq!(waiters_ahead(i32::MAX as u32, 0), Some(i32::MAX as u32 - 1));
    }

    #[test]
    fn served_on_arrival_enters() {
        let mut waiter = Waiter::new(Backoff::Auto, WIDE, 7, 7, Delay::MIN);
        assert_eq!(waiter.decide(), Action::Enter);
    }
}
