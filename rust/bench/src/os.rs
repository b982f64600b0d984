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

/// What became of the time of some CPUs since boot, in seconds, to 10 ms.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Taken {
    /// All processes and the kernel ran.
    pub busy_s: f64,
    /// The hypervisor gave the CPU to others though it wanted to run.
    pub steal_s: f64,
}

impl core::ops::Sub for Taken {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { busy_s: (self.busy_s - earlier.busy_s).max(0.0), steal_s: (self.steal_s - earlier.steal_s).max(0.0) }
    }
}

/// What these CPUs (all, if none is named) did so far.
pub(crate) fn taken(cpus: &[usize]) -> Option<Taken> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let now_s = ticketlock::machine::clock::now_ns() as f64 * 1e-9;
    taken_in(&std::fs::read_to_string("/proc/stat").ok()?, cpus, now_s)
}

/// Sums over the lines asked for, at `now_s` of a monotonic clock. Counted in hundredths of a second, the kernel's fixed unit
/// towards user space. Fields after the label: user, nice, system, idle, iowait, irq, softirq, steal.
///
/// Busy, up to a constant, is what is neither idle nor stolen: the kernel measures idle time, but samples what runs at its
/// tick, which is when threads wake that sleep with a timer.
fn taken_in(stat: &str, cpus: &[usize], now_s: f64) -> Option<Taken> {
    let ticks = |label: &str| {
        let line = stat.lines().find(|line| line.split_whitespace().next() == Some(label))?;
        let fields: Vec<u64> = line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
        let [_, _, _, idle, iowait, _, _, steal, ..] = fields[..] else { return None };
        Some([idle + iowait + steal, steal])
    };
    let lines: Option<Vec<[u64; 2]>> =
        if cpus.is_empty() { Some(vec![ticks("cpu")?]) } else { cpus.iter().map(|cpu| ticks(&format!("cpu{cpu}"))).collect() };
    let is_cpu = |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let count = if cpus.is_empty() { stat.lines().filter(is_cpu).count() } else { cpus.len() };
    let sum = |which: usize| lines.iter().flatten().map(|line| line[which] as f64 / 100.0).sum::<f64>();
    lines.as_ref().map(|_| Taken { busy_s: now_s * count as f64 - sum(0), steal_s: sum(1) })
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
    fn busy_and_stolen_time_is_summed_over_the_cpus_asked_for() {
        let stat = "cpu  100 200 300 400 500 600 700 800 0 0\ncpu0 1 2 3 4 5 6 7 30 0 0\ncpu1 1 1 1 1 1 1 1 50 0 0\nintr 5\n";
        let of = |cpus: &[usize]| taken_in(stat, cpus, 100.0).map(|taken| (taken.busy_s, taken.steal_s));
        assert_eq!(of(&[]), Some((200.0 - 17.0, 8.0)));
        assert_eq!(of(&[1]), Some((100.0 - 0.52, 0.5)));
        let both = of(&[0, 1]).unwrap();
        assert!((both.0 - (200.0 - 0.91)).abs() < 1e-9 && (both.1 - 0.8).abs() < 1e-9, "{both:?}");
        assert_eq!((of(&[2]), of(&[0, 2]), taken_in("", &[], 1.0)), (None, None, None));
        assert_eq!(taken_in("cpu 1 2 3\n", &[], 1.0), None);
        let (later, earlier) = (Taken { busy_s: 3.0, steal_s: 1.0 }, Taken { busy_s: 1.0, steal_s: 2.0 });
        assert_eq!(later - earlier, Taken { busy_s: 2.0, steal_s: 0.0 });
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
        assert!(taken(&[]).is_some() && taken(&allowed).is_some());
        std::thread::spawn(move || {
            pin(allowed[0]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [allowed[0]]);
        })
        .join()
        .unwrap();
    }
}
