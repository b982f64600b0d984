//! The clock of a round: the processor's cycle counter where it is usable, else the monotonic clock.
//!
//! Why the counter: a stamp before and one after every wait is the price of timing waits. Measured on Zen 1 under KVM: 15 ns
//! a reading, the system's clock 39 ns. It is used if the processor declares it invariant and
//! the kernel has not thrown it out for being out of step between CPUs. It is not ordered with other instructions: a stamp
//! may be off by the few dozen instructions that are in flight, some ten nanoseconds.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the counter is compared with the monotonic clock. 20 ms leave an error of about one in 200,000.
const CALIBRATION: Duration = Duration::from_millis(20);

/// What a tick is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticks {
    /// The processor's cycle counter, at its own fixed rate.
    Tsc,
    /// Nanoseconds of the monotonic clock.
    Nanoseconds,
}

impl Ticks {
    /// `tsc` or `ns`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tsc => "tsc",
            Self::Nanoseconds => "ns",
        }
    }
}

/// Reads ticks, and turns differences of them into nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    base: Instant,
    ticks: Ticks,
    /// Nanoseconds a tick, with 32 fraction bits.
    ns_per_tick: u64,
}

impl Clock {
    /// The clock of this process, calibrated at first use.
    pub(crate) fn get() -> Self {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        *CLOCK.get_or_init(|| {
            let ticks = if tsc_usable() { Ticks::Tsc } else { Ticks::Nanoseconds };
            let mut clock = Self { base: Instant::now(), ticks, ns_per_tick: 1 << 32 };
            if ticks == Ticks::Tsc {
                let (start, first) = (Instant::now(), clock.now());
                while start.elapsed() < CALIBRATION {
                    core::hint::spin_loop();
                }
                let (passed, last) = (start.elapsed(), clock.now());
                clock.ns_per_tick = ((passed.as_nanos() << 32) / u128::from((last - first).max(1))) as u64;
            }
            clock
        })
    }

    pub(crate) fn ticks(self) -> Ticks {
        self.ticks
    }

    /// Now, in ticks. Comparable between threads.
    #[inline]
    pub(crate) fn now(self) -> u64 {
        match self.ticks {
            Ticks::Tsc => rdtsc(),
            Ticks::Nanoseconds => self.base.elapsed().as_nanos() as u64,
        }
    }

    /// The length of a difference of two stamps.
    #[inline]
    pub(crate) fn ns(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.ns_per_tick)) >> 32) as u64
    }

    /// The difference of two stamps this long apart.
    pub(crate) fn ticks_in(self, ns: u64) -> u64 {
        ((u128::from(ns) << 32) / u128::from(self.ns_per_tick.max(1))) as u64
    }

    pub(crate) fn seconds(self, ticks: u64) -> f64 {
        self.ns(ticks) as f64 / 1e9
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn rdtsc() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; it has no operands.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn rdtsc() -> u64 {
    unreachable!("`tsc_usable` is false here")
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn tsc_usable() -> bool {
    use ticketlock::machine::cpuid::{CpuidSource, Processor};
    /// Highest leaf of the extended range, in EAX.
    const EXTENDED: u32 = 0x8000_0000;
    /// Leaf of advanced power management; EDX bit 8: the counter's rate is invariant. Source: AMD and Intel manuals.
    const POWER: u32 = 0x8000_0007;
    let invariant = Processor.leaf(EXTENDED, 0)[0] >= POWER && Processor.leaf(POWER, 0)[3] & (1 << 8) != 0;
    // The kernel drops the counter from this list when it finds CPUs out of step. Other systems do not say.
    let listed = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/available_clocksource")
        .map_or(!cfg!(target_os = "linux"), |list| list.split_whitespace().any(|name| name == "tsc"));
    invariant && listed
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn tsc_usable() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds() {
        let clock = Clock { base: Instant::now(), ticks: Ticks::Nanoseconds, ns_per_tick: (1 << 32) / 2 };
        assert_eq!(clock.ns(10), 5);
        assert_eq!(clock.ns(1 << 50), 1 << 49);
        assert_eq!(clock.ticks_in(5), 10);
        assert!((clock.seconds(4_000_000_000) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn time_goes_forward() {
        let clock = Clock::get();
        let (first, start) = (clock.now(), Instant::now());
        while start.elapsed() < Duration::from_millis(2) {}
        // No upper bound: the machine may be busy. Half, because calibration may have been disturbed.
        assert!(clock.ns(clock.now() - first) >= 1_000_000);
    }
}
