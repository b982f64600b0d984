//! Checks that a lock is one, before its figures are believed. The same bodies for every adapter.

use core::cell::UnsafeCell;
use std::sync::Arc;
use std::time::Duration;

use crate::adapter::{Adapter, Overrides, Task, dispatch};
use crate::clock::Clock;
use crate::crew::{self, Plan};
use crate::gate::{Gate, Member};
use crate::lock_id::LockSpec;
use crate::order::Random;
use crate::spec::{BenchError, MAX_SECONDS, MAX_THREADS};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::validity::Waiting;
use crate::work::Work;

/// How long the threads of a check may take to come back.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time limit of a timed acquisition: short enough to run out now and then.
const TIMED_LIMIT: Duration = Duration::from_micros(50);

/// One section in so many lets others run in its middle, so that a broken lock shows itself on one CPU too.
const YIELD_ONE_IN: usize = 64;

fn plan(threads: usize) -> Plan<'static> {
    Plan { threads, cpus: &[], seconds: MAX_SECONDS, waiting: Waiting::Sleeping, patience: PATIENCE, cancel: &|| false }
}

/// Makes `threads` threads take the lock `iterations` times together (by waiting, by trying and with a time limit, where the
/// lock has these), and looks for two of them inside at once.
///
/// # Errors
/// A sentence: what is wrong with the lock or the arguments.
pub fn check_exclusion(lock: &LockSpec, threads: usize, iterations: u64) -> Result<(), String> {
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(format!("threads must be 1 to {MAX_THREADS}, not {threads}"));
    }
    Check::Exclusion { threads, iterations }.of(*lock)
}

/// Lets threads arrive one after another at a held lock, `trials` times, and looks whether they are served in that order.
/// For locks that claim to be fair. Judged by the majority of trials, since a thread may lose its CPU on its way in, and
/// after a trial out of order the arrivals get further apart.
///
/// # Errors
/// A sentence: what is wrong with the lock.
pub fn check_service_order(lock: &LockSpec, trials: u32) -> Result<(), String> {
    Check::ServiceOrder { trials }.of(*lock)
}

/// Looks for acquisitions that take milliseconds though nobody competes. What the scheduler does to the thread is told apart
/// by interleaving the same number of turns without the lock.
///
/// # Errors
/// A sentence: what is wrong with the lock.
pub fn check_stalls(lock: &LockSpec, turns: u32) -> Result<(), String> {
    Check::Stalls { turns }.of(*lock)
}

#[derive(Clone, Copy)]
enum Check {
    Exclusion { threads: usize, iterations: u64 },
    ServiceOrder { trials: u32 },
    Stalls { turns: u32 },
}

impl Check {
    fn of(self, lock: LockSpec) -> Result<(), String> {
        dispatch(lock, Overrides::default(), self)
            .unwrap_or_else(|| Err("does not exist on this platform".to_owned()))
            .map_err(|fault| format!("lock '{lock}': {fault}"))
    }
}

impl Task for Check {
    type Out = Result<(), String>;

    fn run<A: Adapter>(self, config: A::Config) -> Self::Out {
        match self {
            Self::Exclusion { threads, iterations } => exclusion::<A>(config, threads, iterations),
            Self::ServiceOrder { trials } => service_order::<A>(&config, trials),
            Self::Stalls { turns } => stalls::<A>(&config, turns),
        }
    }
}

/// What a lock guards during a check.
struct Shared<A> {
    lock: A,
    /// Not atomic: two threads inside lose increments.
    counter: UnsafeCell<u64>,
    /// Number of the thread inside, plus one; 0 for nobody. Atomic, so that looking is no race of the check itself.
    inside: AtomicUsize,
    caught: AtomicBool,
}

// SAFETY: `counter` is touched only through the volatile accesses of `section`, by the thread that the lock let in. If the
// lock is broken these race; that is what the check is for, and it then fails.
unsafe impl<A: Adapter> Sync for Shared<A> {}

pub(crate) fn exclusion<A: Adapter>(config: A::Config, threads: usize, iterations: u64) -> Result<(), String> {
    let shared = Arc::new(Shared {
        lock: A::new(),
        counter: UnsafeCell::new(0),
        inside: AtomicUsize::new(0),
        caught: AtomicBool::new(false),
    });
    let left = Arc::new(AtomicU64::new(iterations));
    let field = Arc::clone(&shared);
    let finished = crew::run(&plan(threads), move |member: &Member<'_>| {
        let mut ctx = A::ctx(&config);
        let mut random = Random::new(u64::from(member.me));
        let shift = member.begin()?;
        let mut entered = 0_u64;
        // A budget that all draw from: a thread that is kept out does not make the check endless.
        while !member.gate.stopped() && left.load(Ordering::Relaxed) > 0 {
            if attempt(&field, &mut ctx, member.me, &mut random) {
                entered += 1;
                let _ = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            }
        }
        Some((entered, shift.end()))
    });
    let entered: u64 = finished.map_err(|error| error.to_string())?.threads.iter().sum();
    let shared = Arc::into_inner(shared).expect("all threads are done");
    let counted = shared.counter.into_inner();
    if shared.caught.into_inner() {
        return Err("two threads held it at once".to_owned());
    }
    if counted != entered {
        return Err(format!("two threads held it at once: {entered} acquisitions counted {counted}"));
    }
    Ok(())
}

/// One acquisition in one of the lock's ways; false if it came to nothing.
fn attempt<A: Adapter>(shared: &Shared<A>, ctx: &mut A::Ctx, me: u32, random: &mut Random) -> bool {
    let held = match random.below(4) {
        0 if A::TRY => shared.lock.try_lock(ctx),
        1 if A::TIMED => shared.lock.lock_for(ctx, TIMED_LIMIT),
        _ => Some(shared.lock.lock(ctx)),
    };
    let Some(held) = held else {
        std::thread::yield_now();
        return false;
    };
    section(shared, me, random);
    drop(held);
    true
}

fn section<A>(shared: &Shared<A>, me: u32, random: &mut Random) {
    let mine = me as usize + 1;
    // Relaxed: a working lock orders these; a broken one is caught by their values.
    let before = shared.inside.swap(mine, Ordering::Relaxed);
    // SAFETY: see the `Sync` of `Shared`.
    let counted = unsafe { shared.counter.get().read_volatile() };
    if random.below(YIELD_ONE_IN) == 0 {
        std::thread::yield_now();
    }
    // SAFETY: as above.
    unsafe { shared.counter.get().write_volatile(counted + 1) };
    if before != 0 || shared.inside.swap(0, Ordering::Relaxed) != mine {
        shared.caught.store(true, Ordering::Relaxed);
    }
}

/// Threads that queue up in one trial. Three: the last of them is first in a lock that serves the latest.
const QUEUE: usize = 3;

/// First time between two arrivals: a waiter has then long stopped spinning and is where its lock keeps it, unless the
/// machine is busy; and the longest one.
const BETWEEN_ARRIVALS: Duration = Duration::from_millis(3);
const BETWEEN_ARRIVALS_MOST: Duration = Duration::from_millis(50);

/// Sleep between two looks for one's turn to arrive.
const LOOK: Duration = Duration::from_micros(300);

struct Queue<A> {
    lock: A,
    arriving: AtomicUsize,
    served: AtomicUsize,
    places: [AtomicUsize; QUEUE],
}

pub(crate) fn service_order<A: Adapter>(config: &A::Config, trials: u32) -> Result<(), String> {
    let (mut wrong, mut apart) = (0, BETWEEN_ARRIVALS);
    for _ in 0..trials {
        let places = one_queue::<A>(config.clone(), apart).map_err(|error| error.to_string())?;
        if places.windows(2).any(|pair| pair[0] > pair[1]) {
            wrong += 1;
            apart = (apart * 2).min(BETWEEN_ARRIVALS_MOST);
        }
    }
    if wrong * 2 > trials {
        return Err(format!("waiters were not served in the order of their arrival in {wrong} of {trials} trials"));
    }
    Ok(())
}

/// The place in the order of service of each thread, in the order of their arrival.
fn one_queue<A: Adapter>(config: A::Config, apart: Duration) -> Result<Vec<usize>, BenchError> {
    let queue = Arc::new(Queue {
        lock: A::new(),
        arriving: AtomicUsize::new(0),
        served: AtomicUsize::new(0),
        places: Default::default(),
    });
    let shared = Arc::clone(&queue);
    crew::run(&plan(QUEUE + 1), move |member: &Member<'_>| {
        let mut ctx = A::ctx(&config);
        let shift = member.begin()?;
        if member.me == 0 {
            hold_while_they_queue(&shared, &mut ctx, apart, member.gate);
        } else {
            let mine = member.me as usize;
            // Turn 0 is the holder's, turn n of the n-th waiter.
            while shared.arriving.load(Ordering::Acquire) != mine {
                if member.gate.stopped() {
                    return None;
                }
                std::thread::sleep(LOOK);
            }
            shared.arriving.store(mine | ON_ITS_WAY, Ordering::Release);
            let held = shared.lock.lock(&mut ctx);
            // Relaxed: the lock orders these.
            let place = shared.served.fetch_add(1, Ordering::Relaxed);
            shared.places[mine - 1].store(place, Ordering::Relaxed);
            drop(held);
        }
        Some(((), shift.end()))
    })?;
    Ok(queue.places.iter().map(|place| place.load(Ordering::Relaxed)).collect())
}

/// Set by a waiter beside its number just before it asks for the lock.
const ON_ITS_WAY: usize = 1 << 16;

fn hold_while_they_queue<A: Adapter>(queue: &Queue<A>, ctx: &mut A::Ctx, apart: Duration, gate: &Gate) {
    let held = queue.lock.lock(ctx);
    for waiter in 1..=QUEUE {
        // pairs with: the acquire load of the waiter, and back.
        queue.arriving.store(waiter, Ordering::Release);
        while queue.arriving.load(Ordering::Acquire) != waiter | ON_ITS_WAY && !gate.stopped() {
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(apart);
    }
    drop(held);
}

/// A stall: some hundred thousand times what a pair costs.
const STALL_NS: u64 = 4_000_000;

/// Turns between a change of sides.
const STALL_BATCH: u32 = 256;

/// Work in place of the lock, in nanoseconds: longer than any uncontended pair, so that the scheduler has at least as many
/// chances to interrupt these turns.
const INSTEAD_NS: u64 = 200;

/// Stalls that may be chance on a busy machine, and how many times as many as without the lock are not.
const CHANCE: u64 = 10;
const NOT_CHANCE: u64 = 4;

pub(crate) fn stalls<A: Adapter>(config: &A::Config, turns: u32) -> Result<(), String> {
    // A lock that stalls does so again.
    count_stalls::<A>(config, turns).or_else(|_| count_stalls::<A>(config, turns))
}

fn count_stalls<A: Adapter>(config: &A::Config, turns: u32) -> Result<(), String> {
    let (clock, instead) = (Clock::get(), Work::of_ns(INSTEAD_NS));
    let (lock, mut ctx) = (A::new(), A::ctx(config));
    let (mut with, mut without) = (0, 0);
    for _ in 0..turns.div_ceil(STALL_BATCH) {
        with += stalled(clock, || drop(lock.lock(&mut ctx)));
        without += stalled(clock, || instead.perform());
    }
    if with > CHANCE && with > NOT_CHANCE * without {
        return Err(format!(
            "{with} of {turns} uncontended acquisitions took over {} ms, against {without} of as many turns without it",
            STALL_NS / 1_000_000
        ));
    }
    Ok(())
}

fn stalled(clock: Clock, mut turn: impl FnMut()) -> u64 {
    let mut last = clock.now();
    (0..STALL_BATCH)
        .map(|_| {
            turn();
            let now = clock.now();
            let took = clock.ns(now.saturating_sub(last));
            last = now;
            u64::from(took >= STALL_NS)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_id::{LockInfo, locks, parse_lock};
    use crate::testing::alone;

    fn each(test: impl Fn(&LockSpec, &LockInfo)) {
        for info in locks().iter().filter(|info| info.available) {
            test(&parse_lock(&info.pattern.replace(":N", ":50")).unwrap(), info);
        }
    }

    #[test]
    fn every_lock_excludes() {
        let _alone = alone();
        each(|lock, _| {
            for threads in [1, 2, 4] {
                assert_eq!(check_exclusion(lock, threads, 4_000), Ok(()));
            }
        });
    }

    #[test]
    fn every_fair_lock_serves_in_order() {
        let _alone = alone();
        each(|lock, info| {
            if info.fair {
                assert_eq!(check_service_order(lock, 7), Ok(()));
            }
        });
    }

    #[test]
    fn no_lock_stalls() {
        let _alone = alone();
        each(|lock, _| assert_eq!(check_stalls(lock, 20_000), Ok(())));
    }

    #[test]
    fn impossible_checks_are_refused() {
        let lock = parse_lock("std").unwrap();
        assert!(check_exclusion(&lock, 0, 1).unwrap_err().contains("threads must be 1 to 1024, not 0"));
        assert!(check_exclusion(&lock, 5_000, 1).is_err());
    }
}
