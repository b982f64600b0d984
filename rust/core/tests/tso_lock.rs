//! The protocol of `Lock`, explored exhaustively on x86-TSO at the granularity of single memory accesses.
//!
//! Checked in every scene: two threads are never inside; from every state all threads can get through without a deadline
//! having to pass (no wake-up is lost); a lock is not touched after its release unless a queued waiter keeps it alive (whoever
//! uses it last frees it); and what `parking` says of lanes holds whenever the bucket lock is free. Every fault of
//! [`Fault`] must be found, so that the scenes are known to reach it.
#![cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]

#[path = "tso/protocol.rs"]
mod protocol;
mod tso;

use protocol::{
    BUCKET, FAST, Fault, LABELS, LANE, Model, NODE, OWNER, PARKED, QUIET, Role, STEPS, TIMER, USERS, WATCH, WOKEN, Who,
};
use tso::{Scene, State, Verdict};

use Role::{AcquireInterruptible, AcquireOnly, Blocking, Interruptible, RacingReleaser, Releaser, Timed};

type Invariant = dyn Fn(&Scene<'_>, &State) -> bool;

/// Invariants N and Q of `parking`, and which values a lane can have; whenever nobody holds the bucket lock.
fn lanes_are_right(scene: &Scene<'_>, state: &State) -> bool {
    if state.memory.get(BUCKET) != 0 {
        return true;
    }
    (0..2).all(|lane| {
        let bits = state.memory.get(LANE + lane);
        let mut nodes = state.waiters().filter(|thread| scene.actors[*thread].lane == lane);
        let Some(eldest) = nodes.next() else { return bits == 0 || bits == FAST };
        let one_lock = nodes.all(|thread| scene.actors[thread].lock == scene.actors[eldest].lock);
        let will_look = |thread: usize| {
            state.memory.get(usize::from(NODE) + thread) == WOKEN || state.threads[thread].registers.get(TIMER) == WATCH
        };
        let somebody_looks = state.waiters().any(|thread| scene.actors[thread].lane == lane && will_look(thread));
        bits == PARKED || bits == PARKED | QUIET && one_lock && somebody_looks
    })
}

fn anything(_: &Scene<'_>, _: &State) -> bool {
    true
}

/// For releases that race, of one acquisition before the start and at most one after it: those that succeeded were of
/// something held.
fn releases_are_exact(scene: &Scene<'_>, state: &State) -> bool {
    let left = state.memory.get(USERS);
    let (releasers, acquirers): (Vec<_>, Vec<_>) = scene.actors.iter().partition(|actor| actor.name == "RacingReleaser");
    let succeeded = releasers.iter().map(|actor| actor.rounds).sum::<u8>() + acquirers.len() as u8 - left;
    let acquired = 1 + acquirers.len() as u8;
    succeeded <= acquired && (!state.is_over() || state.memory.get(OWNER) == acquired - succeeded)
}

/// Threads that use one lock.
fn one(threads: &[(Role, u8)]) -> Vec<Who> {
    threads.iter().map(|(role, rounds)| Who { role: *role, rounds: *rounds, lock: 0, lane: 0 }).collect()
}

/// Threads that use two locks of one bucket.
fn two(first: &[(Role, u8)], second: &[(Role, u8)], second_lane: u8) -> Vec<Who> {
    let second = second.iter().map(|(role, rounds)| Who { role: *role, rounds: *rounds, lock: 1, lane: second_lane });
    one(first).into_iter().chain(second).collect()
}

/// Fast lanes, no hand-over, never quiet.
fn fast() -> Model {
    Model { fast: true, back_to_fast: true, ..Model::default() }
}

/// No membarrier.
fn fenced() -> Model {
    Model { hand_over: true, quiet: true, ..Model::default() }
}

/// No membarrier, no hand-over.
fn quiet() -> Model {
    Model { quiet: true, ..Model::default() }
}

/// Everything that does not fail.
fn all() -> Model {
    Model { fast: true, back_to_fast: true, ..fenced() }
}

fn checked(model: Model) -> Model {
    Model { checked: true, ..model }
}

fn failing(model: Model) -> Model {
    Model { failing: true, ..model }
}

fn assert_good(name: &str, model: &Model, threads: &[Who], invariant: &Invariant) {
    let found = model.scene(threads, invariant).explore();
    match found.verdict {
        Verdict::Good(states) => eprintln!("{name}: {states} states"),
        bad => panic!("{name}: {bad:?}\n{}", found.trace.join("\n")),
    }
}

#[test]
fn fast_lanes_lose_no_wake_up() {
    assert_good("2 x 2", &fast(), &one(&[(Blocking, 2); 2]), &lanes_are_right);
    assert_good("3 with time-outs", &fast(), &one(&[(Timed, 1); 3]), &lanes_are_right);
    assert_good("2, 2 and 1", &fast(), &one(&[(Blocking, 2), (Blocking, 2), (Blocking, 1)]), &lanes_are_right);
}

#[test]
fn lanes_without_membarrier_lose_no_wake_up() {
    assert_good("2, 1 and 1", &fenced(), &one(&[(Blocking, 2), (Blocking, 1), (Blocking, 1)]), &lanes_are_right);
    assert_good("with time-outs", &fenced(), &one(&[(Blocking, 2), (Timed, 1), (Timed, 1)]), &lanes_are_right);
}

#[test]
fn interruptions_lose_no_wake_up() {
    assert_good("fenced", &fenced(), &one(&[(Blocking, 2), (Interruptible, 1), (Blocking, 1)]), &lanes_are_right);
    assert_good("all", &all(), &one(&[(Interruptible, 1); 3]), &lanes_are_right);
}

#[test]
fn all_policies_together_lose_no_wake_up() {
    assert_good("2 x 2", &all(), &one(&[(Blocking, 2); 2]), &lanes_are_right);
    assert_good("3 with time-outs", &all(), &one(&[(Timed, 1); 3]), &lanes_are_right);
    assert_good("2, 1 and 1", &all(), &one(&[(Blocking, 2), (Blocking, 1), (Blocking, 1)]), &lanes_are_right);
}

#[test]
fn membarriers_that_begin_to_fail_lose_no_wake_up() {
    assert_good("2 x 2", &failing(all()), &one(&[(Blocking, 2); 2]), &lanes_are_right);
    assert_good("3", &failing(all()), &one(&[(Blocking, 1); 3]), &lanes_are_right);
}

#[test]
fn two_locks_in_a_lane_lose_no_wake_up() {
    let (twice, once) = ([(Blocking, 2), (Blocking, 1)], [(Blocking, 1); 2]);
    assert_good("quiet", &quiet(), &two(&once, &once, 0), &lanes_are_right);
    assert_good("fenced", &fenced(), &two(&twice, &[(AcquireOnly, 1), (Releaser, 1)], 0), &lanes_are_right);
    assert_good("fast", &all(), &two(&once, &[(AcquireOnly, 1), (Releaser, 1)], 0), &lanes_are_right);
}

#[test]
fn two_locks_in_a_bucket_lose_no_wake_up() {
    assert_good("quiet", &quiet(), &two(&[(Blocking, 1); 2], &[(Blocking, 1); 2], 1), &lanes_are_right);
    assert_good("fast", &all(), &two(&[(Blocking, 1); 2], &[(AcquireOnly, 1), (Releaser, 1)], 1), &lanes_are_right);
}

#[test]
fn releases_by_other_threads_lose_no_wake_up() {
    let threads = one(&[(AcquireOnly, 2), (AcquireOnly, 1), (Releaser, 3)]);
    assert_good("fenced", &fenced(), &threads, &lanes_are_right);
    assert_good("all", &all(), &threads, &lanes_are_right);
    let interrupted = one(&[(AcquireInterruptible, 1), (AcquireInterruptible, 1), (Releaser, 2)]);
    assert_good("interrupted", &all(), &interrupted, &lanes_are_right);
}

#[test]
fn checked_releases_that_race_lose_no_wake_up() {
    let (acquirers, releasers) = ([(AcquireOnly, 1); 2], [(Releaser, 1); 2]);
    assert_good("2 of 2", &checked(all()), &one(&[acquirers, releasers].concat()), &lanes_are_right);
    let more = one(&[(AcquireOnly, 2), (AcquireOnly, 1), (Releaser, 2), (Releaser, 1)]);
    assert_good("3 of 3", &checked(fenced()), &more, &lanes_are_right);
}

#[test]
fn of_two_releases_of_one_acquisition_one_fails() {
    for model in [checked(fenced()), checked(all())] {
        assert_good("2", &model, &one(&[(RacingReleaser, 1); 2]), &releases_are_exact);
        assert_good("3 in turn", &model, &one(&[(RacingReleaser, 3), (AcquireOnly, 1)]), &releases_are_exact);
        let beside = one(&[(RacingReleaser, 2), (RacingReleaser, 1), (AcquireOnly, 1)]);
        assert_good("3 beside", &model, &beside, &releases_are_exact);
    }
}

/// A scene that shows the fault, and as what.
fn shown_by(fault: Fault) -> (Model, Vec<Who>, &'static Invariant, Verdict) {
    use Verdict::{Broken, Freed, Invariant as Wrong, LostWakeUp};
    let pair = || one(&[(Blocking, 1); 2]);
    let twice = || one(&[(Blocking, 2); 2]);
    let three = || one(&[(Blocking, 1); 3]);
    let longer = || one(&[(Blocking, 2), (Blocking, 1), (Blocking, 1)]);
    let timed = || one(&[(Timed, 1); 3]);
    let one_timed = || one(&[(Blocking, 2), (Timed, 1), (Blocking, 1)]);
    let semaphore = || one(&[(AcquireOnly, 2), (AcquireOnly, 1), (Releaser, 3)]);
    let checked_semaphore = || one(&[(AcquireOnly, 2), (AcquireOnly, 1), (Releaser, 2), (Releaser, 1)]);
    let strangers = || two(&[(Blocking, 2), (Blocking, 1)], &[(AcquireOnly, 1), (Releaser, 1)], 0);
    let racing = || one(&[(RacingReleaser, 1); 2]);
    let racing_in_turn = || one(&[(RacingReleaser, 3), (AcquireOnly, 1)]);
    let racing_beside = || one(&[(RacingReleaser, 2), (RacingReleaser, 1), (AcquireOnly, 1)]);
    #[allow(clippy::match_same_arms)] // in the order of `Fault`
    let (model, threads, verdict) = match fault {
        Fault::NoMembarrier | Fault::LoadBeforeRelease => (fast(), pair(), LostWakeUp),
        Fault::NoRefence => (fast(), timed(), LostWakeUp),
        Fault::SwapWithoutReload | Fault::QuietPlainRelease => (quiet(), twice(), LostWakeUp),
        Fault::ReleaserTouchesLock | Fault::WakerTouchesLock => (quiet(), twice(), Freed),
        Fault::CheckByLoad => return (checked(fenced()), racing(), &releases_are_exact, Wrong),
        Fault::PassesUnchecked => return (checked(fenced()), racing_beside(), &releases_are_exact, Wrong),
        Fault::PlainAnnouncement | Fault::LookBeforeAnnouncement => (fast(), twice(), LostWakeUp),
        Fault::StrangerLeavesQuiet => (quiet(), strangers(), LostWakeUp),
        Fault::NoCap => (failing(fast()), twice(), LostWakeUp),
        Fault::RearmWithoutLook | Fault::RearmKeepsQuiet => (quiet(), twice(), LostWakeUp),
        Fault::WatchWithoutTimer | Fault::WatchEndsWithoutLook => (quiet(), twice(), LostWakeUp),
        Fault::WatchBesideStrangers => (quiet(), strangers(), LostWakeUp),
        Fault::WinnerStaysQueued => (quiet(), twice(), LostWakeUp),
        Fault::WinnerKeepsQuiet => (quiet(), three(), LostWakeUp),
        Fault::WinnerDoesNotLook => (fenced(), semaphore(), LostWakeUp),
        Fault::TakesOutsideBucket => return (checked(fenced()), racing_in_turn(), &releases_are_exact, Wrong),
        Fault::HandOverKeepsQuiet | Fault::HandOverEndsQuietLate => (fenced(), longer(), LostWakeUp),
        Fault::HandOverEndsPassingEarly => (checked(fenced()), checked_semaphore(), LostWakeUp),
        Fault::HandOverAfterBucket => (fenced(), timed(), LostWakeUp),
        Fault::HandOverFrees => (fenced(), three(), Broken),
        Fault::QuietWithoutHeir => (quiet(), twice(), LostWakeUp),
        Fault::QuietBesideStrangers => (quiet(), strangers(), LostWakeUp),
        Fault::LeavesWithoutLookOrBaton => (quiet(), timed(), LostWakeUp),
        Fault::LeavesWithoutBaton | Fault::LeaverStaysQueued => (quiet(), one_timed(), LostWakeUp),
        Fault::StaleTimeOut => (fenced(), timed(), LostWakeUp),
        Fault::FastWithNodes => (all(), semaphore(), LostWakeUp),
        Fault::FastOutsideBucket => (fast(), twice(), LostWakeUp),
    };
    (model, threads, &anything, verdict)
}

#[test]
fn every_fault_is_found() {
    for fault in Fault::ALL {
        let (mut model, threads, invariant, verdict) = shown_by(*fault);
        model.faults = vec![*fault];
        let found = model.scene(&threads, invariant).explore();
        eprintln!("{fault:?}: {:?} after {} steps", found.verdict, found.trace.len());
        assert_eq!(found.verdict, verdict, "{fault:?}\n{}", found.trace.join("\n"));
    }
}

/// The invariant finds what would lose a wake-up only later.
#[test]
fn quiet_lanes_that_nobody_watches_are_noticed() {
    for fault in [Fault::WatchWithoutTimer, Fault::RearmKeepsQuiet, Fault::QuietWithoutHeir] {
        let model = Model { faults: vec![fault], ..quiet() };
        let found = model.scene(&one(&[(Blocking, 2); 2]), &lanes_are_right).explore();
        assert_eq!(found.verdict, Verdict::Invariant, "{fault:?}");
    }
}

/// What takes minutes in a debug build: `cargo test --release --test tso_lock -- --ignored`.
#[test]
#[ignore = "minutes in a debug build"]
fn larger_scenes_lose_no_wake_up() {
    assert_good("fast, 3 x 2", &fast(), &one(&[(Blocking, 2); 3]), &lanes_are_right);
    assert_good("quiet, 3 x 2", &quiet(), &one(&[(Blocking, 2); 3]), &lanes_are_right);
    assert_good("fenced, 3 x 2", &fenced(), &one(&[(Blocking, 2); 3]), &lanes_are_right);
    assert_good("all, 3 x 2", &all(), &one(&[(Blocking, 2); 3]), &lanes_are_right);
    assert_good("fenced, 4", &fenced(), &one(&[(Blocking, 1); 4]), &lanes_are_right);
    assert_good("fenced, 4 with time-outs", &fenced(), &one(&[(Timed, 1); 4]), &lanes_are_right);
    assert_good("failing, 2, 2 and 1", &failing(all()), &one(&[(Blocking, 2), (Blocking, 2), (Blocking, 1)]), &lanes_are_right);
    assert_good("two locks in a lane", &all(), &two(&[(Timed, 1); 2], &[(Timed, 1); 2], 0), &lanes_are_right);
    let more = one(&[(AcquireOnly, 2), (AcquireInterruptible, 1), (Releaser, 2), (Releaser, 1)]);
    assert_good("checked, 3 of 3", &checked(all()), &more, &lanes_are_right);
}

/// The steps that the programs here name are named in the comments of the lock's code too.
#[test]
fn steps_have_the_names_of_the_code() {
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lock")];
    let mut comments = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the sources are here") {
            let path = entry.expect("a folder can be read").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(path).expect("sources are text");
            comments.extend(text.lines().filter_map(|line| line.split_once("//")).flat_map(|(_, comment)| [comment, "\n"]));
        }
    }
    for step in &LABELS[..STEPS] {
        let mut words = comments.split(|c: char| !c.is_ascii_alphanumeric());
        assert!(words.any(|word| word == *step), "no comment in src/lock names {step}");
    }
}
