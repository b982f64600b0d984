//! Preset `uncontended`: what one lock and unlock costs when nobody competes.
//!
//! The pair is timed in small batches, and between them the same loop without the pair; medians of both leave out the
//! batches that an interrupt or another process hit. The process has a second thread throughout, the coordinator, asleep: C
//! libraries skip atomic instructions in single-threaded processes.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use crate::adapter::Adapter;
use crate::crew::{self, Plan};
use crate::gate::{Gate, Member};
use crate::histogram::Histogram;
use crate::order::order;
use crate::result::{PairNs, RoundResult, Waits};
use crate::round;
use crate::spec::{BenchError, Mode, RoundSpec};

/// Turns of a batch: at 5-50 ns a turn some 20-200 us, long against two readings of the clock (50 ns) and short against
/// the timer tick (1-4 ms).
const BATCH: usize = 4_096;

/// A lock on lines of its own.
#[repr(align(128))]
struct Alone<A>(A);

/// What the measuring thread brings back, in nanoseconds a turn.
struct Batches {
    pairs: Vec<f64>,
    loops: Vec<f64>,
    turns: u64,
    waits: Histogram,
}

/// Runs one round.
pub(crate) fn run<A: Adapter>(plan: &Plan<'_>, spec: &RoundSpec, config: &A::Config) -> Result<RoundResult, BenchError> {
    let locks: Arc<[Alone<A>]> = (0..spec.lock_count).map(|_| Alone(A::new())).collect();
    // A random order, or the processor would fetch the next lock before it is asked for.
    let visit = order(spec.seed, spec.lock_count, 1).remove(0);
    let (config, waits) = (config.clone(), spec.mode == Mode::Waits);
    let finished = crew::run(plan, move |member: &Member<'_>| {
        let mut ctx = A::ctx(&config);
        let locks: Vec<&Alone<A>> = visit.iter().map(|&which| &locks[which]).collect();
        let shift = member.begin()?;
        let batches = measure(&locks, &mut ctx, member.gate, waits);
        Some((batches, shift.end()))
    })?;
    let mut result = round::common(&finished);
    let batches = &finished.threads[0];
    result.acquisitions = vec![batches.turns];
    result.seconds = batches.pairs.iter().sum::<f64>() * batches.turns as f64 / batches.pairs.len().max(1) as f64 / 1e9;
    let (gross, loop_ns) = (median(batches.pairs.iter().copied()), median(batches.loops.iter().copied()));
    result.pair_ns = Some(PairNs { net: gross - loop_ns, gross, loop_ns });
    result.wait = waits.then(|| Waits::of(&batches.waits));
    Ok(result)
}

fn measure<A: Adapter>(locks: &[&Alone<A>], ctx: &mut A::Ctx, gate: &Gate, time_waits: bool) -> Batches {
    let mut batches = Batches { pairs: Vec::new(), loops: Vec::new(), turns: 0, waits: Histogram::new() };
    // Whole sweeps over the locks, so that all are used alike.
    let sweeps = (BATCH / locks.len()).max(1);
    let turns = sweeps * locks.len();
    // At least one batch of each, however short the round.
    loop {
        let start = Instant::now();
        pairs(locks, ctx, sweeps);
        let middle = Instant::now();
        loops(locks, sweeps);
        let end = Instant::now();
        batches.pairs.push((middle - start).as_nanos() as f64 / turns as f64);
        batches.loops.push((end - middle).as_nanos() as f64 / turns as f64);
        batches.turns += turns as u64;
        if time_waits {
            time_some(locks, ctx, &mut batches.waits);
        }
        if gate.stopped() {
            return batches;
        }
    }
}

/// The loop with the pair in it. `black_box(())` costs no instruction: it keeps the compiler from merging turns.
#[inline(never)]
fn pairs<A: Adapter>(locks: &[&Alone<A>], ctx: &mut A::Ctx, sweeps: usize) {
    if let [Alone(lock)] = locks {
        for _ in 0..sweeps {
            drop(lock.lock(ctx));
            black_box(());
        }
    } else {
        for _ in 0..sweeps {
            for Alone(lock) in locks {
                drop(black_box(lock).lock(ctx));
                black_box(());
            }
        }
    }
}

/// The same loop without the pair.
#[inline(never)]
fn loops<A: Adapter>(locks: &[&Alone<A>], sweeps: usize) {
    if let [_] = locks {
        for _ in 0..sweeps {
            black_box(());
        }
    } else {
        for _ in 0..sweeps {
            for Alone(lock) in locks {
                black_box(lock);
                black_box(());
            }
        }
    }
}

/// Acquisitions timed one by one, outside the batches (mode `waits`).
fn time_some<A: Adapter>(locks: &[&Alone<A>], ctx: &mut A::Ctx, waits: &mut Histogram) {
    let clock = crate::clock::Clock::get();
    for Alone(lock) in locks.iter().take(BATCH) {
        let asked = clock.now();
        let held = lock.lock(ctx);
        let served = clock.now();
        drop(held);
        waits.add(clock.ns(served.saturating_sub(asked)));
    }
}

/// The middle value, or the mean of the two middle ones; 0 for none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_id::{locks, parse_lock};
    use crate::round::run_round;
    use crate::spec::Preset;
    use crate::testing::alone;

    #[test]
    fn the_median_is_the_middle() {
        assert!(median([]).abs() < 1e-12);
        assert!((median([9.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median([4.0, 1.0, 2.0, 100.0]) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn every_lock_has_a_pair_cost() {
        let _alone = alone();
        for info in locks().iter().filter(|info| info.available) {
            let lock = parse_lock(&info.pattern.replace(":N", ":50")).unwrap();
            for (lock_count, mode) in [(1, Mode::Throughput), (100, Mode::Waits)] {
                let spec = RoundSpec { seconds: 0.005, lock_count, mode, ..RoundSpec::new(Preset::Uncontended, lock) };
                let result = run_round(&spec, &|| false).unwrap();
                let pair = result.pair_ns.unwrap();
                assert!((pair.gross - pair.loop_ns - pair.net).abs() < 1e-9);
                assert!(pair.gross > 0.0 && result.seconds > 0.0);
                assert!(result.acquisitions[0] > 0 && result.acquisitions[0] % lock_count as u64 == 0);
                assert_eq!(result.wait.is_some(), mode == Mode::Waits);
            }
        }
    }
}
