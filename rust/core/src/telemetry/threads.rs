//! One record of words per thread that ever waited.
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | 0 | native id of the thread, 0 = record free | claim (CAS), release, the forked child |
//! | 1 | generation: threads that held this record before | release |
//! | 2 ... | payload, the claimer's to define; all zero when claimed | its thread, relaxed |
//!
//! A thread claims a record at its first contended wait and gives it back when it ends. Nothing here takes a lock of ours, so
//! that a wait may claim after `fork` and while its thread is being torn down. A thread's first claim allocates (its
//! destructor, now and then a chunk), so it is not for signal handlers; later ones only load a thread-local.

use core::cell::Cell;
use core::ptr;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use crate::machine;
use crate::sync::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

/// Words of payload per record. 254 and the two words of header make 2 KiB.
pub const PAYLOAD_WORDS: usize = 254;

/// Records per chunk: 32 KiB, cleared in a few microseconds by the first thread that waits, while it waits.
const CHUNK_RECORDS: usize = 16;

/// Chunks at most: 8,192 threads with records at one time; later ones go without, and are counted in [`unrecorded`].
const MAX_CHUNKS: usize = 512;

/// The state of one thread.
#[repr(C, align(128))] // two lines: adjacent-line prefetch would couple neighbours
#[derive(Debug)]
pub struct ThreadRecord {
    owner: AtomicU64,
    generation: AtomicU64,
    payload: [AtomicU64; PAYLOAD_WORDS],
}

type Chunk = [ThreadRecord; CHUNK_RECORDS];

static CHUNKS: [AtomicPtr<Chunk>; MAX_CHUNKS] = [const { AtomicPtr::new(ptr::null_mut()) }; MAX_CHUNKS];
static UNRECORDED: AtomicU64 = AtomicU64::new(0);
static FORK_HANDLER: AtomicU8 = AtomicU8::new(0);

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

    fn clear_and_free(&self) {
        for word in &self.payload {
            word.store(0, Ordering::Relaxed);
        }
        self.generation.store(self.generation.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // pairs with: the acquire CAS in `claim` and the acquire load in `native_id`.
        self.owner.store(0, Ordering::Release);
    }
}

fn chunk(slot: &AtomicPtr<Chunk>) -> Option<&'static Chunk> {
    // pairs with: the release CAS in `grow`.
    // SAFETY: a non-null pointer came from `grow`, zeroed (valid atomics), and is never freed.
    unsafe { slot.load(Ordering::Acquire).as_ref() }
}

fn grow(slot: &AtomicPtr<Chunk>) -> &'static Chunk {
    let layout = Layout::new::<Chunk>();
    // Zeroed memory straight from the allocator: building 32 KiB on the stack first would overflow small thread stacks.
    #[allow(clippy::cast_ptr_alignment)] // the layout is the chunk's own, so the memory is aligned for it
    // SAFETY: the layout has a size; all-zero words are valid atomics; allocation failure is handled.
    let fresh = unsafe { alloc_zeroed(layout) }.cast::<Chunk>();
    if fresh.is_null() {
        handle_alloc_error(layout);
    }
    // pairs with: the acquire load in `chunk`.
    match slot.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: published just now and never freed.
        Ok(_) => unsafe { &*fresh },
        Err(theirs) => {
            // SAFETY: `fresh` was not published, so it is ours alone; `theirs` was published and is never freed.
            unsafe {
                dealloc(fresh.cast(), layout);
                &*theirs
            }
        }
    }
}

fn claim() -> Option<&'static ThreadRecord> {
    register_fork_handler();
    let native_id = machine::thread_id();
    for slot in &CHUNKS {
        let chunk = chunk(slot).unwrap_or_else(|| grow(slot));
        for record in chunk {
            if record.owner.load(Ordering::Relaxed) == 0
                // pairs with: the release store in `clear_and_free`.
                && record.owner.compare_exchange(0, native_id, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Some(record);
            }
        }
    }
    UNRECORDED.fetch_add(1, Ordering::Relaxed);
    None
}

/// Gives the thread's record back when the thread ends.
struct GiveBack;

impl Drop for GiveBack {
    fn drop(&mut self) {
        if let Ok(Some(record)) = HELD.try_with(Cell::take) {
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
    let record = claim()?;
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
    CHUNKS.iter().map_while(chunk).flatten().filter(|record| record.native_id() != 0)
}

/// Threads that went without a record because all were taken.
pub fn unrecorded() -> u64 {
    UNRECORDED.load(Ordering::Relaxed)
}

/// In a forked child only the forking thread lives, under a new native id: free the records of the others.
#[cfg(unix)]
fn register_fork_handler() {
    extern "C" fn in_child() {
        let own = held();
        for record in live() {
            if own.is_some_and(|own| ptr::eq(own, record)) {
                record.owner.store(machine::thread_id(), Ordering::Relaxed);
            } else {
                record.clear_and_free();
            }
        }
    }
    if FORK_HANDLER.load(Ordering::Relaxed) == 0
        && FORK_HANDLER.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        // SAFETY: the handler only stores to atomics of never-freed memory, reads a thread-local without destructor and calls
        // gettid; it takes no lock and does not allocate, as a child of a threaded process must not (at most the C library
        // sets up this library's thread-locals). On failure (no memory) children show dead threads.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

#[cfg(not(unix))]
fn register_fork_handler() {
    let _ = &FORK_HANDLER;
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
