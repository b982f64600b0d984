//! What this machine is: its hypervisor, the cost of a pause, the CPUs that can be used, `membarrier`.
//!
//! Nothing here knows a lock's algorithm. Every answer is found at first use, costs nothing before, and is then kept; the
//! facts that decide an answer (CPUID readings, file trees, environment, system calls) can be given by the caller, so that
//! machines other than this one are tested too.
//!
//! * [`cpuid`]: CPUID readings, real or made up.
//! * [`hypervisor`](mod@hypervisor): who runs this machine, from CPUID; [`firmware`]: the same from files (Xen, device tree, DMI).
//! * [`env`](mod@env): the `TICKETLOCK_*` overrides.
//! * [`pause`]: how long one spin hint takes, and how many make one policy unit.
//! * [`cpus`]: CPUs online, allowed and paid for; [`cgroup`]: the quota.
//! * [`clock`]: the monotonic clock.
//! * [`membarrier`]: whether one-sided fences are to be had.
//!
//! All functions may be called from any thread at any time. The environment is read once, at first use: a program that
//! changes its environment while threads run should call [`init`] before (a language binding: when it is imported).

pub mod cgroup;
pub mod clock;
pub mod cpuid;
pub mod cpus;
pub mod env;
pub mod firmware;
pub mod hypervisor;
pub mod membarrier;
pub mod pause;
#[cfg(test)]
pub(crate) mod testing;

pub use hypervisor::{Hypervisor, Source, Vendor};
pub use membarrier::Membarrier;
pub use pause::{pause_ns, spin_units, spins_per_unit};

use crate::policy;
use std::sync::OnceLock;

/// Finds the value of `cell` at first use.
///
/// Unlike `OnceLock::get_or_init` nobody waits for a thread that is still computing (a child forked in that moment would
/// wait for ever): two first users may both compute, and one result is kept.
pub(crate) fn cached<T>(cell: &'static OnceLock<T>, find: impl FnOnce() -> T) -> &'static T {
    if let Some(value) = cell.get() {
        return value;
    }
    let found = find();
    // A failed `set` only says that another thread was first; its value is then there.
    let _ = cell.set(found);
    cell.get().expect("the cell was set by this thread or by the one that was first")
}

/// This machine's hypervisor, found at first use; `TICKETLOCK_HYPERVISOR=none|present` overrides it.
pub fn hypervisor() -> &'static Hypervisor {
    static CELL: OnceLock<Hypervisor> = OnceLock::new();
    cached(&CELL, || hypervisor::resolve(env::overrides().hypervisor, hypervisor::detect))
}

/// Largest delay that locks use here, in units: 16000 on bare metal, 16 in a guest, or `TICKETLOCK_DELAY_CAP`
/// (1 to [`CAP_STORABLE_UNITS`](policy::constants::CAP_STORABLE_UNITS)).
pub fn delay_cap() -> u32 {
    env::overrides().delay_cap.unwrap_or_else(|| policy::delay_cap_units(hypervisor().platform))
}

/// CPUs that this process can use at the same time, at least 1; see [`cpus::usable`].
pub fn usable_cpus() -> u32 {
    cpus::usable()
}

/// Reads the environment and detects the hypervisor and the CPUs now rather than at first use. Takes 100-200 us
/// (reading CPUID in a guest traps); does not calibrate the pause. Calling it again does nothing.
pub fn init() {
    let _ = (delay_cap(), usable_cpus());
}

/// Native id of the calling thread: the kernel's thread id on Linux, `pthread_threadid_np` on macOS,
/// `GetCurrentThreadId` on Windows; elsewhere a number unique among this process's live threads.
///
/// One system call on Linux (some 150 ns); never kept, since the main thread of a forked child has a new id.
pub fn thread_id() -> u64 {
    native_thread_id()
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn native_thread_id() -> u64 {
    // SAFETY: gettid takes no arguments, has no preconditions and cannot fail.
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    u64::try_from(id).unwrap_or(0)
}

#[cfg(target_vendor = "apple")]
fn native_thread_id() -> u64 {
    let mut id = 0_u64;
    // SAFETY: thread 0 means the calling one; `id` is valid for a write of 64 bits.
    unsafe { libc::pthread_threadid_np(0, &raw mut id) };
    id
}

#[cfg(windows)]
fn native_thread_id() -> u64 {
    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetCurrentThreadId() -> u32;
    }
    // SAFETY: no arguments, no preconditions.
    u64::from(unsafe { GetCurrentThreadId() })
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple", windows)))]
fn native_thread_id() -> u64 {
    thread_local! { static HERE: u8 = const { 0 }; }
    HERE.with(|here| std::ptr::from_ref(here).addr() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_different_ids_and_keep_them() {
        let here = thread_id();
        assert_ne!(here, 0);
        assert_eq!(here, thread_id());
        let there = std::thread::spawn(thread_id).join().unwrap();
        assert_ne!(here, there);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_main_thread_of_a_process_has_its_id() {
        let there = std::thread::spawn(|| (thread_id(), std::fs::read_link("/proc/thread-self").unwrap())).join().unwrap();
        assert!(there.1.ends_with(there.0.to_string()), "{there:?}");
    }

    #[test]
    fn cached_values_are_found_once() {
        static CELL: OnceLock<u32> = OnceLock::new();
        static RACED: OnceLock<u32> = OnceLock::new();
        assert_eq!(*cached(&CELL, || 7), 7);
        assert_eq!(*cached(&CELL, || panic!("found twice")), 7);
        // A thread that comes second while computing takes the value of the first.
        let value = *cached(&RACED, || {
            let _ = RACED.set(1);
            2
        });
        assert_eq!(value, 1);
    }

    #[test]
    fn answers_are_in_range_and_agree() {
        init();
        assert!((1..=policy::constants::CAP_STORABLE_UNITS).contains(&delay_cap()));
        assert!((1..=env::CPUS_MAX).contains(&usable_cpus()));
        let seen = hypervisor();
        assert!(std::ptr::eq(seen, hypervisor()));
        assert!(seen.present || seen.platform == policy::Platform::Native);
        if env::overrides().delay_cap.is_none() {
            assert_eq!(delay_cap(), policy::delay_cap_units(seen.platform));
        }
    }
}
