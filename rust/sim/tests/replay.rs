//! The real lock and the simulator run the same policy: what the mechanism executed in a real wait is replayed through the
//! simulator's driver, and both must have done the same, event for event. Two planted faults must make that fail. The spinners
//! of the default lock run the strict family's policy, and are held to it in the same way.

use std::thread;
use std::time::Duration;

use ticketlock::lock::{Draw, Event, Tuning, Waited};
use ticketlock::policy::line::TICKET;
use ticketlock::policy::{Bounds, Delay, LockKey};
use ticketlock::{Backoff, Lock, TicketLock};
use ticketlock_sim::{Arrival, Costs, Recorded, Trace, wait};

const COSTS: Costs = Costs { poll: 1, yield_now: 1 };

struct RealWait {
    arrival: Arrival,
    tuning: Tuning,
    waited: Waited,
    events: Vec<Event>,
}

/// A real wait behind `ahead` tickets that another thread serves, slowly enough that the waiter polls, yields and sleeps.
fn real_wait(rule: Backoff, ahead: u32, cpus: u32) -> RealWait {
    let tuning = Tuning::new(rule).with_cap(16_000).with_cpus(cpus);
    let lock = TicketLock::starting_at(u32::MAX - 5);
    assert!(lock.raw_try_lock());
    for _ in 0..ahead {
        let Draw::Wait(_served_below) = lock.draw() else { panic!("the lock is held") };
    }
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            // A fresh thread: its delay table is empty, so every rule starts from the minimum.
            let Draw::Wait(queued) = lock.draw() else { panic!("the lock is held") };
            let serving = queued.ticket().wrapping_sub(queued.waiters_ahead() + 1); // the snapshot, not a later look
            let arrival = Arrival { ticket: queued.ticket(), serving, delay: Delay::MIN };
            let (waited, events) = lock.wait_observed(queued, &tuning, LockKey::at(64), Vec::new());
            RealWait { arrival, tuning, waited, events }
        });
        while lock.waiters() <= ahead {
            thread::yield_now();
        }
        for _ in 0..=ahead {
            thread::sleep(Duration::from_micros(300));
            // SAFETY: this thread holds the lock, and then each drawn ticket in turn.
            unsafe { lock.raw_unlock() };
        }
        waiter.join().unwrap()
    })
}

fn replay(real: &RealWait, events: &[Event]) -> Trace {
    let reads: Vec<u32> = events
        .iter()
        .filter_map(|event| match event {
            Event::Read(serving) => Some(*serving),
            _ => None,
        })
        .collect();
    let mut random = real.arrival.ticket.wrapping_mul(0x9E37_79B9);
    // The mechanism's generator, for the rules that want chance.
    let chance = move || {
        random = random.max(1);
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        random
    };
    let limit = events.len() + 10;
    wait(real.tuning.backoff, real.tuning.bounds, real.arrival, COSTS, &mut Recorded::new(&reads), chance, limit)
}

fn rules() -> Vec<Backoff> {
    ["none", "proportional:50", "proportional-v1:50", "auto", "auto-shared", "auto-v1:2", "auto-v1:2.7"]
        .iter()
        .map(|rule| rule.parse().unwrap())
        .collect()
}

#[test]
fn the_lock_does_what_the_simulator_does() {
    for rule in rules() {
        for (ahead, cpus) in [(0, 64), (1, 64), (6, 64), (6, 2)] {
            let real = real_wait(rule, ahead, cpus);
            assert!(!real.events.is_empty());
            let simulated = replay(&real, &real.events);
            assert_eq!(simulated.events, real.events, "{rule}, {ahead} ahead, {cpus} CPUs");
            assert_eq!(simulated.outcome, real.waited.outcome, "{rule}, {ahead} ahead, {cpus} CPUs");
        }
    }
}

/// A spinner of the default lock, with others ahead or alone, that gets the lock or spends its budget.
#[test]
fn a_spinner_of_the_default_lock_does_what_the_simulator_does() {
    for (ahead, hold) in [(0, 200), (3, 200), (3, 0)] {
        let lock = &Lock::new();
        assert!(lock.raw_try_lock());
        let bounds = |budget| Bounds { yield_after_units: budget, yield_after_units_crowded: budget, ..Bounds::new(16_000, 64) };
        let (spun, events) = thread::scope(|scope| {
            for before in 1..=ahead {
                scope.spawn(|| {
                    if lock.spin_in_line(bounds(u32::MAX), Delay::MIN, ()).0.won {
                        thread::sleep(Duration::from_micros(hold));
                        // SAFETY: acquired above.
                        unsafe { lock.raw_unlock() };
                    }
                });
                while lock.line_counts().2 < before {
                    thread::yield_now();
                }
            }
            // Held throughout, it ends when its budget is spent.
            let budget = if hold == 0 { 3_000 } else { u32::MAX };
            let last = scope.spawn(move || {
                let result = lock.spin_in_line(bounds(budget), Delay::MIN, Vec::new());
                if result.0.won {
                    // SAFETY: acquired above.
                    unsafe { lock.raw_unlock() };
                }
                result
            });
            if hold == 0 {
                let result = last.join().unwrap();
                // SAFETY: acquired above; the others go on.
                unsafe { lock.raw_unlock() };
                return result;
            }
            while lock.line_counts().2 <= ahead {
                thread::yield_now();
            }
            thread::sleep(Duration::from_micros(hold));
            // SAFETY: acquired above.
            unsafe { lock.raw_unlock() };
            last.join().unwrap()
        });
        assert_eq!(spun.won, hold != 0);
        let budget = if hold == 0 { 3_000 } else { u32::MAX };
        let arrival = Arrival { ticket: TICKET, serving: spun.serving, delay: Delay::MIN };
        let reads: Vec<u32> =
            events.iter().filter_map(|event| if let Event::Read(serving) = event { Some(*serving) } else { None }).collect();
        let mut recorded = Recorded::new(&reads);
        let simulated = wait(Backoff::Auto, bounds(budget), arrival, COSTS, &mut recorded, || 0, events.len());
        assert_eq!(simulated.events, events, "{ahead} ahead, held for {hold} us");
        if spun.won {
            assert_eq!(simulated.outcome, spun.outcome);
        }
    }
}

/// A mechanism that pauses one unit less than told.
#[test]
fn a_mechanism_that_pauses_short_is_found() {
    let real = real_wait(Backoff::Proportional(50), 6, 64);
    let mut faulty = real.events.clone();
    let pause = faulty.iter_mut().find_map(|event| match event {
        Event::Paused(units) if *units > 1 => Some(units),
        _ => None,
    });
    *pause.expect("a long line pauses long") -= 1;
    assert_ne!(replay(&real, &faulty).events, faulty);
}

/// A mechanism that looks twice where it was told to look once.
#[test]
fn a_mechanism_that_reads_twice_is_found() {
    let real = real_wait(Backoff::Auto, 6, 64);
    let mut faulty = real.events.clone();
    let first_read = faulty.iter().position(|event| matches!(event, Event::Read(_))).expect("a wait reads");
    faulty.insert(first_read, faulty[first_read]);
    assert_ne!(replay(&real, &faulty).events, faulty);
}
