//! The self-tuned delay: fixed point, grown by failed polls, decayed by oversleeping.

use super::constants::{DELAY_DECAY_DIVISOR, DELAY_GROWTH, DELAY_MIN, DELAY_ONE, DELAY_SHIFT};

/// A delay factor in fixed point: 1/256 of a unit per waiter ahead. Never below one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delay(u32);

impl Delay {
    /// One unit: where every delay starts and bottoms.
    pub const MIN: Self = Self(DELAY_MIN);

    /// From fixed-point bits; anything below one unit (an empty slot is 0) is one unit.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(if bits < DELAY_MIN { DELAY_MIN } else { bits })
    }

    /// From whole units, saturating.
    #[must_use]
    pub const fn from_units(units: u32) -> Self {
        Self::from_bits(units.saturating_mul(DELAY_ONE))
    }

    /// The fixed-point bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// In units, with fraction.
    #[must_use]
    pub fn units(self) -> f64 {
        f64::from(self.0) / f64::from(DELAY_ONE)
    }

    /// One unsuccessful poll: 36/256 more while below the cap (so the last step may pass it by under a seventh).
    #[must_use]
    pub const fn grown(self, cap_units: u32) -> Self {
        if self.0 < cap_units.saturating_mul(DELAY_ONE) { Self(self.0.saturating_add(DELAY_GROWTH)) } else { self }
    }

    /// One oversleep: less by `max(delay / 32, 1 unit)` if the delay is at least two units.
    #[must_use]
    pub const fn decayed(self) -> Self {
        if self.0 < 2 * DELAY_ONE {
            return self;
        }
        let part = self.0 / DELAY_DECAY_DIVISOR;
        Self(self.0 - if part > DELAY_ONE { part } else { DELAY_ONE })
    }

    /// One whole unit more, up to the cap (v1 rule).
    #[must_use]
    pub const fn stepped_up(self, cap_units: u32) -> Self {
        match self.0.checked_add(DELAY_ONE) {
            Some(more) if more <= cap_units.saturating_mul(DELAY_ONE) => Self(more),
            _ => self,
        }
    }

    /// One whole unit less, down to one (v1 rule).
    #[must_use]
    pub const fn stepped_down(self) -> Self {
        if self.0 >= 2 * DELAY_ONE { Self(self.0 - DELAY_ONE) } else { Self::MIN }
    }

    /// Units to wait with `waiters` ahead: `delay * waiters`, rounded down. The product has 64 bits: the series' 32-bit one
    /// wraps beyond 1,048 waiters at the native cap.
    #[must_use]
    pub const fn wait_units(self, waiters: u32) -> u64 {
        (self.0 as u64 * waiters as u64) >> DELAY_SHIFT
    }
}

impl Default for Delay {
    fn default() -> Self {
        Self::MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hand-computed from the published rule: (bits before, bits after growth at cap 16000).
    #[test]
    fn growth_is_as_published() {
        for (before, after) in [(256, 292), (292, 328), (328, 364), (4_095_999, 4_096_035), (4_096_000, 4_096_000)] {
            assert_eq!(Delay::from_bits(before).grown(16_000).bits(), after, "from {before}");
        }
        // Guest cap: 16 units are 4096 bits; the last growth may pass the cap by less than one step, and then none.
        assert_eq!(Delay::from_bits(4_095).grown(16).bits(), 4_131);
        assert_eq!(Delay::from_bits(4_131).grown(16).bits(), 4_131);
    }

    /// Hand-computed: below two units nothing; then one unit until delay/32 exceeds one unit (above 32 units).
    #[test]
    fn decay_is_as_published() {
        for (before, after) in [
            (256, 256),
            (511, 511),
            (512, 256),
            (600, 344),
            (8_192, 7_936),         // 32 units: 8192/32 = 256, one unit
            (8_448, 8_184),         // 33 units: 264 off
            (25_600, 24_800),       // 100 units: 800 off
            (4_096_000, 3_968_000), // the native cap: 500 units off
        ] {
            assert_eq!(Delay::from_bits(before).decayed().bits(), after, "from {before}");
        }
    }

    #[test]
    fn wait_is_proportional_and_does_not_wrap() {
        assert_eq!(Delay::MIN.wait_units(3), 3);
        assert_eq!(Delay::from_bits(292).wait_units(7), 7); // 292*7 = 2044, >> 8 = 7
        assert_eq!(Delay::from_bits(292).wait_units(8), 9); // 2336 >> 8
        assert_eq!(Delay::from_units(16_000).wait_units(1_049), 16_784_000);
        assert_eq!(Delay::from_units(16_000).wait_units(u32::MAX), 16_000 * u64::from(u32::MAX));
    }

    #[test]
    fn v1_steps_are_whole_units() {
        assert_eq!(Delay::MIN.stepped_up(1_000), Delay::from_units(2));
        assert_eq!(Delay::from_units(1_000).stepped_up(1_000), Delay::from_units(1_000));
        assert_eq!(Delay::from_bits(u32::MAX).stepped_up(u32::MAX), Delay::from_bits(u32::MAX));
        assert_eq!(Delay::from_units(2).stepped_down(), Delay::MIN);
        assert_eq!(Delay::MIN.stepped_down(), Delay::MIN);
    }
}
