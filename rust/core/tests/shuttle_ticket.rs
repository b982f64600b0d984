//! Many threads under random schedules. Run by `make models`:
//! `RUSTFLAGS="--cfg ticketlock_shuttle" cargo test --release -p ticketlock --test shuttle_ticket`.
//!
//! Shuttle runs every access as `SeqCst`: this proves schedules, loom proves orderings.
#![cfg(ticketlock_shuttle)]

use shuttle::sync::Arc;
use shuttle::thread;
use std::sync::atomic::{AtomicU32, Ordering};
use ticketlock::policy::LockKey;
use ticketlock::{Backoff, Draw, TicketLock, Tuning};

const SCHEDULES: usize = 3_000;

fn rules() -> impl Iterator<Item = Backoff> {
    ["none", "proportional:3", "proportional-v1:2", "auto", "auto-shared", "auto-v1:2", "auto-v1:2.7"]
        .into_iter()
        .map(|rule| rule.parse().unwrap())
}

/// Six threads, three acquisitions each: exclusion, and service in ticket order, under every rule.
fn line(rule: Backoff) {
    let lock = Arc::new(TicketLock::starting_at(u32::MAX - 7)); // wraps on the way
    let inside = std::sync::Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let (lock, inside) = (lock.clone(), inside.clone());
            thread::spawn(move || {
                let tuning = Tuning::new(rule);
                for _ in 0..3 {
                    if let Draw::Wait(queued) = lock.draw() {
                        let ticket = queued.ticket();
                        lock.wait(queued, &tuning, LockKey::at(64));
                        assert_eq!(lock.ticket_counts().1, ticket, "served out of turn under {rule}");
                    }
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two holders under {rule}");
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::Relaxed);
                    // SAFETY: the ticket was granted and is given back once.
                    unsafe { lock.raw_unlock() };
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(lock.ticket_counts(), (10, 10));
}

#[test]
fn long_lines_are_served_in_order_random() {
    for rule in rules() {
        shuttle::check_random(move || line(rule), SCHEDULES);
    }
    eprintln!("random: {SCHEDULES} schedules for each of {} rules", rules().count());
}

#[test]
fn long_lines_are_served_in_order_pct() {
    for rule in rules() {
        shuttle::check_pct(move || line(rule), SCHEDULES, 3);
    }
    eprintln!("PCT, depth 3: {SCHEDULES} schedules for each of {} rules", rules().count());
}

/// Four racing releases of two acquisitions: two succeed.
#[test]
fn racing_checked_releases() {
    shuttle::check_random(
        || {
            let lock = Arc::new(TicketLock::new());
            let released = std::sync::Arc::new(AtomicU32::new(0));
            assert!(lock.raw_try_lock());
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let (lock, released) = (lock.clone(), released.clone());
                    thread::spawn(move || {
                        // SAFETY: this lock is released in no other way.
                        if unsafe { lock.checked_unlock() }.is_ok() {
                            released.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            lock.raw_lock(&Tuning::new(Backoff::None));
            for thread in threads {
                thread.join().unwrap();
            }
            let (next, serving) = lock.ticket_counts();
            assert_eq!(next, 2);
            assert_eq!(serving, released.load(Ordering::Relaxed));
            assert!((1..=2).contains(&serving));
        },
        SCHEDULES,
    );
}
