//! What the operating system says of threads: CPU time, context switches, places, steal. Absent answers are `None`.

/// Context switches of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switches {
    /// The thread waited for something.
    pub voluntary: u64,
    /// The scheduler wanted the CPU.
    pub involuntary: u64,
}

impl core::ops::AddAssign for Switches {
    fn add_assign(&mut self, other: Self) {
        self.voluntary += other.voluntary;
        self.involuntary += other.involuntary;
    }
}

impl core::ops::Sub for Switches {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
        }
    }
}

/// CPU time of the calling thread, in seconds.
#[cfg(unix)]
pub(crate) fn thread_cpu_s() -> Option<f64> {
    clock_s(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the process, in seconds.
#[cfg(unix)]
pub(crate) fn process_cpu_s() -> Option<f64> {
    clock_s(libc::CLOCK_PROCESS_CPUTIME_ID)
}

#[cfg(unix)]
fn clock_s(clock: libc::clockid_t) -> Option<f64> {
    // SAFETY: all-zero is a valid `timespec`, and the call writes nothing else.
    let (failed, time) = unsafe {
        let mut time: libc::timespec = core::mem::zeroed();
        (libc::clock_gettime(clock, &raw mut time), time)
    };
    (failed == 0).then(|| time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

#[cfg(not(unix))]
pub(crate) fn thread_cpu_s() -> Option<f64> {
    None
}

#[cfg(not(unix))]
pub(crate) fn process_cpu_s() -> Option<f64> {
    None
}

/// Context switches of the calling thread so far.
#[cfg(target_os = "linux")]
pub(crate) fn thread_switches() -> Option<Switches> {
    // SAFETY: all-zero is a valid `rusage`, and the call writes nothing else.
    let (failed, usage) = unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        (libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), usage)
    };
    (failed == 0).then_some(Switches { voluntary: usage.ru_nvcsw as u64, involuntary: usage.ru_nivcsw as u64 })
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn thread_switches() -> Option<Switches> {
    None
}

/// CPUs that the calling thread may run on; `None` where affinity cannot be set.
#[cfg(target_os = "linux")]
pub(crate) fn allowed_cpus() -> Option<Vec<usize>> {
    // SAFETY: all-zero is a valid (empty) set, and the call writes no more than the size given.
    let (failed, set) = unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        (libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set), set)
    };
    if failed != 0 {
        return None;
    }
    // SAFETY: the index is below the size of the set.
    Some((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// Binds the calling thread to one CPU.
#[cfg(target_os = "linux")]
pub(crate) fn pin(cpu: usize) -> Result<(), String> {
    // SAFETY: all-zero is a valid (empty) set; the index was checked against the affinity mask, so it is inside the set.
    let failed = unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if failed == 0 { Ok(()) } else { Err(format!("a thread cannot be pinned to CPU {cpu}: {}", std::io::Error::last_os_error())) }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn allowed_cpus() -> Option<Vec<usize>> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn pin(_cpu: usize) -> Result<(), String> {
    Err("threads cannot be pinned on this system".to_owned())
}

/// The CPU that a thread of this process last ran on, by its native id.
#[cfg(target_os = "linux")]
pub(crate) fn last_cpu(thread: u64) -> Option<u64> {
    place(&std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn last_cpu(_thread: u64) -> Option<u64> {
    None
}

/// Field 39 of a `stat` line; the name in parentheses (field 2) may hold anything.
#[cfg(any(target_os = "linux", test))]
fn place(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(39 - 3)?.parse().ok()
}

/// Time that the hypervisor gave to others while these CPUs (all, if empty) wanted to run, in seconds since boot. 10 ms
/// resolution.
pub(crate) fn steal_s(cpus: &[usize]) -> Option<f64> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    steal_ticks(&std::fs::read_to_string("/proc/stat").ok()?, cpus).map(|ticks| ticks as f64 / 100.0)
}

/// Sum of field 9 (`steal`, in hundredths of a second: the kernel's fixed unit towards user space) of the lines asked for.
fn steal_ticks(stat: &str, cpus: &[usize]) -> Option<u64> {
    let ticks = |label: &str| {
        let line = stat.lines().find(|line| line.split_whitespace().next() == Some(label))?;
        line.split_whitespace().nth(8)?.parse::<u64>().ok()
    };
    if cpus.is_empty() { ticks("cpu") } else { cpus.iter().map(|cpu| ticks(&format!("cpu{cpu}"))).sum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_past_a_hostile_name() {
        let fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        assert_eq!(place(&format!("17 (a) b) {}", fields.join(" "))), Some(39));
        assert_eq!(place("17 (cut"), None);
        assert_eq!(place("17 (cut) S 1"), None);
    }

    #[test]
    fn steal_is_summed_over_the_cpus_asked_for() {
        let stat = "cpu  1 2 3 4 5 6 7 80 0 0\ncpu0 1 1 1 1 1 1 1 30 0 0\ncpu1 1 1 1 1 1 1 1 50 0 0\nintr 5\n";
        assert_eq!(steal_ticks(stat, &[]), Some(80));
        assert_eq!(steal_ticks(stat, &[1]), Some(50));
        assert_eq!(steal_ticks(stat, &[0, 1]), Some(80));
        assert_eq!(steal_ticks(stat, &[2]), None);
        assert_eq!(steal_ticks("", &[]), None);
    }

    #[test]
    fn switches_subtract_and_add() {
        let (later, earlier) = (Switches { voluntary: 5, involuntary: 7 }, Switches { voluntary: 2, involuntary: 7 });
        let mut sum = later - earlier;
        sum += Switches { voluntary: 1, involuntary: 1 };
        assert_eq!(sum, Switches { voluntary: 4, involuntary: 1 });
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_thread_is_seen() {
        assert!(thread_cpu_s().is_some() && process_cpu_s().is_some() && thread_switches().is_some());
        let allowed = allowed_cpus().unwrap();
        assert!(!allowed.is_empty());
        assert!(last_cpu(ticketlock::machine::thread_id()).is_some());
        assert!(steal_s(&[]).is_some());
        std::thread::spawn(move || {
            pin(allowed[0]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [allowed[0]]);
        })
        .join()
        .unwrap();
    }
}
