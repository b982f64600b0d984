//! Work of a given length that touches no memory: a calibrated loop of nothing.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

/// Loops timed per trial: some 10-50 us, long against the clock's resolution and short against a time slice.
const TRIAL_LOOPS: u64 = 50_000;

/// Trials; the median is taken. Odd.
const TRIALS: usize = 21;

/// So many turns of the empty loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Work {
    turns: u64,
}

impl Work {
    /// Work of about `ns` nanoseconds on an undisturbed CPU. Counted in turns, not in time: a descheduled thread finishes
    /// its work later, as real work would be.
    pub(crate) fn of_ns(ns: u64) -> Self {
        Self { turns: turns(ns, turn_ns()) }
    }

    #[inline]
    pub(crate) fn perform(self) {
        for _ in 0..self.turns {
            black_box(());
        }
    }
}

fn turns(ns: u64, turn_ns: f64) -> u64 {
    (ns as f64 / turn_ns).round() as u64
}

/// Nanoseconds a turn, measured once.
fn turn_ns() -> f64 {
    static TURN_NS: OnceLock<f64> = OnceLock::new();
    *TURN_NS.get_or_init(|| {
        let mut trials: Vec<f64> = (0..TRIALS)
            .map(|_| {
                let start = Instant::now();
                Work { turns: TRIAL_LOOPS }.perform();
                start.elapsed().as_nanos() as f64 / TRIAL_LOOPS as f64
            })
            .collect();
        trials.sort_by(f64::total_cmp);
        // A clock too coarse to see the loop must not make the work endless.
        trials[TRIALS / 2].max(0.01)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_proportional_and_nothing_is_nothing() {
        assert_eq!(turns(0, 0.5), 0);
        assert_eq!(turns(100, 0.5), 200);
        assert_eq!(Work::of_ns(0), Work::default());
        assert!(Work::of_ns(10_000).turns > Work::of_ns(100).turns);
    }
}
