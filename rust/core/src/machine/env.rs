//! The `TICKETLOCK_*` overrides that describe the machine.
//!
//! A bad value is named once on standard error and then ignored: a lock must not take a program down for its environment.
//! An empty value counts as not set.

use super::cached;
use crate::policy::constants::CAP_STORABLE_UNITS;
use std::ffi::OsString;
use std::fmt;
use std::sync::OnceLock;

/// `auto`, `none` or `present`.
pub const HYPERVISOR: &str = "TICKETLOCK_HYPERVISOR";
/// Units, 1 to [`CAP_STORABLE_UNITS`].
pub const DELAY_CAP: &str = "TICKETLOCK_DELAY_CAP";
/// CPUs, 1 to [`CPUS_MAX`].
pub const CPUS: &str = "TICKETLOCK_CPUS";
/// `auto` or `off`.
pub const MEMBARRIER: &str = "TICKETLOCK_MEMBARRIER";
/// `auto`, `file` or `0`.
pub const TELEMETRY: &str = "TICKETLOCK_TELEMETRY";
/// `0` or `1`.
pub const SITES: &str = "TICKETLOCK_SITES";

/// Largest count of CPUs that is believed. Reason: tickets in line are compared with it, and no kernel of ours runs more
/// (Linux stops at 8192 on x86-64), so a larger one is a typing error.
pub const CPUS_MAX: u32 = 65_536;

/// `TICKETLOCK_HYPERVISOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HypervisorMode {
    /// Detect it.
    #[default]
    Auto,
    /// Behave as on bare metal.
    None,
    /// Behave as in a guest.
    Present,
}

/// `TICKETLOCK_MEMBARRIER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MembarrierMode {
    /// Use it where it is to be had.
    #[default]
    Auto,
    /// Never use it.
    Off,
}

/// `TICKETLOCK_TELEMETRY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TelemetryMode {
    /// Where readers find it without a name, else in a file, else nowhere.
    #[default]
    Auto,
    /// In a file.
    File,
    /// Nowhere.
    Off,
}

/// All overrides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overrides {
    /// `TICKETLOCK_HYPERVISOR`.
    pub hypervisor: HypervisorMode,
    /// `TICKETLOCK_DELAY_CAP`, in units.
    pub delay_cap: Option<u32>,
    /// `TICKETLOCK_CPUS`.
    pub cpus: Option<u32>,
    /// `TICKETLOCK_MEMBARRIER`.
    pub membarrier: MembarrierMode,
    /// `TICKETLOCK_TELEMETRY`.
    pub telemetry: TelemetryMode,
    /// `TICKETLOCK_SITES`.
    pub sites: Option<bool>,
}

/// A value that was not understood. [`Display`](fmt::Display) names the variable, the value and what is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Name of the variable.
    pub variable: &'static str,
    /// What it was set to.
    pub value: OsString,
    /// What it may be set to.
    pub accepted: String,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Debug form: quoted, and whatever would disturb a terminal is escaped.
        write!(f, "ignoring {}={:?}: accepted is {}", self.variable, self.value, self.accepted)
    }
}

impl std::error::Error for Rejected {}

/// Parses a value of `TICKETLOCK_HYPERVISOR`.
///
/// # Errors
/// What is accepted.
pub fn parse_hypervisor(value: &str) -> Result<HypervisorMode, String> {
    match value {
        "auto" => Ok(HypervisorMode::Auto),
        "none" => Ok(HypervisorMode::None),
        "present" => Ok(HypervisorMode::Present),
        _ => Err("auto, none or present".to_owned()),
    }
}

/// Parses a value of `TICKETLOCK_MEMBARRIER`.
///
/// # Errors
/// What is accepted.
pub fn parse_membarrier(value: &str) -> Result<MembarrierMode, String> {
    match value {
        "auto" => Ok(MembarrierMode::Auto),
        "off" => Ok(MembarrierMode::Off),
        _ => Err("auto or off".to_owned()),
    }
}

/// Parses a value of `TICKETLOCK_TELEMETRY`.
///
/// # Errors
/// What is accepted.
pub fn parse_telemetry(value: &str) -> Result<TelemetryMode, String> {
    match value {
        "auto" | "1" => Ok(TelemetryMode::Auto),
        "file" => Ok(TelemetryMode::File),
        "0" | "off" => Ok(TelemetryMode::Off),
        _ => Err("auto, file or 0".to_owned()),
    }
}

/// Parses a value of `TICKETLOCK_SITES`.
///
/// # Errors
/// What is accepted.
pub fn parse_sites(value: &str) -> Result<bool, String> {
    match value {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err("0 or 1".to_owned()),
    }
}

/// Parses a value of `TICKETLOCK_DELAY_CAP`.
///
/// # Errors
/// What is accepted.
pub fn parse_delay_cap(value: &str) -> Result<u32, String> {
    whole(value, CAP_STORABLE_UNITS).ok_or_else(|| format!("a whole number of units from 1 to {CAP_STORABLE_UNITS}"))
}

/// Parses a value of `TICKETLOCK_CPUS`.
///
/// # Errors
/// What is accepted.
pub fn parse_cpus(value: &str) -> Result<u32, String> {
    whole(value, CPUS_MAX).ok_or_else(|| format!("a whole number of CPUs from 1 to {CPUS_MAX}"))
}

/// Plain decimal digits (no sign), from 1 to `max`.
fn whole(value: &str, max: u32) -> Option<u32> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|number| digits && (1..=max).contains(number))
}

/// Reads all overrides through `lookup`; what was not understood is handed to `reject` and left at its default.
pub fn read(lookup: impl Fn(&str) -> Option<OsString>, mut reject: impl FnMut(Rejected)) -> Overrides {
    Overrides {
        hypervisor: one(HYPERVISOR, &lookup, &mut reject, parse_hypervisor).unwrap_or_default(),
        delay_cap: one(DELAY_CAP, &lookup, &mut reject, parse_delay_cap),
        cpus: one(CPUS, &lookup, &mut reject, parse_cpus),
        membarrier: one(MEMBARRIER, &lookup, &mut reject, parse_membarrier).unwrap_or_default(),
        telemetry: one(TELEMETRY, &lookup, &mut reject, parse_telemetry).unwrap_or_default(),
        sites: one(SITES, &lookup, &mut reject, parse_sites),
    }
}

fn one<T>(
    variable: &'static str,
    lookup: &impl Fn(&str) -> Option<OsString>,
    reject: &mut impl FnMut(Rejected),
    parse: fn(&str) -> Result<T, String>,
) -> Option<T> {
    let value = lookup(variable).filter(|value| !value.is_empty())?;
    // What is not UTF-8 is none of the accepted words; parsing its lossy form says which those are.
    match parse(value.to_string_lossy().trim()) {
        Ok(parsed) => Some(parsed),
        Err(accepted) => {
            reject(Rejected { variable, value, accepted });
            None
        }
    }
}

/// This process's overrides, read at first use and kept. Whoever reads them first says on standard error, a line each,
/// what was ignored.
pub fn overrides() -> &'static Overrides {
    static CELL: OnceLock<Overrides> = OnceLock::new();
    static WARNED: OnceLock<()> = OnceLock::new();
    cached(&CELL, || {
        let mut rejected = Vec::new();
        let overrides = read(|name| std::env::var_os(name), |bad| rejected.push(bad));
        // Two threads may read at once; one of them speaks.
        if !rejected.is_empty() && WARNED.set(()).is_ok() {
            rejected.iter().for_each(warn);
        }
        overrides
    })
}

/// The one place that writes to standard error. A closed one is no reason to fail.
fn warn(rejected: &Rejected) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "ticketlock: {rejected}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_from(pairs: &[(&str, &str)]) -> (Overrides, Vec<String>) {
        let mut said = Vec::new();
        let lookup = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
        let overrides = read(lookup, |bad| said.push(bad.to_string()));
        (overrides, said)
    }

    #[test]
    fn nothing_set_is_all_defaults_and_silent() {
        assert_eq!(read_from(&[]), (Overrides::default(), vec![]));
        assert_eq!(read_from(&[(HYPERVISOR, ""), (DELAY_CAP, ""), (CPUS, ""), (MEMBARRIER, "")]), (Overrides::default(), vec![]));
    }

    #[test]
    fn good_values_are_taken() {
        let pairs =
            [(HYPERVISOR, "none"), (DELAY_CAP, "65000"), (CPUS, " 8 "), (MEMBARRIER, "off"), (TELEMETRY, "file"), (SITES, "1")];
        let expected = Overrides {
            hypervisor: HypervisorMode::None,
            delay_cap: Some(65_000),
            cpus: Some(8),
            membarrier: MembarrierMode::Off,
            telemetry: TelemetryMode::File,
            sites: Some(true),
        };
        assert_eq!(read_from(&pairs), (expected, vec![]));
        assert_eq!(parse_hypervisor("present"), Ok(HypervisorMode::Present));
        assert_eq!(parse_hypervisor("auto"), Ok(HypervisorMode::Auto));
        assert_eq!(parse_membarrier("auto"), Ok(MembarrierMode::Auto));
        assert_eq!((parse_delay_cap("1"), parse_cpus("1"), parse_cpus("65536")), (Ok(1), Ok(1), Ok(65_536)));
    }

    #[test]
    fn a_bad_value_is_named_and_does_not_touch_the_others() {
        let (overrides, said) = read_from(&[(HYPERVISOR, "maybe"), (DELAY_CAP, "0"), (CPUS, "3"), (MEMBARRIER, "no\n\x1b[2J")]);
        assert_eq!(overrides, Overrides { cpus: Some(3), ..Overrides::default() });
        assert_eq!(
            said,
            [
                r#"ignoring TICKETLOCK_HYPERVISOR="maybe": accepted is auto, none or present"#,
                r#"ignoring TICKETLOCK_DELAY_CAP="0": accepted is a whole number of units from 1 to 65000"#,
                r#"ignoring TICKETLOCK_MEMBARRIER="no\n\u{1b}[2J": accepted is auto or off"#,
            ]
        );
    }

    #[test]
    fn numbers_out_of_range_or_not_whole_are_refused() {
        for bad in ["0", "-1", "+1", "1.5", "1e3", "0x10", "65001", "4294967297", "99999999999999999999", "two", "1 2", " ", "١"]
        {
            assert!(parse_delay_cap(bad).is_err(), "{bad:?}");
        }
        for bad in ["0", "-1", "+1", "65537", "4294967296", "inf", "nan"] {
            let refused = parse_cpus(bad).unwrap_err();
            assert_eq!(refused, "a whole number of CPUs from 1 to 65536", "{bad:?}");
        }
        assert!(parse_hypervisor("None").is_err());
        assert!(parse_membarrier("on").is_err());
        assert_eq!((parse_telemetry("0"), parse_telemetry("auto")), (Ok(TelemetryMode::Off), Ok(TelemetryMode::Auto)));
        assert_eq!(parse_telemetry("memfd").unwrap_err(), "auto, file or 0");
        assert_eq!((parse_sites("0"), parse_sites("2").unwrap_err()), (Ok(false), "0 or 1".to_owned()));
    }

    #[cfg(unix)]
    #[test]
    fn a_value_that_is_not_text_is_refused_and_shown() {
        use std::os::unix::ffi::OsStringExt as _;
        let mut said = Vec::new();
        let lookup = |name: &str| (name == CPUS).then(|| OsString::from_vec(vec![b'2', 0xff]));
        assert_eq!(read(lookup, |bad| said.push(bad.to_string())), Overrides::default());
        assert_eq!(said, [r#"ignoring TICKETLOCK_CPUS="2\xFF": accepted is a whole number of CPUs from 1 to 65536"#]);
    }
}
