//! One record of words per thread that ever waited, or that others waited for.
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | 0 | native id of the thread, 0 = record free | claim, release, the forked child |
//! | 1 | generation: threads that held this record before | release |
//! | 2 ... | payload: what the locks remember of the thread, then what the thread is doing; all zero when claimed | its thread, relaxed |
//!
//! A thread claims a record at its first contended wait and gives it back when it ends. Nothing here takes a lock of ours, so
//! that a wait may claim after `fork` and while its thread is being torn down. A thread's first claim allocates (its
//! destructor), so it is not for signal handlers; later ones only load a thread-local.

use core::cell::Cell;
use core::ptr;

use super::layout::{Section, header, thread};
use super::segment::{self, Segment, write_name};
use crate::machine;
use crate::sync::{AtomicU64, Ordering};

/// Words of payload per record.
pub const PAYLOAD_WORDS: usize = thread::WORDS - thread::PAYLOAD;

/// The state of one thread.
#[repr(C, align(128))] // two lines: adjacent-line prefetch would couple neighbours
#[derive(Debug)]
pub struct ThreadRecord {
    owner: AtomicU64,
    generation: AtomicU64,
    payload: [AtomicU64; PAYLOAD_WORDS],
}

const _: () = assert!(size_of::<ThreadRecord>() == thread::WORDS * 8);

/// What a thread is doing, in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Doing {
    /// It does not wait for a lock.
    Running = 0,
    /// It waits, awake.
    Spinning = 1,
    /// It waits, asleep.
    Parked = 2,
}

impl ThreadRecord {
    /// Native id of the thread that owns the record, 0 if it is free.
    pub fn native_id(&self) -> u64 {
        // pairs with: the release store in `clear_and_free`, so that a claimed record's words are seen zero.
        self.owner.load(Ordering::Acquire)
    }

    /// How many threads owned the record before.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Payload word `index`, relaxed.
    #[inline]
    pub fn get(&self, index: usize) -> u64 {
        self.payload[index].load(Ordering::Relaxed)
    }

    /// Replaces payload word `index`, relaxed. For the owning thread.
    #[inline]
    pub fn set(&self, index: usize, value: u64) {
        self.payload[index].store(value, Ordering::Relaxed);
    }

    fn add(&self, index: usize, amount: u64) {
        self.set(index, self.get(index).wrapping_add(amount));
    }

    /// Whether others named this thread, which has not waited itself.
    fn is_foreign(&self) -> bool {
        self.get(thread::FLAGS) & thread::FOREIGN != 0
    }

    /// Begins a wait for lock `id`; `ident` is how Python calls the thread, 0 if the caller does not know. For the owning
    /// thread.
    pub fn begin_wait(&self, ident: u64, id: u64, now_ns: u64) {
        if ident != 0 {
            self.set(thread::IDENT, ident);
        }
        self.set(thread::WAITING_SINCE, now_ns);
        self.set(thread::WAITING_ON, id);
        self.set(thread::STATE, Doing::Spinning as u64);
    }

    /// Ends a wait. For the owning thread.
    pub fn end_wait(&self, ns: u64, parks: u32, polls: u64) {
        self.set(thread::STATE, Doing::Running as u64);
        self.set(thread::WAITING_ON, 0);
        let waits = self.get(thread::WAITS);
        self.set(thread::RECENT_NS + (waits % thread::RECENT as u64) as usize, ns);
        self.set(thread::WAITS, waits.wrapping_add(1));
        self.add(thread::WAIT_NS, ns);
        self.add(thread::PARKS, parks.into());
        self.add(thread::POLLS, polls);
    }

    /// Names the thread.
    fn set_name(&self, ident: u64, name: &str, foreign: bool) {
        self.set(thread::IDENT, ident);
        let cut = write_name(&|index, word| self.set(thread::NAME + index, word), name);
        let flags = if foreign { thread::FOREIGN } else { 0 } | if cut { thread::NAME_CUT } else { 0 };
        self.set(thread::FLAGS, flags);
    }

    fn clear(&self) {
        for word in &self.payload {
            word.store(0, Ordering::Relaxed);
        }
        self.generation.store(self.generation.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // pairs with: the acquire load in `native_id`.
        self.owner.store(0, Ordering::Release);
    }

    fn clear_and_free(&self) {
        self.clear();
        if let Some(segment) = segment::existing() {
            if let Some(index) = segment.index_of(Section::Threads, ptr::from_ref(self).cast()) {
                segment.give_back(Section::Threads, thread::PAYLOAD + thread::NEXT_FREE, index);
            }
        }
    }
}

fn record(segment: Segment, index: usize) -> &'static ThreadRecord {
    // SAFETY: a record of the section, which has this type's size and alignment, is never unmapped, and consists of atomics.
    unsafe { &*segment.record(Section::Threads, index).cast() }
}

fn claim(native_id: u64) -> Option<&'static ThreadRecord> {
    let segment = segment::segment()?;
    let Some(index) = segment.claim(Section::Threads, thread::PAYLOAD + thread::NEXT_FREE) else {
        segment.dropped(header::DROPPED_THREADS);
        return None;
    };
    let record = record(segment, index);
    record.set(thread::NEXT_FREE, 0);
    record.owner.store(native_id, Ordering::Release);
    Some(record)
}

/// Gives the thread's record back when the thread ends.
struct GiveBack;

impl Drop for GiveBack {
    fn drop(&mut self) {
        if let Ok(Some(record)) = HELD.try_with(Cell::take) {
            named::forget(record.get(thread::IDENT));
            record.clear_and_free();
        }
    }
}

thread_local! {
    /// The calling thread's record. Without a destructor, so that looking never registers one, which would allocate.
    static HELD: Cell<Option<&'static ThreadRecord>> = const { Cell::new(None) };
    static GIVE_BACK: GiveBack = const { GiveBack };
}

#[inline]
fn held() -> Option<&'static ThreadRecord> {
    HELD.try_with(Cell::get).ok().flatten()
}

/// The calling thread's record, claimed at the first call. `None` when all records are taken or the thread is being torn
/// down: the caller then does without memory of earlier waits.
#[inline]
pub fn current() -> Option<&'static ThreadRecord> {
    held().or_else(claim_once)
}

#[cold]
fn claim_once() -> Option<&'static ThreadRecord> {
    // Not once the destructor has run: nobody would give the record back.
    GIVE_BACK.try_with(|_| ()).ok()?;
    let record = claim(machine::thread_id())?;
    if let Some(first) = held() {
        // A signal handler waited meanwhile, and claimed.
        record.clear_and_free();
        return Some(first);
    }
    let _ = HELD.try_with(|held| held.set(Some(record)));
    Some(record)
}

/// All records that a live thread of this process owns.
pub fn live() -> impl Iterator<Item = &'static ThreadRecord> {
    let segment = segment::existing();
    let used = segment.map_or(0, |segment| segment.used(Section::Threads));
    (0..used)
        .filter_map(move |index| segment.map(|segment| record(segment, index)))
        .filter(|record| record.native_id() != 0 && !record.is_foreign())
}

/// Threads that went without a record because all were taken.
pub fn unrecorded() -> u64 {
    segment::existing().map_or(0, |segment| segment.word(header::DROPPED_THREADS).load(Ordering::Relaxed))
}

/// Has the calling thread's place for its record made, if it is not there.
pub(super) fn touch() {
    let _ = held();
}

/// Number of the calling thread's record, for a forked child.
pub(super) fn own_index(segment: Segment) -> Option<usize> {
    held().and_then(|own| segment.index_of(Section::Threads, ptr::from_ref(own).cast()))
}

/// In a forked child only the forking thread lives, under a new native id: the records of the others are free.
pub(super) fn keep_own(segment: Segment) {
    let own = own_index(segment);
    named::forget_all();
    let free = |index: usize| {
        let record = record(segment, index);
        // What a fresh segment has is zero: its pages are not touched without need.
        if record.native_id() != 0 {
            record.clear();
        }
    };
    (0..segment.used(Section::Threads)).filter(|&index| own != Some(index)).for_each(free);
    segment.free_list(Section::Threads).store(0, Ordering::Relaxed);
    segment.set_used(Section::Threads, own.map_or(0, |own| own + 1));
    for index in 0..own.unwrap_or(0) {
        segment.give_back(Section::Threads, thread::PAYLOAD + thread::NEXT_FREE, index);
    }
    if let Some(own) = own {
        record(segment, own).owner.store(machine::thread_id(), Ordering::Relaxed);
    }
}

/// Names of threads: what a binding knows, and this crate does not.
pub mod named {
    use super::{Ordering, claim, held, thread};
    use crate::sync::AtomicU64;

    /// Threads whose names are known, by ident: a place is `(ident, when it was looked up, record + 1)`. A place that another
    /// thread takes is looked up again, that is all.
    const PLACES: usize = 256;
    /// How long a name is believed, ns: idents are used again, and threads are renamed.
    const BELIEVED_NS: u64 = 1_000_000_000;

    struct Place {
        ident: AtomicU64,
        at_ns: AtomicU64,
        /// Address of a record that was claimed for a thread that has not waited itself.
        record: AtomicU64,
    }

    static TABLE: [Place; PLACES] =
        [const { Place { ident: AtomicU64::new(0), at_ns: AtomicU64::new(0), record: AtomicU64::new(0) } }; PLACES];

    fn place(ident: u64) -> &'static Place {
        // Fibonacci hashing (Knuth, TAOCP 6.4).
        &TABLE[(ident.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize % PLACES]
    }

    /// Whether somebody should look up what the thread `ident` is called. Says so once a second at most.
    pub fn is_wanted(ident: u64, now_ns: u64) -> bool {
        let place = place(ident);
        if ident == 0
            || (place.ident.load(Ordering::Relaxed) == ident
                && now_ns.saturating_sub(place.at_ns.load(Ordering::Relaxed)) < BELIEVED_NS)
        {
            return false;
        }
        place.at_ns.store(now_ns, Ordering::Relaxed);
        place.ident.store(ident, Ordering::Relaxed);
        true
    }

    /// Whether somebody should look up what the calling thread is called. Says so once a second at most.
    pub fn is_wanted_here(now_ns: u64) -> bool {
        held().is_some_and(|record| {
            let wanted = now_ns >= record.get(thread::ASK_AGAIN);
            if wanted {
                record.set(thread::ASK_AGAIN, now_ns + BELIEVED_NS);
            }
            wanted
        })
    }

    /// Names the calling thread, if it has a record.
    pub fn name_self(ident: u64, name: &str) {
        if let Some(record) = held() {
            free_foreign(place(ident));
            record.set_name(ident, name, false);
        }
    }

    /// Names another thread, which holds what somebody waits for.
    pub fn name_other(ident: u64, native_id: u64, name: &str) {
        if native_id == 0 || super::live().any(|record| record.native_id() == native_id) {
            return;
        }
        let place = place(ident);
        if let Some(record) = foreign(place) {
            if record.native_id() == native_id {
                record.set_name(ident, name, true);
                return;
            }
        }
        free_foreign(place);
        if let Some(record) = claim(native_id) {
            record.set_name(ident, name, true);
            let former = place.record.swap(core::ptr::from_ref(record).addr() as u64, Ordering::AcqRel);
            free(former);
        }
    }

    fn foreign(place: &Place) -> Option<&'static super::ThreadRecord> {
        let address = place.record.load(Ordering::Acquire);
        // SAFETY: only addresses of records are stored, which are never unmapped.
        unsafe { (address as usize as *const super::ThreadRecord).as_ref() }
    }

    fn free_foreign(place: &Place) {
        free(place.record.swap(0, Ordering::AcqRel));
    }

    fn free(address: u64) {
        // SAFETY: as in `foreign`; the swap made it ours alone.
        if let Some(record) = unsafe { (address as usize as *const super::ThreadRecord).as_ref() } {
            record.clear_and_free();
        }
    }

    /// The thread ends.
    pub(super) fn forget(ident: u64) {
        let place = place(ident);
        if place.ident.load(Ordering::Relaxed) == ident {
            place.ident.store(0, Ordering::Relaxed);
        }
    }

    /// In a forked child.
    pub(super) fn forget_all() {
        for place in &TABLE {
            place.ident.store(0, Ordering::Relaxed);
            place.record.store(0, Ordering::Relaxed);
        }
    }
}

/// The calling thread goes to sleep for a lock, or wakes.
#[inline]
pub(crate) fn now_doing(doing: Doing) {
    if let Some(record) = held() {
        record.set(thread::STATE, doing as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_record_and_gives_it_back_clean() {
        let (first, generation) = std::thread::spawn(|| {
            let record = current().unwrap();
            assert!(ptr::eq(record, current().unwrap()));
            assert_eq!(record.native_id(), machine::thread_id());
            record.set(5, 77);
            (record, record.generation())
        })
        .join()
        .unwrap();
        // Given back by the thread-local's destructor, which may run a moment after join on some platforms' threads.
        for _ in 0..1_000 {
            if first.generation() > generation {
                break;
            }
            std::thread::yield_now();
        }
        assert!(first.generation() > generation);
        assert_eq!(first.get(5), 0);
    }

    /// Whichever of a thread's destructors runs last, it leaves no record behind.
    #[test]
    fn a_thread_that_looks_while_it_ends_leaves_no_record() {
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                current();
            }
        }
        thread_local!(static LATE: Late = const { Late });
        let id = std::thread::spawn(|| {
            LATE.with(|_| current().unwrap().native_id()) // registered first, so run last where the order is kept
        })
        .join()
        .unwrap();
        for _ in 0..1_000 {
            if live().all(|record| record.native_id() != id) {
                return;
            }
            std::thread::yield_now();
        }
        panic!("a thread that ended still has a record");
    }

    #[test]
    fn live_threads_have_records_of_their_own() {
        let barrier = std::sync::Barrier::new(9);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    current().unwrap().set(0, machine::thread_id());
                    barrier.wait();
                    barrier.wait();
                });
            }
            barrier.wait();
            let mut ids: Vec<_> = live().filter(|r| r.get(0) == r.native_id()).map(ThreadRecord::native_id).collect();
            ids.sort_unstable();
            ids.dedup();
            assert!(ids.len() >= 8, "{ids:?}");
            barrier.wait();
        });
    }
}
