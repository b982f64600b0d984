//! The threads of a round: started at one barrier, stopped by a flag, never waited for without end.
//!
//! The calling thread coordinates: it sleeps, looks in every [`LOOK_IN`] to see whether the round was cancelled, and stops the
//! round. A thread that panics ends the round with an error; a thread that never comes back (the lock does not let it) is
//! left behind, and the round ends with an error too. Hence threads that own what they use, not scoped ones.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::gate::{Gate, Member, News, Used};
use crate::os::{self, Switches, Taken};
use crate::spec::BenchError;
use crate::validity::{Evidence, Waiting};

/// Longest sleep of the coordinator: how soon a cancellation is seen.
const LOOK_IN: Duration = Duration::from_millis(50);

/// How long threads may take to come back once stopped. Long lines of spinning threads on few CPUs need seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What a round needs.
pub(crate) struct Plan<'a> {
    pub threads: usize,
    /// To pin to, in turn; empty for no pinning.
    pub cpus: &'a [usize],
    pub seconds: f64,
    pub waiting: Waiting,
    pub patience: Duration,
    pub cancel: &'a dyn Fn() -> bool,
}

/// A finished round.
pub(crate) struct Finished<T> {
    /// What each thread brought back.
    pub threads: Vec<T>,
    pub used: Vec<Used>,
    pub cpu_s: Vec<f64>,
    pub process_cpu_s: Option<f64>,
    pub steal_s: Option<f64>,
    pub switches: Option<Switches>,
    pub evidence: Evidence,
    pub cancelled: bool,
}

/// Runs `body` on every thread of the plan until the time is up, the gate is stopped or the round is cancelled. The body does
/// its set-up, calls [`Member::begin`], works until [`Gate::stopped`], and returns its findings with [`Shift::end`].
pub(crate) fn run<T, F>(plan: &Plan<'_>, body: F) -> Result<Finished<T>, BenchError>
where
    T: Send + 'static,
    F: Fn(&Member<'_>) -> Option<(T, Used)> + Send + Sync + 'static,
{
    Clock::get(); // calibrated before the threads start
    let (gate, body) = (Arc::new(Gate::default()), Arc::new(body));
    let (news, inbox) = channel();
    let places = if plan.cpus.is_empty() { os::allowed_cpus().unwrap_or_default() } else { plan.cpus.to_vec() };
    let (taken_before, cpu_before) = (os::taken(&places), os::process_cpu_s());
    let mut handles = Vec::with_capacity(plan.threads);
    for me in 0..plan.threads {
        let (gate, body, news, threads) = (Arc::clone(&gate), Arc::clone(&body), news.clone(), plan.threads);
        let cpu = (!plan.cpus.is_empty()).then(|| plan.cpus[me % plan.cpus.len()]);
        let spawned = std::thread::Builder::new().name(format!("bench-{me}")).spawn({
            let gate = Arc::clone(&gate);
            move || one(&Member::new(me as u32, &gate, threads, &news), cpu, &*body)
        });
        match spawned {
            Ok(handle) => handles.push(handle),
            Err(error) => {
                gate.stop();
                return Err(BenchError::System(format!("thread {me} of {threads} cannot be started: {error}")));
            }
        }
    }
    drop(news);
    let mut watch =
        Watch { plan, gate: &gate, ids: Vec::new(), opened: None, stopped: None, looks: 0, stacked: 0, cancelled: false };
    let outcome = watch.until_all_are_done(&inbox);
    let (looks, stacked, cancelled) = (watch.looks, watch.stacked, watch.cancelled);
    outcome?;
    let process_cpu_s = os::process_cpu_s().zip(cpu_before).map(|(now, then)| now - then);
    let taken = os::taken(&places).zip(taken_before).map(|(now, then)| now - then);
    let mut found = Vec::new();
    let mut used = Vec::new();
    for handle in handles {
        // Every thread has said that it is done, so none is waited for long.
        let back = handle.join().ok().flatten();
        let (findings, facts) = back.ok_or_else(|| BenchError::System("the round was called off".to_owned()))?;
        found.push(findings);
        used.push(facts);
    }
    Ok(sum_up(plan, found, used, process_cpu_s, taken, (places.len(), looks, stacked), cancelled))
}

/// One thread, from its start to its end.
fn one<T>(member: &Member<'_>, cpu: Option<usize>, body: &impl Fn(&Member<'_>) -> Option<(T, Used)>) -> Option<(T, Used)> {
    if let Some(cpu) = cpu {
        if let Err(refusal) = os::pin(cpu) {
            member.gate.stop();
            let _ = member.news.send(News::Refused(refusal));
            return None;
        }
    }
    let _ = member.news.send(News::Placed(ticketlock::machine::thread_id()));
    match catch_unwind(AssertUnwindSafe(|| body(member))) {
        Ok(back) => {
            let _ = member.news.send(News::Done);
            back
        }
        Err(panic) => {
            member.gate.stop();
            let said = panic.downcast_ref::<&str>().map(|s| (*s).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
            let said = said.unwrap_or_else(|| "no message".to_owned());
            let _ = member.news.send(News::Panicked(format!("thread {} panicked: {said}", member.me)));
            None
        }
    }
}

/// The coordinator.
struct Watch<'a> {
    plan: &'a Plan<'a>,
    gate: &'a Gate,
    ids: Vec<u64>,
    opened: Option<Instant>,
    stopped: Option<Instant>,
    looks: u32,
    stacked: u32,
    cancelled: bool,
}

impl Watch<'_> {
    fn until_all_are_done(&mut self, inbox: &std::sync::mpsc::Receiver<News>) -> Result<(), BenchError> {
        let (mut done, mut failure) = (0, None);
        let length = Duration::from_secs_f64(self.plan.seconds);
        while done < self.plan.threads {
            let due = match (self.stopped, self.opened) {
                (None, Some(opened)) => length.saturating_sub(opened.elapsed()),
                _ => LOOK_IN,
            };
            match inbox.recv_timeout(due.min(LOOK_IN)) {
                Ok(News::Placed(id)) => self.ids.push(id),
                Ok(News::Opened) => self.opened = Some(Instant::now()),
                Ok(News::Done) => done += 1,
                Ok(News::Refused(why)) => {
                    done += 1;
                    failure.get_or_insert(BenchError::System(why));
                }
                Ok(News::Panicked(why)) => {
                    done += 1;
                    failure.get_or_insert(BenchError::Panicked(why));
                }
                Err(RecvTimeoutError::Timeout) => self.look_around(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            // Not before every thread is through the barrier, so that each has something to bring back.
            if self.gate.is_open(self.plan.threads) && self.stopped.is_none() {
                self.cancelled = (self.plan.cancel)();
                if self.cancelled || self.opened.is_some_and(|opened| opened.elapsed() >= length) {
                    self.gate.stop();
                }
            }
            if self.gate.stopped() {
                let since = *self.stopped.get_or_insert_with(Instant::now);
                if since.elapsed() >= self.plan.patience {
                    let missing = self.plan.threads - done;
                    let why = format!(
                        "{missing} of {} threads did not come back within {:?} after the end of the round: the lock is stuck",
                        self.plan.threads, self.plan.patience
                    );
                    return Err(failure.unwrap_or(BenchError::Stuck(why)));
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Are two threads on one CPU though there are enough? Only asked of threads that choose their place.
    fn look_around(&mut self) {
        let plan = self.plan;
        if self.opened.is_none() || self.stopped.is_some() || !plan.cpus.is_empty() || plan.threads > usable_cpus(plan.cpus) {
            return;
        }
        let mut places: Vec<_> = self.ids.iter().filter_map(|&id| os::last_cpu(id)).collect();
        if places.len() < 2 {
            return;
        }
        self.looks += 1;
        places.sort_unstable();
        self.stacked += u32::from(places.windows(2).any(|pair| pair[0] == pair[1]));
    }
}

/// CPUs that a round can use: the pinned ones, or what affinity and quota leave. Never what a policy is told to believe.
pub(crate) fn usable_cpus(pinned: &[usize]) -> usize {
    if pinned.is_empty() { std::thread::available_parallelism().map_or(1, usize::from) } else { pinned.len() }
}

fn sum_up<T>(
    plan: &Plan<'_>,
    threads: Vec<T>,
    used: Vec<Used>,
    process_cpu_s: Option<f64>,
    taken: Option<Taken>,
    (places, looks, stacked): (usize, u32, u32),
    cancelled: bool,
) -> Finished<T> {
    let clock = Clock::get();
    let origin = used.iter().map(|u| u.period.0).min().unwrap_or(0);
    let since = |stamp: u64| clock.seconds(stamp.saturating_sub(origin));
    let cpu_s: Vec<f64> = used.iter().filter_map(|u| u.cpu_s).collect();
    // All threads' or none's: a part of the sum would pass for the whole.
    let counted: Option<Vec<Switches>> = used.iter().map(|u| u.switches).collect();
    let switches = counted.map(|all| {
        let mut sum = Switches::default();
        for one in all {
            sum += one;
        }
        sum
    });
    let evidence = Evidence {
        threads: plan.threads,
        cpus: usable_cpus(plan.cpus),
        places,
        waiting: plan.waiting,
        periods: used.iter().map(|u| (since(u.period.0), since(u.period.1))).collect(),
        cpu_s: cpu_s.clone(),
        process_cpu_s,
        taken,
        looks,
        stacked,
    };
    Finished { threads, used, cpu_s, process_cpu_s, steal_s: taken.map(|taken| taken.steal_s), switches, evidence, cancelled }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::alone;

    fn plan(threads: usize, seconds: f64, cancel: &dyn Fn() -> bool) -> Plan<'_> {
        Plan { threads, cpus: &[], seconds, waiting: Waiting::Spinning, patience: PATIENCE, cancel }
    }

    fn turn(member: &Member<'_>) -> Option<(u32, Used)> {
        let shift = member.begin()?;
        while !member.gate.stopped() {
            std::thread::yield_now();
        }
        Some((member.me, shift.end()))
    }

    #[test]
    fn all_threads_work_and_report_in_order() {
        let _alone = alone();
        let finished = run(&plan(5, 0.02, &|| false), turn).unwrap();
        assert_eq!(finished.threads, [0, 1, 2, 3, 4]);
        assert!(!finished.cancelled);
        assert!(finished.evidence.wall_s() >= 0.01);
        if cfg!(target_os = "linux") {
            assert_eq!(finished.cpu_s.len(), 5);
            assert!(finished.process_cpu_s.is_none_or(|used| used > 0.0));
        }
    }

    #[test]
    fn a_cancelled_round_ends_early_with_what_it_has() {
        let _alone = alone();
        let finished = run(&plan(2, 3_000.0, &|| true), turn).unwrap();
        assert!(finished.cancelled);
        assert_eq!(finished.threads.len(), 2);
    }

    #[test]
    fn a_panic_before_or_after_the_barrier_fails_the_round() {
        let _alone = alone();
        let before = run(&plan(3, 3_000.0, &|| false), |member: &Member<'_>| {
            assert!(member.me != 1, "planted");
            turn(member)
        });
        let after = run(&plan(3, 3_000.0, &|| false), |member: &Member<'_>| {
            let back = (member.me != 1).then(|| turn(member));
            back.unwrap_or_else(|| {
                member.begin().unwrap();
                panic!("planted {}", member.me)
            })
        });
        for outcome in [before, after] {
            let Err(BenchError::Panicked(why)) = outcome else { panic!("the round should have failed") };
            assert!(why.contains("thread 1 panicked: planted"), "{why}");
        }
    }

    #[test]
    fn a_thread_that_never_comes_back_is_left_behind() {
        let plan = Plan { patience: Duration::from_millis(20), ..plan(2, 0.001, &|| false) };
        let outcome = run(&plan, |member: &Member<'_>| {
            if member.me == 0 {
                member.begin()?;
                loop {
                    std::thread::park();
                }
            }
            turn(member)
        });
        let Err(BenchError::Stuck(why)) = outcome else { panic!("the round should have failed") };
        assert!(why.contains("1 of 2 threads"), "{why}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn threads_are_pinned_in_turn() {
        let _alone = alone();
        let allowed = os::allowed_cpus().unwrap();
        let finished = run(&Plan { cpus: &allowed, ..plan(3, 0.01, &|| false) }, |member: &Member<'_>| {
            let place = os::allowed_cpus();
            turn(member).map(|(_, used)| (place, used))
        });
        let places: Vec<_> = finished.unwrap().threads.into_iter().flatten().collect();
        assert_eq!(places, [0, 1, 2].map(|me| vec![allowed[me % allowed.len()]]));
    }
}
