//! Presets `semaphore`, `fairness` and `oversubscribed`: threads that take a lock around a short section, over and over.

use core::cell::UnsafeCell;
use std::sync::Arc;

use crate::adapter::Adapter;
use crate::arrivals::Arrivals;
use crate::clock::Clock;
use crate::crew::{self, Finished, Plan};
use crate::gate::{Gate, Member, Used};
use crate::histogram::Histogram;
use crate::order::Random;
use crate::overtakes::{self, LogPlan, Overtakes, ServiceLog};
use crate::result::{Extra, RoundResult, RunLengths, WINDOW_NS, Waits};
use crate::round;
use crate::runs::Turn;
use crate::spec::{BenchError, Mode, Preset, RoundSpec};
use crate::work::Work;

/// A lock and what it protects, side by side as in a real semaphore: waiters that poll the lock's line disturb the section.
/// 128: x86 fetches lines in pairs.
#[repr(C, align(128))]
struct Guarded<A> {
    lock: A,
    data: UnsafeCell<Data>,
}

// SAFETY: `data` is only touched by the holder of `lock`, or when all threads are done.
unsafe impl<A: Adapter> Sync for Guarded<A> {}

struct Data {
    /// The semaphore's count, or the shared counter.
    value: i64,
    turn: Turn,
}

/// What the threads of a round share.
struct Field<A: Adapter> {
    locks: Box<[Guarded<A>]>,
    config: A::Config,
    /// The semaphore's two sections, or the counter's one.
    steps: &'static [i64],
    limit: u64,
    hold: Work,
    think: Work,
    seed: u64,
    log: LogPlan,
    arrivals: Arrivals,
}

/// What one thread brings back.
struct Tally {
    acquired: u64,
    runs: Histogram,
    waits: Histogram,
    /// Longest monopoly that this thread ended, in ticks.
    monopoly: u64,
    /// Acquisitions in each window up to the thread's last one.
    windows: Vec<u64>,
    logs: Vec<ServiceLog>,
}

/// One thread at work. `WAITS` decides at compile time whether anything is timed.
struct Worker<'a, A: Adapter, const WAITS: bool> {
    field: &'a Field<A>,
    ctx: A::Ctx,
    me: u32,
    clock: Clock,
    origin: u64,
    /// Ticks a window, and when the present one ends.
    window: u64,
    window_ends: u64,
    tally: Tally,
}

impl<A: Adapter, const WAITS: bool> Worker<'_, A, WAITS> {
    /// One acquisition; false once the round's iterations are used up.
    #[inline]
    fn acquire(&mut self, which: usize, step: i64) -> bool {
        let (field, clock, origin) = (self.field, self.clock, self.origin);
        // In ticks since the round's start.
        let now = || if WAITS { clock.now().saturating_sub(origin) } else { 0 };
        let guarded = &field.locks[which];
        let arrived = now();
        if WAITS {
            field.arrivals.arrive(self.me, which, arrived);
        }
        let held = guarded.lock.lock(&mut self.ctx);
        let served_at = now();
        if WAITS {
            field.arrivals.served(self.me);
        }
        // SAFETY: the lock is held until `held` is dropped, and `data` is not used after that.
        let data = unsafe { &mut *guarded.data.get() };
        if data.turn.served() >= field.limit {
            return false;
        }
        data.value += step;
        let ended = data.turn.serve(self.me, served_at);
        let number = data.turn.served() - 1;
        if WAITS {
            if let Some(run) = ended.filter(|run| run.span() > self.tally.monopoly) {
                // Looked up while nobody else can be served; rarely, since only a longer one counts.
                let first = field.arrivals.longest_waiting(which).map_or(arrived, |others| others.min(arrived));
                self.tally.monopoly = self.tally.monopoly.max(run.monopoly(first));
            }
        }
        field.hold.perform();
        drop(held);
        self.tally.acquired += 1;
        if let Some(run) = ended {
            self.tally.runs.add(run.length);
        }
        if WAITS {
            self.tally.waits.add(clock.ns(served_at.saturating_sub(arrived)));
            self.tally.logs[which].push(number, clock.ns(arrived));
            self.note_window(served_at);
        }
        field.think.perform();
        true
    }

    #[inline]
    fn note_window(&mut self, served_at: u64) {
        while served_at >= self.window_ends {
            self.tally.windows.push(0);
            self.window_ends += self.window;
        }
        *self.tally.windows.last_mut().expect("the first window is there from the start") += 1;
    }

    fn until_stopped(&mut self, gate: &Gate) {
        let locks = self.field.locks.len();
        let mut random = Random::new(self.field.seed ^ (u64::from(self.me) << 32));
        while !gate.stopped() {
            let which = if locks == 1 { 0 } else { random.below(locks) };
            for &step in self.field.steps {
                if !self.acquire(which, step) {
                    gate.stop();
                    return;
                }
            }
        }
    }
}

impl<A: Adapter> Field<A> {
    fn new(spec: &RoundSpec, config: A::Config) -> Self {
        let (value, steps): (i64, &[i64]) = match spec.preset {
            Preset::Semaphore => (i64::try_from(spec.threads).unwrap_or(i64::MAX), &[-1, 1]),
            _ => (0, &[1]),
        };
        let guarded = |_| Guarded { lock: A::new(), data: UnsafeCell::new(Data { value, turn: Turn::new() }) };
        Self {
            locks: (0..spec.lock_count).map(guarded).collect(),
            config,
            steps,
            limit: spec.iterations.unwrap_or(u64::MAX),
            hold: Work::of_ns(spec.hold_ns),
            think: Work::of_ns(spec.think_ns),
            seed: spec.seed,
            log: LogPlan::new(spec.seconds, spec.threads, spec.lock_count),
            arrivals: Arrivals::new(spec.threads),
        }
    }

    fn work<const WAITS: bool>(&self, member: &Member<'_>) -> Option<(Tally, Used)> {
        let logs = if WAITS { self.locks.iter().map(|_| self.log.log()).collect() } else { Vec::new() };
        let new = Histogram::new;
        let tally = Tally { acquired: 0, runs: new(), waits: new(), monopoly: 0, windows: vec![0], logs };
        let clock = Clock::get();
        let window = clock.ticks_in(WINDOW_NS).max(1);
        let mut worker: Worker<'_, A, WAITS> = Worker {
            field: self,
            ctx: A::ctx(&self.config),
            me: member.me,
            clock,
            origin: 0,
            window,
            window_ends: window,
            tally,
        };
        let shift = member.begin()?;
        worker.origin = member.origin();
        worker.until_stopped(member.gate);
        let used = shift.end();
        Some((worker.tally, used))
    }
}

/// Runs one round of a contended preset.
pub(crate) fn run<A: Adapter>(plan: &Plan<'_>, spec: &RoundSpec, config: A::Config) -> Result<RoundResult, BenchError> {
    let field = Arc::new(Field::<A>::new(spec, config));
    let waits = spec.mode == Mode::Waits;
    let shared = Arc::clone(&field);
    let finished = if waits {
        crew::run(plan, move |member: &Member<'_>| shared.work::<true>(member))
    } else {
        crew::run(plan, move |member: &Member<'_>| shared.work::<false>(member))
    }?;
    let field = Arc::into_inner(field).expect("all threads are done");
    Ok(sum_up(spec, field, &finished))
}

fn sum_up<A: Adapter>(spec: &RoundSpec, field: Field<A>, finished: &Finished<Tally>) -> RoundResult {
    let (mut result, clock) = (round::common(finished), Clock::get());
    let tallies = &finished.threads;
    result.acquisitions = tallies.iter().map(|tally| tally.acquired).collect();
    let merged = |part: fn(&Tally) -> &Histogram| {
        let mut sum = Histogram::new();
        for tally in tallies {
            sum.merge(part(tally));
        }
        sum
    };
    let mut runs = merged(|tally| &tally.runs);
    for guarded in field.locks {
        // The run that the end of the round cut short.
        if let Some(run) = guarded.data.into_inner().turn.current() {
            runs.add(run.length);
        }
    }
    result.run_length = Some(RunLengths::of(&runs));
    if spec.preset == Preset::Fairness {
        let (starts, ends) = (finished.used.iter().map(|u| u.period.0), finished.used.iter().map(|u| u.period.1));
        result.cycles = ends.max().zip(starts.min()).map(|(end, start)| end.saturating_sub(start));
    }
    if spec.mode == Mode::Waits {
        result.wait = Some(Waits::of(&merged(|tally| &tally.waits)));
        let mut overtakes = Overtakes::default();
        for which in 0..spec.lock_count {
            let logs: Vec<_> = tallies.iter().map(|tally| &tally.logs[which]).collect();
            overtakes += overtakes::count(&logs);
        }
        result.overtakes = Some(overtakes.overtaking);
        result.extra.push(("overtaken", Extra::Number(overtakes.overtaken as f64)));
        result.overtakes_examined = Some(overtakes.examined);
        if spec.threads > 1 {
            result.monopoly_ns = tallies.iter().map(|tally| clock.ns(tally.monopoly)).max();
        }
        // The round is over for all when the first thread has stopped.
        let periods = || finished.used.iter().map(|used| used.period);
        let began = periods().map(|period| period.0).min().unwrap_or(0);
        let length = periods().map(|period| period.1.saturating_sub(began)).min().unwrap_or(0);
        result.windows = Some(whole_windows(tallies, length / clock.ticks_in(WINDOW_NS).max(1)));
    }
    result
}

/// The first `count` windows, each with the counts of all threads.
fn whole_windows(tallies: &[Tally], count: u64) -> Vec<Vec<u64>> {
    let of = |window: u64| tallies.iter().map(|tally| tally.windows.get(window as usize).copied().unwrap_or(0)).collect();
    (0..count).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_id::{locks, parse_lock};
    use crate::result::Status;
    use crate::round::run_round;
    use crate::testing::alone;

    fn spec(preset: Preset, lock: &str, threads: usize) -> RoundSpec {
        RoundSpec { threads, seconds: 0.02, ..RoundSpec::new(preset, parse_lock(lock).unwrap()) }
    }

    fn go(spec: &RoundSpec) -> RoundResult {
        run_round(spec, &|| false).unwrap()
    }

    #[test]
    fn every_lock_runs_every_contended_preset_in_both_modes() {
        let _alone = alone();
        for info in locks().iter().filter(|info| info.available) {
            for preset in [Preset::Semaphore, Preset::Fairness, Preset::Oversubscribed] {
                for mode in [Mode::Throughput, Mode::Waits] {
                    let lock = info.pattern.replace(":N", ":50");
                    let result = go(&RoundSpec { mode, ..spec(preset, &lock, 2) });
                    let total: u64 = result.acquisitions.iter().sum();
                    assert!(total > 0 && result.seconds > 0.0, "{lock} {preset}");
                    let runs = result.run_length.unwrap();
                    let by_length = (runs.mean * runs.runs as f64).round() as u64;
                    assert_eq!(by_length, total, "{lock} {preset}: every acquisition is in one run");
                    assert_eq!(result.wait.is_some(), mode == Mode::Waits);
                    if let Some(wait) = result.wait {
                        assert_eq!(wait.count, total);
                        assert_eq!(wait.histogram.iter().map(|bucket| bucket.2).sum::<u64>(), total);
                    }
                    assert_eq!(result.cycles.is_some(), preset == Preset::Fairness);
                }
            }
        }
    }

    #[test]
    fn iterations_are_exact() {
        let _alone = alone();
        for (lock, threads) in [("ticket", 2), ("std", 3)] {
            let result = go(&RoundSpec { iterations: Some(1_001), seconds: 60.0, ..spec(Preset::Fairness, lock, threads) });
            assert_eq!(result.acquisitions.iter().sum::<u64>(), 1_001);
        }
        let result = go(&RoundSpec { iterations: Some(501), seconds: 60.0, ..spec(Preset::Semaphore, "mcs", 2) });
        assert_eq!(result.acquisitions.iter().sum::<u64>(), 501);
    }

    #[test]
    fn one_thread_is_never_overtaken_and_has_one_run() {
        let _alone = alone();
        let result = go(&RoundSpec { mode: Mode::Waits, ..spec(Preset::Semaphore, "auto", 1) });
        assert_eq!((result.overtakes, result.monopoly_ns), (Some(0), None));
        assert_eq!(result.overtakes_examined, Some(result.acquisitions[0]));
        let runs = result.run_length.unwrap();
        assert_eq!((runs.runs, runs.longest), (1, result.acquisitions[0]));
    }

    #[test]
    fn whole_windows_hold_all_but_the_last_acquisitions() {
        let _alone = alone();
        let result = go(&RoundSpec { seconds: 0.25, mode: Mode::Waits, ..spec(Preset::Oversubscribed, "std", 3) });
        let windows = result.windows.unwrap();
        assert!(windows.len() >= 2 && windows.iter().all(|window| window.len() == 3), "{windows:?}");
        for (thread, &acquired) in result.acquisitions.iter().enumerate() {
            let counted: u64 = windows.iter().map(|window| window[thread]).sum();
            assert!(counted <= acquired, "thread {thread}: {counted} of {acquired}");
        }
        let (counted, all) = (windows.iter().flatten().sum::<u64>(), result.acquisitions.iter().sum::<u64>());
        assert!(counted > 0 && counted < all, "{counted} of {all}: the third window was not whole");
        let untimed = go(&spec(Preset::Oversubscribed, "std", 3));
        assert_eq!((untimed.windows, untimed.monopoly_ns), (None, None));
    }

    #[test]
    fn several_locks_share_the_work() {
        let _alone = alone();
        let result = go(&RoundSpec { lock_count: 7, mode: Mode::Waits, ..spec(Preset::Semaphore, "parking_lot", 3) });
        assert_eq!(result.acquisitions.len(), 3);
        assert_eq!(result.overtakes_examined, Some(result.acquisitions.iter().sum()));
    }

    #[test]
    fn a_cancelled_round_is_partial() {
        let _alone = alone();
        let result = run_round(&RoundSpec { seconds: 600.0, ..spec(Preset::Semaphore, "ticket", 2) }, &|| true).unwrap();
        assert_eq!(result.status, Status::Partial);
        assert!(result.why.is_some());
    }
}
