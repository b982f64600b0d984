//! Sleeping on a word with `futex(2)`. Returns when a signal arrives, which no crate's wrapper does.

use core::ptr;

use super::Woke;
use crate::sync::AtomicU32;

/// What a waiter needs besides its word: nothing.
pub(super) struct Sleeper;

/// The address of a waiter's word, which need not exist any more when it is woken: the kernel uses it as a key.
pub(crate) struct Handle(*const AtomicU32);

impl Sleeper {
    pub(super) fn new() -> Self {
        Self
    }

    #[allow(clippy::unused_self)] // the shape of the portable one
    pub(super) fn handle(&self, word: &AtomicU32) -> Handle {
        Handle(ptr::from_ref(word))
    }

    /// Sleeps while `word` is `expected`, until called, until `until_ns` of `CLOCK_MONOTONIC`, or until a signal's handler ran.
    #[allow(clippy::unused_self)]
    pub(super) fn sleep(&self, word: &AtomicU32, expected: u32, until_ns: Option<u64>) -> Woke {
        // Without a deadline the kernel restarts the sleep after a handler installed with `SA_RESTART`, and nobody notices
        // the signal; so there is always one.
        wait(word, expected, until_ns.unwrap_or(u64::MAX))
    }
}

impl Handle {
    /// Wakes the waiter. A thread that sleeps on whatever is at the address now is woken without reason, and looks again.
    pub(crate) fn wake(self) {
        wake_one(self.0);
    }
}

/// Sleeps a while, or until [`rouse`], if `word` is `expected`.
pub(crate) fn rest(word: &AtomicU32, expected: u32) {
    wait(word, expected, u64::MAX);
}

/// Wakes one thread that [`rest`]s on `word`.
pub(crate) fn rouse(word: &AtomicU32) {
    wake_one(ptr::from_ref(word));
}

fn wait(word: &AtomicU32, expected: u32, until_ns: u64) -> Woke {
    let deadline = libc::timespec {
        tv_sec: libc::time_t::try_from(until_ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::try_from(until_ns % 1_000_000_000).unwrap_or(0),
    };
    let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG; // the variant whose deadline is absolute
    let no_word = ptr::null::<u32>();
    // SAFETY: `word` and `deadline` live through the call; the kernel only reads them.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_futex,
            ptr::from_ref(word),
            operation,
            expected,
            &raw const deadline,
            no_word,
            libc::FUTEX_BITSET_MATCH_ANY,
        )
    };
    if answer == 0 {
        return Woke::Called;
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ETIMEDOUT) => Woke::TimedOut,
        Some(libc::EINTR) => Woke::Signalled,
        _ => Woke::Called, // EAGAIN: the word had changed already
    }
}

fn wake_one(word: *const AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel does not read the word of a private futex that it wakes, and answers with an error if the address
    // is no longer mapped.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, 1) };
}
