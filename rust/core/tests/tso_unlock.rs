//! Which ways of releasing by a plain store lose wake-ups: explored exhaustively on x86-TSO before a lock is built on one.
//!
//! The scene is the parking lock's: `owner` is taken by a compare-exchange and released as the variant says; whoever finds it
//! held parks under a bucket lock and looks once more before sleeping; a releaser that sees somebody parked wakes the eldest.
//! Known-bad variants must be found bad, known-good ones good, so that each explores something.
#![cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]

mod tso;

use tso::Ins::{
    Add, Again, At, Cas, Clear, Dequeue, Enqueue, Enter, Fence, Jump, JumpIf, Leave, Load, Membarrier, Sleep, Store, StoreSum,
    Swap, Take, Wake,
};
use tso::{Ins, Verdict, explore};

// Shared variables.
const OWNER: u8 = 0;
/// Number of parked waiters; with a mode, plus [`FENCED`].
const PARKED: u8 = 1;
const BUCKET: u8 = 2;
const VARIABLES: usize = 3;

/// Mode bit in the parked word: unlockers release by a locked exchange.
const FENCED: u8 = 16;

/// How a thread releases.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Unlock {
    /// Plain store of `owner`, then load of `parked`.
    StoreThenLoad,
    /// Load of `parked`, then plain store of `owner`.
    LoadThenStore,
    /// As the first, with a full fence in between.
    StoreFenceLoad,
    /// Mode word: plain store while it says so, else a locked exchange; what a plain store made stale is looked at again,
    /// behind a fence, or not.
    Mode { refence: bool },
}

/// How a thread announces that it parks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Park {
    /// Locked addition, no barrier.
    Add,
    /// Plain store of the sum, no barrier.
    Plain,
    /// Locked addition, then a barrier, at every park.
    BarrierAlways,
    /// Locked addition, then a barrier if nobody was parked before; all under the bucket lock.
    BarrierFirst,
    /// Mode word: a barrier when the mode goes from fast to fenced.
    Mode,
}

// Registers: 0 counts rounds, 1-3 are scratch.
fn program(unlock: Unlock, park: Park) -> Vec<Ins> {
    const LOCK: u8 = 0;
    const RETRY: u8 = 1;
    const OWNED: u8 = 2;
    const FOUND_FREE: u8 = 3;
    const WAKE: u8 = 4;
    const NOBODY: u8 = 5;
    const NEXT: u8 = 6;
    const NO_BARRIER: u8 = 7;
    const SLOW: u8 = 8;
    const EXCHANGE: u8 = 9;
    const LOOK: u8 = 10;
    const KEEP_MODE: u8 = 11;

    let mode = park == Park::Mode;
    let mut code = vec![At(LOCK), At(RETRY), Clear, Cas(1, OWNER, 0, 1), JumpIf(1, 1, OWNED), Take(BUCKET)];
    // Announce.
    match park {
        Park::Add => code.push(Add(2, PARKED, 1)),
        Park::Plain => code.extend([Load(2, PARKED), StoreSum(PARKED, 2, 1)]),
        Park::BarrierAlways => code.extend([Add(2, PARKED, 1), Membarrier]),
        Park::BarrierFirst => code.extend([
            Add(2, PARKED, 1),
            JumpIf(2, 1, NO_BARRIER),
            JumpIf(2, 2, NO_BARRIER),
            JumpIf(2, 3, NO_BARRIER),
            Membarrier,
            At(NO_BARRIER),
        ]),
        Park::Mode => {
            code.extend([Load(2, PARKED)]);
            // Fast means no FENCED bit; nobody is parked in fast mode.
            for fenced in FENCED..FENCED + 4 {
                code.push(JumpIf(2, fenced, NO_BARRIER));
            }
            code.extend([Add(2, PARKED, FENCED), Membarrier, At(NO_BARRIER), Add(2, PARKED, 1)]);
        }
    }
    // Look once more, then sleep.
    code.extend([Load(1, OWNER), JumpIf(1, 0, FOUND_FREE), Enqueue, Store(BUCKET, 0), Sleep, Jump(RETRY), At(FOUND_FREE)]);
    code.extend(if park == Park::Plain { vec![Load(2, PARKED), StoreSum(PARKED, 2, 255)] } else { vec![Add(2, PARKED, 255)] });
    code.extend([Store(BUCKET, 0), Jump(RETRY)]);

    code.extend([At(OWNED), Enter]);

    match unlock {
        Unlock::StoreThenLoad => code.extend([Store(OWNER, 0), Leave, Load(2, PARKED), JumpIf(2, 0, NEXT)]),
        Unlock::LoadThenStore => code.extend([Load(2, PARKED), Store(OWNER, 0), Leave, JumpIf(2, 0, NEXT)]),
        Unlock::StoreFenceLoad => code.extend([Store(OWNER, 0), Leave, Fence, Load(2, PARKED), JumpIf(2, 0, NEXT)]),
        Unlock::Mode { refence } => {
            code.extend([Load(2, PARKED), JumpIf(2, FENCED, EXCHANGE)]);
            for parked in 1..4 {
                code.push(JumpIf(2, FENCED + parked, SLOW));
            }
            code.extend([Store(OWNER, 0), Leave, Load(2, PARKED), JumpIf(2, 0, NEXT)]);
            if refence {
                code.extend([Fence, Load(2, PARKED)]);
            }
            code.push(Jump(LOOK));
            code.extend([At(EXCHANGE), Swap(OWNER, 0), Leave, Load(2, PARKED), At(LOOK)]);
            code.extend([JumpIf(2, 0, NEXT), JumpIf(2, FENCED, NEXT), Jump(WAKE)]);
            code.extend([At(SLOW), Swap(OWNER, 0), Leave]);
        }
    }

    // Wake the eldest, if there is one; it is taken out of the count by its waker.
    code.extend([At(WAKE), Take(BUCKET), Dequeue(3), JumpIf(3, 0, NOBODY)]);
    code.extend(if park == Park::Plain { vec![Load(2, PARKED), StoreSum(PARKED, 2, 255)] } else { vec![Add(2, PARKED, 255)] });
    if mode {
        // Back to the fast mode only under the bucket lock and with nobody left.
        code.extend([JumpIf(2, FENCED + 2, KEEP_MODE), JumpIf(2, FENCED + 3, KEEP_MODE), Swap(PARKED, 0), At(KEEP_MODE)]);
    }
    code.extend([Store(BUCKET, 0), Wake(3), Jump(NEXT), At(NOBODY), Store(BUCKET, 0), At(NEXT), Again(0, LOCK)]);
    code
}

fn verdict(unlock: Unlock, park: Park, threads: usize, rounds: u8) -> Verdict {
    let verdict = explore(&program(unlock, park), threads, rounds, VARIABLES);
    eprintln!("{unlock:?}, {park:?}, {threads} threads x {rounds}: {verdict:?}");
    verdict
}

fn assert_good(unlock: Unlock, park: Park) {
    for (threads, rounds) in [(2, 2), (3, 1), (3, 2)] {
        match verdict(unlock, park, threads, rounds) {
            Verdict::Good(states) => assert!(states > 100, "only {states} states"),
            bad => panic!("{unlock:?} with {park:?}, {threads} threads x {rounds}: {bad:?}"),
        }
    }
}

#[test]
fn without_a_barrier_a_plain_release_loses_wake_ups() {
    assert_eq!(verdict(Unlock::StoreThenLoad, Park::Add, 2, 1), Verdict::LostWakeUp);
}

#[test]
fn looking_before_the_release_loses_wake_ups_whatever_the_parker_does() {
    assert_eq!(verdict(Unlock::LoadThenStore, Park::BarrierAlways, 2, 1), Verdict::LostWakeUp);
}

#[test]
fn a_plain_announcement_needs_a_fence_too() {
    assert_eq!(verdict(Unlock::StoreFenceLoad, Park::Plain, 2, 1), Verdict::LostWakeUp);
}

#[test]
fn a_fence_in_every_release_is_enough() {
    assert_good(Unlock::StoreFenceLoad, Park::Add);
}

#[test]
fn a_barrier_at_every_park_is_enough() {
    assert_good(Unlock::StoreThenLoad, Park::BarrierAlways);
}

#[test]
fn a_barrier_at_the_first_park_is_enough() {
    assert_good(Unlock::StoreThenLoad, Park::BarrierFirst);
}

#[test]
fn a_mode_word_needs_a_second_look_behind_a_fence() {
    assert_eq!(verdict(Unlock::Mode { refence: false }, Park::Mode, 3, 2), Verdict::LostWakeUp);
    assert_good(Unlock::Mode { refence: true }, Park::Mode);
}

/// The explorer itself: a lock taken by a load and a store lets two threads in.
#[test]
fn the_explorer_notices_two_threads_inside() {
    let taken_plainly = [At(0), Load(1, OWNER), JumpIf(1, 1, 0), Store(OWNER, 1), Enter, Store(OWNER, 0), Leave, Again(0, 0)];
    assert_eq!(explore(&taken_plainly, 2, 1, VARIABLES), Verdict::Broken);
}
