//! The back-off rules by name.

use core::fmt;
use core::str::FromStr;

use super::constants::{V1_TWO_EIGHTHS, V1_TWO_POINT_SEVEN_EIGHTHS};

/// How a waiter spaces its polls. The names are the identifiers used by the command line, Python and JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Backoff {
    /// `none`: poll with one pause, however long the line (the plain ticket lock).
    None,
    /// `proportional:N`: wait `N * waiters_ahead` units between polls; the next in line polls tightly. Source: the series,
    /// patch 2.
    Proportional(u32),
    /// `proportional-v1:N`: as before, but the next in line waits `N` too. Source: v1; the published 250x curve needs it.
    ProportionalV1(u32),
    /// `auto`: the delay tunes itself, per thread and hashed lock address. Source: the series, patches 3-5.
    #[default]
    Auto,
    /// `auto-shared`: the same rule with one delay per thread for all locks. Source: the series, patch 3 alone.
    AutoShared,
    /// `auto-v1:2`, `auto-v1:2.7`: one delay per thread, the next in line sleeps too, steps of one unit. Source: v1.
    AutoV1(PollTarget),
}

/// How many failed polls the v1 rule wants before the lock is had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PollTarget {
    /// Two failed polls.
    Two,
    /// 8/3 failed polls.
    TwoPointSeven,
}

impl PollTarget {
    /// Chance of a step up after a failed poll, in 1/8.
    #[must_use]
    pub const fn growth_eighths(self) -> u32 {
        match self {
            Self::Two => V1_TWO_EIGHTHS,
            Self::TwoPointSeven => V1_TWO_POINT_SEVEN_EIGHTHS,
        }
    }
}

impl Backoff {
    /// Largest fixed factor, in units: beyond it one place in line would cost over 4 ms.
    pub const MAX_FACTOR: u32 = 1_000_000;

    /// Whether the delay is one per thread instead of one per lock.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::AutoShared | Self::AutoV1(_))
    }

    /// Whether the rule keeps a delay that tunes itself.
    #[must_use]
    pub const fn is_tuned(self) -> bool {
        matches!(self, Self::Auto | Self::AutoShared | Self::AutoV1(_))
    }

    /// Whether the rule asks for chance (a random number per poll).
    #[must_use]
    pub const fn wants_chance(self) -> bool {
        matches!(self, Self::AutoV1(_))
    }
}

impl fmt::Display for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Proportional(n) => write!(f, "proportional:{n}"),
            Self::ProportionalV1(n) => write!(f, "proportional-v1:{n}"),
            Self::Auto => f.write_str("auto"),
            Self::AutoShared => f.write_str("auto-shared"),
            Self::AutoV1(PollTarget::Two) => f.write_str("auto-v1:2"),
            Self::AutoV1(PollTarget::TwoPointSeven) => f.write_str("auto-v1:2.7"),
        }
    }
}

/// The text is no back-off rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownBackoff;

impl fmt::Display for UnknownBackoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a back-off is one of: none, proportional:N, proportional-v1:N (N from 1 to {}), auto, auto-shared, \
             auto-v1:2, auto-v1:2.7",
            Backoff::MAX_FACTOR
        )
    }
}

impl core::error::Error for UnknownBackoff {}

impl FromStr for Backoff {
    type Err = UnknownBackoff;

    fn from_str(text: &str) -> Result<Self, UnknownBackoff> {
        let factor = |digits: &str| match digits.parse::<u32>() {
            // `+5` parses as a number but is no identifier.
            Ok(n) if digits.bytes().all(|b| b.is_ascii_digit()) && (1..=Self::MAX_FACTOR).contains(&n) => Ok(n),
            _ => Err(UnknownBackoff),
        };
        match text {
            "none" => Ok(Self::None),
            "auto" => Ok(Self::Auto),
            "auto-shared" => Ok(Self::AutoShared),
            "auto-v1:2" => Ok(Self::AutoV1(PollTarget::Two)),
            "auto-v1:2.7" => Ok(Self::AutoV1(PollTarget::TwoPointSeven)),
            _ => match text.split_once(':') {
                Some(("proportional", n)) => factor(n).map(Self::Proportional),
                Some(("proportional-v1", n)) => factor(n).map(Self::ProportionalV1),
                _ => Err(UnknownBackoff),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for text in ["none", "proportional:50", "proportional-v1:250", "auto", "auto-shared", "auto-v1:2", "auto-v1:2.7"] {
            assert_eq!(text.parse::<Backoff>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "Auto",
            "proportional",
            "proportional:",
            "proportional:0",
            "proportional:-1",
            "proportional:+5",
            "proportional:1000001",
            "auto-v1:3",
            "auto ",
            "proportional:5:5",
        ] {
            assert_eq!(text.parse::<Backoff>(), Err(UnknownBackoff), "{text:?}");
        }
        assert!(UnknownBackoff.to_string().contains("proportional-v1:N"));
    }
}
