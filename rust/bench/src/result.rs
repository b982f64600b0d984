//! What a round found.

use crate::clock::Ticks;
use crate::histogram::Histogram;
use crate::os::Switches;

/// Whether the figures may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The threads ran as asked.
    Ok,
    /// They did not (see [`RoundResult::why`]): run the round again.
    Invalid,
    /// The round was cancelled: figures up to then.
    Partial,
}

impl Status {
    /// `ok`, `invalid` or `partial`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Invalid => "invalid",
            Self::Partial => "partial",
        }
    }
}

/// Length of a window, in nanoseconds: 100 ms, what a person or a frame of a video waits for. A lock may be fair over
/// seconds and serve nobody else for that long.
pub const WINDOW_NS: u64 = 100_000_000;

/// One round of one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundResult {
    /// Whether the figures may be used.
    pub status: Status,
    /// Why not, in words.
    pub why: Option<String>,
    /// Time in which the acquisitions were made, from the first thread's start to the last one's end. Preset
    /// `uncontended`: the time inside the timed lock loops.
    pub seconds: f64,
    /// Acquisitions of each thread.
    pub acquisitions: Vec<u64>,
    /// CPU time of each thread, in seconds; empty where the system does not say.
    pub cpu_s: Vec<f64>,
    /// CPU time of the whole process during the round, in seconds; `None` where the system does not say.
    pub process_cpu_s: Option<f64>,
    /// Time the hypervisor took from the CPUs in use, in seconds, to 10 ms; `None` where the system does not say.
    pub steal_s: Option<f64>,
    /// Context switches of the threads together; `None` where the system does not say.
    pub context_switches: Option<Switches>,
    /// Timed waits, in mode `waits`.
    pub wait: Option<Waits>,
    /// Runs of consecutive acquisitions; `None` for `uncontended` and `phantom`.
    pub run_length: Option<RunLengths>,
    /// Acquisitions served although an arrival more than 100 ns earlier was waiting, in mode `waits` of contended presets.
    /// (`extra` has `overtaken`: acquisitions that were passed at least once.)
    pub overtakes: Option<u64>,
    /// Acquisitions among which the overtakes were counted: the first ones of a long round.
    pub overtakes_examined: Option<u64>,
    /// The longest time that one thread kept re-acquiring a lock while others waited for it, in mode `waits` of contended
    /// presets with at least two threads.
    pub monopoly_ns: Option<u64>,
    /// Acquisitions of each thread in each whole window of [`WINDOW_NS`] since the round's start, in mode `waits` of
    /// contended presets. By the time of the grant.
    pub windows: Option<Vec<Vec<u64>>>,
    /// Cost of one lock and unlock, preset `uncontended`.
    pub pair_ns: Option<PairNs>,
    /// Length of the round in ticks, preset `fairness`.
    pub cycles: Option<u64>,
    /// What a tick is.
    pub cycles_unit: Ticks,
    /// Figures of one preset only, by name.
    pub extra: Vec<(&'static str, Extra)>,
}

/// A figure of one preset.
#[derive(Debug, Clone, PartialEq)]
pub enum Extra {
    /// One number.
    Number(f64),
    /// A series.
    List(Vec<f64>),
}

/// Timed waits. A wait is the time from just before the acquisition to just after it: an uncontended one is some tens of
/// nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    /// (lowest, highest, count) of each non-empty bucket, in nanoseconds. Bounds are the same in every round.
    pub histogram: Vec<(u64, u64, u64)>,
    /// Longest wait, exact.
    pub max_ns: u64,
    /// Sum of all waits.
    pub sum_ns: u64,
    /// Waits.
    pub count: u64,
}

/// Lengths of runs.
#[derive(Debug, Clone, PartialEq)]
pub struct RunLengths {
    /// (length, runs); exact up to 31, then the lowest length of a bucket at most 1/16 wide.
    pub histogram: Vec<(u64, u64)>,
    /// Longest run, exact.
    pub longest: u64,
    /// Mean run, exact.
    pub mean: f64,
    /// Runs.
    pub runs: u64,
}

/// Nanoseconds of one lock and unlock: medians over many small batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairNs {
    /// `gross - loop_ns`.
    pub net: f64,
    /// A turn of the loop with the pair in it.
    pub gross: f64,
    /// A turn of the same loop without it.
    pub loop_ns: f64,
}

impl Waits {
    pub(crate) fn of(histogram: &Histogram) -> Self {
        Self {
            histogram: histogram.filled().collect(),
            max_ns: histogram.max(),
            sum_ns: histogram.sum(),
            count: histogram.count(),
        }
    }
}

impl RunLengths {
    pub(crate) fn of(histogram: &Histogram) -> Self {
        Self {
            histogram: histogram.filled().map(|(low, _, count)| (low, count)).collect(),
            longest: histogram.max(),
            mean: if histogram.count() == 0 { 0.0 } else { histogram.sum() as f64 / histogram.count() as f64 },
            runs: histogram.count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_lengths_are_summed_up() {
        let mut histogram = Histogram::new();
        for length in [1, 1, 2, 100] {
            histogram.add(length);
        }
        let runs = RunLengths::of(&histogram);
        assert_eq!(runs.histogram, [(1, 2), (2, 1), (100, 1)]);
        assert_eq!((runs.longest, runs.runs), (100, 4));
        assert!((runs.mean - 26.0).abs() < 1e-12);
        assert!(RunLengths::of(&Histogram::new()).mean.abs() < 1e-12);
    }
}
