//! When a contended lock changes hands by force, and how long a waiter leaves the running threads alone.
//!
//! A lock that goes to whoever runs costs least: the line of its cache stays where it is and nobody is woken. But a running
//! thread can then keep it for seconds. So the holder hands the lock over while it still owns it, at a pace: often enough
//! that nobody waits long, seldom enough that the switches cost little.

use core::fmt;
use core::str::FromStr;

use super::constants::{
    OVERDUE_NS, PACE_BALANCED_NS, PACE_THROUGHPUT_NS, QUIET_RELEASES, STANDBY_FIRST_LOOK_NS, STRICT_PATIENCE_NS,
};

/// How a lock weighs order against throughput once its waiters sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Fairness {
    /// Hands over about every 5 to 10 ms.
    Throughput,
    /// Hands over about every 0.3 to 0.8 ms.
    #[default]
    Balanced,
    /// Hands over to everybody who has waited for 1 ms: with short sections and many waiters, a switch per acquisition.
    Strict,
}

impl Fairness {
    /// All, in the order of their cost.
    pub const ALL: [Self; 3] = [Self::Throughput, Self::Balanced, Self::Strict];

    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Balanced => "balanced",
            Self::Strict => "strict",
        }
    }

    /// Time from one hand-over of a lock to the next, in ns. `chance` is uniform over `u32`: random, so that the pace cannot
    /// fall into step with the program. Source: the idea is `WebKit`'s "time to be fair".
    #[must_use]
    pub fn pace_ns(self, chance: u32) -> u64 {
        let (least, most) = match self {
            Self::Throughput => PACE_THROUGHPUT_NS,
            Self::Balanced => PACE_BALANCED_NS,
            Self::Strict => return 0,
        };
        least + u64::from(chance) % (most - least)
    }
}

impl fmt::Display for Fairness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Not the name of a fairness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownFairness;

impl fmt::Display for UnknownFairness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("accepted are 'throughput', 'balanced' and 'strict'")
    }
}

impl core::error::Error for UnknownFairness {}

impl FromStr for Fairness {
    type Err = UnknownFairness;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|fairness| fairness.name() == name).ok_or(UnknownFairness)
    }
}

/// What a holder does about the eldest sleeper when it releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Succession {
    /// Give it the lock.
    HandOver,
    /// Release, and wake it to compete.
    Wake,
}

/// The eldest sleeper, as a releasing holder sees it.
#[derive(Debug, Clone, Copy)]
pub struct Eldest {
    /// What it asked for.
    pub fairness: Fairness,
    /// Since when it waits, ns of a monotonic clock.
    pub since_ns: u64,
    /// It has kept watch until its turn came.
    pub due: bool,
}

/// Decides at a release; `next_fair_ns` is when the lock's next hand-over is due.
#[must_use]
pub fn succession(eldest: Eldest, now_ns: u64, next_fair_ns: u64) -> Succession {
    let hand_over = match eldest.fairness {
        Fairness::Strict => now_ns.saturating_sub(eldest.since_ns) >= STRICT_PATIENCE_NS,
        Fairness::Throughput | Fairness::Balanced => eldest.due || now_ns >= next_fair_ns,
    };
    if hand_over { Succession::HandOver } else { Succession::Wake }
}

/// Whether a holder hands over although somebody keeps watch: he should have come by now.
#[must_use]
pub const fn is_overdue(now_ns: u64, next_fair_ns: u64) -> bool {
    now_ns >= next_fair_ns.saturating_add(OVERDUE_NS)
}

/// Whether the `count`th release in a quiet lane looks at the clock.
#[must_use]
pub const fn looks_at_clock(count: u32) -> bool {
    count % QUIET_RELEASES == 0 || (count < QUIET_RELEASES && count.is_power_of_two())
}

/// The eldest sleeper's watch while running threads keep the lock among themselves: it is awake for a look now and then, at
/// growing distances, until the next hand-over is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    until_ns: u64,
    step_ns: u64,
}

impl Watch {
    /// A watch that begins at `now_ns`. With `looks` it looks at the lock before its end too, so that a lock left free is
    /// found soon; without (where a look that wins stops the one thread that can run), only at its end.
    #[must_use]
    pub fn new(now_ns: u64, next_fair_ns: u64, looks: bool) -> Self {
        let until_ns = next_fair_ns.max(now_ns.saturating_add(STANDBY_FIRST_LOOK_NS));
        Self { until_ns, step_ns: if looks { STANDBY_FIRST_LOOK_NS } else { u64::MAX } }
    }

    /// When to look next.
    pub fn next_look_ns(&mut self, now_ns: u64) -> u64 {
        let at = now_ns.saturating_add(self.step_ns).min(self.until_ns);
        self.step_ns = self.step_ns.saturating_mul(2);
        at
    }

    /// Whether the watch is over: the next release is due to its keeper.
    #[must_use]
    pub const fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_refused() {
        for fairness in Fairness::ALL {
            assert_eq!(fairness.to_string().parse(), Ok(fairness));
        }
        assert_eq!(Fairness::default(), Fairness::Balanced);
        for bad in ["", "Balanced", "fair", "strict "] {
            assert_eq!(bad.parse::<Fairness>(), Err(UnknownFairness), "{bad:?}");
        }
    }

    #[test]
    fn a_pace_stays_within_its_bounds() {
        for chance in [0, 1, 12_345, u32::MAX] {
            assert!((PACE_BALANCED_NS.0..PACE_BALANCED_NS.1).contains(&Fairness::Balanced.pace_ns(chance)));
            assert!((PACE_THROUGHPUT_NS.0..PACE_THROUGHPUT_NS.1).contains(&Fairness::Throughput.pace_ns(chance)));
            assert_eq!(Fairness::Strict.pace_ns(chance), 0);
        }
    }

    #[test]
    fn the_holder_hands_over_when_it_is_due() {
        let eldest = |fairness, due| Eldest { fairness, since_ns: 1_000, due };
        let balanced = eldest(Fairness::Balanced, false);
        assert_eq!(succession(balanced, 5_000, 5_001), Succession::Wake);
        assert_eq!(succession(balanced, 5_001, 5_001), Succession::HandOver);
        assert_eq!(succession(eldest(Fairness::Balanced, true), 0, u64::MAX), Succession::HandOver);
        let strict = eldest(Fairness::Strict, true);
        assert_eq!(succession(strict, STRICT_PATIENCE_NS + 999, 0), Succession::Wake);
        assert_eq!(succession(strict, STRICT_PATIENCE_NS + 1_000, u64::MAX), Succession::HandOver);
    }

    #[test]
    fn quiet_releases_look_at_the_clock_at_doubling_distances_and_then_steadily() {
        let looks: Vec<u32> = (1..=1_024).filter(|count| looks_at_clock(*count)).collect();
        assert_eq!(looks, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1_024]);
        assert!(!is_overdue(1_000 + OVERDUE_NS - 1, 1_000));
        assert!(is_overdue(1_000 + OVERDUE_NS, 1_000));
    }

    #[test]
    fn a_watch_looks_at_growing_distances_and_ends_when_due() {
        let first = STANDBY_FIRST_LOOK_NS;
        let mut watch = Watch::new(1_000, 1_000 + 5 * first, true);
        assert_eq!(watch.next_look_ns(1_000), 1_000 + first);
        assert_eq!(watch.next_look_ns(1_000 + first), 1_000 + 3 * first);
        assert_eq!(watch.next_look_ns(1_000 + 3 * first), 1_000 + 5 * first);
        assert!(!watch.is_over(1_000 + 5 * first - 1));
        assert!(watch.is_over(1_000 + 5 * first));
        assert_eq!(Watch::new(0, 9 * first, false).next_look_ns(0), 9 * first);
        // Overdue already: still one look's length, so that the running threads are not disturbed at every release.
        assert_eq!(Watch::new(1_000, 0, false).next_look_ns(1_000), 1_000 + first);
    }
}
