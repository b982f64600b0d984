//! Waiters: P, H, S and L.

use super::{
    Asm, BITS, BUCKET, CAP, COMPETE, FAILED, FAST, FREE, Fault, GIVEN, H1, H2, H3, HANDED, HELD, L1, L2, L3, LEAVE, LEFT, LOOKED,
    OWNED, P1, P2, P3, P4, PARKED, QUIETED, Quiet, R, RUNG, Role, S1, S2, SENIOR, START, SURPLUS, TIMER, TOLD, TOOK, TRY,
    WAITING, WATCH, WHO, WOKEN, WON,
};
use crate::tso::Ins::{
    At, Cas, Clear, Either, Enqueue, EnqueueFirst, First, Jump, JumpIf, JumpUnless, LaneMine, Load, Membarrier, Peek, Put, Set,
    SleepWhile, Store, Swap, Take, UnlinkMe,
};
use crate::tso::Label;

impl Asm<'_> {
    fn leaves(&self) -> bool {
        matches!(self.who.role, Role::Timed | Role::Interruptible | Role::AcquireInterruptible)
    }

    /// Goes on at OWNED; or, if it gives up, at LEFT or again from START. A surplus acquisition, by a fault, is at SURPLUS.
    pub(super) fn acquire(&mut self) {
        let (owner, node) = (self.owner(), self.node());
        self.put([At(START), Clear, Cas(R, owner, FREE, HELD), JumpIf(R, 1, OWNED)]);
        self.park();
        self.sleep();

        // Called as heir, or handed over to.
        self.put([Load(R, node), JumpIf(R, HANDED, GIVEN)]);
        self.compete();
        self.rung();
        if self.leaves() {
            self.leave();
        }

        // The heir won outside the bucket lock: a fault.
        let locked = self.fresh();
        self.put([At(WON), Take(BUCKET), Peek(R, node), JumpUnless(R, HANDED, locked)]);
        self.put([Store(BUCKET, 0), Set(TIMER, 0), Jump(SURPLUS), At(locked), At(TOOK)]);
        self.took();

        self.put([At(TOLD), Store(BUCKET, 0)]);
        self.put([At(GIVEN), Set(TIMER, 0), Clear, Jump(OWNED)]);
    }

    /// P1, P2, P3: under the bucket lock.
    fn park(&mut self) {
        let (owner, lane, node) = (self.owner(), self.lane(), self.node());
        let look = [Load(R, owner), JumpIf(R, FREE, LOOKED)];
        self.put([Take(BUCKET)]);
        if self.has(Fault::LookBeforeAnnouncement) {
            self.put(look);
        }
        let (new, announced) = (self.fresh(), self.fresh());
        self.put([At(P1), Peek(BITS, lane), JumpIf(BITS, PARKED, announced), JumpUnless(BITS, QUIETED, new)]);
        // A waiter for another lock ends the quiet.
        if !self.has(Fault::StrangerLeavesQuiet) {
            self.put([LaneMine(R), JumpIf(R, 0, new)]);
        }
        self.put([Jump(announced), At(new)]);
        self.put([if self.has(Fault::PlainAnnouncement) { Store(lane, PARKED) } else { Swap(lane, PARKED) }]);
        self.put([JumpUnless(BITS, FAST, announced), At(P2)]);
        if self.model.failing {
            let fails = self.fresh();
            self.put([Either(fails), Membarrier, Jump(announced), At(fails), Swap(FAILED, 1)]);
        } else if !self.has(Fault::NoMembarrier) {
            self.put([Membarrier]);
        }
        self.put([At(announced)]);
        if self.has(Fault::PlainAnnouncement) {
            self.put(look);
        } else if !self.has(Fault::LookBeforeAnnouncement) {
            self.put([At(P3), Cas(R, owner, FREE, HELD), JumpIf(R, 1, LOOKED)]);
        }
        let (senior, queued) = (self.fresh(), self.fresh());
        self.put([Put(node, WAITING), JumpIf(SENIOR, 1, senior), Enqueue, Jump(queued), At(senior), EnqueueFirst, At(queued)]);
        self.put([Set(SENIOR, 0), Store(BUCKET, 0), Clear, Jump(P4)]);

        // It was free.
        self.put([At(LOOKED)]);
        self.mend(Quiet::Stays);
        let only_looked = self.has(Fault::PlainAnnouncement) || self.has(Fault::LookBeforeAnnouncement);
        self.put([Store(BUCKET, 0), Clear, Jump(if only_looked { START } else { OWNED })]);
    }

    /// P4.
    fn sleep(&mut self) {
        self.put([At(P4)]);
        if self.model.failing && !self.has(Fault::NoCap) {
            let uncapped = self.fresh();
            self.put([
                JumpUnless(TIMER, 0, uncapped),
                Load(R, FAILED),
                JumpIf(R, 0, uncapped),
                Set(TIMER, CAP),
                At(uncapped),
                Clear,
            ]);
        }
        let deadline = self.leaves().then_some(LEAVE);
        self.put([SleepWhile { var: self.node(), value: WAITING, armed: TIMER, timer: RUNG, deadline }]);
    }

    /// H1. Sees the lock free outside the bucket lock, and takes it under it; goes on here if it is not free, or not any more.
    fn try_now(&mut self) {
        let owner = self.owner();
        if self.has(Fault::TakesOutsideBucket) {
            self.put([Cas(R, owner, FREE, HELD), JumpIf(R, 1, WON)]);
            return;
        }
        let taken = self.fresh();
        self.put([Load(R, owner), JumpUnless(R, FREE, taken), Take(BUCKET), Peek(R, self.node()), JumpIf(R, HANDED, TOLD)]);
        self.put([Cas(R, owner, FREE, HELD), JumpIf(R, 1, TOOK), Store(BUCKET, 0), At(taken), Clear]);
    }

    /// H1 to H3.
    fn compete(&mut self) {
        let (owner, lane, node) = (self.owner(), self.lane(), self.node());
        self.put([At(COMPETE), Clear, At(H1)]);
        self.try_now();
        let (loud, look) = (self.fresh(), self.fresh());
        self.put([At(H2), Take(BUCKET), Peek(R, node), JumpIf(R, HANDED, TOLD), Put(node, WAITING)]);
        if self.model.quiet {
            self.put([Either(loud)]);
            if !self.has(Fault::WatchBesideStrangers) {
                self.put([LaneMine(R), JumpIf(R, 0, loud)]);
            }
            if !self.has(Fault::WatchWithoutTimer) {
                self.put([Set(TIMER, WATCH)]);
            }
            self.put([Peek(BITS, lane), JumpIf(BITS, QUIETED, look), Swap(lane, QUIETED), Jump(look)]);
        }
        self.put([At(loud), Set(TIMER, 0)]);
        self.mend(if self.has(Fault::RearmKeepsQuiet) { Quiet::Stays } else { Quiet::Ends });
        self.put([At(look), At(H3)]);
        if !self.has(Fault::RearmWithoutLook) {
            self.put([Cas(R, owner, FREE, HELD), JumpIf(R, 1, TOOK)]);
        }
        self.put([Store(BUCKET, 0), Clear, Jump(P4)]);
    }

    /// A timer of its own ended the sleep: a look, or (S1, S2) the end of the watch.
    fn rung(&mut self) {
        let (owner, node) = (self.owner(), self.node());
        let over = self.fresh();
        self.put([At(RUNG), JumpIf(TIMER, CAP, TRY), Either(over)]);
        self.put([At(TRY)]);
        self.try_now();
        self.put([Jump(P4), At(over), At(S1), Take(BUCKET), Peek(R, node), JumpIf(R, HANDED, TOLD), Set(TIMER, 0), At(S2)]);
        if self.has(Fault::WatchEndsWithoutLook) {
            self.put([Put(node, WAITING)]);
            self.mend(Quiet::Ends);
            self.put([Store(BUCKET, 0), Clear, Jump(P4)]);
        } else {
            self.put([Put(node, WOKEN)]);
            self.mend(Quiet::Ends);
            self.put([Cas(R, owner, FREE, HELD), JumpIf(R, 1, TOOK), Store(BUCKET, 0), Jump(COMPETE)]);
        }
    }

    /// The owner, under the bucket lock, with its node still queued.
    fn took(&mut self) {
        self.put([Set(TIMER, 0)]);
        if !self.has(Fault::WinnerStaysQueued) {
            self.put([UnlinkMe]);
        }
        self.mend(if self.has(Fault::WinnerKeepsQuiet) { Quiet::Stays } else { Quiet::Ends });
        if self.has(Fault::WinnerDoesNotLook) {
            self.put([Store(BUCKET, 0), Clear, Jump(OWNED)]);
        } else {
            self.pass_the_duty(OWNED);
        }
    }

    /// L3. Gives the bucket lock back; before that, if the lock is free, calls its eldest waiter as heir. Then jumps.
    fn pass_the_duty(&mut self, to: Label) {
        let owner = self.owner();
        let give = self.fresh();
        self.put([First(WHO), JumpIf(WHO, 0, give), Load(R, owner), JumpUnless(R, FREE, give)]);
        self.call_heir(to, false);
        self.put([At(give), Store(BUCKET, 0), Clear, Jump(to)]);
    }

    /// L1 to L3: a deadline passed, or a signal came.
    fn leave(&mut self) {
        let (owner, node) = (self.owner(), self.node());
        let (out, on_duty, left) = (self.fresh(), self.fresh(), self.fresh());
        self.put([At(LEAVE), Take(BUCKET), Peek(WHO, node)]);
        if self.has(Fault::StaleTimeOut) {
            self.put([Set(WHO, WAITING)]);
        }
        self.put([JumpIf(WHO, HANDED, TOLD), At(L2)]);
        if self.who.role == Role::Timed && !self.has(Fault::LeavesWithoutLookOrBaton) {
            self.put([Cas(R, owner, FREE, HELD), JumpIf(R, 1, TOOK)]);
        }
        self.put([At(L1)]);
        if self.has(Fault::LeaverStaysQueued) {
            self.put([JumpIf(WHO, WOKEN, out)]);
        }
        self.put([UnlinkMe, At(out), JumpIf(WHO, WOKEN, on_duty), JumpIf(TIMER, WATCH, on_duty)]);
        self.mend(Quiet::Stays);
        self.put([Store(BUCKET, 0), Jump(left), At(on_duty)]);
        self.mend(Quiet::Ends);
        self.put([At(L3)]);
        if self.has(Fault::LeavesWithoutBaton) || self.has(Fault::LeavesWithoutLookOrBaton) {
            self.put([Store(BUCKET, 0), Jump(left)]);
        } else {
            self.pass_the_duty(left);
        }
        self.put([At(left), Set(TIMER, 0), Clear]);
        match self.who.role {
            Role::Timed => self.put([Jump(LEFT)]),
            _ => self.put([Set(SENIOR, 1), Jump(START)]),
        }
    }
}
