//! The memory that a process reports in: one mapping at one address for as long as the process lives.
//!
//! | backing | found by readers through | where |
//! |---|---|---|
//! | sealed `memfd` | the process's open files; gone with it, writable by nobody else | Linux |
//! | file in the user's own folder | its name; kept locked while the process lives | other Unix systems, or where there is no `memfd` |
//! | private memory | nothing: in-process statistics only | elsewhere, where all else fails, or when told so |
//!
//! Whichever it is, records are claimed and written in the same way, so switching it off changes no path of a lock. A
//! failure to export never disturbs the program: the next backing is taken.
//!
//! A forked child gets a segment of its own at the same address, with the identities but not the counts of its parent's, so
//! that pointers into it stay good and the parent's counts stay its own.

use core::ptr;

use super::layout::{self, HEADER_BYTES, SECTIONS, Section, Size, counters, flags, header, lock, site, thread};
use crate::machine;
use crate::machine::env::{self, TelemetryMode};
use crate::sync::global::{AtomicBool, AtomicU32};
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
use backing::Backing;

#[cfg_attr(unix, path = "backing_unix.rs")]
#[cfg_attr(not(unix), path = "backing_private.rs")]
mod backing;

/// The mapping, once it is made, with its size in the lowest bit (it begins on a page); never unmapped.
static BASE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// As [`state`] reads it. Written once `BASE` is, and in a forked child.
static STATE: AtomicU32 = AtomicU32::new(0);
/// Which segment of the process this is, counted from 1; a forked child has another one.
static EPOCH: AtomicU64 = AtomicU64::new(1);
/// Records of locks that were in use when this process last began to fork. In private memory, unlike the segment, which the
/// parent goes on to change while its child looks.
static LOCKS_AT_FORK: AtomicU32 = AtomicU32::new(0);
/// Bit of `BASE`: the segment is of the small size.
const SMALL: usize = 1;

/// How the segment can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nobody has waited yet, and [`init`] was not called.
    NotYet,
    /// Through the process's open files.
    Memfd,
    /// By a file's name.
    File,
    /// Not at all: told so, or nothing else worked.
    Private,
}

/// What [`init`] is told about the program, for readers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Program<'a> {
    /// The interpreter's version.
    pub python: &'a str,
    /// It was built without a GIL.
    pub free_threaded: bool,
}

/// Which segment of the process this is.
#[must_use]
pub fn epoch() -> u64 {
    EPOCH.load(Ordering::Relaxed)
}

/// How the segment can be found, now.
#[must_use]
pub fn state() -> State {
    match STATE.load(Ordering::Relaxed) {
        0 => State::NotYet,
        1 => State::Memfd,
        2 => State::File,
        _ => State::Private,
    }
}

/// Whether a program was written down.
static KNOWN: AtomicBool = AtomicBool::new(false);

/// Makes the segment, and writes down what program this is.
pub fn init(program: &Program<'_>) {
    let Some(segment) = segment() else { return };
    segment.set_text(header::PYTHON, program.python);
    segment.set_flag(flags::FREE_THREADED, program.free_threaded);
    // Once: a further interpreter does not take back what the program has switched since.
    if !KNOWN.swap(true, Ordering::Relaxed) {
        segment.set_flag(flags::SITES, env::overrides().sites == Some(true));
    }
}

/// The segment, for writers. `Copy`: an address.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    base: *mut AtomicU64,
    size: Size,
}

/// The segment, made at first use. `None` where there is not even private memory.
#[inline]
pub(crate) fn segment() -> Option<Segment> {
    // pairs with: the release exchange in `create`.
    let base = BASE.load(Ordering::Acquire);
    if base.is_null() { create() } else { Some(at(base)) }
}

/// The segment if it is there.
#[inline]
pub(crate) fn existing() -> Option<Segment> {
    // pairs with: the release exchange in `create`.
    let base = BASE.load(Ordering::Acquire);
    (!base.is_null()).then(|| at(base))
}

/// A segment from a value of `BASE`.
#[inline]
fn at(base: *mut AtomicU64) -> Segment {
    let size = if base.addr() & SMALL == 0 { Size::Large } else { Size::Small };
    Segment { base: base.map_addr(|address| address & !SMALL), size }
}

/// A segment in fresh memory, which is not `BASE` yet.
fn tagged(base: *mut u8, size: Size) -> Segment {
    Segment { base: base.cast(), size }
}

#[cold]
fn create() -> Option<Segment> {
    let (made, state) = make()?;
    let mut base: *mut AtomicU64 = made.base.cast();
    write_header(tagged(made.base, made.size));
    if made.size == Size::Small {
        base = base.map_addr(|address| address | SMALL);
    }
    // pairs with: the acquire loads above.
    match BASE.compare_exchange(ptr::null_mut(), base, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            made.publish();
            STATE.store(state, Ordering::Relaxed);
            register_fork_handler();
            Some(at(base))
        }
        Err(first) => {
            made.discard();
            Some(at(first))
        }
    }
}

/// The best backing that can be had.
fn make() -> Option<(Backing, u32)> {
    let mode = env::overrides().telemetry;
    let mut made = None;
    if mode == TelemetryMode::Auto {
        made = backing::memfd(Size::Large).map(|backing| (backing, 1));
    }
    if made.is_none() && mode != TelemetryMode::Off {
        made = backing::file(Size::Small).map(|backing| (backing, 2));
    }
    made.or_else(|| backing::private().map(|backing| (backing, 3)))
}

fn write_header(segment: Segment) {
    let set = |word: usize, value: u64| segment.word(word).store(value, Ordering::Relaxed);
    set(header::VERSION, u64::from(layout::MAJOR) << 32 | u64::from(layout::MINOR));
    set(header::BYTE_ORDER, layout::BYTE_ORDER);
    set(header::LENGTH, HEADER_BYTES as u64);
    set(header::SIZE, segment.size.bytes() as u64);
    set(header::SECTIONS, SECTIONS.len() as u64);
    set(header::CLOCK, u64::from(cfg!(any(target_os = "linux", target_os = "android"))));
    for section in SECTIONS {
        let entry = section.entry();
        set(entry, section as u64 + 1);
        set(entry + 1, section.offset(segment.size) as u64);
        set(entry + 2, section.stride() as u64);
        set(entry + 3, section.capacity(segment.size) as u64);
    }
    segment.set_used(Section::Sites, 1); // number 0: nobody looked
    segment.set_text(header::LIBRARY, env!("CARGO_PKG_VERSION"));
    write_process(segment);
    // Last, for readers that find a segment being made.
    segment.word(header::MAGIC).store(layout::MAGIC, Ordering::Release);
}

fn write_process(segment: Segment) {
    let set = |word: usize, value: u64| segment.word(word).store(value, Ordering::Relaxed);
    set(header::PID, u64::from(std::process::id()));
    set(header::START_TICKS, backing::start_ticks());
    set(header::CREATED_NS, machine::clock::now_ns());
}

impl Segment {
    /// Word `index` of the segment.
    #[inline]
    pub(crate) fn word(self, index: usize) -> &'static AtomicU64 {
        debug_assert!(index < self.size.bytes() / 8);
        // SAFETY: callers stay within the segment (section offsets and indexes below capacities; checked in debug builds), which
        // is mapped for good, and whose bytes are valid atomics. The pointer came from the mapping, so it may go anywhere in it.
        unsafe { &*self.base.add(index) }
    }

    /// First word of record `index` of a section, as a pointer to as many words as the record has.
    #[inline]
    pub(crate) fn record(self, section: Section, index: usize) -> *const AtomicU64 {
        debug_assert!(index < self.capacity(section));
        self.base.wrapping_add((section.offset(self.size) + index * section.stride()) / 8)
    }

    /// Number of a record of a section; `None` if the address is not in it.
    pub(crate) fn index_of(self, section: Section, record: *const AtomicU64) -> Option<usize> {
        let offset = record.addr().checked_sub(self.base.addr() + section.offset(self.size))?;
        let index = offset / section.stride();
        (index < self.capacity(section)).then_some(index)
    }

    pub(crate) fn capacity(self, section: Section) -> usize {
        section.capacity(self.size)
    }

    /// Records of a section used so far; some may be free again.
    pub(crate) fn used(self, section: Section) -> usize {
        (self.word(section.entry() + 4).load(Ordering::Acquire) as usize).min(self.capacity(section))
    }

    /// Says so of a segment that nobody else uses yet.
    pub(crate) fn set_used(self, section: Section, records: usize) {
        self.word(section.entry() + 4).store(records as u64, Ordering::Relaxed);
    }

    /// The next record that was never used, if there is one.
    pub(crate) fn take_fresh(self, section: Section, count: usize) -> Option<usize> {
        let used = self.word(section.entry() + 4);
        let mut now = used.load(Ordering::Relaxed);
        loop {
            let next = now as usize + count;
            if next > self.capacity(section) {
                return None;
            }
            match used.compare_exchange_weak(now, next as u64, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(now as usize),
                Err(other) => now = other,
            }
        }
    }

    /// The section's list of free records: the number of the first one + 1 in the low half, a count against the same number
    /// coming back in the high half.
    pub(crate) fn free_list(self, section: Section) -> &'static AtomicU64 {
        self.word(section.entry() + 5)
    }

    /// A free record of a section: one given back, else one never used. `next_free` is the record's word for the list.
    pub(crate) fn claim(self, section: Section, next_free: usize) -> Option<usize> {
        let list = self.free_list(section);
        // pairs with: the release exchange in `give_back`.
        let mut first = list.load(Ordering::Acquire);
        while first as u32 != 0 {
            let index = (first as u32 - 1) as usize;
            // SAFETY: within the record, which is in the segment.
            let next = unsafe { &*self.record(section, index).add(next_free) }.load(Ordering::Relaxed);
            let new = (next & 0xFFFF_FFFF) | (((first >> 32) + 1) << 32);
            match list.compare_exchange_weak(first, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(other) => first = other,
            }
        }
        self.take_fresh(section, 1)
    }

    /// Puts a record back. The caller has cleared it.
    pub(crate) fn give_back(self, section: Section, next_free: usize, index: usize) {
        let list = self.free_list(section);
        let mut first = list.load(Ordering::Relaxed);
        loop {
            // SAFETY: as in `claim`.
            unsafe { &*self.record(section, index).add(next_free) }.store(first & 0xFFFF_FFFF, Ordering::Relaxed);
            let new = (index as u64 + 1) | (((first >> 32) + 1) << 32);
            // pairs with: the acquire loads in `claim`.
            match list.compare_exchange_weak(first, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }

    /// Counts something for which there was no room, at a word of the header.
    pub(crate) fn dropped(self, word: usize) {
        self.word(word).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn flag(self, flag: u64) -> bool {
        self.word(header::FLAGS).load(Ordering::Relaxed) & flag != 0
    }

    pub(crate) fn set_flag(self, flag: u64, on: bool) {
        let word = self.word(header::FLAGS);
        if on {
            word.fetch_or(flag, Ordering::Relaxed)
        } else {
            word.fetch_and(!flag, Ordering::Relaxed)
        };
    }

    /// Writes an inline text; whether it had to be cut.
    pub(crate) fn set_text(self, word: usize, text: &str) -> bool {
        write_name(&|index, value| self.word(word + index).store(value, Ordering::Relaxed), text)
    }
}

/// Writes a name into [`layout::NAME_WORDS`] words, cut between characters; whether it had to be.
pub(crate) fn write_name(set: &dyn Fn(usize, u64), name: &str) -> bool {
    let mut room = layout::NAME_WORDS * 8 - 1;
    let cut = name.len() > room;
    room = room.min(name.len());
    while !name.is_char_boundary(room) {
        room -= 1;
    }
    let bytes = &name.as_bytes()[..room];
    for index in 0..layout::NAME_WORDS {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(bytes.iter().skip(index * 8)) {
            *to = *from;
        }
        set(index, u64::from_ne_bytes(word));
    }
    cut
}

/// In a forked child only this thread lives: a segment of its own, without the parent's counts and other threads.
pub(crate) fn in_child() {
    let Some(parent) = existing() else { return };
    EPOCH.fetch_add(1, Ordering::Relaxed);
    MOVING.store(false, Ordering::Relaxed); // by a thread that is not here
    let state = STATE.load(Ordering::Relaxed);
    match backing::renew(parent.size, state == 1, &|fresh| copy_identities(parent, tagged(fresh, parent.size))) {
        Some(true) => {}
        // What cannot be exported now is private.
        Some(false) => STATE.store(3, Ordering::Relaxed),
        // There are no addresses for a copy. The very pages, from now on the child's alone, with all that the parent counted.
        None if backing::detach(parent.size) => STATE.store(3, Ordering::Relaxed),
        // Still the parent's: nothing of it may be given to others here.
        None => return,
    }
    super::threads::keep_own(parent);
}

/// What a child keeps: who its locks and sites are, not what was counted.
fn copy_identities(from: Segment, to: Segment) {
    for word in 0..HEADER_BYTES / 8 {
        to.word(word).store(from.word(word).load(Ordering::Relaxed), Ordering::Relaxed);
    }
    for word in header::DROPPED_LOCKS..=header::EVENTS {
        to.word(word).store(0, Ordering::Relaxed);
    }
    write_process(to);
    let copy = |section: Section, index: usize, words: core::ops::Range<usize>| {
        let (from, to) = (from.record(section, index), to.record(section, index));
        for word in words {
            // SAFETY: `words` are those of a record.
            unsafe { (*to.add(word)).store((*from.add(word)).load(Ordering::Relaxed), Ordering::Relaxed) };
        }
    };
    for index in 0..from.used(Section::Sites) {
        copy(Section::Sites, index, site::KEY..site::ACQUISITIONS);
        // Those that live are those that there have been.
        let live = (site::COUNTERS + counters::WAITERS, site::COUNTERS + counters::WAITERS_MAX);
        copy(Section::Sites, index, live.0..live.0 + 1);
        let words = to.record(Section::Sites, index);
        // SAFETY: words of a record.
        unsafe { (*words.add(live.1)).store((*words.add(live.0)).load(Ordering::Relaxed), Ordering::Relaxed) };
    }
    // The parent goes on: what it has registered since is not the child's, and which of its records are free now is not known
    // here. A record that it has given to another lock since is put right at its lock's next wait.
    for index in 0..from.used(Section::Locks).min(LOCKS_AT_FORK.load(Ordering::Relaxed) as usize) {
        copy(Section::Locks, index, lock::OWNER..lock::OWNER + 1);
        copy(Section::Locks, index, lock::GENERATION..lock::NEXT_FREE);
        copy(Section::Locks, index, lock::NAME..lock::COUNTERS);
        // SAFETY: within the record.
        let generation = unsafe { &*to.record(Section::Locks, index).add(lock::GENERATION) };
        // A thread of the parent may be changing it; it does not exist here.
        generation.store(generation.load(Ordering::Relaxed).next_multiple_of(2), Ordering::Relaxed);
    }
    to.free_list(Section::Locks).store(0, Ordering::Relaxed);
    if let Some(own) = super::threads::own_index(from) {
        copy(Section::Threads, own, 0..thread::WORDS);
    }
    let strings = Section::Strings.offset(from.size) / 8;
    for word in strings..strings + from.used(Section::Strings).div_ceil(8) {
        to.word(word).store(from.word(word).load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Somebody moves the segment.
static MOVING: AtomicBool = AtomicBool::new(false);

/// Looks, at most once a second, whether the segment can still be found: a daemon closes all its files. If not, moves to a
/// fresh one. Counts that other threads add while it moves (microseconds; milliseconds with tens of thousands of locks) are lost.
pub fn stay_findable(now_ns: u64) {
    /// Between two looks, ns. Reason: two system calls a second are nothing, and a viewer waits a second for its first frame.
    const EVERY_NS: u64 = 1_000_000_000;
    static NEXT_NS: AtomicU64 = AtomicU64::new(0);
    let next = NEXT_NS.load(Ordering::Relaxed);
    if now_ns < next || STATE.load(Ordering::Relaxed) != 1 || MOVING.swap(true, Ordering::Acquire) {
        return;
    }
    NEXT_NS.store(now_ns + EVERY_NS, Ordering::Relaxed);
    if next != 0 && !backing::is_open() {
        if let Some(old) = existing() {
            let moved = backing::renew(old.size, true, &|fresh| copy_used(old, tagged(fresh, old.size)));
            if moved != Some(true) {
                STATE.store(3, Ordering::Relaxed);
            }
        }
    }
    MOVING.store(false, Ordering::Release);
}

/// Records of each section that are left alone after a move: other threads may have taken them while it was copied.
const TAKEN_MEANWHILE: usize = 64;

/// All that was ever used. What other threads free meanwhile stays unused, and what they take is taken by nobody else.
fn copy_used(from: Segment, to: Segment) {
    let copy = |range: core::ops::Range<usize>| {
        for word in range {
            to.word(word).store(from.word(word).load(Ordering::Relaxed), Ordering::Relaxed);
        }
    };
    copy(0..HEADER_BYTES / 8);
    for section in SECTIONS {
        let begin = section.offset(from.size);
        let records = if section == Section::Events {
            (from.word(header::EVENTS).load(Ordering::Relaxed) as usize).min(from.capacity(section))
        } else {
            from.used(section)
        };
        copy(begin / 8..(begin + records * section.stride()).div_ceil(8));
        if section != Section::Events {
            to.free_list(section).store(0, Ordering::Relaxed);
            let slack = TAKEN_MEANWHILE * if section == Section::Strings { 256 } else { 1 };
            to.set_used(section, (records + slack).min(to.capacity(section)));
        }
    }
}

#[cfg(unix)]
fn register_fork_handler() {
    extern "C" fn before() {
        // A first look at a thread-local may allocate, which the child must not.
        super::threads::touch();
        let used = existing().map_or(0, |segment| segment.used(Section::Locks));
        LOCKS_AT_FORK.store(used as u32, Ordering::Relaxed);
    }
    extern "C" fn child() {
        in_child();
    }
    // SAFETY: the handler stores to memory of ours and makes system calls; it takes no lock and does not allocate, as a child
    // of a threaded process must not. On failure (no memory) children write into their parent's segment.
    unsafe { libc::pthread_atfork(Some(before), None, Some(child)) };
}

#[cfg(not(unix))]
fn register_fork_handler() {}

/// Where the segment's file is, if it has a name.
#[must_use]
pub fn path() -> Option<std::path::PathBuf> {
    (state() == State::File).then(backing::path).flatten()
}

/// The segment's descriptor for a reader of this very process, if it has one.
#[must_use]
pub fn descriptor() -> Option<i32> {
    matches!(state(), State::Memfd | State::File).then(backing::descriptor).flatten()
}
