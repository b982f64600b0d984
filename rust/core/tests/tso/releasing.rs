//! Releases: U and W.

use super::{
    Asm, BITS, BUCKET, FAILED, FAST, FREE, Fault, HANDED, HELD, LOOK, NODE, PARKED, PASSING, QUIETED, Quiet, R, RELEASED, SWAP,
    U1, U2, U3, U4, W, WAITING, WHO,
};
use crate::tso::Ins::{
    At, Cas, Clear, Either, Fence, First, Jump, JumpIf, JumpUnless, LaneEmpty, Leave, Load, PeekOf, Store, StoreOf, Swap, Take,
    Unlink, Wake,
};
use crate::tso::Label;

impl Asm<'_> {
    /// U1 to U4 and W. Goes on at RELEASED, or at `error` if it is checked and the lock was free.
    pub(super) fn release(&mut self, error: Label) {
        let (owner, lane) = (self.owner(), self.lane());
        self.put([At(U1), Load(BITS, lane)]);
        if !self.model.checked {
            self.put([JumpIf(BITS, FAST, U2)]);
        }
        self.put([JumpIf(BITS, PARKED, U4)]);
        if self.has(Fault::QuietPlainRelease) {
            self.put([JumpUnless(BITS, QUIETED, SWAP), Store(owner, FREE), Leave, Jump(RELEASED)]);
        }
        if self.model.hand_over {
            // In a quiet lane now and then a release looks whether a hand-over is overdue.
            self.put([JumpUnless(BITS, QUIETED, SWAP), Either(U4)]);
        }
        self.put([Jump(SWAP)]);
        if !self.model.checked {
            self.put([At(U2)]);
            if self.has(Fault::LoadBeforeRelease) {
                self.put([Load(BITS, lane), Store(owner, FREE), Leave, At(U3)]);
            } else {
                self.put([Store(owner, FREE), Leave, At(U3), Load(BITS, lane)]);
            }
            self.put([JumpIf(BITS, FAST, RELEASED)]);
            if !self.has(Fault::NoRefence) && !self.has(Fault::LoadBeforeRelease) {
                self.put([Fence, Load(BITS, lane)]);
            }
            self.put([JumpIf(BITS, PARKED, W), Jump(RELEASED)]);
        }

        self.put([At(SWAP)]);
        if !self.model.checked {
            self.put([Swap(owner, FREE)]);
        } else if self.has(Fault::CheckByLoad) {
            self.put([Load(R, owner), JumpIf(R, FREE, error), Swap(owner, FREE)]);
        } else {
            // A compare-exchange: one that fails finds the lock free, or another release that is passing it on.
            let done = self.fresh();
            self.put([
                Cas(R, owner, HELD, FREE),
                JumpIf(R, 1, done),
                Load(R, owner),
                JumpIf(R, FREE, error),
                JumpIf(R, PASSING, U4),
            ]);
            self.put([Load(BITS, lane), JumpIf(BITS, PARKED, U4), Jump(SWAP), At(done)]);
        }
        self.put([Leave, At(LOOK)]);
        if self.has(Fault::ReleaserTouchesLock) {
            self.put([Load(R, owner)]);
        }
        let zero = self.fresh();
        if !self.has(Fault::SwapWithoutReload) {
            self.put([Load(BITS, lane), JumpIf(BITS, PARKED, W), JumpIf(BITS, 0, zero)]);
        }
        self.put([Jump(RELEASED), At(zero)]);
        self.back_to_fast();
        self.pass_on(error);

        let none = self.fresh();
        self.put([At(W)]);
        if self.has(Fault::WakerTouchesLock) {
            self.put([Load(R, owner), JumpUnless(R, FREE, RELEASED)]);
        }
        self.put([Take(BUCKET), First(WHO), JumpIf(WHO, 0, none)]);
        self.call_heir(RELEASED, false);
        self.put([At(none), Store(BUCKET, 0), Clear, Jump(RELEASED)]);
    }

    /// A release that found the lane fenced and empty may make it fast.
    fn back_to_fast(&mut self) {
        let lane = self.lane();
        let give = self.fresh();
        if !self.model.back_to_fast {
            self.put([Jump(RELEASED)]);
            return;
        }
        self.put([Either(RELEASED)]);
        if self.model.failing {
            self.put([Load(R, FAILED), JumpIf(R, 1, RELEASED)]);
        }
        if self.has(Fault::FastOutsideBucket) {
            self.put([Swap(lane, FAST), Jump(RELEASED)]);
            return;
        }
        self.put([Take(BUCKET)]);
        if !self.has(Fault::FastWithNodes) {
            self.put([LaneEmpty(R), JumpIf(R, 0, give)]);
        }
        self.put([Swap(lane, FAST), At(give), Store(BUCKET, 0), Clear, Jump(RELEASED)]);
    }

    /// U4.
    fn pass_on(&mut self, error: Label) {
        let owner = self.owner();
        let (none, due) = (self.fresh(), self.fresh());
        self.put([At(U4), Take(BUCKET), First(WHO), JumpIf(WHO, 0, none)]);
        // Somebody keeps watch: only if he is overdue is there anything to do.
        let (loud, overdue) = (self.fresh(), self.fresh());
        self.put([Load(BITS, self.lane()), JumpUnless(BITS, QUIETED, loud)]);
        if self.model.hand_over {
            self.put([Either(overdue)]);
        }
        self.put([Store(BUCKET, 0), Clear, Jump(SWAP)]);
        if self.model.hand_over {
            self.put([At(overdue)]);
            if self.model.checked && !self.has(Fault::PassesUnchecked) {
                let held = self.fresh();
                self.put([Cas(R, owner, HELD, PASSING), JumpIf(R, 1, held), Store(BUCKET, 0), Clear, Jump(error), At(held)]);
            }
            self.put([Jump(due)]);
        }
        self.put([At(loud)]);
        if self.model.checked && !self.has(Fault::PassesUnchecked) {
            let held = self.fresh();
            self.put([Cas(R, owner, HELD, PASSING), JumpIf(R, 1, held), Store(BUCKET, 0), Clear, Jump(error), At(held)]);
        }
        if self.model.hand_over {
            self.put([Either(due)]);
        }
        self.put([Store(owner, FREE), Leave]);
        self.call_heir(RELEASED, true);
        self.put([At(none), Store(BUCKET, 0), Clear, Jump(SWAP)]);
        if !self.model.hand_over {
            return;
        }

        self.put([At(due)]);
        if self.has(Fault::HandOverAfterBucket) {
            self.put([Store(BUCKET, 0), Take(BUCKET)]);
        }
        let slept = self.fresh();
        self.put([PeekOf(R, NODE, WHO), JumpIf(R, WAITING, slept)]);
        self.hand_over();
        self.put([Store(BUCKET, 0), Clear, Jump(RELEASED), At(slept)]);
        self.hand_over();
        self.put([Store(BUCKET, 0), Wake(WHO), Clear, Jump(RELEASED)]);
    }

    /// The waiter in WHO becomes the owner.
    fn hand_over(&mut self) {
        let owner = self.owner();
        let passing = self.model.checked && !self.has(Fault::PassesUnchecked);
        if passing && self.has(Fault::HandOverEndsPassingEarly) {
            self.put([Store(owner, HELD)]);
        }
        self.put([Unlink(WHO)]);
        // S2, before anybody can release what the new owner gets: releases go by the lane.
        if !self.has(Fault::HandOverEndsQuietLate) {
            self.mend(if self.has(Fault::HandOverKeepsQuiet) { Quiet::Stays } else { Quiet::Ends });
        }
        if self.has(Fault::HandOverFrees) {
            self.put([Store(owner, FREE)]);
        } else if passing && !self.has(Fault::HandOverEndsPassingEarly) {
            self.put([Store(owner, HELD)]);
        }
        self.put([Leave, StoreOf(NODE, WHO, HANDED)]);
        if self.has(Fault::HandOverEndsQuietLate) {
            self.mend(Quiet::Ends);
        }
    }
}
