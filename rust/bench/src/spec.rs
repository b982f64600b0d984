//! What a round is to do, and every way of asking for something impossible.

use core::fmt;
use core::str::FromStr;

use crate::lock_id::LockSpec;
use crate::os;

/// Most threads of a round.
pub const MAX_THREADS: usize = 1_024;
/// Most locks of a round.
pub const MAX_LOCKS: usize = 65_536;
/// Longest round, in seconds.
pub const MAX_SECONDS: f64 = 3_600.0;
/// Longest hold or think, in nanoseconds (one second).
pub const MAX_WORK_NS: u64 = 1_000_000_000;
/// Longest line of the phantom preset, in tickets.
pub const MAX_LINE: u32 = 1_000_000;
/// Largest delay cap, in units.
pub const MAX_CAP_UNITS: u32 = ticketlock::policy::constants::CAP_STORABLE_UNITS;

/// Default hold of preset `fairness`, in nanoseconds.
///
/// Reason: order can only be seen among threads that wait. A bare increment takes less time than the lock's line needs to
/// reach the other CPU, so that thread has not arrived when the lock is already free again; the published runs were on
/// processors whose bus made the section long. Measured on 2 virtual CPUs: without a hold, the overtakes of `ticket` and
/// `tas-retry` differ by 4 to 50 times, as the host places the CPUs; with 100 ns always by over 500 times.
pub const FAIRNESS_HOLD_NS: u64 = 100;

/// Default hold and think of preset `oversubscribed`, in nanoseconds: what 500 and 100 turns of an empty loop took on the
/// machine on which the lock's limits were set (2 virtual CPUs of a Zen 1 host, 0.8 ns a turn).
pub const OVERSUBSCRIBED_HOLD_NS: u64 = 400;
/// See [`OVERSUBSCRIBED_HOLD_NS`].
pub const OVERSUBSCRIBED_THINK_NS: u64 = 80;

/// The experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// `uncontended`: the cost of one lock and unlock when nobody competes, in a process with a second thread.
    Uncontended,
    /// `semaphore`: a counting semaphore's internal lock, taken around `count -= 1` (down) and `count += 1` (up), over and
    /// over, by every thread. The count starts at the number of threads, so nobody ever waits for the count: all contention
    /// is on the lock. The hold is extra work inside each of the two sections, the think after each.
    Semaphore,
    /// `fairness`: a shared counter, incremented under the lock by every thread (two and pinned, in the published runs),
    /// until it reaches `iterations`.
    Fairness,
    /// `oversubscribed`: any number of threads around one section, usually more than there are CPUs: what a lock does when
    /// the scheduler decides who runs. The hold is work inside the section, the think after it.
    Oversubscribed,
    /// `phantom`: one thread draws and serves a whole line of tickets while one real waiter waits through it.
    Phantom,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 5] = [Self::Uncontended, Self::Semaphore, Self::Fairness, Self::Oversubscribed, Self::Phantom];

    /// Its identifier.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uncontended => "uncontended",
            Self::Semaphore => "semaphore",
            Self::Fairness => "fairness",
            Self::Oversubscribed => "oversubscribed",
            Self::Phantom => "phantom",
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        Self::ALL.into_iter().find(|preset| preset.name() == text).ok_or_else(|| {
            BenchError::BadSpec(format!("unknown preset '{text}'; choose one of: {}", Self::ALL.map(Self::name).join(", ")))
        })
    }
}

/// Whether waits are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// `throughput`: nothing is timed but the round.
    Throughput,
    /// `waits`: every wait is timed.
    Waits,
}

impl Mode {
    /// Its identifier.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Waits => "waits",
        }
    }
}

impl FromStr for Mode {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        match text {
            "throughput" => Ok(Self::Throughput),
            "waits" => Ok(Self::Waits),
            _ => Err(BenchError::BadSpec(format!("unknown mode '{text}'; choose one of: throughput, waits"))),
        }
    }
}

/// One round of one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundSpec {
    /// The experiment.
    pub preset: Preset,
    /// The lock.
    pub lock: LockSpec,
    /// Threads that use the lock: 1 for `uncontended`, 2 for `phantom`, else 1 to [`MAX_THREADS`].
    pub threads: usize,
    /// Work while the lock is held, in nanoseconds, beyond the preset's own few instructions.
    pub hold_ns: u64,
    /// Work between a release and the next acquisition, in nanoseconds.
    pub think_ns: u64,
    /// Length of the round, more than 0 and at most [`MAX_SECONDS`].
    pub seconds: f64,
    /// The round also ends after so many acquisitions (all threads together; a contended preset with one lock).
    pub iterations: Option<u64>,
    /// Locks among which each acquisition chooses, 1 to [`MAX_LOCKS`] (`uncontended`, which takes them in turn, in an order
    /// drawn from the seed, and `semaphore`).
    pub lock_count: usize,
    /// CPUs to pin threads to, in turn; empty for no pinning. No CPU twice.
    pub cpus: Vec<usize>,
    /// Whether waits are timed.
    pub mode: Mode,
    /// Chance of this round (choice among several locks, their order).
    pub seed: u64,
    /// Delay cap of the ticket family in units, 1 to [`MAX_CAP_UNITS`]; `None` for this machine's.
    pub cap: Option<u32>,
    /// Usable CPUs as the ticket family's policy is to believe; `None` for this machine's, and for `phantom` two more than
    /// the line, so that the line does not count as crowded.
    pub emulated_cpus: Option<u32>,
    /// Tickets in the `phantom` line, 1 to [`MAX_LINE`].
    pub line: u32,
}

impl RoundSpec {
    /// A round of `preset` with `lock` and everything else at its default: 0.2 s, no extra work (but see
    /// [`FAIRNESS_HOLD_NS`] and [`OVERSUBSCRIBED_HOLD_NS`]), no pinning, no timing, one lock, a line of 23, and two threads (one for `uncontended`).
    #[must_use]
    pub fn new(preset: Preset, lock: LockSpec) -> Self {
        Self {
            preset,
            lock,
            threads: if preset == Preset::Uncontended { 1 } else { 2 },
            hold_ns: match preset {
                Preset::Fairness => FAIRNESS_HOLD_NS,
                Preset::Oversubscribed => OVERSUBSCRIBED_HOLD_NS,
                Preset::Uncontended | Preset::Semaphore | Preset::Phantom => 0,
            },
            think_ns: if preset == Preset::Oversubscribed { OVERSUBSCRIBED_THINK_NS } else { 0 },
            seconds: 0.2,
            iterations: None,
            lock_count: 1,
            cpus: Vec::new(),
            mode: Mode::Throughput,
            seed: 0,
            cap: None,
            emulated_cpus: None,
            line: 23,
        }
    }

    /// Checks every field, and the fields against each other and the machine, without running anything.
    ///
    /// # Errors
    /// [`BenchError::BadSpec`] names the field, its value and what is accepted.
    pub fn validate(&self) -> Result<(), BenchError> {
        self.check().map_err(BenchError::BadSpec)
    }

    fn check(&self) -> Result<(), String> {
        let preset = self.preset;
        let contended = matches!(preset, Preset::Semaphore | Preset::Fairness | Preset::Oversubscribed);
        let wanted = match preset {
            Preset::Uncontended => 1..=1,
            Preset::Phantom => 2..=2,
            Preset::Semaphore | Preset::Fairness | Preset::Oversubscribed => 1..=MAX_THREADS,
        };
        if !wanted.contains(&self.threads) {
            let range = if wanted.start() == wanted.end() { format!("{}", wanted.end()) } else { format!("1 to {MAX_THREADS}") };
            return Err(format!("threads must be {range} for preset {preset}, not {}", self.threads));
        }
        for (field, ns) in [("hold_ns", self.hold_ns), ("think_ns", self.think_ns)] {
            if ns > MAX_WORK_NS {
                return Err(format!("{field} must be at most {MAX_WORK_NS} (one second), not {ns}"));
            }
            if ns > 0 && !contended {
                return Err(format!("preset {preset} has no {field}; it must be 0, not {ns}"));
            }
        }
        if !(self.seconds > 0.0 && self.seconds <= MAX_SECONDS) {
            return Err(format!("seconds must be more than 0 and at most {MAX_SECONDS}, not {}", self.seconds));
        }
        if let Some(iterations) = self.iterations {
            if iterations == 0 {
                return Err("iterations must be at least 1, not 0".to_owned());
            }
            if !contended || self.lock_count != 1 {
                return Err(format!(
                    "iterations is for presets semaphore, fairness and oversubscribed with one lock, not for {preset} with {}",
                    self.lock_count
                ));
            }
        }
        let several = matches!(preset, Preset::Uncontended | Preset::Semaphore);
        if self.lock_count != 1 && !(several && (1..=MAX_LOCKS).contains(&self.lock_count)) {
            let range = if several { format!("1 to {MAX_LOCKS}") } else { "1".to_owned() };
            return Err(format!("lock_count must be {range} for preset {preset}, not {}", self.lock_count));
        }
        if let Some(cap) = self.cap {
            if !(1..=MAX_CAP_UNITS).contains(&cap) {
                return Err(format!("cap must be 1 to {MAX_CAP_UNITS} units, not {cap}"));
            }
        }
        if self.emulated_cpus == Some(0) {
            return Err("emulated_cpus must be at least 1, not 0".to_owned());
        }
        if preset == Preset::Phantom {
            if !(1..=MAX_LINE).contains(&self.line) {
                return Err(format!("line must be 1 to {MAX_LINE} tickets, not {}", self.line));
            }
            if !matches!(self.lock, LockSpec::Ticket(_)) {
                return Err(format!(
                    "preset phantom needs a lock with tickets (ticket, proportional:N, proportional-v1:N, auto, auto-shared, \
                     auto-v1:2, auto-v1:2.7), not {}",
                    self.lock
                ));
            }
        }
        if !self.lock.info().available {
            return Err(format!("lock '{}' does not exist on this platform", self.lock));
        }
        check_cpus(&self.cpus, os::allowed_cpus().as_deref())
    }
}

fn check_cpus(cpus: &[usize], allowed: Option<&[usize]>) -> Result<(), String> {
    if cpus.is_empty() {
        return Ok(());
    }
    let Some(allowed) = allowed else {
        return Err("cpus must be empty: threads cannot be pinned on this system".to_owned());
    };
    for (place, cpu) in cpus.iter().enumerate() {
        if cpus[..place].contains(cpu) {
            return Err(format!("cpus names CPU {cpu} twice"));
        }
        if !allowed.contains(cpu) {
            return Err(format!("cpus names CPU {cpu}, but this process may only use {allowed:?}"));
        }
    }
    Ok(())
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BenchError {
    /// The round cannot be run as asked; nothing was run.
    BadSpec(String),
    /// A thread of the round panicked.
    Panicked(String),
    /// Threads did not come back: the lock does not let them.
    Stuck(String),
    /// The system refused a thread or a CPU.
    System(String),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::BadSpec(message) | Self::Panicked(message) | Self::Stuck(message) | Self::System(message)) = self;
        f.write_str(message)
    }
}

impl core::error::Error for BenchError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_id::parse_lock;

    fn spec(preset: Preset) -> RoundSpec {
        RoundSpec::new(preset, parse_lock("ticket").unwrap())
    }

    #[test]
    fn defaults_are_valid() {
        for preset in Preset::ALL {
            assert_eq!(spec(preset).validate(), Ok(()), "{preset}");
            assert_eq!(preset.name().parse(), Ok(preset));
        }
        for mode in [Mode::Throughput, Mode::Waits] {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
    }

    #[test]
    fn every_refusal_names_the_field_and_the_value() {
        use Preset::{Fairness, Oversubscribed, Phantom, Semaphore, Uncontended};
        type Spoil = fn(&mut RoundSpec);
        let cases: &[(Preset, Spoil, &str)] = &[
            (Semaphore, |s| s.threads = 0, "threads must be 1 to 1024 for preset semaphore, not 0"),
            (Fairness, |s| s.threads = 1_025, "threads must be 1 to 1024 for preset fairness, not 1025"),
            (Uncontended, |s| s.threads = 2, "threads must be 1 for preset uncontended, not 2"),
            (Phantom, |s| s.threads = 3, "threads must be 2 for preset phantom, not 3"),
            (Semaphore, |s| s.hold_ns = u64::MAX, "hold_ns must be at most 1000000000"),
            (Uncontended, |s| s.think_ns = 5, "preset uncontended has no think_ns; it must be 0, not 5"),
            (Semaphore, |s| s.seconds = f64::NAN, "seconds must be more than 0 and at most 3600, not NaN"),
            (Semaphore, |s| s.seconds = 0.0, "not 0"),
            (Semaphore, |s| s.seconds = f64::INFINITY, "not inf"),
            (Fairness, |s| s.iterations = Some(0), "iterations must be at least 1, not 0"),
            (Phantom, |s| s.iterations = Some(7), "iterations is for presets semaphore, fairness and oversubscribed"),
            (Semaphore, |s| s.lock_count = 0, "lock_count must be 1 to 65536 for preset semaphore, not 0"),
            (Fairness, |s| s.lock_count = 2, "lock_count must be 1 for preset fairness, not 2"),
            (Oversubscribed, |s| s.threads = 0, "threads must be 1 to 1024 for preset oversubscribed, not 0"),
            (Phantom, |s| s.cap = Some(0), "cap must be 1 to 65000 units, not 0"),
            (Phantom, |s| s.emulated_cpus = Some(0), "emulated_cpus must be at least 1, not 0"),
            (Phantom, |s| s.line = 0, "line must be 1 to 1000000 tickets, not 0"),
            (Phantom, |s| s.lock = LockSpec::Std, "needs a lock with tickets"),
        ];
        for (preset, spoil, message) in cases {
            let mut spec = spec(*preset);
            spoil(&mut spec);
            let refused = spec.validate().unwrap_err();
            assert!(matches!(refused, BenchError::BadSpec(_)));
            assert!(refused.to_string().contains(message), "{refused} should contain {message}");
        }
        assert!(
            "nosuch"
                .parse::<Preset>()
                .unwrap_err()
                .to_string()
                .contains("uncontended, semaphore, fairness, oversubscribed, phantom")
        );
        assert!("nosuch".parse::<Mode>().unwrap_err().to_string().contains("throughput, waits"));
    }

    #[test]
    fn cpus_are_checked_against_the_affinity_mask() {
        assert_eq!(check_cpus(&[], None), Ok(()));
        assert_eq!(check_cpus(&[3, 1], Some(&[1, 2, 3])), Ok(()));
        assert!(check_cpus(&[1], None).unwrap_err().contains("cannot be pinned"));
        assert!(check_cpus(&[1, 1], Some(&[1])).unwrap_err().contains("CPU 1 twice"));
        assert!(check_cpus(&[0, 9], Some(&[0, 1])).unwrap_err().contains("CPU 9, but this process may only use [0, 1]"));
    }
}
