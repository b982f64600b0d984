//! Preset `phantom`: what two CPUs can show of a long line. One thread draws a whole line of tickets and serves them in
//! turn; one real waiter waits through them, and its policy believes in the line.

use std::sync::Arc;

use ticketlock::policy::LockKey;
use ticketlock::{Draw, TicketLock, Tuning};

use crate::clock::Clock;
use crate::crew::{self, Plan};
use crate::gate::{Gate, Member, Used};
use crate::histogram::Histogram;
use crate::result::{Extra, RoundResult, Waits};
use crate::round;
use crate::spec::{BenchError, Mode, RoundSpec};
use crate::sync::{AtomicU64, Ordering};
use crate::uncontended::median;
use crate::work::Work;

/// Writes of one section to the lock's own line: twice all the words that fit beside the lock.
const SECTION_WRITES: usize = 14;

/// Work after each of them, in nanoseconds: with the writes a section of 100-150 ns that uses data beside the lock, as a
/// semaphore's or a list's does. Every poll may take the line away between two of them.
const SECTION_WORK_NS: u64 = 8;

/// Waits left out of the figures while the delay settles, as a share of all and at most.
const SETTLING_SHARE: usize = 10;
const SETTLING_MOST: usize = 2_000;

/// Waits kept one by one; a longer round keeps its first ones (a wait is some microseconds).
const KEPT: usize = 1 << 20;

/// Looks at a flag before yielding, in pauses: the partner is at most some microseconds away, unless it lost its CPU.
const PAUSES_BEFORE_YIELD: u32 = 2_000;

/// The lock with the data that its holder uses, on one line.
#[repr(C, align(64))]
#[derive(Default)]
struct Line {
    lock: TicketLock,
    data: [AtomicU64; 7],
}

/// A number on lines of its own: which wait the server has opened, or the waiter finished.
#[derive(Default)]
#[repr(align(128))]
struct Signal(AtomicU64);

impl Signal {
    fn set(&self, value: u64) {
        // pairs with: the acquire load in `wait_for`.
        self.0.store(value, Ordering::Release);
    }

    /// Until the value is there; false if the round was stopped first.
    fn wait_for(&self, value: u64, gate: &Gate) -> bool {
        // pairs with: the release store in `set`.
        look_for(gate, || self.0.load(Ordering::Acquire) == value)
    }
}

fn look_for(gate: &Gate, mut there: impl FnMut() -> bool) -> bool {
    let mut pauses = 0;
    while !there() {
        if gate.stopped() {
            return false;
        }
        pauses += 1;
        if pauses < PAUSES_BEFORE_YIELD { core::hint::spin_loop() } else { std::thread::yield_now() }
    }
    true
}

#[derive(Default)]
#[repr(align(128))]
struct Stage {
    line: Line,
    opened: Signal,
    finished: Signal,
}

/// What a thread brings back.
enum Part {
    /// Section times, in ns, of each served line.
    Server(Vec<f64>),
    Waiter {
        kept: Vec<Kept>,
        waits: Histogram,
        waited: u64,
    },
}

/// One wait.
struct Kept {
    polls: f64,
    delay_units: f64,
    yields: f64,
    parks: f64,
}

/// Runs one round.
pub(crate) fn run(plan: &Plan<'_>, spec: &RoundSpec, tuning: Tuning) -> Result<RoundResult, BenchError> {
    let (stage, line, time_waits) = (Stage::default(), spec.line, spec.mode == Mode::Waits);
    let section = Work::of_ns(SECTION_WORK_NS);
    let stage = Arc::new(stage);
    let finished = crew::run(plan, move |member: &Member<'_>| {
        if member.me == 0 { serve(&stage, line, section, member) } else { wait(&stage, &tuning, time_waits, member) }
    })?;
    let mut result = round::common(&finished);
    for part in finished.threads {
        match part {
            Part::Server(sections) => {
                result.acquisitions.push(sections.len() as u64 * u64::from(line));
                result.extra.push(("holder_section_ns", Extra::Number(median(settled(&sections).iter().copied()))));
            }
            Part::Waiter { kept, waits, waited } => {
                result.acquisitions.push(waited);
                let settled = settled(&kept);
                let mut put = |name, value| result.extra.push((name, Extra::Number(value)));
                put("polls_per_wait", mean(settled, |wait| wait.polls));
                if tuning.backoff.is_tuned() {
                    put("settled_delay", median(settled.iter().map(|wait| wait.delay_units)));
                }
                put("yields", kept.iter().map(|wait| wait.yields).sum());
                put("parks", kept.iter().map(|wait| wait.parks).sum());
                put("waits", waited as f64);
                result.wait = time_waits.then(|| Waits::of(&waits));
            }
        }
    }
    Ok(result)
}

/// Draws a line of tickets, lets the waiter in behind it, and serves it. Every ticket drawn is served, also when the round
/// is stopped half-way: so neither side can leave the other waiting.
fn serve(stage: &Stage, line: u32, section: Work, member: &Member<'_>) -> Option<(Part, Used)> {
    let (lock, clock) = (&stage.line.lock, Clock::get());
    let mut sections = Vec::with_capacity(KEPT);
    let shift = member.begin()?;
    for number in 1.. {
        if member.gate.stopped() {
            break;
        }
        // The lock is free: the first ticket is served at once, the others in turn by this thread, so none is waited for.
        let granted = (0..line).filter(|_| matches!(lock.draw(), Draw::Granted)).count();
        assert_eq!(granted, 1, "a free lock grants the first ticket drawn, and only that");
        let behind = lock.ticket_counts().0.wrapping_add(1);
        stage.opened.set(number);
        let complete = look_for(member.gate, || lock.ticket_counts().0 == behind);
        let start = clock.now();
        for _ in 0..line {
            for cell in stage.line.data.iter().cycle().take(SECTION_WRITES) {
                cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                section.perform();
            }
            // SAFETY: the ticket being served is one that this thread drew, and it is released once.
            unsafe { lock.raw_unlock() };
        }
        let passed = clock.ns(clock.now().saturating_sub(start));
        if !complete || !stage.finished.wait_for(number, member.gate) {
            break;
        }
        if sections.len() < KEPT {
            sections.push(passed as f64 / f64::from(line));
        }
    }
    Some((Part::Server(sections), shift.end()))
}

/// Waits behind each line.
fn wait(stage: &Stage, tuning: &Tuning, time_waits: bool, member: &Member<'_>) -> Option<(Part, Used)> {
    let (lock, clock) = (&stage.line.lock, Clock::get());
    let key = LockKey::at(core::ptr::from_ref(lock).addr() as u64);
    let mut kept = Vec::with_capacity(KEPT);
    let (mut waits, mut waited) = (Histogram::new(), 0);
    let shift = member.begin()?;
    for number in 1.. {
        if !stage.opened.wait_for(number, member.gate) {
            break;
        }
        let asked = clock.now();
        if let Draw::Wait(queued) = lock.draw() {
            let outcome = lock.wait(queued, tuning, key).outcome;
            if kept.len() < KEPT {
                kept.push(Kept {
                    polls: outcome.polls as f64,
                    delay_units: outcome.delay.units(),
                    yields: outcome.yields as f64,
                    parks: outcome.parks as f64,
                });
            }
        }
        let served = clock.now();
        // SAFETY: the wait is over (or there was none), so this thread holds the lock, and it releases it once.
        unsafe { lock.raw_unlock() };
        waited += 1;
        if time_waits {
            waits.add(clock.ns(served.saturating_sub(asked)));
        }
        stage.finished.set(number);
    }
    Some((Part::Waiter { kept, waits, waited }, shift.end()))
}

/// The waits after those in which the delay settles.
fn settled<T>(all: &[T]) -> &[T] {
    &all[(all.len() / SETTLING_SHARE).min(SETTLING_MOST)..]
}

fn mean<T>(all: &[T], value: fn(&T) -> f64) -> f64 {
    if all.is_empty() { 0.0 } else { all.iter().map(value).sum::<f64>() / all.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_id::parse_lock;
    use crate::round::run_round;
    use crate::spec::Preset;
    use crate::testing::alone;

    fn figures(lock: &str, line: u32) -> RoundResult {
        let mut spec = RoundSpec::new(Preset::Phantom, parse_lock(lock).unwrap());
        (spec.line, spec.seconds, spec.cap, spec.mode) = (line, 0.05, Some(16_000), Mode::Waits);
        run_round(&spec, &|| false).unwrap()
    }

    fn extra(result: &RoundResult, name: &str) -> f64 {
        match result.extra.iter().find(|(found, _)| *found == name) {
            Some((_, Extra::Number(value))) => *value,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn every_rule_of_the_family_gets_through_the_line() {
        let _alone = alone();
        for lock in ["ticket", "proportional:50", "proportional-v1:50", "auto", "auto-shared", "auto-v1:2", "auto-v1:2.7"] {
            let result = figures(lock, 23);
            let waits = extra(&result, "waits");
            assert!(waits > 0.0 && extra(&result, "holder_section_ns") > 0.0, "{lock}");
            assert!((result.acquisitions[1] as f64 - waits).abs() < 1e-9);
            assert!(result.acquisitions[0] <= result.acquisitions[1] * 23, "{lock}: {:?}", result.acquisitions);
            let has_delay = result.extra.iter().any(|(name, _)| *name == "settled_delay");
            assert_eq!(has_delay, lock.starts_with("auto"), "{lock}");
            assert_eq!(result.wait.unwrap().count, result.acquisitions[1]);
        }
    }

    /// Counts, not times: a waiter that tunes its delay polls less often than one that does not.
    #[test]
    fn a_tuned_waiter_polls_less() {
        let _alone = alone();
        let (plain, tuned) = (figures("ticket", 23), figures("auto", 23));
        let (plain, tuned) = (extra(&plain, "polls_per_wait"), extra(&tuned, "polls_per_wait"));
        assert!(tuned < plain, "{tuned} polls against {plain}");
    }

    #[test]
    fn a_line_of_one_is_just_a_holder() {
        let _alone = alone();
        assert!(extra(&figures("auto", 1), "waits") > 0.0);
    }

    #[test]
    fn settling_waits_are_left_out() {
        assert_eq!(settled(&[0; 100]).len(), 90);
        assert_eq!(settled(&vec![0; 100_000]).len(), 98_000);
        assert!(settled::<u8>(&[]).is_empty());
        assert!((mean(&[1.0, 2.0], |v| *v) - 1.5).abs() < 1e-12 && mean::<f64>(&[], |v| *v).abs() < 1e-12);
    }
}
