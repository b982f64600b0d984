//! A small explicit-state explorer of x86-TSO: every interleaving of small programs, store buffers included.
//!
//! Each thread has a FIFO store buffer: a plain store enters it, a load looks into its own buffer first, and at any moment
//! the oldest entry may reach memory. Locked operations and fences wait for the buffer to drain. A `membarrier` drains every
//! thread's buffer at once, which is what its inter-processor interrupts do. Source of the model: Sewell, Sarkar, Owens,
//! Zappa Nardelli and Myreen, "x86-TSO", CACM 2010.
//!
//! An execution must be able to end from every state that can be reached, without any deadline having to pass: a wake-up that
//! is lost, or made good only by a time-out of the sleeper's caller, is found. Timers that a protocol arms itself may be
//! counted on to fire. What only the holder of a lock that is [taken as a whole](Ins::Take) can see makes no states of its own.
#![allow(dead_code, unused_imports)] // each test binary uses a part

mod ins;
mod state;

use ins::{Code, access, control, local, locked, touched};
pub use ins::{Ins, Label, Reg, Var};
use state::{END, Table, Thread};
pub use state::{State, THREADS};

/// One thread of a scene.
#[derive(Debug, Clone)]
pub struct Actor {
    /// What sort of thread it is, for invariants.
    pub name: &'static str,
    /// What it does.
    pub program: Vec<Ins>,
    /// What register 0 starts with: how often to go round.
    pub rounds: u8,
    /// The lock it uses: waiters for different locks share one queue.
    pub lock: u8,
    /// The lane of that lock.
    pub lane: u8,
}

/// Something to explore.
pub struct Scene<'a> {
    /// The threads.
    pub actors: Vec<Actor>,
    /// Variables at the start.
    pub memory: Vec<u8>,
    /// Must hold in every state.
    pub invariant: &'a dyn Fn(&Scene<'_>, &State) -> bool,
    /// Names of labels, for traces; of those that have one.
    pub name: fn(Label) -> Option<&'static str>,
}

/// What an exploration found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every execution can end from every state; so many states.
    Good(usize),
    /// Some execution cannot end any more without a deadline passing: a lost wake-up.
    LostWakeUp,
    /// Two threads were inside, or one came where it must not.
    Broken,
    /// The invariant did not hold.
    Invariant,
    /// Memory that had been given back was touched.
    Freed,
}

/// A [`Verdict`] and how it came about.
#[derive(Debug, Clone)]
pub struct Found {
    /// The verdict.
    pub verdict: Verdict,
    /// A shortest execution to it, one step a line; empty if it is good.
    pub trace: Vec<String>,
}

/// Explores all executions of `threads` copies of `program`, each going round `rounds` times.
pub fn explore(program: &[Ins], threads: usize, rounds: u8, variables: usize) -> Verdict {
    let actor = Actor { name: "", program: program.to_vec(), rounds, lock: 0, lane: 0 };
    let name = |_| None;
    Scene { actors: vec![actor; threads], memory: vec![0; variables], invariant: &|_, _| true, name }.explore().verdict
}

/// A property failed.
type Failed = Verdict;

/// A step: where it leads, and whether a deadline passed.
struct Step {
    thread: usize,
    drained: bool,
    deadline: bool,
    to: Result<State, Failed>,
}

struct Explorer<'a> {
    scene: &'a Scene<'a>,
    codes: Vec<Code>,
    /// Locks that are taken as a whole, as bits.
    whole: u32,
}

impl Scene<'_> {
    /// Explores all executions.
    pub fn explore(&self) -> Found {
        assert!(self.actors.len() <= THREADS, "more than {THREADS} threads");
        let codes: Vec<Code> = self.actors.iter().map(|actor| Code::new(&actor.program)).collect();
        let taken = |ins: &Ins| if let Ins::Take(var) = ins { 1 << var } else { 0 };
        let whole = codes.iter().flat_map(|code| &code.steps).fold(0, |bits, ins| bits | taken(ins));
        Explorer { scene: self, codes, whole }.explore()
    }
}

impl Explorer<'_> {
    fn explore(&self) -> Found {
        let mut start = State::new(&self.scene.memory);
        for (thread, actor) in start.threads.iter_mut().zip(&self.scene.actors) {
            thread.registers.set(0_usize, actor.rounds);
            thread.pc = 0;
        }
        let mut starts = vec![start];
        for index in 0..self.codes.len() {
            let before = std::mem::take(&mut starts);
            for state in before {
                self.settle(state, index, &mut |to| starts.push(to.unwrap_or_else(|_| panic!("the program starts badly"))));
            }
        }
        let mut table = Table::default();
        for state in starts {
            table.insert(state.pack(), None);
        }
        // Steps that need no deadline, and the states in which all threads are through.
        let (mut edges, mut ends) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < table.len() {
            let state = table.get(at).unpack();
            let bad = |verdict| Found { verdict, trace: self.trace(&table, at, verdict) };
            if !(self.scene.invariant)(self.scene, &state) {
                return bad(Verdict::Invariant);
            }
            let (mut moved, mut failed) = (false, None);
            self.steps(&state, &mut |step| match step.to {
                Ok(next) => {
                    let next = table.insert(next.pack(), Some(at));
                    if !step.deadline {
                        moved = true;
                        edges.push((next, at as u32));
                    }
                }
                Err(verdict) => failed = Some(verdict),
            });
            if let Some(verdict) = failed {
                return Found { verdict, trace: self.trace(&table, at, verdict) };
            }
            if state.is_over() {
                ends.push(at as u32);
            } else if !moved {
                return Found { verdict: Verdict::LostWakeUp, trace: self.trace(&table, at, Verdict::LostWakeUp) };
            }
            at += 1;
        }
        match state::unreached(table.len(), edges, ends) {
            None => Found { verdict: Verdict::Good(table.len()), trace: Vec::new() },
            Some(at) => Found { verdict: Verdict::LostWakeUp, trace: self.trace(&table, at, Verdict::LostWakeUp) },
        }
    }

    /// The steps from the start to a state, and those that fail there.
    fn trace(&self, table: &Table, at: usize, verdict: Verdict) -> Vec<String> {
        let mut path = vec![at];
        while let Some(parent) = table.parent(path[path.len() - 1]) {
            path.push(parent);
        }
        path.reverse();
        let mut lines = Vec::new();
        for pair in path.windows(2) {
            let (from, to) = (table.get(pair[0]).unpack(), table.get(pair[1]));
            let mut line = String::from("?");
            self.steps(&from, &mut |step| {
                if step.to.as_ref().is_ok_and(|state| state.pack() == *to) {
                    line = self.line(&from, &step);
                }
            });
            lines.push(format!("{line:<60} {}", to.unpack()));
        }
        let last = table.get(at).unpack();
        self.steps(&last, &mut |step| {
            if step.to.is_err() {
                lines.push(self.line(&last, &step));
            }
        });
        for (index, thread) in last.threads[..self.codes.len()].iter().enumerate() {
            lines.push(format!("t{index} is at {} asleep={}", self.place(index, thread), thread.asleep));
        }
        lines.push(format!("{verdict:?}"));
        lines
    }

    fn line(&self, from: &State, step: &Step) -> String {
        let thread = &from.threads[step.thread];
        if let (true, Some((var, value))) = (step.drained, thread.oldest()) {
            return format!("t{} drains v{var}={value}", step.thread);
        }
        let clock = if step.deadline { " (deadline)" } else { "" };
        format!("t{} {}{clock}", step.thread, self.place(step.thread, thread))
    }

    fn place(&self, index: usize, thread: &Thread) -> String {
        let code = &self.codes[index];
        let Some(ins) = code.steps.get(usize::from(thread.pc)) else { return "end".to_owned() };
        let mut before = code.labels.iter().rev().filter(|(at, _)| *at <= thread.pc);
        let label = before.find_map(|(_, label)| (self.scene.name)(*label));
        format!("{} {ins:?}", label.unwrap_or("start"))
    }

    /// What can happen next: some thread drains one store, or executes one instruction.
    fn steps(&self, state: &State, take: &mut dyn FnMut(Step)) {
        for thread in 0..self.codes.len() {
            let me = &state.threads[thread];
            if me.stored != 0 {
                let mut drained = *state;
                let to = drain_one(&mut drained, thread);
                let mut give = |to| take(Step { thread, drained: true, deadline: false, to });
                match to {
                    Ok(()) => self.settle(drained, thread, &mut give),
                    Err(failed) => give(Err(failed)),
                }
            }
            let Some(&ins) = self.codes[thread].steps.get(usize::from(me.pc)) else { continue };
            if let Ins::SleepWhile { armed, timer, deadline, .. } = ins {
                let mut clock = |label, deadline| {
                    let mut rung = *state;
                    rung.threads[thread].asleep = false;
                    rung.threads[thread].pc = self.codes[thread].at(label);
                    self.settle(rung, thread, &mut |to| take(Step { thread, drained: false, deadline, to }));
                };
                if me.asleep && me.registers.get(armed) != 0 {
                    clock(timer, false);
                }
                if let (true, Some(label)) = (me.asleep, deadline) {
                    clock(label, true);
                }
            }
            let mut next = *state;
            match self.execute(&mut next, thread, ins) {
                Ok(false) => {}
                Ok(true) => {
                    self.settle(next, thread, &mut |to| take(Step { thread, drained: false, deadline: false, to }));
                }
                Err(failed) => take(Step { thread, drained: false, deadline: false, to: Err(failed) }),
            }
        }
    }

    /// Executes what no other thread can notice or disturb, so that it makes no states of its own.
    fn settle(&self, mut state: State, thread: usize, take: &mut dyn FnMut(Result<State, Failed>)) {
        loop {
            // Giving a lock back early hides nothing: the others need not take it yet.
            while state.threads[thread].oldest().is_some_and(|(var, _)| self.whole & (1 << var) != 0) {
                if let Err(failed) = drain_one(&mut state, thread) {
                    return take(Err(failed));
                }
            }
            let Some(&ins) = self.codes[thread].steps.get(usize::from(state.threads[thread].pc)) else {
                state.threads[thread].pc = END;
                break;
            };
            if let Ins::Either(label) = ins {
                let mut other = state;
                other.threads[thread].pc = self.codes[thread].at(label);
                state.threads[thread].pc += 1;
                self.settle(other, thread, take);
                continue;
            }
            if !local(ins, self.whole) {
                break;
            }
            match self.execute(&mut state, thread, ins) {
                Ok(done) => assert!(done, "local instructions never wait"),
                Err(failed) => return take(Err(failed)),
            }
        }
        take(Ok(state));
    }

    /// Executes one instruction, if it can be now.
    fn execute(&self, state: &mut State, index: usize, ins: Ins) -> Result<bool, Failed> {
        let before = state.threads[index];
        if locked(ins) && before.stored != 0 {
            return Ok(false);
        }
        if touched(ins).is_some_and(|var| state.freed & (1 << var) != 0) {
            return Err(Verdict::Freed);
        }
        state.threads[index].pc += 1;
        match ins {
            Ins::Enqueue
            | Ins::EnqueueFirst
            | Ins::Dequeue(_)
            | Ins::First(_)
            | Ins::Unlink(_)
            | Ins::UnlinkMe
            | Ins::LaneEmpty(_)
            | Ins::LaneMine(_) => self.queue(state, index, ins),
            Ins::Membarrier => {
                for other in 0..self.codes.len() {
                    while state.threads[other].stored != 0 {
                        drain_one(state, other)?;
                    }
                }
            }
            Ins::Sleep => {
                if !before.woken {
                    return Ok(false);
                }
                state.threads[index].woken = false;
            }
            Ins::SleepWhile { var, value, .. } => {
                if before.asleep {
                    return Ok(false);
                }
                if state.memory.get(var) == value {
                    state.threads[index].asleep = true;
                    state.threads[index].pc -= 1;
                }
            }
            Ins::Wake(r) => {
                let other = usize::from(before.registers.get(r)) - 1;
                state.threads[other].asleep = false;
                state.threads[other].woken |= self.codes[other].sleeps;
            }
            Ins::Enter => {
                let lock = |other: usize| self.scene.actors[other].lock;
                if (0..self.codes.len()).any(|other| state.threads[other].inside && lock(other) == lock(index)) {
                    return Err(Verdict::Broken);
                }
                state.threads[index].inside = true;
            }
            Ins::Leave => state.threads[index].inside = false,
            Ins::Never => return Err(Verdict::Broken),
            Ins::Free(var) => state.freed |= 1 << var,
            Ins::JumpIf(..) | Ins::JumpUnless(..) | Ins::Jump(_) | Ins::Again(..) | Ins::Clear | Ins::Set(..) => {
                control(&mut state.threads[index], &self.codes[index], ins);
            }
            _ => return Ok(access(state, index, ins)),
        }
        Ok(true)
    }

    /// Instructions that use the queue of waiters.
    fn queue(&self, state: &mut State, index: usize, ins: Ins) {
        let actors = &self.scene.actors;
        let actor = &actors[index];
        let number = |waiter: Option<usize>| waiter.map_or(0, |waiter| waiter as u8 + 1);
        let (r, value) = match ins {
            Ins::Enqueue => return state.enqueue(index, |_| false),
            Ins::EnqueueFirst => return state.enqueue(index, |other| actors[other].lock == actor.lock),
            Ins::UnlinkMe => return state.unlink(index),
            Ins::Unlink(r) => return state.unlink(usize::from(state.threads[index].registers.get(r)) - 1),
            Ins::Dequeue(r) => {
                let first = state.waiters().next();
                if let Some(first) = first {
                    state.unlink(first);
                }
                (r, number(first))
            }
            Ins::First(r) => (r, number(state.waiters().find(|other| actors[*other].lock == actor.lock))),
            Ins::LaneEmpty(r) => (r, u8::from(!state.waiters().any(|other| actors[other].lane == actor.lane))),
            Ins::LaneMine(r) => {
                let stranger = |other: usize| actors[other].lane == actor.lane && actors[other].lock != actor.lock;
                (r, u8::from(!state.waiters().any(stranger)))
            }
            _ => unreachable!("{ins:?} does not use the queue"),
        };
        state.threads[index].registers.set(r, value);
    }
}

fn drain_one(state: &mut State, index: usize) -> Result<(), Failed> {
    let (var, value) = state.threads[index].drain();
    if state.freed & (1 << var) != 0 {
        return Err(Verdict::Freed);
    }
    state.memory.set(var, value);
    Ok(())
}
