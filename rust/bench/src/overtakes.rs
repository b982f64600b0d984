//! Overtakes: acquisitions served although somebody who had arrived earlier was still waiting; and, seen from the other
//! side, acquisitions that were overtaken at least once. An interrupt between a thread's stamp and its draw lets hundreds
//! pass, of a fair lock too: hundreds of overtakes, but one that was overtaken.
//!
//! Each thread keeps a log of (order of service, arrival) in memory of its own; the count is taken after the round. The logs
//! are bounded, so in long rounds only the first acquisitions are examined; the result says how many.

/// Arrivals this close, in nanoseconds, are simultaneous. A stamp says when a thread asked; a lock learns of it when the
/// lock's cache line has travelled to that thread's CPU, some 50-150 ns later under contention, and until then the CPU that
/// has the line can ask again. No lock can keep an order that it cannot see.
const SIMULTANEOUS_NS: u32 = 100;

/// Arrivals fit 32 bits of this many ns times a power of two.
const STAMP_BITS: u32 = 32;

/// Log entries of a round, over all threads: 32 MB, enough for about a second at the highest rates seen here.
const ROUND_ENTRIES: usize = 1 << 22;

/// No lock serves faster than this, so a shorter round needs fewer entries. Acquisitions a second.
const HIGHEST_RATE: f64 = 50e6;

/// Sizes of the logs of a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogPlan {
    entries: usize,
    shift: u32,
}

impl LogPlan {
    pub(crate) fn new(seconds: f64, threads: usize, locks: usize) -> Self {
        let expected = (seconds * HIGHEST_RATE) as usize;
        let span_ns = (seconds * 1.25e9).max(1.0) as u64;
        Self {
            entries: expected.min(ROUND_ENTRIES) / threads / locks + 64,
            shift: (u64::BITS - span_ns.leading_zeros()).saturating_sub(STAMP_BITS),
        }
    }

    /// A log of one thread for one lock, its memory already touched so that no page fault falls into the round.
    pub(crate) fn log(self) -> ServiceLog {
        let mut entries = vec![(1, 1); self.entries];
        entries.clear();
        ServiceLog { entries, shift: self.shift, missed: u64::MAX }
    }
}

/// The acquisitions of one lock by one thread.
#[derive(Debug)]
pub(crate) struct ServiceLog {
    entries: Vec<(u32, u32)>,
    shift: u32,
    missed: u64,
}

impl ServiceLog {
    /// Notes the acquisition that was number `served` (from 0) of its lock, by a thread that arrived `arrived_ns` after the
    /// round's start.
    #[inline]
    pub(crate) fn push(&mut self, served: u64, arrived_ns: u64) {
        let arrived = arrived_ns >> self.shift;
        match (u32::try_from(served), u32::try_from(arrived)) {
            (Ok(served), Ok(arrived)) if self.entries.len() < self.entries.capacity() => self.entries.push((served, arrived)),
            _ => self.missed = self.missed.min(served),
        }
    }
}

/// Overtakes of one lock, and the acquisitions among which they were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Overtakes {
    /// Acquisitions that overtook somebody.
    pub overtaking: u64,
    /// Acquisitions that were overtaken.
    pub overtaken: u64,
    pub examined: u64,
}

impl core::ops::AddAssign for Overtakes {
    fn add_assign(&mut self, other: Self) {
        self.overtaking += other.overtaking;
        self.overtaken += other.overtaken;
        self.examined += other.examined;
    }
}

/// Counts the overtakes of one lock from the logs of all its threads.
pub(crate) fn count(logs: &[&ServiceLog]) -> Overtakes {
    let complete = logs.iter().map(|log| log.missed).min().unwrap_or(0);
    let logged: usize = logs.iter().map(|log| log.entries.len()).sum();
    let examined = usize::try_from(complete).map_or(logged, |complete| complete.min(logged));
    let mut arrivals = vec![0; examined];
    for &(served, arrived) in logs.iter().flat_map(|log| &log.entries) {
        if let Some(place) = arrivals.get_mut(served as usize) {
            *place = arrived;
        }
    }
    let margin = logs.first().map_or(0, |log| SIMULTANEOUS_NS >> log.shift);
    Overtakes { overtaking: overtaking(&arrivals, margin), overtaken: overtaken(&arrivals, margin), examined: examined as u64 }
}

/// Arrivals in order of service: how many were served after one that came more than `margin` later.
fn overtaken(arrivals: &[u32], margin: u32) -> u64 {
    let mut latest_earlier = 0;
    let mut count = 0;
    for &arrived in arrivals {
        count += u64::from(latest_earlier > arrived.saturating_add(margin));
        latest_earlier = latest_earlier.max(arrived);
    }
    count
}

/// Arrivals in order of service: how many were served before one that came more than `margin` earlier.
fn overtaking(arrivals: &[u32], margin: u32) -> u64 {
    let mut earliest_later = u32::MAX;
    let mut count = 0;
    for &arrived in arrivals.iter().rev() {
        count += u64::from(earliest_later.saturating_add(margin) < arrived);
        earliest_later = earliest_later.min(arrived);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_of_arrival_overtakes_nobody() {
        for arrivals in [&[][..], &[1, 2, 3, 9], &[4, 4, 4]] {
            // equal stamps prove nothing
            assert_eq!((overtaking(arrivals, 0), overtaken(arrivals, 0)), (0, 0));
        }
    }

    #[test]
    fn each_service_before_an_earlier_arrival_counts_once() {
        let both = |arrivals: &[u32]| (overtaking(arrivals, 0), overtaken(arrivals, 0));
        assert_eq!(both(&[2, 1]), (1, 1));
        assert_eq!(both(&[5, 6, 7, 1]), (3, 1)); // one waiter starved by three
        assert_eq!(both(&[4, 3, 2, 1]), (3, 3)); // last in, first out
        assert_eq!(both(&[1, 9, 2, 3, 10]), (1, 2));
    }

    proptest! {
        #[test]
        fn the_count_is_the_definition(arrivals in prop::collection::vec(0_u32..50, 0..60), margin in 0_u32..10) {
            let by_definition = (0..arrivals.len())
                .filter(|&i| arrivals[i + 1..].iter().any(|&later| later + margin < arrivals[i]))
                .count() as u64;
            prop_assert_eq!(overtaking(&arrivals, margin), by_definition);
            let other_side =
                (0..arrivals.len()).filter(|&i| arrivals[..i].iter().any(|&earlier| earlier > arrivals[i] + margin)).count() as u64;
            prop_assert_eq!(overtaken(&arrivals, margin), other_side);
        }
    }

    #[test]
    fn logs_are_woven_together_by_order_of_service() {
        let plan = LogPlan::new(0.001, 2, 1);
        let (mut a, mut b) = (plan.log(), plan.log());
        for (served, arrived) in [(0, 1_000), (3, 4_000)] {
            a.push(served, arrived);
        }
        for (served, arrived) in [(1, 3_000), (2, 2_000)] {
            b.push(served, arrived);
        }
        assert_eq!(count(&[&a, &b]), Overtakes { overtaking: 1, overtaken: 1, examined: 4 });
    }

    #[test]
    fn what_a_full_log_missed_is_not_examined() {
        let plan = LogPlan { entries: 2, shift: 0 };
        let (mut a, mut b) = (plan.log(), plan.log());
        for served in [0, 1, 2] {
            a.push(served, 10_000 - 1_000 * served);
        }
        b.push(3, 1);
        assert_eq!(count(&[&a, &b]), Overtakes { overtaking: 1, overtaken: 1, examined: 2 });
        assert_eq!(count(&[]), Overtakes::default());
    }

    #[test]
    fn long_rounds_use_coarser_stamps() {
        assert_eq!(LogPlan::new(1.0, 2, 1).shift, 0);
        assert_eq!(LogPlan::new(10.0, 2, 1).shift, 2);
        let plan = LogPlan::new(3_600.0, 1, 1);
        assert!(u32::try_from(3_600_000_000_000_u64 >> plan.shift).is_ok());
    }
}
