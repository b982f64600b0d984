//! The locks by name: the identifiers of the command line, Python and JSON.

use core::fmt;

use ticketlock::{Backoff, Fairness};

/// A lock to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockSpec {
    /// `ticket`, `proportional:N`, `proportional-v1:N`, `auto`, `auto-shared`, `auto-v1:2`, `auto-v1:2.7`.
    Ticket(Backoff),
    /// `lock`, `lock:throughput`, `lock:strict`.
    Lock(Fairness),
    /// `tas-retest`: the i386 test-and-set loop after the 2005 change.
    TasRetest,
    /// `tas-retry`: the i386 test-and-set loop before it.
    TasRetry,
    /// `mcs`: a queue lock.
    Mcs,
    /// `std`: `std::sync::Mutex`.
    Std,
    /// `parking_lot`: `parking_lot::Mutex`.
    ParkingLot,
    /// `parking_lot-fair`: `parking_lot::FairMutex`.
    ParkingLotFair,
    /// `pthread`: `pthread_mutex_t`.
    Pthread,
    /// `pthread-spin`: `pthread_spinlock_t`.
    PthreadSpin,
}

/// What is known of a lock before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // independent facts of a table, not a state
pub struct LockInfo {
    /// Its identifier, `N` standing for the parameter.
    pub pattern: &'static str,
    /// `ticket`, `tas`, `queue` or `mutex`.
    pub family: &'static str,
    /// Serves waiters in the order of their arrival.
    pub fair: bool,
    /// Waiters keep their CPU (they may yield it, or nap when the line stands still).
    pub spins: bool,
    /// What `N` may be, if it is needed.
    pub parameter: Option<&'static str>,
    /// Whether this platform has it.
    pub available: bool,
    /// Has an acquisition that never waits.
    pub try_lock: bool,
    /// Has an acquisition with a time limit.
    pub timed: bool,
    /// One line for humans.
    pub about: &'static str,
}

const FACTOR: Option<&str> = Some("units per waiter ahead, 1 to 1000000");

const fn ticket(pattern: &'static str, parameter: Option<&'static str>, about: &'static str) -> LockInfo {
    LockInfo {
        pattern,
        family: "ticket",
        fair: true,
        spins: true,
        parameter,
        available: true,
        try_lock: true,
        timed: false,
        about,
    }
}

const fn rival(pattern: &'static str, family: &'static str, about: &'static str) -> LockInfo {
    let spins = !matches!(family.as_bytes(), b"mutex");
    LockInfo { pattern, family, fair: false, spins, parameter: None, available: true, try_lock: true, timed: false, about }
}

const fn ours(pattern: &'static str, about: &'static str) -> LockInfo {
    LockInfo { timed: true, ..rival(pattern, "mutex", about) }
}

const LOCKS: [LockInfo; 18] = [
    ours("lock", "ticketlock::Lock: short spins in order, then sleep; the holder hands over to who waits too long"),
    ours("lock:throughput", "as lock, with hand-overs ten times as seldom"),
    ours("lock:strict", "as lock; every waiter has a deadline, and is then handed the lock"),
    ticket("ticket", None, "strict first come, first served; waiters poll with one pause"),
    ticket("proportional:N", FACTOR, "ticket; waits N units per waiter ahead between polls, the next in line polls tightly"),
    ticket("proportional-v1:N", FACTOR, "as proportional, but the next in line waits N units too"),
    ticket("auto", None, "ticket; the delay tunes itself per thread and lock"),
    ticket("auto-shared", None, "as auto, with one delay per thread for all locks"),
    ticket("auto-v1:2", None, "first version of auto: two polls wanted before the lock is had"),
    ticket("auto-v1:2.7", None, "first version of auto: 2.7 polls wanted before the lock is had"),
    rival("tas-retest", "tas", "i386 test-and-set, new layout: seeing the lock free branches to the decrement"),
    rival("tas-retry", "tas", "i386 test-and-set, old layout: seeing the lock taken branches to the pause"),
    LockInfo { fair: true, ..rival("mcs", "queue", "queue lock, each waiter spins on its own line") },
    rival("std", "mutex", "std::sync::Mutex"),
    LockInfo { timed: true, ..rival("parking_lot", "mutex", "parking_lot::Mutex") },
    LockInfo {
        timed: true,
        fair: true,
        ..rival("parking_lot-fair", "mutex", "parking_lot::FairMutex: every release hands over to a sleeper")
    },
    LockInfo {
        timed: cfg!(target_os = "linux"),
        available: cfg!(unix),
        ..rival("pthread", "mutex", "pthread_mutex_t of the C library")
    },
    LockInfo { available: cfg!(target_os = "linux"), ..rival("pthread-spin", "tas", "pthread_spinlock_t of the C library") },
];

/// Every lock that can be named, also those that this platform lacks.
#[must_use]
pub fn locks() -> &'static [LockInfo] {
    &LOCKS
}

impl LockSpec {
    /// What is known of this lock.
    #[must_use]
    pub fn info(&self) -> &'static LockInfo {
        let pattern = match self {
            Self::Ticket(Backoff::None) => "ticket",
            Self::Ticket(Backoff::Proportional(_)) => "proportional:N",
            Self::Ticket(Backoff::ProportionalV1(_)) => "proportional-v1:N",
            other => &other.to_string(),
        };
        LOCKS.iter().find(|info| info.pattern == pattern).expect("every lock is listed (tested)")
    }
}

impl fmt::Display for LockSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ticket(Backoff::None) => "ticket",
            Self::Ticket(backoff) => return backoff.fmt(f),
            Self::Lock(Fairness::Balanced) => "lock",
            Self::Lock(Fairness::Throughput) => "lock:throughput",
            Self::Lock(Fairness::Strict) => "lock:strict",
            Self::TasRetest => "tas-retest",
            Self::TasRetry => "tas-retry",
            Self::Mcs => "mcs",
            Self::Std => "std",
            Self::ParkingLot => "parking_lot",
            Self::ParkingLotFair => "parking_lot-fair",
            Self::Pthread => "pthread",
            Self::PthreadSpin => "pthread-spin",
        })
    }
}

/// Reads a lock's identifier.
///
/// # Errors
/// A sentence that names the text and what is accepted.
pub fn parse_lock(id: &str) -> Result<LockSpec, String> {
    let lock = match id {
        "ticket" => Some(LockSpec::Ticket(Backoff::None)),
        "none" => None, // a back-off rule, not a lock
        "lock" => Some(LockSpec::Lock(Fairness::Balanced)),
        "lock:throughput" => Some(LockSpec::Lock(Fairness::Throughput)),
        "lock:strict" => Some(LockSpec::Lock(Fairness::Strict)),
        "tas-retest" => Some(LockSpec::TasRetest),
        "tas-retry" => Some(LockSpec::TasRetry),
        "mcs" => Some(LockSpec::Mcs),
        "std" => Some(LockSpec::Std),
        "parking_lot" => Some(LockSpec::ParkingLot),
        "parking_lot-fair" => Some(LockSpec::ParkingLotFair),
        "pthread" => Some(LockSpec::Pthread),
        "pthread-spin" => Some(LockSpec::PthreadSpin),
        _ => id.parse().ok().map(LockSpec::Ticket),
    };
    match lock {
        Some(lock) if lock.info().available => Ok(lock),
        Some(_) => Err(format!("lock '{id}' does not exist on this platform; choose one of: {}", accepted())),
        None => Err(format!("unknown lock '{id}'; choose one of: {}", accepted())),
    }
}

fn accepted() -> String {
    let names: Vec<_> = LOCKS.iter().filter(|info| info.available).map(|info| info.pattern).collect();
    format!("{} (N from 1 to {})", names.join(", "), Backoff::MAX_FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::{Adapter, Overrides, Task, dispatch};

    fn example(info: &LockInfo) -> String {
        info.pattern.replace(":N", ":50")
    }

    #[test]
    fn names_read_back_and_are_described() {
        for info in locks().iter().filter(|info| info.available) {
            let id = example(info);
            let lock = parse_lock(&id).unwrap();
            assert_eq!(lock.to_string(), id);
            assert_eq!(lock.info(), info);
            assert_eq!(info.parameter.is_some(), info.pattern.ends_with(":N"), "{id}");
        }
    }

    #[test]
    fn other_names_are_refused_with_what_is_accepted() {
        for id in ["", "nosuch", "none", "Ticket", "proportional", "proportional:0", "auto-v1:3", "mcs:1", "lock:fair"] {
            let message = parse_lock(id).unwrap_err();
            assert!(message.contains(&format!("'{id}'")), "{message}");
            assert!(message.contains("proportional-v1:N") && message.contains("parking_lot-fair"), "{message}");
        }
    }

    /// What the list says of try and timed acquisition is what the adapter has.
    #[test]
    fn capabilities_are_as_listed() {
        struct Ask;
        impl Task for Ask {
            type Out = (bool, bool);
            fn run<A: Adapter>(self, _: A::Config) -> (bool, bool) {
                (A::TRY, A::TIMED)
            }
        }
        for info in locks() {
            if info.available {
                let lock = parse_lock(&example(info)).unwrap();
                assert_eq!(dispatch(lock, Overrides::default(), Ask), Some((info.try_lock, info.timed)), "{lock}");
            }
        }
    }
}
