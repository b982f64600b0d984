//! CPUs that are online, that this process is allowed to use, and that it is paid for.

use super::{cgroup, env};
use std::path::Path;

/// CPUs that the operating system runs, at least 1. Asked anew at every call.
pub fn online() -> usize {
    native::online().max(1)
}

/// Numbers of the CPUs that this process may run on, ascending, never empty. Where the platform has no affinity (macOS),
/// or does not tell it, these are all that are online.
///
/// It is the affinity of the process's main thread: a worker pinned to one CPU must not make all locks believe in one.
/// Asked anew at every call.
pub fn affinity() -> Vec<usize> {
    native::affinity().filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| (0..online()).collect())
}

/// The control groups' quota in CPUs (0.5 is half the time of one), `None` without one or elsewhere than on Linux.
/// Read anew at every call.
pub fn quota() -> Option<f64> {
    if cfg!(any(target_os = "linux", target_os = "android")) { cgroup::quota(Path::new("/")) } else { None }
}

/// CPUs that this process can use at the same time, 1 to [`env::CPUS_MAX`]: `TICKETLOCK_CPUS`, or the smaller of
/// affinity and quota, rounded up.
///
/// **Kept from its first use on**: an affinity or quota that changes later is seen only after [`refresh`].
pub fn usable() -> u32 {
    match kept::get() {
        0 => refresh(),
        count => count,
    }
}

/// Reads affinity and quota again (some 100 us) and answers what [`usable`] will say from now on.
pub fn refresh() -> u32 {
    let count = env::overrides().cpus.unwrap_or_else(|| combine(affinity().len(), quota()));
    kept::set(count);
    count
}

/// The smaller of `allowed` CPUs and `quota`, rounded up, 1 to [`env::CPUS_MAX`].
fn combine(allowed: usize, quota: Option<f64>) -> u32 {
    // A float's conversion saturates, so a huge quota is no limit.
    let paid = quota.map_or(u32::MAX, |quota| quota.ceil() as u32);
    u32::try_from(allowed).unwrap_or(u32::MAX).min(paid).clamp(1, env::CPUS_MAX)
}

/// The last answer, 0 before the first.
mod kept {
    use crate::sync::global::{AtomicU32, Ordering};

    static USABLE: AtomicU32 = AtomicU32::new(0);

    // Relaxed: the number is all there is to see.
    pub(super) fn get() -> u32 {
        USABLE.load(Ordering::Relaxed)
    }

    pub(super) fn set(count: u32) {
        USABLE.store(count, Ordering::Relaxed);
    }
}

#[cfg(unix)]
mod native {
    pub(super) fn online() -> usize {
        // SAFETY: sysconf only reads a number.
        let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        usize::try_from(count).unwrap_or(0)
    }

    /// Words of the largest mask asked for, 64 CPUs each: twice what [`super::env::CPUS_MAX`] needs.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const MASK_WORDS_MAX: usize = 2_048;

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn affinity() -> Option<Vec<usize>> {
        use core::ffi::c_ulong;
        const BITS: usize = c_ulong::BITS as usize;
        // The main thread's id is the process's; it may have ended, then the caller's own affinity is the next best.
        // SAFETY: getpid has no preconditions.
        [unsafe { libc::getpid() }, 0].into_iter().find_map(|id| {
            let mut mask: Vec<c_ulong> = vec![0; 16];
            loop {
                let bytes = size_of_val(mask.as_slice());
                // SAFETY: the mask is valid for a write of `bytes` bytes, and c_ulong is the kernel's own unit.
                if unsafe { libc::sched_getaffinity(id, bytes, mask.as_mut_ptr().cast()) } == 0 {
                    let set = |cpu: &usize| mask[cpu / BITS] >> (cpu % BITS) & 1 == 1;
                    return Some((0..mask.len() * BITS).filter(set).collect());
                }
                // The kernel's mask is longer than ours: ask with a longer one.
                let invalid = std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
                if !invalid || mask.len() >= MASK_WORDS_MAX {
                    return None;
                }
                mask = vec![0; mask.len() * 2];
            }
        })
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn affinity() -> Option<Vec<usize>> {
        None
    }
}

#[cfg(windows)]
mod native {
    use core::ffi::c_void;

    /// Every processor group. Source: `winnt.h`.
    const ALL_PROCESSOR_GROUPS: u16 = 0xffff;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetActiveProcessorCount(group: u16) -> u32;
        fn GetCurrentProcess() -> *mut c_void;
        fn GetProcessAffinityMask(process: *mut c_void, process_mask: *mut usize, system_mask: *mut usize) -> i32;
    }

    pub(super) fn online() -> usize {
        // SAFETY: a number in, a number out.
        unsafe { GetActiveProcessorCount(ALL_PROCESSOR_GROUPS) as usize }
    }

    pub(super) fn affinity() -> Option<Vec<usize>> {
        // One mask speaks of one processor group: beyond that every CPU counts as allowed.
        if online() > usize::BITS as usize {
            return None;
        }
        let (mut process, mut system) = (0_usize, 0_usize);
        // SAFETY: the pseudo-handle of the current process is always valid, and both masks are valid for writes.
        let done = unsafe { GetProcessAffinityMask(GetCurrentProcess(), &raw mut process, &raw mut system) };
        (done != 0).then(|| (0..usize::BITS as usize).filter(|cpu| process >> cpu & 1 == 1).collect())
    }
}

#[cfg(not(any(unix, windows)))]
mod native {
    pub(super) fn online() -> usize {
        std::thread::available_parallelism().map_or(1, Into::into)
    }

    pub(super) fn affinity() -> Option<Vec<usize>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_counts_and_quotas_are_rounded_up() {
        for (allowed, quota, usable) in [
            (8, None, 8),
            (8, Some(2.0), 2),
            (8, Some(2.001), 3),
            (8, Some(0.01), 1),
            (2, Some(16.0), 2),
            (4, Some(1e30), 4),
            (0, None, 1),
            (0, Some(0.0), 1),
            (1_000_000, None, 65_536),
        ] {
            assert_eq!(combine(allowed, quota), usable, "{allowed} {quota:?}");
        }
    }

    #[test]
    fn this_machine_has_cpus_in_order() {
        let cpus = affinity();
        assert!(!cpus.is_empty() && cpus.is_sorted());
        assert!(online() >= 1);
        assert!((1..=env::CPUS_MAX).contains(&usable()));
        if env::overrides().cpus.is_none() {
            assert!(usable() as usize <= cpus.len());
        }
        assert_eq!(refresh(), usable());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_pinned_worker_does_not_change_the_answer() {
        let before = affinity();
        let pinned = std::thread::spawn(move || {
            let first = affinity()[0];
            // SAFETY: an all-zero cpu_set_t is an empty one; the set outlives the call, which reads it; 0 is this thread.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(first, &mut set);
                assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
            }
            affinity()
        });
        assert_eq!(pinned.join().unwrap(), before);
    }
}
