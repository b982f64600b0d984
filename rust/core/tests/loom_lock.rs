//! Every interleaving of small uses of the default lock, orderings included. Run by `make models`:
//! `RUSTFLAGS="--cfg ticketlock_loom" cargo test --release -p ticketlock --test loom_lock`.
//!
//! Loom knows no `membarrier` and does not model `SeqCst` accesses: there both sides of the asymmetric fence are fences, named
//! like edges, so that taking one away must be noticed. The form that ships is explored by `tso_lock.rs`. A model takes the
//! bucket lock as a whole, all its locks share one lane, and a deadline passes whenever the schedule lets it. With one CPU
//! nobody spins; lines of spinners are `shuttle_lock.rs`'s.
#![cfg(ticketlock_loom)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::thread;
use ticketlock::lock::model;
use ticketlock::sync::mutant;
use ticketlock::{Fairness, Lock};

/// What a scene starts with.
#[derive(Debug, Clone, Copy)]
struct Setting {
    /// Preemptions explored per execution.
    bound: usize,
    /// Lanes are never fast.
    without_membarrier: bool,
    /// The first release that sees waiters hands over; otherwise it calls an heir.
    hand_over: bool,
}

const HANDS_OVER: Setting = Setting { bound: 3, without_membarrier: false, hand_over: true };
const CALLS: Setting = Setting { bound: 3, without_membarrier: false, hand_over: false };
const FENCED: Setting = Setting { bound: 3, without_membarrier: true, hand_over: false };

/// Runs a model to its end, which no time limit cuts short, and prints how many executions that took.
fn explore(name: &str, setting: Setting, scene: impl Fn() + Sync + Send + 'static) {
    let executions = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(setting.bound);
    builder.max_branches = 10_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model::restart();
        model::cpus(1);
        model::without_membarrier(setting.without_membarrier);
        model::hand_over_first(setting.hand_over);
        scene();
    });
    let executions = executions.load(Ordering::Relaxed);
    eprintln!("{name}: {executions} executions, preemption bound {}", setting.bound);
    assert!(executions > 10, "{name} explored nothing");
}

/// The same model with `edge` taken away must be caught.
fn must_fail_without(edge: &'static str, setting: Setting, scene: impl Fn() + Sync + Send + 'static) {
    // The expected panics would fill the screen.
    std::panic::set_hook(Box::new(|_| {}));
    let result = mutant::weakening(edge, || catch_unwind(AssertUnwindSafe(|| explore(edge, setting, scene))));
    let _ = std::panic::take_hook();
    assert!(result.is_err(), "the model does not notice that edge {edge} is gone");
    eprintln!("without {edge}: caught");
}

/// A counter that only the lock protects: loom reports any two unordered accesses.
struct Counter {
    lock: Lock,
    value: UnsafeCell<u32>,
}

// SAFETY: `value` is touched only while `lock` is held, which is what the models check.
unsafe impl Sync for Counter {}
// SAFETY: as above.
unsafe impl Send for Counter {}

impl Counter {
    /// Never freed: where a model ends with a thread asleep, loom must not come upon destructors.
    fn new() -> &'static Self {
        Box::leak(Box::new(Self { lock: Lock::new(), value: UnsafeCell::new(0) }))
    }

    /// For the holder, who lets the others come meanwhile.
    fn bump(&self) {
        thread::yield_now();
        // SAFETY: the caller holds the lock.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn bump_locked(&self) {
        let _guard = self.lock.lock();
        self.bump();
    }

    fn read_locked(&self) -> u32 {
        let _guard = self.lock.lock();
        // SAFETY: the lock is held.
        self.value.with(|value| unsafe { *value })
    }
}

/// Each of `threads` adds one; the main thread is one of them.
fn bumps(threads: u32) -> impl Fn() + Sync + Send + 'static {
    move || {
        let counter = Counter::new();
        let others: Vec<_> = (1..threads).map(|_| thread::spawn(|| counter.bump_locked())).collect();
        counter.bump_locked();
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(counter.read_locked(), threads);
    }
}

#[test]
fn two_threads_exclude_each_other_and_nobody_sleeps_for_ever() {
    explore("hand over", HANDS_OVER, bumps(2));
    explore("call an heir", CALLS, bumps(2));
    explore("fenced", FENCED, bumps(2));
    explore("fenced, hand over", Setting { hand_over: true, ..FENCED }, bumps(2));
}

#[test]
fn three_threads_exclude_each_other_and_nobody_sleeps_for_ever() {
    let bound = 2;
    explore("three, hand over", Setting { bound, ..HANDS_OVER }, bumps(3));
    explore("three, call an heir", Setting { bound, ..CALLS }, bumps(3));
    explore("three, fenced", Setting { bound, ..FENCED }, bumps(3));
}

#[test]
fn every_edge_is_needed() {
    must_fail_without("take", CALLS, bumps(2));
    must_fail_without("U2", CALLS, bumps(2));
    must_fail_without("U4", CALLS, bumps(3));
    // A sleeper that wakes by itself sees what its state says before the call that would order everything reaches it.
    must_fail_without("handed", Setting { bound: 2, ..HANDS_OVER }, a_timeout_among_waiters);
    must_fail_without("swap", FENCED, bumps(2));
    must_fail_without("light fence", CALLS, bumps(2));
    must_fail_without("model fence", FENCED, bumps(2));
}

/// A timed waiter leaves at any moment; whoever else waits is served all the same.
fn a_timeout_among_waiters() {
    let counter = Counter::new();
    let timed = thread::spawn(|| {
        let guard = counter.lock.try_lock_for(Duration::from_micros(1));
        if guard.is_some() {
            counter.bump();
        }
        u32::from(guard.is_some())
    });
    let patient = thread::spawn(|| counter.bump_locked());
    counter.bump_locked();
    patient.join().unwrap();
    let more = timed.join().unwrap();
    assert_eq!(counter.read_locked(), 2 + more);
}

#[test]
fn a_timeout_loses_nobody() {
    let bound = 2;
    explore("timeout, hand over", Setting { bound, ..HANDS_OVER }, a_timeout_among_waiters);
    explore("timeout, call an heir", Setting { bound, ..CALLS }, a_timeout_among_waiters);
}

/// Waiters of two locks in one lane: a release of either finds its own.
fn two_locks_of_one_lane() {
    let (first, second) = (Counter::new(), Counter::new());
    let held = (first.lock.lock(), second.lock.lock());
    let others = [first, second].map(|counter| thread::spawn(|| counter.bump_locked()));
    drop(held);
    for other in others {
        other.join().unwrap();
    }
    assert_eq!((first.read_locked(), second.read_locked()), (1, 1));
}

#[test]
fn locks_of_one_lane_do_not_lose_each_others_waiters() {
    let bound = 2;
    explore("two locks, hand over", Setting { bound, ..HANDS_OVER }, two_locks_of_one_lane);
    explore("two locks, call an heir", Setting { bound, ..CALLS }, two_locks_of_one_lane);
}

/// Two checked releases race for one acquisition while somebody waits: one of them fails, or both find an acquisition (the
/// waiter's was released for it, which any thread may do; then its own release fails).
fn racing_releases() {
    let lock: &Lock = Box::leak(Box::new(Lock::new()));
    assert!(lock.raw_try_lock());
    // SAFETY: all releases of this lock are checked ones.
    let release = || u32::from(unsafe { lock.checked_unlock() }.is_err());
    let waiter = thread::spawn(move || {
        lock.raw_lock(Fairness::Balanced);
        release()
    });
    let racer = thread::spawn(release);
    thread::yield_now();
    let errors = release() + racer.join().unwrap() + waiter.join().unwrap();
    assert_eq!(errors, 1, "three releases, two acquisitions");
    assert!(!lock.is_locked());
}

#[test]
fn one_of_two_racing_releases_fails() {
    let bound = 2;
    explore("racing releases, hand over", Setting { bound, ..HANDS_OVER }, racing_releases);
    explore("racing releases, call an heir", Setting { bound, ..CALLS }, racing_releases);
    explore("racing releases, fenced", Setting { bound, ..FENCED }, racing_releases);
}
