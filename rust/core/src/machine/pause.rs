//! How long one spin hint takes here, and how many make one policy unit.
//!
//! A hint costs about 10 cycles on old x86, 140 on some newer ones, next to nothing on some ARM cores (there the standard
//! library's hint is an `isb`, worth tens of cycles): delays counted in hints would mean something else on every machine.

use super::cached;
use crate::policy::constants::UNIT_NS;
use std::hint::spin_loop;
use std::sync::OnceLock;
use std::time::Instant;

/// A batch must take at least this long, in ns, to be measured. Reason: far above a clock's step (100 ns on Windows); doubling
/// ends below twice this, of the order of the 4,096 cycles of close pauses after which Intel's pause-loop exiting hands the
/// CPU to the host.
const BATCH_NS: f64 = 1_000.0;

/// Spin hints of the largest batch: where a hint costs nothing even this many may end within [`BATCH_NS`].
const BATCH_MAX: u32 = 4_096;

/// Batches measured, of which the median counts. Reason: an odd number that still stands when four were disturbed;
/// all of it takes some 20 us.
const BATCHES: usize = 9;

/// Bounds of a believable cost, in ns: a quarter of a nanosecond is one cycle at 4 GHz, and a hint that seems to take
/// longer than a microsecond was measured on a CPU that was taken away.
const PAUSE_NS_RANGE: (f64, f64) = (0.25, 1_000.0);

#[derive(Debug, Clone, Copy)]
struct Calibration {
    pause_ns: f64,
    spins_per_unit: u32,
}

fn calibration() -> &'static Calibration {
    static CELL: OnceLock<Calibration> = OnceLock::new();
    cached(&CELL, || {
        let pause_ns = believable(measure());
        Calibration { pause_ns, spins_per_unit: spins_for(pause_ns) }
    })
}

/// Time of one spin hint on this machine, in ns, 0.25 to 1000. Measured at first use (some 20 us), then kept.
pub fn pause_ns() -> f64 {
    calibration().pause_ns
}

/// Spin hints that take at least one policy unit of [`UNIT_NS`], 1 to 16.
pub fn spins_per_unit() -> u32 {
    calibration().spins_per_unit
}

/// What one policy unit really takes on this machine, in ns: [`UNIT_NS`], or one spin hint where that takes longer.
pub fn unit_ns() -> f64 {
    let calibration = calibration();
    (calibration.pause_ns * f64::from(calibration.spins_per_unit)).max(UNIT_NS)
}

/// Spends `n` policy units in spin hints. Out of line, since callers are cold by nature; the product saturates.
#[inline(never)]
pub fn spin_units(n: u64) {
    spin(n.saturating_mul(u64::from(spins_per_unit())));
}

#[inline]
fn spin(hints: u64) {
    for hint in 0..hints {
        spin_loop();
        // Where the hint is no instruction at all, nothing else would keep the loop alive.
        if cfg!(not(any(
            target_arch = "x86",
            target_arch = "x86_64",
            target_arch = "arm",
            target_arch = "aarch64",
            target_arch = "riscv32",
            target_arch = "riscv64"
        ))) {
            std::hint::black_box(hint);
        }
    }
}

/// Spin hints for one unit when one hint takes `pause_ns`: rounded up, at least one.
fn spins_for(pause_ns: f64) -> u32 {
    (UNIT_NS / pause_ns).ceil().max(1.0) as u32
}

/// `ns` brought into [`PAUSE_NS_RANGE`]; what is no number counts as no time.
fn believable(ns: f64) -> f64 {
    let (low, high) = PAUSE_NS_RANGE;
    // `max` takes the bound when the other side is not a number.
    ns.max(low).min(high)
}

/// Median time of one hint, in ns, the clock's own cost taken off. May be 0 or disturbed: see [`believable`].
fn measure() -> f64 {
    let clock = median(|| timed(0));
    let mut hints = 1;
    while hints < BATCH_MAX && timed(hints) - clock < BATCH_NS {
        hints *= 2;
    }
    (median(|| timed(hints)) - clock) / f64::from(hints)
}

fn timed(hints: u32) -> f64 {
    let start = Instant::now();
    spin(u64::from(hints));
    start.elapsed().as_nanos() as f64
}

fn median(mut one: impl FnMut() -> f64) -> f64 {
    let mut all: [f64; BATCHES] = std::array::from_fn(|_| one());
    all.sort_by(f64::total_cmp);
    all[BATCHES / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_rounded_up_to_whole_hints() {
        for (pause_ns, spins) in [(10.0, 1), (46.0, 1), (4.0, 1), (3.9, 2), (2.0, 2), (1.0, 4), (0.25, 16), (1_000.0, 1)] {
            assert_eq!(spins_for(pause_ns), spins, "{pause_ns}");
        }
    }

    #[test]
    fn nonsense_is_brought_into_range() {
        for (measured, taken) in
            [(0.0, 0.25), (-3.0, 0.25), (f64::NAN, 0.25), (f64::INFINITY, 1_000.0), (5e6, 1_000.0), (9.5, 9.5)]
        {
            assert_eq!(believable(measured).to_bits(), f64::to_bits(taken), "{measured}");
            assert!((1..=16).contains(&spins_for(believable(measured))));
        }
    }

    #[test]
    fn the_median_shrugs_off_disturbed_batches() {
        let mut values = [900.0, 10.0, 11.0, 5_000.0, 10.0, 9.0, 70_000.0, 10.0, 12.0].into_iter();
        let seen = median(|| values.next().unwrap());
        assert_eq!(seen.to_bits(), 11.0_f64.to_bits());
    }

    #[test]
    fn this_machine_is_calibrated_once_and_agrees_with_itself() {
        let first = pause_ns();
        assert_eq!(first.to_bits(), pause_ns().to_bits());
        assert_eq!(spins_per_unit(), spins_for(first));
        // A long spin takes at least about what the calibration promises: only the lower side is certain, since a busy
        // machine makes any spin longer, and half is allowed for a calibration that was itself disturbed.
        let units = 250_000;
        let best = (0..5).map(|_| {
            let start = Instant::now();
            spin_units(units);
            start.elapsed().as_nanos() as f64
        });
        let best = best.fold(f64::INFINITY, f64::min);
        let promised = units as f64 * f64::from(spins_per_unit()) * first;
        assert!(best > promised / 2.0 || first > 200.0, "{best} ns for a promise of {promised} ns");
    }

    #[test]
    fn no_units_are_no_time() {
        let start = Instant::now();
        spin_units(0);
        assert!(start.elapsed().as_secs() < 1);
    }
}
