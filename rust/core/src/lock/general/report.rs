//! What a lock without an object of its own reports: eight bytes in somebody's struct, known by their address.
//!
//! Only waits that sleep are reported, which read the clock anyway; acquisitions are not counted, and nobody knows the holder.
//! A lock is met when somebody first sleeps for it, and its record outlives it: another lock at the same address goes on with
//! it. What a wait took is kept in the thread until its next wait or its end, so that it is counted after the release.

use core::cell::Cell;

use super::WaitStats;
use crate::policy::LockKey;
use crate::sync::global::{AtomicU64, AtomicUsize, Ordering};
use crate::telemetry::events::{self, Outcome};
use crate::telemetry::layout::Kind;
use crate::telemetry::locks::{self, Identity, LockRecord, WaitCount};
use crate::telemetry::{segment, threads};

/// Locks known by address at one time. A program that has more of them in contention sees the first.
const PLACES: usize = 4_096;
/// Places looked at for an address.
const PROBES: usize = 16;

struct Place {
    address: AtomicU64,
    /// Address of the record; 0 while it is being made.
    record: AtomicUsize,
}

static TABLE: [Place; PLACES] = [const { Place { address: AtomicU64::new(0), record: AtomicUsize::new(0) } }; PLACES];

/// A wait that ended with the lock, not counted yet.
#[derive(Clone, Copy)]
struct Kept {
    record: &'static LockRecord,
    wait: WaitCount,
    since_ns: u64,
    epoch: u64,
}

/// Counts what is kept when the thread ends.
struct Last(Cell<Option<Kept>>);

impl Drop for Last {
    fn drop(&mut self) {
        count(self.0.take());
    }
}

thread_local! {
    static KEPT: Last = const { Last(Cell::new(None)) };
}

fn count(kept: Option<Kept>) {
    let Some(Kept { record, wait, since_ns, epoch }) = kept else { return };
    if epoch != segment::epoch() {
        return; // it was the parent's
    }
    record.count_wait(&wait);
    let outcome = if wait.handed_over { Outcome::HandedOver } else { Outcome::Acquired };
    events::note(record.id(), 0, since_ns, wait.ns, outcome);
    segment::stay_findable(since_ns.saturating_add(wait.ns));
}

/// The record of the lock at `key`'s address.
fn record_of(key: LockKey) -> Option<&'static LockRecord> {
    let address = key.id();
    // Fibonacci hashing (Knuth, TAOCP 6.4).
    let first = (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52) as usize;
    for probe in 0..PROBES {
        let place = &TABLE[(first + probe) % PLACES];
        let known = place.address.load(Ordering::Relaxed);
        if known == 0 && place.address.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let identity =
                Identity { id: address, kind: Kind::Native, name: None, site: None, counted: false, before: 0, owner: 0 };
            let record = locks::register(&identity);
            record.published();
            // pairs with: the acquire load below.
            place.record.store(core::ptr::from_ref(record).addr(), Ordering::Release);
            return Some(record);
        }
        if place.address.load(Ordering::Relaxed) == address {
            // pairs with: the release store above.
            let record = place.record.load(Ordering::Acquire) as *const LockRecord;
            // SAFETY: null, or from `register`; never forgotten.
            return unsafe { record.as_ref() };
        }
    }
    None
}

/// A thread that is about to sleep for a lock.
pub(super) struct Asleep {
    record: Option<&'static LockRecord>,
    thread: Option<&'static threads::ThreadRecord>,
    since_ns: u64,
}

impl Asleep {
    pub(super) fn begin(key: LockKey, since_ns: u64) -> Self {
        let _ = KEPT.try_with(|kept| count(kept.0.take()));
        let (record, thread) = (record_of(key), threads::current());
        if let Some(record) = record {
            record.begin_wait();
        }
        if let Some(thread) = thread {
            thread.begin_wait(0, key.id(), since_ns);
        }
        Self { record, thread, since_ns }
    }

    /// It ended, `ns` after it began.
    pub(super) fn end(self, acquired: bool, ns: u64, stats: &WaitStats) {
        if let Some(thread) = self.thread {
            thread.end_wait(ns, stats.parks, stats.polls);
        }
        let Some(record) = self.record else { return };
        record.end_wait();
        if acquired {
            let wait = WaitCount { ns, parks: stats.parks, handed_over: stats.handed_over };
            let kept = Kept { record, wait, since_ns: self.since_ns, epoch: segment::epoch() };
            // Late in a thread's end there is no place to keep it.
            if KEPT.try_with(|place| place.0.set(Some(kept))).is_err() {
                count(Some(kept));
            }
        } else {
            record.count_timeout(ns, stats.parks);
            events::note(record.id(), 0, self.since_ns, ns, Outcome::TimedOut);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::telemetry::layout::counters;
    use crate::{Fairness, Lock};
    use std::time::Duration;

    #[test]
    fn a_wait_that_slept_is_counted_after_it() {
        let lock: &'static Lock = Box::leak(Box::new(Lock::new()));
        lock.raw_lock(Fairness::Balanced);
        let waiter = std::thread::spawn(|| drop(lock.lock()));
        while lock.line_counts().2 != 0 || super::record_of(lock.key()).is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let record = super::record_of(lock.key()).unwrap();
        while record.counter(counters::WAITERS) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(10));
        // SAFETY: held by this thread.
        unsafe { lock.raw_unlock() };
        waiter.join().unwrap();
        // Counted by the thread's end, which `join` may come a moment before.
        for _ in 0..1_000 {
            if record.counter(counters::CONTENDED) == 1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(record.counter(counters::CONTENDED), 1);
        assert_eq!(record.counter(counters::WAITERS), 0);
        assert!(record.counter(counters::WAIT_NS) >= 10_000_000);
        lock.raw_lock(Fairness::Balanced);
        assert!(lock.try_lock_for(Duration::from_millis(2)).is_none());
        assert_eq!(record.counter(counters::TIMEOUTS), 1);
    }
}
