//! States of the explorer, made of few words, and the table of those seen.

use std::fmt;

use super::Var;

/// Most threads of a scene.
pub const THREADS: usize = 4;
/// Most variables, and most registers of a thread.
const FIELDS: usize = 12;
/// Bits of a value in memory or in a register.
const VALUE_BITS: usize = 5;
/// Bits of a variable's number in a store buffer.
const VAR_BITS: usize = 4;
/// Most stores under way in one thread; no program here comes near the 56 of a real one.
const BUFFER: usize = 6;
const ENTRY_BITS: usize = VAR_BITS + VALUE_BITS;
/// Bits of a waiter's number.
const NUMBER_BITS: usize = 3;
/// Bits of a place in a program.
const PC_BITS: usize = 10;
/// The place of a thread that is through.
pub const END: u16 = (1 << PC_BITS) - 1;

/// Small values in one word: memory, or the registers of a thread. Register 0 is set before the start (how often to go
/// round), 1 to 3 are scratch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fields(u64);

impl Fields {
    pub fn get(self, at: impl Into<usize>) -> u8 {
        (self.0 >> (at.into() * VALUE_BITS) & 0x1f) as u8
    }

    pub fn set(&mut self, at: impl Into<usize>, value: u8) {
        let at = at.into();
        assert!(at < FIELDS && value < 1 << VALUE_BITS, "{value} does not fit into field {at}");
        self.0 &= !(0x1f << (at * VALUE_BITS));
        self.0 |= u64::from(value) << (at * VALUE_BITS);
    }

    /// Values of an array of one per thread, or of a lock.
    pub fn all(self) -> [u8; FIELDS] {
        std::array::from_fn(|at| self.get(at))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thread {
    pub pc: u16,
    pub registers: Fields,
    /// Stores under way, the oldest in the lowest bits.
    buffer: u64,
    pub stored: u8,
    pub asleep: bool,
    pub woken: bool,
    pub inside: bool,
}

impl Thread {
    /// Puts a store into the buffer.
    pub fn store(&mut self, var: Var, value: u8) {
        assert!(usize::from(self.stored) < BUFFER, "more than {BUFFER} stores under way");
        assert!(value < 1 << VALUE_BITS, "{value} is too large");
        let entry = u64::from(var) | u64::from(value) << VAR_BITS;
        self.buffer |= entry << (usize::from(self.stored) * ENTRY_BITS);
        self.stored += 1;
    }

    fn entry(&self, at: u8) -> (Var, u8) {
        let entry = self.buffer >> (usize::from(at) * ENTRY_BITS);
        ((entry & 0xf) as Var, (entry >> VAR_BITS & 0x1f) as u8)
    }

    /// The store that is the next to reach memory.
    pub fn oldest(&self) -> Option<(Var, u8)> {
        (self.stored != 0).then(|| self.entry(0))
    }

    /// Takes it out of the buffer.
    pub fn drain(&mut self) -> (Var, u8) {
        let oldest = self.entry(0);
        self.buffer >>= ENTRY_BITS;
        self.stored -= 1;
        oldest
    }

    /// What this thread reads.
    pub fn own(&self, var: Var, memory: Fields) -> u8 {
        let mut at = self.stored;
        while at > 0 {
            at -= 1;
            let (other, value) = self.entry(at);
            if other == var {
                return value;
            }
        }
        memory.get(var)
    }
}

/// Memory, waiters and threads at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub memory: Fields,
    /// Waiting threads plus 1, the eldest in the lowest bits; 0 ends it.
    queue: u16,
    /// Variables whose memory is given back, as bits.
    pub freed: u16,
    pub threads: [Thread; THREADS],
}

impl State {
    pub fn new(memory: &[u8]) -> Self {
        let through =
            Thread { pc: END, registers: Fields::default(), buffer: 0, stored: 0, asleep: false, woken: false, inside: false };
        let mut state = Self { memory: Fields::default(), queue: 0, freed: 0, threads: [through; THREADS] };
        for (at, value) in memory.iter().enumerate() {
            state.memory.set(at, *value);
        }
        state
    }

    /// Whether all threads are through.
    pub fn is_over(&self) -> bool {
        self.threads.iter().all(|thread| thread.pc == END)
    }

    /// Waiting threads, the eldest first.
    pub fn waiters(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.queue;
        std::iter::from_fn(move || {
            let number = left & 7;
            left >>= NUMBER_BITS;
            (number != 0).then(|| usize::from(number) - 1)
        })
    }

    /// Puts a thread in before all waiters that `behind` names; otherwise behind all.
    pub fn enqueue(&mut self, index: usize, behind: impl Fn(usize) -> bool) {
        let mut before = self.waiters().take_while(|other| !behind(*other)).count() * NUMBER_BITS;
        let rest = self.queue >> before;
        self.queue &= (1 << before) - 1;
        self.queue |= (index as u16 + 1) << before;
        before += NUMBER_BITS;
        self.queue |= rest << before;
    }

    /// Takes a thread out, if it is there.
    pub fn unlink(&mut self, index: usize) {
        let mut at = 0;
        let waiters = self.waiters();
        self.queue = 0;
        for other in waiters.filter(|other| *other != index) {
            self.queue |= (other as u16 + 1) << at;
            at += NUMBER_BITS;
        }
    }

    pub fn pack(&self) -> Packed {
        let mut packed = Packed::default();
        packed.0[0] = self.memory.0;
        packed.0[1] = u64::from(self.queue) | u64::from(self.freed) << 16;
        let mut at = 0;
        while at < THREADS {
            let thread = &self.threads[at];
            let flags = u64::from(thread.asleep) | u64::from(thread.woken) << 1 | u64::from(thread.inside) << 2;
            // Registers need no more than the lower 50 bits.
            packed.0[2 + 2 * at] = thread.registers.0 | u64::from(thread.pc) << (64 - PC_BITS);
            packed.0[3 + 2 * at] = thread.buffer | u64::from(thread.stored) << 56 | flags << 60;
            at += 1;
        }
        packed
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} queue {:?}", self.memory.all(), self.waiters().collect::<Vec<_>>())
    }
}

const WORDS: usize = 2 + 2 * THREADS;

/// A state as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Packed([u64; WORDS]);

impl Packed {
    pub fn unpack(&self) -> State {
        let mut state = State::new(&[]);
        state.memory = Fields(self.0[0]);
        (state.queue, state.freed) = (self.0[1] as u16, (self.0[1] >> 16) as u16);
        let mut at = 0;
        while at < THREADS {
            let (first, second) = (self.0[2 + 2 * at], self.0[3 + 2 * at]);
            state.threads[at] = Thread {
                pc: (first >> (64 - PC_BITS)) as u16,
                registers: Fields(first & ((1 << (64 - PC_BITS)) - 1)),
                buffer: second & ((1 << 56) - 1),
                stored: (second >> 56 & 7) as u8,
                asleep: second >> 60 & 1 != 0,
                woken: second >> 61 & 1 != 0,
                inside: second >> 62 & 1 != 0,
            };
            at += 1;
        }
        state
    }

    fn hash(&self) -> u64 {
        let mut hash = 0_u64;
        let mut at = 0;
        while at < WORDS {
            // The multiplier of splitmix64's second round: any odd number with mixed bits does.
            hash = (hash ^ self.0[at]).wrapping_mul(0x94d0_49bb_1331_11eb);
            hash ^= hash >> 29;
            at += 1;
        }
        hash
    }
}

/// The states seen, in the order in which they were found.
#[derive(Default)]
pub struct Table {
    states: Vec<Packed>,
    parents: Vec<u32>,
    /// Open addressing: number of a state plus 1, or 0.
    slots: Vec<u32>,
}

impl Table {
    pub fn len(&self) -> usize {
        self.states.len()
    }

    pub fn get(&self, at: usize) -> &Packed {
        &self.states[at]
    }

    /// From which state it was first found, unless it is a first one.
    pub fn parent(&self, at: usize) -> Option<usize> {
        let parent = self.parents[at] as usize;
        (parent != at).then_some(parent)
    }

    /// The number of the state, new or known. A first state has no parent.
    pub fn insert(&mut self, state: Packed, parent: Option<usize>) -> u32 {
        if self.states.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut slot = state.hash() as usize & mask;
        while self.slots[slot] != 0 {
            let known = self.slots[slot] - 1;
            if self.states[known as usize].0 == state.0 {
                return known;
            }
            slot = (slot + 1) & mask;
        }
        let number = self.states.len() as u32;
        self.states.push(state);
        self.parents.push(parent.map_or(number, |parent| parent as u32));
        self.slots[slot] = number + 1;
        number
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 4).max(1024);
        self.slots = vec![0; slots];
        for number in 0..self.states.len() {
            let mut slot = self.states[number].hash() as usize & (slots - 1);
            while self.slots[slot] != 0 {
                slot = (slot + 1) & (slots - 1);
            }
            self.slots[slot] = number as u32 + 1;
        }
    }
}

/// A node of `nodes` from which none of `ends` is reached; `edges` are given as (to, from).
pub fn unreached(nodes: usize, edges: Vec<(u32, u32)>, ends: Vec<u32>) -> Option<usize> {
    // Edges grouped by their target: when all are placed, those of `to` are at `starts[to]..starts[to + 1]`.
    let mut starts = vec![0_u32; nodes + 2];
    for (to, _) in &edges {
        starts[*to as usize + 2] += 1;
    }
    for at in 2..starts.len() {
        starts[at] += starts[at - 1];
    }
    let mut sources = vec![0_u32; edges.len()];
    for (to, from) in edges {
        let place = &mut starts[to as usize + 1];
        sources[*place as usize] = from;
        *place += 1;
    }
    let mut reached = vec![false; nodes];
    let mut open = ends;
    for end in &open {
        reached[*end as usize] = true;
    }
    while let Some(to) = open.pop() {
        for at in starts[to as usize]..starts[to as usize + 1] {
            let from = sources[at as usize] as usize;
            if !reached[from] {
                reached[from] = true;
                open.push(from as u32);
            }
        }
    }
    reached.iter().position(|reached| !reached)
}
