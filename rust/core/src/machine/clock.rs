//! The monotonic clock, as a number.

/// Nanoseconds of a clock that never goes back and that other threads share; it starts anywhere. On Linux
/// `CLOCK_MONOTONIC`, which deadlines of sleeping threads are given in. About 20-40 ns a call.
#[cfg(all(any(target_os = "linux", target_os = "android"), not(any(ticketlock_loom, ticketlock_shuttle))))]
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for a write; this clock exists on every kernel, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Nanoseconds of a clock that never goes back and that other threads share; it starts anywhere.
#[cfg(not(any(target_os = "linux", target_os = "android", ticketlock_loom, ticketlock_shuttle)))]
pub fn now_ns() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;

    static START: OnceLock<Instant> = OnceLock::new();
    let start = super::cached(&START, Instant::now);
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A model's time stands still but for sleeps, which end when it has come far enough.
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
pub mod model {
    use core::cell::Cell;

    thread_local! {
        // All threads of a model run on one thread of the operating system.
        static NOW: Cell<u64> = const { Cell::new(1) };
    }

    /// The model's time.
    pub fn now_ns() -> u64 {
        NOW.get()
    }

    /// Starts an execution.
    pub fn restart() {
        NOW.set(1);
    }

    /// A sleep until `until_ns` has ended.
    pub fn advance(until_ns: u64) {
        NOW.set(NOW.get().max(until_ns));
    }
}

#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
pub use model::now_ns;

#[cfg(all(test, not(any(ticketlock_loom, ticketlock_shuttle))))]
mod tests {
    use super::now_ns;

    #[test]
    fn it_goes_on_and_agrees_between_threads() {
        let first = now_ns();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let second = std::thread::spawn(now_ns).join().unwrap();
        assert!((2_000_000..10_000_000_000).contains(&(second - first)), "{}", second - first);
    }
}
