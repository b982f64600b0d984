//! Drives the lock crate's wait policies with a virtual clock.
//!
//! The policy code is the lock's own ([`ticketlock::policy`]); only the driver differs: where the lock pauses, this one
//! charges units to a clock. One waiter stands in front of a [`Line`] that says which ticket is served at which moment. Time
//! is in policy units and integer, so a run is a pure function of its arguments.

#![forbid(unsafe_code)]

use ticketlock::lock::Event;
use ticketlock::policy::{Action, Backoff, Bounds, Delay, Outcome, Waiter};

/// What single steps cost on the simulated machine, in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// One read of the number being served.
    pub poll: u64,
    /// One yield with nobody else runnable.
    pub yield_now: u64,
}

/// What is served when.
pub trait Line {
    /// The number being served at `now` (units since the waiter came); asked with growing `now`.
    fn serving(&mut self, now: u64) -> u32;
}

/// A line in which each ticket is served for `hold` units, from `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steady {
    /// The number served at time 0.
    pub first: u32,
    /// Units from one hand-over to the next; at least 1.
    pub hold: u64,
}

impl Line for Steady {
    fn serving(&mut self, now: u64) -> u32 {
        self.first.wrapping_add((now / self.hold.max(1)) as u32)
    }
}

/// The line that a real lock's waiter saw: each read gives the next recorded number.
#[derive(Debug, Clone)]
pub struct Recorded<'a> {
    reads: std::iter::Copied<std::slice::Iter<'a, u32>>,
    last: u32,
}

impl<'a> Recorded<'a> {
    /// The reads in order; when they are used up, the last one repeats.
    #[must_use]
    pub fn new(reads: &'a [u32]) -> Self {
        Self { reads: reads.iter().copied(), last: reads.last().copied().unwrap_or_default() }
    }
}

impl Line for Recorded<'_> {
    fn serving(&mut self, _now: u64) -> u32 {
        self.reads.next().unwrap_or(self.last)
    }
}

/// One simulated wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// What the waiter did.
    pub events: Vec<Event>,
    /// How long it took, in units.
    pub elapsed: u64,
    /// What the policy made of it.
    pub outcome: Outcome,
}

/// Where a waiter starts: as in a real lock, from the snapshot that proved it must wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The ticket drawn.
    pub ticket: u32,
    /// The number served when it was drawn.
    pub serving: u32,
    /// The delay its thread remembers for this lock.
    pub delay: Delay,
}

/// Runs one waiter until it is served or has taken `max_events` steps; `chance` gives a random number per poll.
pub fn wait(
    rule: Backoff,
    bounds: Bounds,
    arrival: Arrival,
    costs: Costs,
    line: &mut impl Line,
    mut chance: impl FnMut() -> u32,
    max_events: usize,
) -> Trace {
    let mut waiter = Waiter::new(rule, bounds, arrival.ticket, arrival.serving, arrival.delay);
    let (mut events, mut now) = (Vec::new(), 0u64);
    while events.len() < max_events {
        let event = match waiter.decide() {
            Action::Enter => break,
            Action::Pause(units) => {
                now += units;
                Event::Paused(units)
            }
            Action::Yield => {
                now += costs.yield_now;
                Event::Yielded
            }
            Action::Park(units) => {
                now += units;
                Event::Parked(units)
            }
            Action::Poll => {
                now += costs.poll;
                let serving = line.serving(now);
                waiter.polled(serving, chance());
                Event::Read(serving)
            }
        };
        events.push(event);
    }
    Trace { events, elapsed: now, outcome: waiter.outcome() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { poll: 1, yield_now: 100 };

    fn polls(rule: Backoff, delay: u32) -> (u64, u64) {
        let arrival = Arrival { ticket: 23, serving: 0, delay: Delay::from_units(delay) };
        let mut line = Steady { first: 0, hold: 45 };
        let trace = wait(rule, Bounds::new(16_000, 64), arrival, COSTS, &mut line, || 0, 1_000_000);
        (trace.outcome.polls, trace.elapsed - 23 * 45)
    }

    /// With a factor near the hold time, a far waiter polls about once per halving of its distance; a plain one at each unit.
    #[test]
    fn proportional_delay_saves_most_polls() {
        let (plain, _) = polls(Backoff::None, 1);
        let (proportional, late) = polls(Backoff::Proportional(40), 1);
        assert!(plain > 500, "{plain}");
        assert!(proportional * 10 < plain, "{proportional} against {plain}");
        assert!(late <= 45, "woke {late} units after being served");
    }

    #[test]
    fn a_run_is_a_function_of_its_arguments() {
        assert_eq!(polls(Backoff::Auto, 50), polls(Backoff::Auto, 50));
    }

    /// The published rule settles where growth by failed polls and decay by oversleeping balance: far above the minimum,
    /// not far above the hold time.
    #[test]
    fn the_tuned_delay_settles_near_the_hold_time() {
        let mut delay = Delay::MIN;
        for _ in 0..2_000 {
            let arrival = Arrival { ticket: 23, serving: 0, delay };
            let mut line = Steady { first: 0, hold: 45 };
            delay = wait(Backoff::Auto, Bounds::new(16_000, 64), arrival, COSTS, &mut line, || 0, 100_000).outcome.delay;
        }
        assert!((20.0..=90.0).contains(&delay.units()), "settled at {}", delay.units());
    }
}
