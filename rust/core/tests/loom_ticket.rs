//! Every interleaving of small uses of the strict lock, orderings included. Run by `make models`:
//! `RUSTFLAGS="--cfg ticketlock_loom" cargo test --release -p ticketlock --test loom_ticket`.
//!
//! Each test names the edge it attacks and runs the same model with that edge weakened, which must fail. Loom explores all
//! executions up to the preemption bound printed; it does not model `SeqCst` accesses, of which the strict lock has none.
//! Two threads: with two spinning waiters loom does not end (tried: over four minutes at bounds 1 to 3), since every yield of
//! either is a choice. Longer lines are `shuttle_ticket.rs`'s.
#![cfg(ticketlock_loom)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use ticketlock::policy::{Bounds, Collision, LockKey};
use ticketlock::sync::mutant;
use ticketlock::{Backoff, Draw, NotLocked, TicketLock, Tuning};

/// Preemptions explored per execution.
const BOUND: usize = 3;

/// Runs a model to its end and prints how many executions that took.
fn explore(name: &str, bound: usize, model: impl Fn() + Sync + Send + 'static) -> usize {
    let executions = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.max_branches = 10_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let executions = executions.load(Ordering::Relaxed);
    eprintln!("{name}: {executions} executions, preemption bound {bound}");
    assert!(executions > 1, "{name} explored nothing");
    executions
}

/// The same model with `edge` relaxed must be caught.
fn must_fail_without(edge: &'static str, model: impl Fn() + Sync + Send + 'static) {
    // The expected panics would fill the screen.
    std::panic::set_hook(Box::new(|_| {}));
    let result = mutant::weakening(edge, || catch_unwind(AssertUnwindSafe(|| explore(edge, BOUND, model))));
    let _ = std::panic::take_hook();
    assert!(result.is_err(), "the model does not notice that edge {edge} is gone");
}

/// The plain rule: what a waiter does between polls is no concern of these models.
const PLAIN: Tuning = Tuning { backoff: Backoff::None, bounds: Bounds::new(16, 4), collision: Collision::Reset };

/// A counter that only the lock protects: loom reports any two unordered accesses.
struct Counter {
    lock: TicketLock,
    value: UnsafeCell<u32>,
}

// SAFETY: `value` is touched only while `lock` is held, which is what the models check.
unsafe impl Sync for Counter {}
// SAFETY: as above.
unsafe impl Send for Counter {}

impl Counter {
    fn new() -> Arc<Self> {
        Arc::new(Self { lock: TicketLock::new(), value: UnsafeCell::new(0) })
    }

    /// For the holder.
    fn bump(&self) {
        // SAFETY: the caller holds the lock.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn read_locked(&self) -> u32 {
        let _guard = self.lock.lock();
        // SAFETY: the lock is held.
        self.value.with(|value| unsafe { *value })
    }
}

/// Runs `body` in `count` threads, of which the model's own is one (each thread more costs loom dearly).
fn in_threads(count: usize, body: impl Fn() + Clone + Send + 'static) {
    let threads: Vec<_> = (1..count)
        .map(|_| {
            let body = body.clone();
            thread::spawn(move || body())
        })
        .collect();
    body();
    for thread in threads {
        thread.join().unwrap();
    }
}

fn guards(threads: usize, rounds: usize) {
    let counter = Counter::new();
    let shared = counter.clone();
    in_threads(threads, move || {
        for _ in 0..rounds {
            let _guard = shared.lock.lock_with(&PLAIN);
            shared.bump();
        }
    });
    assert_eq!(counter.read_locked() as usize, threads * rounds);
}

/// Edge R (release store in `raw_unlock`, acquire loads in `draw` and `wait`): two threads, two acquisitions each.
#[test]
fn two_threads_exclude_each_other() {
    explore("two threads x 2", BOUND, || guards(2, 2));
    must_fail_without("R", || guards(2, 2));
    must_fail_without("draw", || guards(2, 2));
    must_fail_without("wait", || guards(2, 2));
}

/// Tickets are served in the order they were drawn, and each exactly once.
#[test]
fn service_follows_tickets() {
    explore("fifo", BOUND, || {
        let lock = Arc::new(TicketLock::new());
        let shared = lock.clone();
        in_threads(2, move || {
            for _ in 0..2 {
                match shared.draw() {
                    Draw::Granted => {}
                    Draw::Wait(queued) => {
                        let ticket = queued.ticket();
                        shared.wait(queued, &PLAIN, LockKey::at(8));
                        assert_eq!(shared.ticket_counts().1, ticket, "served out of turn");
                    }
                }
                // SAFETY: the ticket was granted and is given back once.
                unsafe { shared.raw_unlock() };
            }
        });
        assert_eq!(lock.ticket_counts(), (4, 4));
    });
}

fn tries() {
    let counter = Counter::new();
    let shared = counter.clone();
    let trier = thread::spawn(move || {
        if let Some(_guard) = shared.lock.try_lock() {
            shared.bump();
            true
        } else {
            false
        }
    });
    {
        let _guard = counter.lock.lock();
        counter.bump();
    }
    let tried = trier.join().unwrap();
    assert_eq!(counter.read_locked(), 1 + u32::from(tried));
    assert!(!counter.lock.is_locked());
}

/// Edge R with the acquire load in `raw_try_lock`.
#[test]
fn a_try_excludes_too() {
    explore("try against lock", BOUND, tries);
    must_fail_without("try", tries);
}

/// For locks that are never released in another way.
fn release(lock: &TicketLock) -> Result<(), NotLocked> {
    // SAFETY: see above.
    unsafe { lock.checked_unlock() }
}

fn checked() {
    let counter = Counter::new();
    let shared = counter.clone();
    in_threads(2, move || {
        shared.lock.raw_lock(&PLAIN);
        shared.bump();
        release(&shared.lock).unwrap();
    });
    assert_eq!(counter.read_locked(), 2);
}

/// Edge R-checked (release CAS).
#[test]
fn a_checked_release_publishes() {
    explore("checked release", BOUND, checked);
    must_fail_without("R-checked", checked);
}

/// Two releases race for one acquisition: exactly one succeeds, and the lock is free once.
#[test]
fn of_two_racing_releases_one_fails() {
    explore("racing releases", BOUND, || {
        let lock = Arc::new(TicketLock::new());
        assert!(lock.raw_try_lock());
        let other = lock.clone();
        let thread = thread::spawn(move || release(&other).is_ok());
        let mine = release(&lock).is_ok();
        let theirs = thread.join().unwrap();
        assert!(mine ^ theirs, "{mine} {theirs}");
        assert_eq!(lock.ticket_counts(), (1, 1));
    });
}

/// A third thread acquires between: a late second release may only hit an acquisition that exists.
#[test]
fn racing_releases_beside_an_acquirer_never_pass_the_line() {
    explore("racing releases and an acquirer", BOUND, || {
        let lock = Arc::new(TicketLock::new());
        assert!(lock.raw_try_lock());
        let (first, second) = (lock.clone(), lock.clone());
        let releaser = thread::spawn(move || u32::from(release(&first).is_ok()));
        let acquirer = thread::spawn(move || u32::from(second.raw_try_lock()));
        let released = u32::from(release(&lock).is_ok()) + releaser.join().unwrap();
        let acquired = 1 + acquirer.join().unwrap();
        let (next, serving) = lock.ticket_counts();
        assert_eq!((next, serving), (acquired, released));
        assert!(released <= acquired);
    });
}

/// A waiter is granted the lock and released by another thread before it noticed: it must not wait on.
#[test]
fn a_grant_released_by_another_thread_is_not_waited_for() {
    explore("grant released unnoticed", BOUND, || {
        let lock = Arc::new(TicketLock::new());
        assert!(lock.raw_try_lock());
        let other = lock.clone();
        let releaser = thread::spawn(move || u32::from(release(&other).is_ok()) + u32::from(release(&other).is_ok()));
        lock.raw_lock(&PLAIN);
        let released = releaser.join().unwrap();
        assert!((1..=2).contains(&released));
        assert_eq!(lock.ticket_counts(), (2, released));
    });
}
