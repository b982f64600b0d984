//! The protocol of `Lock` as programs of the explorer, and the faults that can be planted in it.
//!
//! The labels are those in the comments of the lock's code. Decisions of policy (whether to hand over, to keep a lane quiet, to
//! go back to the fast mode, to give up) are free choices, so that every policy is covered.

mod releasing;
mod waiting;

use super::tso::Ins::{
    Again, At, Await, Clear, Either, Enter, Free, Jump, JumpIf, JumpUnless, LaneEmpty, LaneMine, Never, Peek, PeekOf, Quit, Set,
    Store, StoreOf, Swap, Wake,
};

use super::tso::{Actor, Ins, Label, Reg, Scene, State, THREADS, Var};

// Shared variables. Two locks, two lanes, one bucket.
pub const OWNER: Var = 0;
pub const LANE: Var = 2;
pub const BUCKET: Var = 4;
/// State word of the first thread's node.
pub const NODE: Var = 5;
/// Threads that will still use the lock, or releases that may still succeed; part of the properties, not of the protocol.
pub const USERS: Var = NODE + THREADS as u8;
/// Set when a membarrier has failed.
const FAILED: Var = USERS + 2;
const VARIABLES: usize = FAILED as usize + 1;

// States of an owner.
const FREE: u8 = 0;
const HELD: u8 = 1;
const PASSING: u8 = 2;

// Bits of a lane.
pub const FAST: u8 = 1;
pub const PARKED: u8 = 2;
pub const QUIET: u8 = 4;
const QUIETED: u8 = PARKED | QUIET;

// States of a node.
const WAITING: u8 = 1;
pub const WOKEN: u8 = 2;
const HANDED: u8 = 3;

// Registers. 0 counts rounds; 1 to 3 are scratch, and mostly hold:
const R: Reg = 1;
/// The lane's bits, or what this thread's node was.
const BITS: Reg = 2;
/// Another thread.
const WHO: Reg = 3;
/// How this thread sleeps: 0 until it is called, or [`WATCH`], or [`CAP`].
pub const TIMER: Reg = 4;
/// 1 if this thread was the lock's last user.
const LAST: Reg = 5;
/// 1 if this thread was interrupted and is senior to those who wait.
const SENIOR: Reg = 6;

/// Keeps watch.
pub const WATCH: u8 = 1;
/// Sleeps a limited time, because a membarrier has failed.
const CAP: u8 = 2;

macro_rules! labels {
    ($($name:ident)*) => {
        #[derive(Clone, Copy)]
        #[allow(clippy::upper_case_acronyms)] // they become constants
        enum Named { $($name),* }
        $(pub const $name: Label = Named::$name as Label;)*
        /// All labels with names.
        pub const LABELS: &[&str] = &[$(stringify!($name)),*];
    };
}

labels! {
    // In the lock's code too.
    U1 U2 U3 U4 W P1 P2 P3 P4 H1 H2 H3 S1 S2 L1 L2 L3
    // Here only.
    START OWNED RELEASED TOOK GIVEN TOLD COMPETE TRY WON SURPLUS LOOKED RUNG LEAVE LEFT SWAP LOOK
}

/// The labels that the lock's code has too.
pub const STEPS: usize = START as usize;

/// The name of a label, if it has one.
pub fn name(label: Label) -> Option<&'static str> {
    LABELS.get(usize::from(label)).copied()
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// A fault that can be planted; each must be found in some scene.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fault { $($(#[$doc])* $name),* }
        impl Fault {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

faults! {
    /// P2 is missing.
    NoMembarrier
    /// U3 comes before U2.
    LoadBeforeRelease
    /// After U3 saw a change, no fence and no second load.
    NoRefence
    /// The lane is not looked at after a swap.
    SwapWithoutReload
    /// In a quiet lane the release is a plain store, and nothing is looked at after it.
    QuietPlainRelease
    /// The lock is read after a swap.
    ReleaserTouchesLock
    /// W reads the lock before it has found a waiter.
    WakerTouchesLock
    /// A checked release loads the owner and then swaps it.
    CheckByLoad
    /// U4 of a checked release does not check.
    PassesUnchecked
    /// P1 is a plain store, and the look after it a plain load.
    PlainAnnouncement
    /// P3 comes before P1.
    LookBeforeAnnouncement
    /// P1 leaves the lane quiet although another lock's waiter keeps the watch.
    StrangerLeavesQuiet
    /// Sleeps are not limited after a membarrier failed.
    NoCap
    /// H3 is missing.
    RearmWithoutLook
    /// H2 without a watch to keep leaves the lane quiet.
    RearmKeepsQuiet
    /// H2 makes the lane quiet, and sleeps without a watch.
    WatchWithoutTimer
    /// H2 makes the lane quiet although another lock's waiters are in it.
    WatchBesideStrangers
    /// The end of a watch ends the quiet and sleeps on, without a look.
    WatchEndsWithoutLook
    /// An heir that won stays in the queue.
    WinnerStaysQueued
    /// An heir that won leaves the lane quiet.
    WinnerKeepsQuiet
    /// An heir that won does not look whether its acquisition is released already.
    WinnerDoesNotLook
    /// H1 takes the lock outside the bucket lock, and gives back what it is handed besides.
    TakesOutsideBucket
    /// A hand-over leaves the lane quiet.
    HandOverKeepsQuiet
    /// A hand-over ends the quiet when the new owner may be running already.
    HandOverEndsQuietLate
    /// A checked hand-over lets other releases in again before it ends the quiet.
    HandOverEndsPassingEarly
    /// The bucket lock is given back between the choice and the hand-over.
    HandOverAfterBucket
    /// A hand-over frees the owner.
    HandOverFrees
    /// U4 makes the lane quiet instead of calling an heir.
    QuietWithoutHeir
    /// U4 and W make the lane quiet although another lock's waiters are in it.
    QuietBesideStrangers
    /// L2 and L3 are missing.
    LeavesWithoutLookOrBaton
    /// L3 is missing.
    LeavesWithoutBaton
    /// Whoever leaves goes by what its state was before it had the bucket lock.
    StaleTimeOut
    /// An heir that leaves stays in the queue, so that W finds it awake.
    LeaverStaysQueued
    /// Back to the fast mode without a look at the queue.
    FastWithNodes
    /// Back to the fast mode without the bucket lock.
    FastOutsideBucket
}

/// What may happen in a scene.
#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_excessive_bools)] // each is a dimension of its own
pub struct Model {
    /// Hand-overs are chosen freely.
    pub hand_over: bool,
    /// Lanes with an heir may be quiet.
    pub quiet: bool,
    /// Lanes start in the fast mode.
    pub fast: bool,
    /// Lanes may go back to the fast mode.
    pub back_to_fast: bool,
    /// A membarrier may begin to fail.
    pub failing: bool,
    /// Releases are checked: exact under races.
    pub checked: bool,
    /// Faults planted.
    pub faults: Vec<Fault>,
}

/// What one thread does. A lock that has releasers is held at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Acquires and releases.
    Blocking,
    /// The same, and may time out instead.
    Timed,
    /// The same as `Blocking`, and may be interrupted while it waits, any number of times; keeps its seniority.
    Interruptible,
    /// Acquires and leaves the release to others.
    AcquireOnly,
    /// The same, interruptible.
    AcquireInterruptible,
    /// Releases whenever it finds the lock held, so many times in all.
    Releaser,
    /// Releases, whether or not the lock is held; successes are counted in [`USERS`].
    RacingReleaser,
}

impl Role {
    fn name(self) -> &'static str {
        if self == Self::RacingReleaser { "RacingReleaser" } else { "" }
    }
}

/// One thread of a scene.
#[derive(Debug, Clone, Copy)]
pub struct Who {
    pub role: Role,
    pub rounds: u8,
    pub lock: u8,
    pub lane: u8,
}

/// What `Lane::mend` is told about the quiet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quiet {
    Ends,
    Stays,
    /// Chosen freely, if only this lock's waiters are in the lane.
    MayBe,
}

struct Asm<'a> {
    model: &'a Model,
    who: Who,
    me: u8,
    code: Vec<Ins>,
    fresh: Label,
}

impl Model {
    /// The scene of these threads.
    pub fn scene<'a>(&self, threads: &[Who], invariant: &'a dyn Fn(&Scene<'_>, &State) -> bool) -> Scene<'a> {
        let mut memory = vec![0; VARIABLES];
        for lane in 0..2 {
            memory[usize::from(LANE) + lane] = if self.fast { FAST } else { 0 };
        }
        for who in threads {
            let racing = who.role == Role::RacingReleaser;
            memory[usize::from(USERS + who.lock)] += if racing { who.rounds } else { 1 };
            memory[usize::from(OWNER + who.lock)] |= u8::from(racing || who.role == Role::Releaser);
        }
        let actor = |(me, who): (usize, &Who)| {
            let asm = Asm { model: self, who: *who, me: me as u8, code: Vec::new(), fresh: 64 };
            Actor { name: who.role.name(), program: asm.program(), rounds: who.rounds, lock: who.lock, lane: who.lane }
        };
        Scene { actors: threads.iter().enumerate().map(actor).collect(), memory, invariant, name }
    }
}

impl Asm<'_> {
    fn has(&self, fault: Fault) -> bool {
        self.model.faults.contains(&fault)
    }

    fn put(&mut self, code: impl IntoIterator<Item = Ins>) {
        self.code.extend(code);
    }

    fn fresh(&mut self) -> Label {
        self.fresh += 1;
        self.fresh
    }

    fn owner(&self) -> Var {
        OWNER + self.who.lock
    }

    fn users(&self) -> Var {
        USERS + self.who.lock
    }

    fn lane(&self) -> Var {
        LANE + self.who.lane
    }

    fn node(&self) -> Var {
        NODE + self.me
    }

    fn program(mut self) -> Vec<Ins> {
        match self.who.role {
            Role::Releaser => {
                self.put([At(START), Clear, Await(self.owner())]);
                self.release(START);
                self.put([At(RELEASED), Clear, Again(0, START)]);
            }
            Role::RacingReleaser => {
                let (failed, end) = (self.fresh(), self.fresh());
                self.put([At(START), Clear]);
                self.release(failed);
                self.put([At(RELEASED), Quit(R, self.users()), Jump(end), At(failed), Clear, At(end), Clear, Again(0, START)]);
            }
            Role::AcquireOnly | Role::AcquireInterruptible => {
                self.acquire();
                // Given twice: gives one back, if it is still there.
                let end = self.fresh();
                self.put([At(OWNED), Clear, Set(SENIOR, 0), Jump(end)]);
                self.put([At(SURPLUS)]);
                self.release(RELEASED);
                self.put([At(RELEASED), Clear, Set(SENIOR, 0), At(end), Again(0, START)]);
            }
            _ => {
                self.acquire();
                let (more, used, end) = (self.fresh(), self.fresh(), self.fresh());
                self.put([At(OWNED), Set(SENIOR, 0), Enter, JumpUnless(0, 1, more), Quit(LAST, self.users()), At(more)]);
                self.release(START);
                self.put([
                    At(RELEASED),
                    Clear,
                    JumpUnless(LAST, 1, used),
                    Free(self.owner()),
                    At(used),
                    Again(0, START),
                    Jump(end),
                ]);
                // Timed out: cannot know that nobody holds the lock, so does not give its memory back.
                let early = self.fresh();
                self.put([At(LEFT), JumpUnless(0, 1, early), Quit(R, self.users()), At(early), Jump(RELEASED)]);
                self.put([At(SURPLUS), Never, At(end)]);
            }
        }
        self.code
    }

    /// Makes the lane fit its queue.
    fn mend(&mut self, quiet: Quiet) {
        let lane = self.lane();
        let (others, done) = (self.fresh(), self.fresh());
        self.put([LaneEmpty(R), JumpIf(R, 0, others), Peek(BITS, lane), JumpIf(BITS, 0, done), JumpIf(BITS, FAST, done)]);
        self.put([Swap(lane, 0), Jump(done), At(others)]);
        if quiet == Quiet::MayBe && self.model.quiet {
            let loud = self.fresh();
            self.put([Either(loud)]);
            if !self.has(Fault::QuietBesideStrangers) {
                self.put([LaneMine(R), JumpIf(R, 0, loud)]);
            }
            self.put([Peek(BITS, lane), JumpIf(BITS, QUIETED, done), Swap(lane, QUIETED), Jump(done), At(loud)]);
        }
        if quiet != Quiet::Stays {
            self.put([Peek(BITS, lane), JumpIf(BITS, PARKED, done), Swap(lane, PARKED)]);
        }
        self.put([At(done)]);
    }

    /// The eldest waiter, in WHO, becomes the heir if it sleeps; the bucket lock is given back. Then jumps. A holder may make the
    /// lane quiet also if it meets an heir.
    fn call_heir(&mut self, to: Label, is_holder: bool) {
        let (called, give) = (self.fresh(), self.fresh());
        self.put([PeekOf(R, NODE, WHO), JumpIf(R, WAITING, called)]);
        if is_holder {
            self.mend(Quiet::MayBe);
        }
        self.put([Jump(give), At(called)]);
        if is_holder && self.has(Fault::QuietWithoutHeir) {
            self.mend(Quiet::MayBe);
            self.put([Peek(BITS, self.lane()), JumpIf(BITS, QUIETED, give)]);
        }
        self.put([StoreOf(NODE, WHO, WOKEN)]);
        self.mend(Quiet::MayBe);
        self.put([Store(BUCKET, 0), Wake(WHO), Clear, Jump(to), At(give), Store(BUCKET, 0), Clear, Jump(to)]);
    }
}
