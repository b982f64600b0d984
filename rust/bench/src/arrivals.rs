//! Who waits for which lock, and since when: one word a thread, written by that thread around its acquisition.

use crate::sync::{AtomicU64, Ordering};

/// Not waiting. Later than every arrival.
const NOT_WAITING: u64 = u64::MAX;

/// Bits of a word for the lock's number (`MAX_LOCKS` of them). The others count ticks since the round's start: 26 hours of
/// a 3 GHz counter, and a round has at most one.
const LOCK_BITS: u32 = 16;

/// A word on lines of its own.
#[repr(align(128))]
struct Slot(AtomicU64);

/// The words of all threads of a round.
pub(crate) struct Arrivals(Box<[Slot]>);

impl Arrivals {
    pub(crate) fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Slot(AtomicU64::new(NOT_WAITING))).collect())
    }

    /// Thread `me` asks for lock `which`, `ticks` after the round's start.
    #[inline]
    pub(crate) fn arrive(&self, me: u32, which: usize, ticks: u64) {
        // Relaxed: what a holder has not seen yet has only just arrived.
        self.0[me as usize].0.store(ticks << LOCK_BITS | which as u64, Ordering::Relaxed);
    }

    /// Thread `me` holds its lock: called before the release, which is what makes it visible to the next holder.
    #[inline]
    pub(crate) fn served(&self, me: u32) {
        self.0[me as usize].0.store(NOT_WAITING, Ordering::Relaxed);
    }

    /// Arrival of the thread that has waited longest for lock `which`, if any waits. Called by its holder.
    pub(crate) fn longest_waiting(&self, which: usize) -> Option<u64> {
        let words = self.0.iter().map(|slot| slot.0.load(Ordering::Relaxed));
        let waiting = words.filter(|&word| word != NOT_WAITING && word & ((1 << LOCK_BITS) - 1) == which as u64);
        waiting.min().map(|word| word >> LOCK_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{MAX_LOCKS, MAX_SECONDS};

    #[test]
    fn the_longest_waiting_thread_of_each_lock_is_found() {
        let arrivals = Arrivals::new(4);
        assert_eq!(arrivals.longest_waiting(0), None);
        for (me, which, ticks) in [(0, 0, 70), (1, 0, 50), (2, 9, 10), (3, MAX_LOCKS - 1, 3)] {
            arrivals.arrive(me, which, ticks);
        }
        assert_eq!([0, 9, MAX_LOCKS - 1, 1].map(|which| arrivals.longest_waiting(which)), [Some(50), Some(10), Some(3), None]);
        arrivals.served(1);
        assert_eq!(arrivals.longest_waiting(0), Some(70));
    }

    #[test]
    fn every_lock_and_every_stamp_of_the_longest_round_fits() {
        const { assert!(MAX_LOCKS <= 1 << LOCK_BITS) };
        // Ten times as fast as any counter in use.
        assert!((MAX_SECONDS * 20e9) as u64 >> (u64::BITS - LOCK_BITS) == 0);
    }
}
