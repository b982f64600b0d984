//! The default lock with many threads under random schedules. Run by `make models`:
//! `RUSTFLAGS="--cfg ticketlock_shuttle" cargo test --release -p ticketlock --test shuttle_lock`.
//!
//! Shuttle runs every access as `SeqCst`: this proves schedules, loom and the x86-TSO explorer prove orderings. A deadline
//! passes whenever the schedule lets it.
#![cfg(ticketlock_shuttle)]

use std::sync::atomic::{AtomicU32, Ordering};

use shuttle::sync::{Arc, Mutex};
use shuttle::thread;
use ticketlock::lock::model;
use ticketlock::policy::LockKey;
use ticketlock::{Deadline, Ended, Fairness, Lock, Wait, Waiting};

const SCHEDULES: usize = 2_000;

/// What a scene starts with.
#[derive(Debug, Clone, Copy)]
struct Setting {
    cpus: u32,
    without_membarrier: bool,
    hand_over: bool,
}

fn settings() -> impl Iterator<Item = Setting> {
    [1, 4].into_iter().flat_map(|cpus| {
        [(false, true), (false, false), (true, true), (true, false)]
            .into_iter()
            .map(move |(without_membarrier, hand_over)| Setting { cpus, without_membarrier, hand_over })
    })
}

fn start(setting: Setting) {
    model::restart();
    model::unit_ns(500.0);
    model::patience_looks(2);
    model::cpus(setting.cpus);
    model::without_membarrier(setting.without_membarrier);
    model::hand_over_first(setting.hand_over);
}

/// Runs `scene` under every setting, by random and by priority-based schedules.
fn explore(name: &str, scene: impl Fn() + Send + Sync + Copy + 'static) {
    for setting in settings() {
        let run = move || {
            start(setting);
            scene();
        };
        shuttle::check_random(run, SCHEDULES);
        shuttle::check_pct(run, SCHEDULES / 2, 3);
    }
    let settings = settings().count();
    eprintln!("{name}: {SCHEDULES} random schedules and {} of depth 3 for each of {settings} settings", SCHEDULES / 2);
}

/// Counts who is inside; two at a time are an error.
#[derive(Default)]
struct Inside(AtomicU32);

impl Inside {
    fn visit(&self) {
        assert_eq!(self.0.fetch_add(1, Ordering::Relaxed), 0, "two holders");
        thread::yield_now();
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Five threads, three acquisitions each, every fairness among them.
fn mixed_fairness() {
    let (lock, inside) = (Arc::new(Lock::new()), std::sync::Arc::new(Inside::default()));
    let threads: Vec<_> = (0..5)
        .map(|n| {
            let (lock, inside) = (lock.clone(), inside.clone());
            thread::spawn(move || {
                for _ in 0..3 {
                    let _guard = lock.lock_with(Fairness::ALL[n % 3]);
                    inside.visit();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(!lock.is_locked());
    assert_eq!(lock.line_counts().2, 0, "somebody is still counted as a spinner");
}

#[test]
fn waiters_of_every_fairness_are_served() {
    explore("fairness", mixed_fairness);
}

/// Patient, timed and interruptible waiters, and tries; whoever gives up leaves nothing behind.
fn comings_and_goings() {
    let (lock, inside) = (Arc::new(Lock::new()), std::sync::Arc::new(Inside::default()));
    let threads: Vec<_> = (0..5)
        .map(|n| {
            let (lock, inside) = (lock.clone(), inside.clone());
            thread::spawn(move || {
                for round in 0..3 {
                    let had = match (n + round) % 4 {
                        0 => lock.raw_try_lock(),
                        1 => {
                            let deadline = Some(Deadline::after_ns(1_000));
                            let wait = Wait { deadline, ..Wait::new(Fairness::Balanced) };
                            lock.wait(&wait, &mut Waiting::default(), LockKey::at(64)) == Ended::Acquired
                        }
                        2 => {
                            let wait = Wait { interruptible: true, ..Wait::new(Fairness::Balanced) };
                            let mut waiting = Waiting::default();
                            // A signal's handler that goes on waiting, twice at most.
                            (0..3).any(|_| lock.wait(&wait, &mut waiting, LockKey::at(64)) == Ended::Acquired)
                        }
                        _ => {
                            lock.raw_lock(Fairness::Balanced);
                            true
                        }
                    };
                    if had {
                        inside.visit();
                        // SAFETY: all releases of this lock are checked ones.
                        unsafe { lock.checked_unlock() }.unwrap();
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(!lock.is_locked());
}

#[test]
fn whoever_gives_up_leaves_nothing_behind() {
    explore("comings and goings", comings_and_goings);
}

/// Releases by threads that do not hold the lock: as many succeed as there were acquisitions.
fn foreign_releases() {
    let lock = Arc::new(Lock::new());
    let acquired = std::sync::Arc::new(AtomicU32::new(0));
    let released = std::sync::Arc::new(AtomicU32::new(0));
    let takers: Vec<_> = (0..3)
        .map(|_| {
            let (lock, acquired, released) = (lock.clone(), acquired.clone(), released.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    lock.raw_lock(Fairness::Balanced);
                    acquired.fetch_add(1, Ordering::Relaxed);
                    // SAFETY: all releases of this lock are checked ones.
                    released.fetch_add(u32::from(unsafe { lock.checked_unlock() }.is_ok()), Ordering::Relaxed);
                }
            })
        })
        .collect();
    let meddler = {
        let (lock, released) = (lock.clone(), released.clone());
        thread::spawn(move || {
            for _ in 0..4 {
                // SAFETY: as above.
                released.fetch_add(u32::from(unsafe { lock.checked_unlock() }.is_ok()), Ordering::Relaxed);
                thread::yield_now();
            }
        })
    };
    for thread in takers {
        thread.join().unwrap();
    }
    meddler.join().unwrap();
    assert!(!lock.is_locked());
    assert_eq!(acquired.load(Ordering::Relaxed), released.load(Ordering::Relaxed), "a release was lost, or counted twice");
}

#[test]
fn foreign_releases_are_exact() {
    explore("foreign releases", foreign_releases);
}

/// With room for all of them, spinners that came one after the other are served in that order.
fn line_of_spinners() {
    start(Setting { cpus: 6, without_membarrier: false, hand_over: false });
    model::unit_ns(1.0); // looks enough for everybody
    model::patience_looks(u32::MAX); // nobody leaves
    let lock = Arc::new(Lock::new());
    let served = Arc::new(Mutex::new(Vec::new()));
    lock.raw_lock(Fairness::Balanced);
    let threads: Vec<_> = (0..4_u16)
        .map(|n| {
            let thread = {
                let (lock, served) = (lock.clone(), served.clone());
                thread::spawn(move || {
                    let mut waiting = Waiting::default();
                    let ended = lock.wait(&Wait::new(Fairness::Balanced), &mut waiting, LockKey::at(64));
                    assert_eq!(ended, Ended::Acquired);
                    served.lock().unwrap().push((n, waiting.stats.parks));
                    // SAFETY: acquired above.
                    unsafe { lock.raw_unlock() };
                })
            };
            while lock.line_counts().2 <= n {
                thread::yield_now();
            }
            thread
        })
        .collect();
    // SAFETY: acquired above.
    unsafe { lock.raw_unlock() };
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*served.lock().unwrap(), [(0, 0), (1, 0), (2, 0), (3, 0)], "(who, sleeps)");
}

#[test]
fn spinners_are_served_in_ticket_order() {
    shuttle::check_random(line_of_spinners, SCHEDULES);
    eprintln!("spinners: {SCHEDULES} random schedules");
}
