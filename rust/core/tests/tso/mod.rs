//! A small explicit-state explorer of x86-TSO: every interleaving of small programs, store buffers included.
//!
//! Each thread has a FIFO store buffer: a plain store enters it, a load looks into its own buffer first, and at any moment
//! the oldest entry may reach memory. Locked operations and fences wait for the buffer to drain. A `membarrier` drains every
//! thread's buffer at once, which is what its inter-processor interrupts do. Source of the model: Sewell, Sarkar, Owens,
//! Zappa Nardelli and Myreen, "x86-TSO", CACM 2010.

use std::collections::HashSet;

/// A shared variable.
pub type Var = u8;
/// A place in a program.
pub type Label = u8;

/// One instruction. Registers are per thread; `r` names one.
#[derive(Debug, Clone, Copy)]
pub enum Ins {
    /// A target of jumps; takes no step.
    At(Label),
    /// Plain store of a constant.
    Store(Var, u8),
    /// Plain store of `r` plus a constant, wrapping.
    StoreSum(Var, usize, u8),
    /// Plain load into `r`.
    Load(usize, Var),
    /// Locked compare-exchange: `r` is 1 on success.
    Cas(usize, Var, u8, u8),
    /// Locked exchange with a constant.
    Swap(Var, u8),
    /// Locked addition, wrapping; `r` gets the old value.
    Add(usize, Var, u8),
    /// Full fence.
    Fence,
    /// Drains the store buffers of all threads.
    Membarrier,
    /// Takes a lock that is modelled as a whole: waits until the variable is 0, then sets it, as a locked operation.
    Take(Var),
    /// Appends this thread to the waiter queue.
    Enqueue,
    /// Takes the eldest waiter out of the queue into `r` (its number plus 1), or 0.
    Dequeue(usize),
    /// Sleeps until woken.
    Sleep,
    /// Wakes the waiter in `r`.
    Wake(usize),
    /// Jumps if `r` equals the constant.
    JumpIf(usize, u8, Label),
    /// Jumps.
    Jump(Label),
    /// The thread is now inside the critical section; fails the exploration if another one is.
    Enter,
    /// It is no longer.
    Leave,
    /// Forgets the scratch registers (1 and up), so that states that differ only in them are one.
    Clear,
    /// Counts `r` down and jumps while it is not 0.
    Again(usize, Label),
}

/// Registers of a thread; register 0 is set before the start (how often to go round).
pub const REGISTERS: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Thread {
    pc: u8,
    registers: [u8; REGISTERS],
    buffer: Vec<(Var, u8)>,
    woken: bool,
    inside: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    memory: Vec<u8>,
    queue: Vec<u8>,
    threads: Vec<Thread>,
}

/// What an exploration found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every execution ends; so many states.
    Good(usize),
    /// Some execution stops with a thread asleep: a lost wake-up.
    LostWakeUp,
    /// Two threads were inside.
    Broken,
}

/// Explores all executions of `threads` copies of `program`, each going round `rounds` times.
pub fn explore(program: &[Ins], threads: usize, rounds: u8, variables: usize) -> Verdict {
    let mut registers = [0; REGISTERS];
    registers[0] = rounds;
    let thread = Thread { pc: 0, registers, buffer: Vec::new(), woken: false, inside: false };
    let mut start = State { memory: vec![0; variables], queue: Vec::new(), threads: vec![thread; threads] };
    for index in 0..threads {
        start = run_local(start, index, program).unwrap_or_else(|_| panic!("the program starts inside"));
    }
    let (mut seen, mut open) = (HashSet::from([start.clone()]), vec![start]);
    while let Some(state) = open.pop() {
        let mut moved = false;
        for index in 0..threads {
            for next in successors(&state, index, program) {
                let Ok(next) = next else { return Verdict::Broken };
                moved = true;
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        if !moved && state.threads.iter().any(|thread| usize::from(thread.pc) < program.len()) {
            return Verdict::LostWakeUp;
        }
    }
    Verdict::Good(seen.len())
}

/// An invariant failed.
struct Failed;

/// What thread `index` can do next: drain one store, or execute one instruction.
fn successors(state: &State, index: usize, program: &[Ins]) -> Vec<Result<State, Failed>> {
    let mut next = Vec::with_capacity(2);
    if !state.threads[index].buffer.is_empty() {
        let mut drained = state.clone();
        drain_one(&mut drained, index);
        next.push(Ok(drained));
    }
    next.extend(execute(state, index, program).map(|done| done.and_then(|state| run_local(state, index, program))));
    next
}

/// Executes what no other thread can notice or disturb, so that it makes no states of its own.
fn run_local(mut state: State, index: usize, program: &[Ins]) -> Result<State, Failed> {
    while let Some(ins) = program.get(usize::from(state.threads[index].pc)) {
        let local =
            matches!(ins, Ins::At(_) | Ins::JumpIf(..) | Ins::Jump(_) | Ins::Again(..) | Ins::Clear | Ins::Enter | Ins::Leave);
        if !local {
            break;
        }
        state = execute(&state, index, program).expect("local instructions never wait")?;
    }
    Ok(state)
}

fn drain_one(state: &mut State, index: usize) {
    let (var, value) = state.threads[index].buffer.remove(0);
    state.memory[usize::from(var)] = value;
}

fn position(program: &[Ins], label: Label) -> u8 {
    let at = program.iter().position(|ins| matches!(ins, Ins::At(l) if *l == label));
    at.unwrap_or_else(|| panic!("label {label} is nowhere")) as u8
}

fn execute(state: &State, index: usize, program: &[Ins]) -> Option<Result<State, Failed>> {
    let thread = &state.threads[index];
    let ins = *program.get(usize::from(thread.pc))?;
    let locked = matches!(ins, Ins::Cas(..) | Ins::Swap(..) | Ins::Add(..) | Ins::Fence | Ins::Take(_));
    if locked && !thread.buffer.is_empty() {
        return None;
    }
    let own = |var: Var| thread.buffer.iter().rev().find(|(v, _)| *v == var).map_or(state.memory[usize::from(var)], |(_, x)| *x);
    let mut next = state.clone();
    let me = &mut next.threads[index];
    me.pc += 1;
    match ins {
        Ins::At(_) | Ins::Fence => {}
        Ins::Store(var, value) => me.buffer.push((var, value)),
        Ins::StoreSum(var, r, value) => me.buffer.push((var, thread.registers[r].wrapping_add(value))),
        Ins::Load(r, var) => me.registers[r] = own(var),
        Ins::Cas(r, var, old, new) => {
            let hit = state.memory[usize::from(var)] == old;
            me.registers[r] = u8::from(hit);
            if hit {
                next.memory[usize::from(var)] = new;
            }
        }
        Ins::Swap(var, value) => next.memory[usize::from(var)] = value,
        Ins::Add(r, var, value) => {
            let memory = &mut next.memory[usize::from(var)];
            me.registers[r] = *memory;
            *memory = memory.wrapping_add(value);
        }
        Ins::Membarrier => {
            for other in 0..next.threads.len() {
                while !next.threads[other].buffer.is_empty() {
                    drain_one(&mut next, other);
                }
            }
        }
        Ins::Take(var) => {
            if state.memory[usize::from(var)] != 0 {
                return None;
            }
            next.memory[usize::from(var)] = 1;
        }
        Ins::Enqueue => next.queue.push(index as u8),
        Ins::Dequeue(r) => me.registers[r] = if next.queue.is_empty() { 0 } else { next.queue.remove(0) + 1 },
        Ins::Sleep => {
            if !thread.woken {
                return None;
            }
            me.woken = false;
        }
        Ins::Wake(r) => next.threads[usize::from(thread.registers[r]) - 1].woken = true,
        Ins::JumpIf(r, value, label) => {
            if thread.registers[r] == value {
                me.pc = position(program, label);
            }
        }
        Ins::Jump(label) => me.pc = position(program, label),
        Ins::Enter => {
            if state.threads.iter().any(|thread| thread.inside) {
                return Some(Err(Failed));
            }
            me.inside = true;
        }
        Ins::Leave => me.inside = false,
        Ins::Clear => me.registers[1..].fill(0),
        Ins::Again(r, label) => {
            me.registers[r] -= 1;
            if me.registers[r] != 0 {
                me.pc = position(program, label);
            }
        }
    }
    Some(Ok(next))
}
