use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::lock::parking;
use crate::policy::Fairness;

#[test]
fn eight_zero_bytes_unlocked() {
    static ZERO: [u64; 1] = [0];
    assert_eq!((size_of::<Lock>(), align_of::<Lock>()), (8, 8));
    // SAFETY: the same size and alignment, and all fields accept zeros.
    let zero: &Lock = unsafe { &*ZERO.as_ptr().cast::<Lock>() };
    assert!(!zero.is_locked());
}

#[test]
fn a_failed_try_changes_nothing() {
    let lock = Lock::new();
    let guard = lock.try_lock().unwrap();
    let bytes = |lock: &Lock| {
        let line = lock.line.load(Ordering::Relaxed);
        (lock.owner.load(Ordering::Relaxed), lock.fork.load(Ordering::Relaxed), lock.head.load(Ordering::Relaxed), line)
    };
    let before = bytes(&lock);
    assert!(lock.try_lock().is_none());
    assert_eq!(bytes(&lock), before);
    drop(guard);
    assert!(lock.try_lock().is_some());
}

#[test]
fn a_checked_release_refuses_a_free_lock() {
    let lock = Lock::new();
    // SAFETY: nothing else releases this lock.
    let release = || unsafe { lock.checked_unlock() };
    assert_eq!(release(), Err(NotLocked));
    assert!(lock.raw_try_lock());
    assert_eq!(release(), Ok(()));
    assert_eq!(release(), Err(NotLocked));
}

#[test]
fn a_timed_wait_ends_in_time_and_leaves_nothing() {
    let lock = Lock::new();
    let guard = lock.lock();
    for limit in [Duration::ZERO, Duration::from_micros(1), Duration::from_millis(20)] {
        let start = Instant::now();
        thread::scope(|scope| scope.spawn(|| assert!(lock.try_lock_for(limit).is_none())).join().unwrap());
        assert!(start.elapsed() >= limit && start.elapsed() < limit + Duration::from_secs(2), "{limit:?}");
    }
    assert_eq!(lock.lane().lock().waiters(lock.lane()), 0);
    assert_eq!(lock.lane().bits() & (PARKED | QUIET), 0);
    drop(guard);
    assert!(lock.try_lock_until(Instant::now()).is_some(), "a free lock is had whatever the deadline");
}

#[test]
fn all_fairnesses_exclude_and_end() {
    for fairness in Fairness::ALL {
        let (lock, mut count) = (Lock::new(), 0_u64);
        let shared = SendPtr(&raw mut count);
        let start = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let shared = &shared;
                    start.wait();
                    for _ in 0..20_000 {
                        let _guard = lock.lock_with(fairness);
                        // SAFETY: under the lock.
                        unsafe { *shared.0 += 1 };
                    }
                });
            }
        });
        assert_eq!(count, 160_000, "{fairness}");
        assert_eq!(lock.lane().lock().waiters(lock.lane()), 0);
    }
}

struct SendPtr(*mut u64);
// SAFETY: used under a lock.
unsafe impl Sync for SendPtr {}

#[test]
fn a_sleeper_is_handed_a_lock_that_is_held_long() {
    let lock = Lock::new();
    let guard = lock.lock();
    let (ended, stats) = thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut waiting = Waiting::default();
            let ended = lock.wait(&Wait::new(Fairness::Balanced), &mut waiting, lock.key());
            // SAFETY: acquired just now.
            unsafe { lock.raw_unlock() };
            (ended, waiting.stats)
        });
        thread::sleep(Duration::from_millis(30));
        drop(guard);
        waiter.join().unwrap()
    });
    assert_eq!(ended, Ended::Acquired);
    assert!(stats.handed_over && stats.parks > 0 && stats.ns >= 20_000_000, "{stats:?}");
}

#[test]
fn sleepers_are_served_in_the_order_in_which_they_came() {
    let lock = Lock::new();
    let order = std::sync::Mutex::new(Vec::new());
    let guard = lock.lock();
    thread::scope(|scope| {
        for n in 0..6 {
            let (lock, order) = (&lock, &order);
            scope.spawn(move || {
                let _guard = lock.lock_with(Fairness::Strict);
                order.lock().unwrap().push(n);
                thread::sleep(Duration::from_millis(3)); // so that the next has waited long enough to be handed the lock
            });
            while lock.lane().lock().waiters(lock.lane()) <= n {
                thread::yield_now();
            }
        }
        thread::sleep(Duration::from_millis(3));
        drop(guard);
    });
    assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_lane_is_fast_after_contention_and_not_while_somebody_sleeps() {
    parking::ready();
    if crate::machine::membarrier::probe() != crate::machine::Membarrier::PrivateExpedited {
        return;
    }
    let lock = Lock::new();
    let guard = lock.lock();
    thread::scope(|scope| {
        scope.spawn(|| drop(lock.lock()));
        while lock.lane().bits() & PARKED == 0 {
            thread::yield_now();
        }
        assert_eq!(lock.lane().bits() & FAST, 0);
        drop(guard);
    });
    assert_ne!(lock.lane().bits(), FAST, "a barrier a contention would be too many");
    let start = Instant::now();
    while lock.lane().bits() != FAST {
        drop(lock.lock());
        assert!(start.elapsed() < Duration::from_secs(5), "never fast again");
    }
}

#[test]
fn an_inherited_count_of_spinners_is_forgotten_once() {
    let lock = Lock::new();
    lock.line.store(7 << 16 | 3, Ordering::Relaxed);
    lock.fork.store(parking::fork_generation().wrapping_sub(1), Ordering::Relaxed);
    lock.raw_lock(Fairness::Balanced); // gives way to three spinners that do not exist, once
    assert_eq!(lock.line.load(Ordering::Relaxed) as u16, 0);
    assert_eq!(lock.fork.load(Ordering::Relaxed), parking::fork_generation());
}

#[test]
fn debug_tells_whether_it_is_locked() {
    let lock = Lock::new();
    let guard = lock.lock();
    assert_eq!(format!("{lock:?}"), "Lock { locked: true, .. }");
    drop(guard);
}
