//! Whether the threads of a round really ran in parallel.

use crate::os::Taken;

/// What is known of a round when it is over.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    /// Threads of the round.
    pub threads: usize,
    /// CPUs they could use.
    pub cpus: usize,
    /// CPUs that `taken` is about: those pinned to, or all that the process may use.
    pub places: usize,
    /// What they do while they wait.
    pub waiting: Waiting,
    /// Wall time of each thread, in seconds since the round's first start: (start, end).
    pub periods: Vec<(f64, f64)>,
    /// CPU time of each thread, in seconds; empty if unknown.
    pub cpu_s: Vec<f64>,
    /// CPU time of the process, in seconds, if known.
    pub process_cpu_s: Option<f64>,
    /// What became of the time of the CPUs in use, if known.
    pub taken: Option<Taken>,
    /// Looks at the threads' places.
    pub looks: u32,
    /// Looks at which two threads were on one CPU.
    pub stacked: u32,
}

/// What threads do while they wait, and so how much CPU time proves that they ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Waiting {
    /// They keep their CPU.
    Spinning,
    /// They may sleep: their CPU time proves nothing.
    #[default]
    Sleeping,
    /// They never wait, and medians of short batches leave out the moments without a CPU.
    Never,
}

impl Waiting {
    /// Least share of a CPU that each thread must have had, where there are enough CPUs.
    ///
    /// A spinning thread with a CPU of its own gets nearly all of it; below 0.8 somebody else ran there. Not nearer to 1: the
    /// harness's own look-in and the timer tick take a few percent of a short round.
    fn least_share(self) -> Option<f64> {
        match self {
            Self::Spinning => Some(0.8),
            Self::Never => Some(0.2),
            Self::Sleeping => None,
        }
    }
}

/// Threads that outnumber the CPUs and spin keep all of them busy; they yield and nap, so only half is asked for.
const LEAST_CPU_SHARE_OVERSUBSCRIBED: f64 = 0.5;

/// Where such threads sleep, one always holds the lock or is about to. A lock that wakes a thread for every section may
/// leave the CPUs idle most of the time, and that is its own figure; below a tenth of one CPU the process was held up.
const LEAST_CPU_SHARE_SLEEPING: f64 = 0.1;

/// Least share of the CPU time that the threads could have used which other processes left to them. As for a spinning
/// thread, whose own CPU time shows the same.
const LEAST_LEFT: f64 = 0.8;

/// Share of the round during which all threads must have been running, unless they outnumber the CPUs.
const LEAST_OVERLAP: f64 = 0.9;

/// Largest stolen share of the CPUs in use, and the time below which steal's 10 ms resolution says nothing.
const MOST_STEAL: f64 = 0.1;
const LEAST_VISIBLE_STEAL_S: f64 = 0.02;

/// Looks needed before their majority counts.
const LEAST_LOOKS: u32 = 2;

impl Evidence {
    /// Wall time from the first start to the last end, in seconds.
    pub(crate) fn wall_s(&self) -> f64 {
        let first = self.periods.iter().map(|p| p.0).fold(f64::INFINITY, f64::min);
        let last = self.periods.iter().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max);
        (last - first).max(0.0)
    }

    /// Why the round is invalid, if it is.
    pub(crate) fn objection(&self) -> Option<String> {
        let wall = self.wall_s();
        if self.threads > self.cpus {
            self.idle_cpus(wall).or_else(|| self.stolen(wall)).or_else(|| self.crowded_out(wall))
        } else {
            self.starved()
                .or_else(|| self.apart(wall))
                .or_else(|| self.stacked())
                .or_else(|| self.stolen(wall))
                .or_else(|| self.crowded_out(wall))
        }
    }

    fn starved(&self) -> Option<String> {
        let least = self.waiting.least_share()?;
        let shares = self.cpu_s.iter().zip(&self.periods).map(|(cpu, (start, end))| cpu / (end - start).max(1e-9));
        let (thread, share) = shares.enumerate().min_by(|a, b| a.1.total_cmp(&b.1))?;
        (share < least)
            .then(|| format!("thread {thread} had a CPU for only {:.0} % of the round: it was not alone there", share * 100.0))
    }

    fn idle_cpus(&self, wall: f64) -> Option<String> {
        let (cpus, least, of) = match self.waiting {
            Waiting::Spinning => (self.cpus, LEAST_CPU_SHARE_OVERSUBSCRIBED, "them"),
            Waiting::Sleeping | Waiting::Never => (1, LEAST_CPU_SHARE_SLEEPING, "one"),
        };
        let share = self.process_cpu_s? / (wall * cpus as f64).max(1e-9);
        (share < least)
            .then(|| format!("the threads outnumber the CPUs, yet had {of} for only {:.0} % of the round", share * 100.0))
    }

    /// Other processes on the CPUs in use: the only sign for threads that sleep, whose own CPU time proves nothing.
    fn crowded_out(&self, wall: f64) -> Option<String> {
        if self.waiting == Waiting::Never {
            return None;
        }
        let others = self.taken?.busy_s - self.process_cpu_s?;
        let wanted = wall * self.cpus.min(self.threads) as f64;
        let left = (wall * self.places as f64 - others) / wanted.max(1e-9);
        (others >= LEAST_VISIBLE_STEAL_S && left < LEAST_LEFT)
            .then(|| format!("other processes left only {:.0} % of the CPU time", left.max(0.0) * 100.0))
    }

    fn apart(&self, wall: f64) -> Option<String> {
        let last_start = self.periods.iter().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max);
        let first_end = self.periods.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
        let overlap = (first_end - last_start).max(0.0) / wall.max(1e-9);
        (overlap < LEAST_OVERLAP).then(|| format!("all threads ran at once for only {:.0} % of the round", overlap * 100.0))
    }

    fn stacked(&self) -> Option<String> {
        (self.looks >= LEAST_LOOKS && self.stacked * 2 > self.looks)
            .then(|| format!("two threads shared a CPU at {} of {} looks", self.stacked, self.looks))
    }

    fn stolen(&self, wall: f64) -> Option<String> {
        let steal = self.taken?.steal_s;
        let share = steal / (wall * self.cpus.min(self.threads) as f64).max(1e-9);
        (steal >= LEAST_VISIBLE_STEAL_S && share > MOST_STEAL)
            .then(|| format!("the hypervisor took {:.0} % of the CPU time", share * 100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Evidence {
        Evidence {
            threads: 2,
            cpus: 2,
            waiting: Waiting::Spinning,
            periods: vec![(0.0, 1.0), (0.01, 1.01)],
            cpu_s: vec![0.98, 0.97],
            process_cpu_s: Some(1.96),
            places: 2,
            taken: Some(Taken { busy_s: 2.0, steal_s: 0.0 }),
            looks: 10,
            stacked: 1,
        }
    }

    #[test]
    fn parallel_threads_pass() {
        assert_eq!(good().objection(), None);
        assert!((good().wall_s() - 1.01).abs() < 1e-12);
    }

    #[test]
    fn each_reason_is_found_and_named() {
        type Spoil = fn(&mut Evidence);
        let cases: [(Spoil, &str); 8] = [
            (|e| e.cpu_s = vec![0.5, 0.98], "thread 0 had a CPU for only 50 %"),
            (|e| e.periods = vec![(0.0, 0.5), (0.5, 1.0)], "ran at once for only 0 %"),
            (|e| e.stacked = 6, "6 of 10 looks"),
            (|e| e.taken = Some(Taken { busy_s: 2.0, steal_s: 0.5 }), "took 25 %"),
            (|e| (e.threads, e.process_cpu_s) = (8, Some(0.9)), "outnumber the CPUs, yet had them for only 45 %"),
            (|e| (e.threads, e.waiting, e.process_cpu_s) = (8, Waiting::Sleeping, Some(0.05)), "yet had one for only 5 %"),
            (|e| (e.waiting, e.process_cpu_s) = (Waiting::Sleeping, Some(1.5)), "other processes left only 75 %"),
            (|e| (e.threads, e.process_cpu_s) = (8, Some(1.5)), "other processes left only 75 %"),
        ];
        for (spoil, reason) in cases {
            let mut evidence = good();
            spoil(&mut evidence);
            let objection = evidence.objection().expect(reason);
            assert!(objection.contains(reason), "{objection}");
        }
    }

    #[test]
    fn what_says_nothing_is_not_held_against_a_round() {
        let sleeping = Evidence { waiting: Waiting::Sleeping, cpu_s: vec![0.3, 0.3], ..good() };
        assert_eq!(sleeping.objection(), None, "a lock that sleeps need not burn its CPU");
        let alone = Evidence { threads: 1, waiting: Waiting::Never, periods: vec![(0.0, 1.0)], cpu_s: vec![0.3], ..good() };
        assert_eq!(alone.objection(), None, "medians of batches do without the moments that others ran");
        let unknown = Evidence { cpu_s: vec![], process_cpu_s: None, taken: None, looks: 0, stacked: 0, ..good() };
        assert_eq!(unknown.objection(), None);
        let one_look = Evidence { looks: 1, stacked: 1, ..good() };
        assert_eq!(one_look.objection(), None);
        let coarse = Evidence {
            taken: Some(Taken { busy_s: 0.05, steal_s: 0.01 }),
            process_cpu_s: Some(0.04),
            periods: vec![(0.0, 0.02); 2],
            cpu_s: vec![0.02; 2],
            ..good()
        };
        assert_eq!(coarse.objection(), None, "one tick of steal in a short round");
        let elsewhere = Taken { busy_s: 3.9, steal_s: 0.0 };
        let roomy = Evidence { waiting: Waiting::Sleeping, places: 4, taken: Some(elsewhere), ..good() };
        assert_eq!(roomy.objection(), None, "others ran on the CPUs that the threads did not need");
        let idle = Evidence { threads: 8, waiting: Waiting::Sleeping, process_cpu_s: Some(0.4), ..good() };
        let idle = Evidence { taken: Some(Taken { busy_s: 0.45, steal_s: 0.0 }), ..idle };
        assert_eq!(idle.objection(), None, "a lock that leaves the CPUs idle");
        let crowded = Evidence { threads: 8, periods: vec![(0.0, 0.4), (0.6, 1.0)], ..good() };
        assert_eq!(crowded.objection(), None, "threads that outnumber the CPUs cannot all run at once");
    }
}
