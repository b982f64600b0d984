//! Properties of the wait policies, over random rules, tickets and lines.
#![cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]

use std::cell::Cell;
use std::collections::HashMap;

use proptest::prelude::*;
use ticketlock::policy::constants::{CAP_NATIVE_UNITS, DELAY_GROWTH, DELAY_ONE};
use ticketlock::policy::table::TABLE_WORDS;
use ticketlock::policy::wait::waiters_ahead;
use ticketlock::policy::{Action, Backoff, Bounds, Collision, Delay, DelayTable, LockKey, Outcome, PollTarget, Waiter, Words};

fn rule() -> impl Strategy<Value = Backoff> {
    prop_oneof![
        Just(Backoff::None),
        (1..=Backoff::MAX_FACTOR).prop_map(Backoff::Proportional),
        (1..=Backoff::MAX_FACTOR).prop_map(Backoff::ProportionalV1),
        Just(Backoff::Auto),
        Just(Backoff::AutoShared),
        Just(Backoff::AutoV1(PollTarget::Two)),
        Just(Backoff::AutoV1(PollTarget::TwoPointSeven)),
    ]
}

fn delay() -> impl Strategy<Value = Delay> {
    (DELAY_ONE..=CAP_NATIVE_UNITS * DELAY_ONE).prop_map(Delay::from_bits)
}

/// Units of the first planned wait: the pauses before the first poll.
fn first_wait(rule: Backoff, ahead: u32, delay: Delay) -> u64 {
    let bounds = Bounds { yield_after_units: u32::MAX, yield_after_units_crowded: u32::MAX, ..Bounds::new(CAP_NATIVE_UNITS, 4) };
    let mut waiter = Waiter::new(rule, bounds, ahead + 1, 0, delay);
    let mut units = 0;
    loop {
        match waiter.decide() {
            Action::Pause(n) => units += n,
            Action::Poll => return units,
            Action::Yield | Action::Park(_) => {
                waiter.decide();
                waiter.polled(0, 0);
            }
            Action::Enter => unreachable!("somebody is ahead"),
        }
    }
}

/// Runs a waiter whose line moves by `steps` per poll (the last step repeats as 1).
fn run(rule: Backoff, bounds: Bounds, ticket: u32, first: u32, delay: Delay, steps: &[u32]) -> (Outcome, Vec<Action>) {
    let mut waiter = Waiter::new(rule, bounds, ticket, first, delay);
    let (mut serving, mut steps, mut actions) = (first, steps.iter().copied(), Vec::new());
    loop {
        let action = waiter.decide();
        actions.push(action);
        match action {
            Action::Enter => return (waiter.outcome(), actions),
            Action::Poll => {
                let left = ticket.wrapping_sub(serving);
                serving = serving.wrapping_add(steps.next().unwrap_or(1).min(left));
                waiter.polled(serving, serving.wrapping_mul(0x9E37_79B9));
            }
            _ => {}
        }
        assert!(actions.len() < 5_000_000, "does not end");
    }
}

proptest! {
    /// Every pair of numbers has an answer, and it is the wrapped distance.
    #[test]
    fn no_pair_underflows(ticket: u32, serving: u32) {
        match waiters_ahead(ticket, serving) {
            None => prop_assert!(ticket == serving || ticket.wrapping_sub(serving) > i32::MAX as u32),
            Some(ahead) => prop_assert_eq!(serving.wrapping_add(ahead).wrapping_add(1), ticket),
        }
    }

    /// The first wait follows from the snapshot alone, whatever the tickets; more waiters ahead never mean a shorter one.
    #[test]
    fn waits_grow_with_the_line(rule in rule(), delay in delay(), near in 0u32..5_000, more in 0u32..5_000) {
        prop_assert!(first_wait(rule, near, delay) <= first_wait(rule, near + more, delay));
    }

    /// The exact wait of each rule.
    #[test]
    fn waits_are_proportional(ahead in 1u32..100_000, delay in delay(), factor in 1u32..=Backoff::MAX_FACTOR) {
        let (ahead64, factor64) = (u64::from(ahead), u64::from(factor));
        prop_assert_eq!(first_wait(Backoff::None, ahead, delay), 1);
        prop_assert_eq!(first_wait(Backoff::Proportional(factor), ahead, delay), factor64 * ahead64);
        prop_assert_eq!(first_wait(Backoff::ProportionalV1(factor), ahead, delay), factor64 * (ahead64 + 1));
        let grown = if delay.bits() < CAP_NATIVE_UNITS * DELAY_ONE { delay.bits() + DELAY_GROWTH } else { delay.bits() };
        prop_assert_eq!(first_wait(Backoff::Auto, ahead, delay), (u64::from(grown) * ahead64) >> 8);
        let v1 = Backoff::AutoV1(PollTarget::Two);
        prop_assert_eq!(first_wait(v1, ahead, delay), (u64::from(delay.bits()) * (ahead64 + 1)) >> 8);
    }

    /// The next in line polls with one pause, except under the v1 rules.
    #[test]
    fn the_next_in_line_polls_tightly(delay in delay()) {
        for rule in [Backoff::None, Backoff::Proportional(250), Backoff::Auto, Backoff::AutoShared] {
            prop_assert_eq!(first_wait(rule, 0, delay), 1);
        }
        prop_assert_eq!(first_wait(Backoff::ProportionalV1(250), 0, delay), 250);
    }

    /// Every wait ends when its turn comes, polls at least once, and leaves a delay within bounds; tickets wrap freely.
    #[test]
    fn every_wait_ends_within_bounds(
        rule in rule(), first: u32, ahead in 0u32..300, delay in delay(), cap in 1u32..=16_000, cpus in 1u32..64,
        steps in prop::collection::vec(0u32..4, 0..40),
    ) {
        let mut bounds = Bounds::new(cap, cpus);
        bounds.yield_after_units = 1_000_000_000; // keep the action lists short
        bounds.yield_after_units_crowded = 1_000_000_000;
        let ticket = first.wrapping_add(ahead).wrapping_add(1);
        let (outcome, actions) = run(rule, bounds, ticket, first, delay, &steps);
        prop_assert_eq!(actions.last(), Some(&Action::Enter));
        prop_assert!(outcome.polls >= 1);
        prop_assert!(outcome.delay >= Delay::MIN);
        let ceiling = delay.bits().max(cap * DELAY_ONE + DELAY_GROWTH);
        prop_assert!(outcome.peak.bits() <= ceiling, "{} over {}", outcome.peak.bits(), ceiling);
        prop_assert!(outcome.delay <= outcome.peak);
        if !rule.is_tuned() {
            prop_assert_eq!(outcome.delay, delay);
        }
    }

    /// However the line stalls, a waiter gives the CPU away after its budget, and looks before it goes on.
    #[test]
    fn a_budget_is_never_overspent(rule in rule(), ahead in 0u32..200, budget in 1u32..500, cpus in 1u32..8) {
        let bounds = Bounds { yield_after_units: budget, yield_after_units_crowded: budget, ..Bounds::new(16_000, cpus) };
        let mut waiter = Waiter::new(rule, bounds, ahead + 1, 0, Delay::MIN);
        let (mut spent, mut looked) = (0u64, true);
        for _ in 0..5_000 {
            match waiter.decide() {
                Action::Pause(n) => {
                    prop_assert!(looked, "paused after a yield without looking");
                    spent += n;
                    prop_assert!(spent <= u64::from(budget));
                }
                Action::Yield | Action::Park(_) => { spent = 0; looked = false; }
                Action::Poll => { waiter.polled(0, 7); looked = true; }
                Action::Enter => prop_assert!(false, "entered a stalled line"),
            }
        }
        prop_assert!(waiter.outcome().yields > 0);
    }

    /// Growth and decay stay within one step of their published size.
    #[test]
    fn steps_are_small(delay in delay(), cap in 1u32..=16_000) {
        let grown = delay.grown(cap).bits();
        prop_assert!(grown == delay.bits() || (grown == delay.bits() + DELAY_GROWTH && delay.bits() < cap * DELAY_ONE));
        let decayed = delay.decayed().bits();
        prop_assert!(decayed >= DELAY_ONE);
        prop_assert!(delay.bits() - decayed <= (delay.bits() / 32).max(DELAY_ONE));
    }

    /// A table agrees with a map in which a slot remembers its last lock.
    #[test]
    fn a_table_is_a_map_with_collisions(ops in prop::collection::vec((0u64..400, 1u32..16_000), 1..300), inherit: bool) {
        struct Cells(Vec<Cell<u64>>);
        impl Words for Cells {
            fn get(&self, index: usize) -> u64 { self.0[index].get() }
            fn set(&self, index: usize, value: u64) { self.0[index].set(value); }
        }
        let cells = Cells(vec![Cell::new(0); TABLE_WORDS]);
        let rule = if inherit { Collision::Inherit } else { Collision::Reset };
        let table = DelayTable::new(&cells, rule);
        let mut model: HashMap<usize, (u64, Delay)> = HashMap::new();
        let (mut hits, mut collisions) = (0, 0);
        for (n, units) in ops {
            let key = LockKey::new(0x5555_0000_0000 + n * 16, n + 1, 0);
            let opened = table.open(key);
            let expected = match model.get(&key.slot()) {
                Some((id, delay)) if *id == key.id() => { hits += 1; *delay }
                Some((_, delay)) => { collisions += 1; if inherit { *delay } else { Delay::MIN } }
                None => Delay::MIN,
            };
            prop_assert_eq!(opened.delay, expected);
            table.close(key, opened, Delay::from_units(units), true);
            model.insert(key.slot(), (key.id(), Delay::from_units(units)));
        }
        let used: Vec<_> = table.used().collect();
        prop_assert_eq!(used.len(), model.len());
        prop_assert_eq!(used.iter().map(|s| s.hits).sum::<u32>(), hits);
        prop_assert_eq!(used.iter().map(|s| s.collisions).sum::<u32>(), collisions);
    }

    /// Names read back.
    #[test]
    fn names_read_back(rule in rule()) {
        prop_assert_eq!(rule.to_string().parse(), Ok(rule));
    }
}
