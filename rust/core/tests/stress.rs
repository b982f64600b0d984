//! Real threads on the strict lock, under a watchdog: a hang aborts with the name of the test instead of waiting for ever.
#![cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use ticketlock::lock::{next_lock_id, watch};
use ticketlock::policy::LockKey;
use ticketlock::{Backoff, Draw, TicketLock, Tuning, delays};

const WATCHDOG: Duration = Duration::from_secs(60);

/// Delay watch and delay tables are per process: tests that look at them take turns, and none is disturbed by load.
fn serial() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Aborts the process if `body` takes longer than the watchdog; a debugger or core dump then shows all stacks.
fn watched(name: &'static str, body: impl FnOnce()) {
    let _turn = serial();
    let (done, over) = mpsc::channel::<()>();
    let dog = thread::spawn(move || {
        if over.recv_timeout(WATCHDOG) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} hung for {WATCHDOG:?}; delays: {:?}", delays());
            std::process::abort();
        }
    });
    body();
    drop(done);
    dog.join().unwrap();
}

fn rules() -> Vec<Backoff> {
    ["none", "proportional:50", "proportional-v1:50", "auto", "auto-shared", "auto-v1:2", "auto-v1:2.7"]
        .iter()
        .map(|rule| rule.parse().unwrap())
        .collect()
}

struct Guarded {
    lock: TicketLock,
    value: UnsafeCell<u64>,
}

// SAFETY: `value` is touched only by the holder of `lock`.
unsafe impl Sync for Guarded {}

impl Guarded {
    /// One locked increment.
    fn increment(&self, tuning: &Tuning) {
        let _guard = self.lock.lock_with(tuning);
        // SAFETY: the lock is held.
        unsafe { *self.value.get() += 1 };
    }
}

#[test]
fn increments_are_not_lost_under_any_rule() {
    watched("increments", || {
        for rule in rules() {
            for threads in [2u64, 8] {
                let guarded = Guarded { lock: TicketLock::starting_at(u32::MAX - 1_000), value: UnsafeCell::new(0) };
                let tuning = Tuning::new(rule);
                thread::scope(|scope| {
                    for _ in 0..threads {
                        scope.spawn(|| {
                            for _ in 0..4_000 {
                                guarded.increment(&tuning);
                            }
                        });
                    }
                });
                assert_eq!(guarded.value.into_inner(), threads * 4_000, "{rule}, {threads} threads");
            }
        }
    });
}

#[test]
fn service_follows_tickets_under_any_rule() {
    watched("fifo", || {
        for rule in rules() {
            let lock = TicketLock::starting_at(u32::MAX - 500);
            let expected = AtomicU32::new(u32::MAX - 500);
            let waits = AtomicU32::new(0);
            let tuning = Tuning::new(rule);
            thread::scope(|scope| {
                for _ in 0..6 {
                    scope.spawn(|| {
                        for _ in 0..1_000 {
                            let ticket = match lock.draw() {
                                Draw::Granted => lock.ticket_counts().1,
                                Draw::Wait(queued) => {
                                    let ticket = queued.ticket();
                                    waits.fetch_add(1, Ordering::Relaxed);
                                    lock.wait(queued, &tuning, LockKey::at(8));
                                    ticket
                                }
                            };
                            // The holder alone touches `expected`: each service is the successor of the one before.
                            assert_eq!(ticket, expected.load(Ordering::Relaxed), "out of turn under {rule}");
                            expected.store(ticket.wrapping_add(1), Ordering::Relaxed);
                            // SAFETY: the ticket was granted and is given back once.
                            unsafe { lock.raw_unlock() };
                        }
                    });
                }
            });
            assert_eq!(lock.ticket_counts().1, expected.load(Ordering::Relaxed));
            eprintln!("{rule}: 6000 acquisitions in ticket order, {} of them waited", waits.load(Ordering::Relaxed));
        }
    });
}

#[test]
fn racing_checked_releases_fail_exactly_once() {
    const ROUNDS: u64 = 20_000;
    watched("racing releases", || {
        let lock = TicketLock::new();
        let (start, end) = (Barrier::new(3), Barrier::new(3));
        let succeeded = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        start.wait();
                        // SAFETY: this lock is released in no other way.
                        let released = unsafe { lock.checked_unlock() };
                        succeeded.fetch_add(u64::from(released.is_ok()), Ordering::Relaxed);
                        end.wait();
                    }
                });
            }
            for round in 0..ROUNDS {
                assert!(lock.raw_try_lock(), "round {round}");
                start.wait();
                end.wait();
                assert_eq!(succeeded.load(Ordering::Relaxed), round + 1);
            }
        });
    });
}

#[test]
fn memory_may_be_freed_right_after_the_release() {
    watched("free after release", || {
        for _ in 0..300 {
            let guarded = Arc::new(Guarded { lock: TicketLock::new(), value: UnsafeCell::new(0) });
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let guarded = guarded.clone();
                    thread::spawn(move || {
                        guarded.increment(&Tuning::default());
                    })
                })
                .collect();
            drop(guarded.lock.lock());
            drop(guarded); // whichever thread is last frees the lock it has just released
            for thread in threads {
                thread.join().unwrap();
            }
        }
    });
}

/// A stalled holder: the waiter yields, then sleeps, instead of burning a CPU for as long as the stall lasts.
#[test]
fn a_long_stall_is_slept_through() {
    watched("stall", || {
        let lock = TicketLock::new();
        let tuning = Tuning::new(Backoff::Auto);
        let waited = thread::scope(|scope| {
            let guard = lock.lock();
            let waiter = scope.spawn(|| {
                let Draw::Wait(queued) = lock.draw() else { panic!("the lock is held") };
                let waited = lock.wait(queued, &tuning, LockKey::at(8));
                // SAFETY: the ticket was granted and is given back once.
                unsafe { lock.raw_unlock() };
                waited
            });
            thread::sleep(Duration::from_millis(400));
            drop(guard);
            waiter.join().unwrap()
        });
        assert!(waited.outcome.yields > 0 && waited.outcome.parks > 0, "{:?}", waited.outcome);
    });
}

/// A line of one waiter, each time another thread, behind `ahead` others that this thread serves in turn: the waiter's delay
/// is tuned. Returns how many of the waits had a report for the delay watch.
fn tuned_waits(lock: &TicketLock, ahead: u32, tuning: &Tuning, key: LockKey, waits: usize) -> usize {
    let reported = |_: usize| {
        assert!(lock.raw_try_lock());
        let queued: Vec<_> = (0..ahead)
            .map(|_| match lock.draw() {
                Draw::Wait(queued) => queued,
                Draw::Granted => unreachable!("the lock is held"),
            })
            .collect();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let Draw::Wait(queued) = lock.draw() else { panic!("the lock is held") };
                let waited = lock.wait(queued, tuning, key);
                // SAFETY: the ticket was granted and is given back once.
                unsafe { lock.raw_unlock() };
                waited.watch.is_some()
            });
            while lock.waiters() <= ahead {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(1));
            for _ in 0..=queued.len() {
                // SAFETY: this thread holds the lock, and then each drawn ticket in turn.
                unsafe { lock.raw_unlock() };
            }
            drop(queued);
            waiter.join().unwrap()
        })
    };
    (0..waits).filter(|wait| reported(*wait)).count()
}

#[test]
fn delays_name_the_lock_by_id_and_go_with_the_thread() {
    watched("delays", || {
        let lock = TicketLock::new();
        let id = next_lock_id();
        let key = LockKey::new(0x1234_5678, id, 3);
        let tuning = Tuning::new(Backoff::Auto).with_cap(16_000).with_cpus(64);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let native_id = ticketlock::machine::thread_id();
                self_served_wait(&lock, &tuning, key);
                while !stop.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                native_id
            });
            let row = loop {
                let row = delays().into_iter().find_map(|thread| {
                    let slot = thread.slots.iter().find(|slot| slot.lock == id).copied();
                    // The waiter may be between its two stores: the maximum follows the slot.
                    slot.filter(|slot| thread.max_delay >= slot.delay).map(|slot| (thread.native_id, slot))
                });
                if let Some(row) = row {
                    break row;
                }
                thread::yield_now();
            };
            stop.store(true, Ordering::Relaxed);
            assert_eq!(row.0, worker.join().unwrap());
            assert_eq!(row.1.generation, 3);
            assert!(row.1.delay.units() > 1.0, "{row:?}");
        });
        // The thread is gone, and its row with it.
        for _ in 0..1_000 {
            if delays().iter().all(|thread| thread.slots.iter().all(|slot| slot.lock != id)) {
                return;
            }
            thread::yield_now();
        }
        panic!("a dead thread's delays are still listed");
    });
}

/// One thread waits behind two tickets that another one serves; returns the report that fell due.
fn self_served_wait(lock: &TicketLock, tuning: &Tuning, key: LockKey) -> Option<watch::DelayReport> {
    let Draw::Granted = lock.draw() else { panic!("the lock is free") };
    let Draw::Wait(_first) = lock.draw() else { panic!("the lock is held") };
    let Draw::Wait(second) = lock.draw() else { panic!("the lock is held") };
    let waited = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(5));
            // SAFETY: the two tickets before the waited one are given back, in turn.
            unsafe {
                lock.raw_unlock();
                lock.raw_unlock();
            }
        });
        lock.wait(second, tuning, key)
    });
    // SAFETY: the third ticket was granted to this thread.
    unsafe { lock.raw_unlock() };
    waited.watch
}

/// Only a report that somebody hears raises the bar for the next one.
#[test]
fn a_report_that_nobody_heard_falls_due_again() {
    watched("unheard reports", || {
        watch::set(None).unwrap();
        watch::arm();
        let lock = TicketLock::new();
        // With this cap every wait's delay peaks at the same height.
        let tuning = Tuning::new(Backoff::Auto).with_cap(2).with_cpus(64);
        let wait = || self_served_wait(&lock, &tuning, LockKey::at(32));
        let first = wait().expect("a delay at its cap outgrew the minimum");
        let again = wait().expect("nobody heard the first");
        assert_eq!(first.previous_max, again.previous_max);
        watch::accept(&again);
        assert_eq!(wait(), None);
        watch::disarm();
    });
}

/// The report comes after the release, from another thread, and a callback that never returns disturbs no lock.
#[test]
fn the_delay_watch_reports_after_the_release_and_never_holds_a_lock_up() {
    watched("watch", || {
        let lock = Arc::new(TicketLock::new());
        let (to, reports) = mpsc::channel();
        let (release_callback, block) = mpsc::channel::<()>();
        let seen = lock.clone();
        watch::set(Some(Box::new(move |report| {
            let _ = to.send((*report, seen.is_locked(), thread::current().name().map(String::from)));
            let _ = block.recv(); // a very slow callback
        })))
        .unwrap();
        // Guards report; two in line make the second one's delay grow.
        let turns = |count: usize| {
            for _ in 0..count {
                let guard = lock.lock();
                thread::scope(|scope| {
                    for _ in 0..3 {
                        scope.spawn(|| drop(lock.lock()));
                    }
                    while lock.waiters() < 3 {
                        thread::yield_now();
                    }
                    thread::sleep(Duration::from_millis(2));
                    drop(guard);
                });
            }
        };
        turns(3);
        let (report, locked, name) = reports.recv_timeout(Duration::from_secs(20)).expect("no report");
        assert_eq!(name.as_deref(), Some("ticketlock-watch"));
        assert!(report.delay.units() * 3.0 > report.previous_max.units() * 4.0, "{report:?}");
        assert_eq!(report.lock, Arc::as_ptr(&lock).addr() as u64);
        let _ = locked; // other threads may hold it by then
        // The callback is still blocked: the lock goes on.
        turns(3);
        assert!(!lock.is_locked());
        watch::set(None).unwrap();
        drop(release_callback);
    });
}

#[test]
fn an_unset_watch_reports_nothing() {
    watched("no watch", || {
        watch::set(None).unwrap();
        let lock = TicketLock::new();
        let tuning = Tuning::new(Backoff::Auto).with_cpus(64);
        let reports = || tuned_waits(&lock, 2, &tuning, LockKey::at(16), 5);
        assert_eq!(reports(), 0);
        watch::arm();
        assert!(reports() > 0);
        watch::disarm();
        watch::disarm(); // one too many must not arm
        assert_eq!(reports(), 0);
        let Draw::Granted = lock.draw() else { panic!("the lock is free") };
        // SAFETY: the ticket was granted and is given back once.
        unsafe { lock.checked_unlock() }.unwrap();
    });
}

#[cfg(unix)]
#[test]
fn a_forked_child_forgets_the_threads_it_has_not() {
    watched("fork", || {
        let lock = TicketLock::new();
        let tuning = Tuning::new(Backoff::Auto).with_cpus(64);
        let (stop, ready) = (AtomicBool::new(false), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                // This thread has a record: it has waited in a line that it served itself.
                self_served_wait(&lock, &tuning, LockKey::at(24));
                ready.wait();
                while !stop.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            });
            ready.wait();
            assert!(!delays().is_empty());
            // SAFETY: the child only reads atomics and leaves with `_exit`.
            let status = unsafe {
                match libc::fork() {
                    -1 => panic!("fork failed"),
                    0 => {
                        let lock = TicketLock::new();
                        drop(lock.lock());
                        libc::_exit(i32::from(!delays().is_empty()));
                    }
                    child => {
                        let mut status = 0;
                        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                        status
                    }
                }
            };
            stop.store(true, Ordering::Relaxed);
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "child saw dead threads: {status:#x}");
        });
    });
}
