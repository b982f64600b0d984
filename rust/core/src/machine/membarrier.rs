//! Whether `membarrier(2)` can be had: one side of a pair of fences is then paid by the rare side alone.

use super::env::{self, MembarrierMode};
use std::fmt;

/// Commands of Linux's `membarrier(2)`, in force since 4.14.
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), allow(dead_code))]
mod command {
    /// Answers the set of supported commands.
    pub const QUERY: i32 = 0;
    /// A full fence on every CPU that runs a thread of this process now.
    pub const PRIVATE_EXPEDITED: i32 = 1 << 3;
    /// Must come once before the former.
    pub const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
}

/// The answer of [`probe`]. [`Display`](fmt::Display) gives the stable form: `private-expedited`, `off`, or
/// `unavailable (why)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Membarrier {
    /// This process is registered, and one barrier was carried out.
    PrivateExpedited,
    /// The kernel, a filter or the platform refuses it; the reason.
    Unavailable(String),
    /// `TICKETLOCK_MEMBARRIER=off`; the kernel was not asked.
    Off,
}

impl fmt::Display for Membarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrivateExpedited => f.write_str("private-expedited"),
            Self::Unavailable(why) => write!(f, "unavailable ({why})"),
            Self::Off => f.write_str("off"),
        }
    }
}

/// Asks the kernel and registers this process (harmless when it is already). Three system calls; not kept, since a filter
/// may come later: callers keep the answer and still check every barrier that they issue.
#[must_use]
pub fn probe() -> Membarrier {
    probe_with(env::overrides().membarrier, kernel)
}

/// A full fence on every CPU that runs a thread of this process now; the process must be registered (see [`probe`]).
/// 0.1 us alone, 7-15 us in a guest while a sibling runs.
///
/// # Errors
/// When the kernel refuses, which a filter that came after registration makes it do.
pub fn barrier() -> std::io::Result<()> {
    kernel(command::PRIVATE_EXPEDITED).map(|_| ())
}

/// [`probe`] against any `kernel`, which carries out a command and answers its result or the error.
fn probe_with(mode: MembarrierMode, kernel: impl Fn(i32) -> std::io::Result<i64>) -> Membarrier {
    if mode == MembarrierMode::Off {
        return Membarrier::Off;
    }
    let step = |what: &str, command| kernel(command).map_err(|error| format!("{what}: {error}"));
    let all = || {
        let supported = step("query", command::QUERY)?;
        let needed = i64::from(command::PRIVATE_EXPEDITED | command::REGISTER_PRIVATE_EXPEDITED);
        if supported & needed != needed {
            return Err(format!("the kernel's set {supported:#x} lacks private expedited barriers"));
        }
        step("register", command::REGISTER_PRIVATE_EXPEDITED)?;
        step("barrier", command::PRIVATE_EXPEDITED)
    };
    match all() {
        Ok(_) => Membarrier::PrivateExpedited,
        Err(why) => Membarrier::Unavailable(why),
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[allow(clippy::useless_conversion)] // a long has 32 bits on some targets
fn kernel(command: i32) -> std::io::Result<i64> {
    let no_flags: libc::c_uint = 0;
    let no_cpu: libc::c_int = 0;
    // SAFETY: membarrier touches no memory of ours; it takes three integers and reports failure by -1 and errno.
    let answer = unsafe { libc::syscall(libc::SYS_membarrier, command, no_flags, no_cpu) };
    if answer < 0 { Err(std::io::Error::last_os_error()) } else { Ok(i64::from(answer)) }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn kernel(_command: i32) -> std::io::Result<i64> {
    Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "only Linux has membarrier"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::io::{Error, ErrorKind};

    fn scripted(answers: &[Result<i64, ErrorKind>]) -> (Membarrier, Vec<i32>) {
        let asked = RefCell::new(Vec::new());
        let answer = probe_with(MembarrierMode::Auto, |command| {
            asked.borrow_mut().push(command);
            answers[asked.borrow().len() - 1].map_err(Error::from)
        });
        (answer, asked.into_inner())
    }

    #[test]
    fn registers_before_the_first_barrier() {
        assert_eq!(scripted(&[Ok(0x1ff), Ok(0), Ok(0)]), (Membarrier::PrivateExpedited, vec![0, 16, 8]));
        assert_eq!(Membarrier::PrivateExpedited.to_string(), "private-expedited");
    }

    #[test]
    fn every_refusal_names_its_step() {
        let denied = Err(ErrorKind::PermissionDenied);
        for (answers, start) in [
            (vec![denied], "unavailable (query: "),
            (vec![Ok(0x1)], "unavailable (the kernel's set 0x1 lacks "),
            (vec![Ok(0x8)], "unavailable (the kernel's set 0x8 lacks "),
            (vec![Ok(0x18), denied], "unavailable (register: "),
            (vec![Ok(0x18), Ok(0), denied], "unavailable (barrier: "),
        ] {
            let (answer, _) = scripted(&answers);
            assert!(answer.to_string().starts_with(start), "{answer}");
        }
    }

    #[test]
    fn off_asks_nobody() {
        let answer = probe_with(MembarrierMode::Off, |_| panic!("asked"));
        assert_eq!((answer.to_string().as_str(), answer), ("off", Membarrier::Off));
    }

    #[test]
    fn probing_twice_agrees() {
        assert_eq!(probe(), probe());
        if !cfg!(any(target_os = "linux", target_os = "android")) {
            assert_eq!(probe_with(MembarrierMode::Auto, kernel).to_string(), "unavailable (query: only Linux has membarrier)");
        }
    }
}
