//! The instructions of the explorer's programs, and what they do to a thread and to memory.

use super::state::{END, State, Thread};

/// A shared variable.
pub type Var = u8;
/// A place in a program.
pub type Label = u8;
/// A register of a thread.
pub type Reg = usize;

/// One instruction. `r` names a register. Threads in registers are numbered from 1; 0 is nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ins {
    /// A target of jumps; takes no step.
    At(Label),
    /// Plain store of a constant.
    Store(Var, u8),
    /// Plain store of `r` plus a constant, wrapping.
    StoreSum(Var, Reg, u8),
    /// Plain load into `r`.
    Load(Reg, Var),
    /// Locked compare-exchange: `r` is 1 on success.
    Cas(Reg, Var, u8, u8),
    /// Locked exchange with a constant.
    Swap(Var, u8),
    /// Locked addition, wrapping; `r` gets the old value.
    Add(Reg, Var, u8),
    /// Full fence.
    Fence,
    /// Drains the store buffers of all threads.
    Membarrier,
    /// Takes a lock that is modelled as a whole: waits until the variable is 0, then sets it, as a locked operation. It is given
    /// back by a plain store of 0.
    Take(Var),
    /// Waits until the variable is not 0; a load.
    Await(Var),
    /// Appends this thread to the waiter queue.
    Enqueue,
    /// Takes the eldest waiter out of the queue into `r`, or 0.
    Dequeue(Reg),
    /// Sleeps until woken.
    Sleep,
    /// Wakes the thread in `r`: what it sleeps on is looked at again.
    Wake(Reg),
    /// Sleeps while the variable has the value, as a futex wait does: looked at, behind a fence, before falling asleep and at
    /// every wake-up. May end at `timer` if the register is not 0, and at `deadline` if there is one.
    SleepWhile { var: Var, value: u8, armed: Reg, timer: Label, deadline: Option<Label> },
    /// Jumps if `r` equals the constant.
    JumpIf(Reg, u8, Label),
    /// Jumps unless `r` equals the constant.
    JumpUnless(Reg, u8, Label),
    /// Jumps.
    Jump(Label),
    /// Jumps or does not.
    Either(Label),
    /// The thread is now inside its lock's critical section; fails the exploration if another one is.
    Enter,
    /// It is no longer.
    Leave,
    /// Fails the exploration: the program must not come here.
    Never,
    /// Forgets the scratch registers (1 to 3), so that states that differ only in them are one.
    Clear,
    /// Sets a register.
    Set(Reg, u8),
    /// Counts `r` down and jumps while it is not 0.
    Again(Reg, Label),

    // Only for the holder of a lock that is taken as a whole and guards what is read or written: no steps of their own.
    /// Reads a variable that is written only under the lock.
    Peek(Reg, Var),
    /// The same, of the thread in the second register: the given variable is the first thread's.
    PeekOf(Reg, Var, Reg),
    /// Writes a variable that nobody else looks at before the lock is given back.
    Put(Var, u8),
    /// Plain store of a constant to the variable of the thread in `r`: the given one is the first thread's.
    StoreOf(Var, Reg, u8),
    /// Enters the queue before all waiters for the same lock.
    EnqueueFirst,
    /// The eldest waiter for this thread's lock, or 0.
    First(Reg),
    /// Takes the thread in `r` out of the queue.
    Unlink(Reg),
    /// Takes this thread out of the queue.
    UnlinkMe,
    /// 1 if nobody waits in this thread's lane.
    LaneEmpty(Reg),
    /// 1 if all who wait in this thread's lane wait for this thread's lock.
    LaneMine(Reg),

    // For the properties, not of the program.
    /// Counts a variable down; `r` is 1 if it is 0 now. No step of its own.
    Quit(Reg, Var),
    /// The variable's memory is given back, after this thread's stores: whoever touches it from now on fails the exploration.
    Free(Var),
}

/// A program without its labels.
pub struct Code {
    pub steps: Vec<Ins>,
    /// By label: where it was.
    targets: [u16; 256],
    /// Labels and where they were, in order.
    pub labels: Vec<(u16, Label)>,
    /// Whether it sleeps until it is woken, so that it must remember having been.
    pub sleeps: bool,
}

impl Code {
    pub fn new(program: &[Ins]) -> Self {
        let mut code =
            Self { steps: Vec::new(), targets: [u16::MAX; 256], labels: Vec::new(), sleeps: program.contains(&Ins::Sleep) };
        for ins in program {
            let at = code.steps.len() as u16;
            if let Ins::At(label) = ins {
                let target = &mut code.targets[usize::from(*label)];
                assert_eq!(*target, u16::MAX, "label {label} is there twice");
                *target = at;
                code.labels.push((at, *label));
            } else {
                code.steps.push(*ins);
            }
        }
        assert!(code.steps.len() < usize::from(END), "the program is too long");
        code
    }

    pub fn at(&self, label: Label) -> u16 {
        let at = self.targets[usize::from(label)];
        assert_ne!(at, u16::MAX, "label {label} is nowhere");
        at
    }
}

/// No other thread can notice or disturb it; `whole` names the locks that are taken as a whole.
pub fn local(ins: Ins, whole: u32) -> bool {
    use Ins::{
        Again, Clear, Enqueue, EnqueueFirst, Enter, First, Jump, JumpIf, JumpUnless, LaneEmpty, LaneMine, Leave, Never, Peek,
        PeekOf, Put, Quit, Set, Store, StoreOf, Unlink, UnlinkMe,
    };
    // A plain store is a step because of `membarrier`, which drains it or comes before it; none runs beside a holder.
    let gives_back = matches!(ins, Store(var, _) if whole & (1 << var) != 0);
    let control = matches!(ins, Jump(_) | JumpIf(..) | JumpUnless(..) | Again(..) | Clear | Set(..) | Never);
    let guarded =
        matches!(ins, Peek(..) | PeekOf(..) | Put(..) | StoreOf(..) | Enqueue | EnqueueFirst | First(_) | Unlink(_) | UnlinkMe);
    gives_back || control || guarded || matches!(ins, LaneEmpty(_) | LaneMine(_) | Enter | Leave | Quit(..))
}

/// Instructions that stay within a thread.
pub fn control(thread: &mut Thread, code: &Code, ins: Ins) {
    let target = match ins {
        Ins::JumpIf(r, value, label) => (thread.registers.get(r) == value).then_some(label),
        Ins::JumpUnless(r, value, label) => (thread.registers.get(r) != value).then_some(label),
        Ins::Jump(label) => Some(label),
        Ins::Again(r, label) => {
            let left = thread.registers.get(r) - 1;
            thread.registers.set(r, left);
            (left != 0).then_some(label)
        }
        Ins::Clear => {
            for r in 1..4_usize {
                thread.registers.set(r, 0);
            }
            None
        }
        Ins::Set(r, value) => {
            thread.registers.set(r, value);
            None
        }
        _ => unreachable!("{ins:?} does not stay within a thread"),
    };
    if let Some(label) = target {
        thread.pc = code.at(label);
    }
}

/// Accesses to memory; whether it can be done now.
pub fn access(state: &mut State, index: usize, ins: Ins) -> bool {
    let (me, memory) = (&mut state.threads[index], &mut state.memory);
    let of = |me: &Thread, var: Var, r: Reg| var + me.registers.get(r) - 1;
    match ins {
        Ins::Fence => {}
        Ins::Store(var, value) => me.store(var, value),
        Ins::StoreSum(var, r, value) => me.store(var, me.registers.get(r).wrapping_add(value)),
        Ins::StoreOf(var, r, value) => me.store(of(me, var, r), value),
        Ins::Load(r, var) | Ins::Peek(r, var) => me.registers.set(r, me.own(var, *memory)),
        Ins::PeekOf(r, var, other) => me.registers.set(r, me.own(of(me, var, other), *memory)),
        Ins::Put(var, value) | Ins::Swap(var, value) => memory.set(var, value),
        Ins::Cas(r, var, old, new) => {
            let hit = memory.get(var) == old;
            me.registers.set(r, u8::from(hit));
            if hit {
                memory.set(var, new);
            }
        }
        Ins::Add(r, var, value) => {
            let old = memory.get(var);
            me.registers.set(r, old);
            memory.set(var, old.wrapping_add(value));
        }
        Ins::Take(var) if memory.get(var) != 0 => return false,
        Ins::Take(var) => memory.set(var, 1),
        Ins::Await(var) => return me.own(var, *memory) != 0,
        Ins::Quit(r, var) => {
            let left = memory.get(var) - 1;
            memory.set(var, left);
            me.registers.set(r, u8::from(left == 0));
        }
        _ => unreachable!("{ins:?} accesses no memory"),
    }
    true
}

/// Waits for the store buffer to drain.
pub fn locked(ins: Ins) -> bool {
    use Ins::{Add, Cas, Fence, Free, SleepWhile, Swap, Take, Wake};
    matches!(ins, Cas(..) | Swap(..) | Add(..) | Fence | Take(_) | SleepWhile { .. } | Wake(_) | Free(_))
}

/// The variable whose memory the instruction touches at once.
pub fn touched(ins: Ins) -> Option<Var> {
    match ins {
        Ins::Load(_, var) | Ins::Cas(_, var, ..) | Ins::Swap(var, _) | Ins::Add(_, var, _) | Ins::Await(var) => Some(var),
        _ => None,
    }
}
