//! The ring of the latest waits that ended.

use super::layout::{Section, event, header};
use super::segment;
use crate::sync::{AtomicU64, Ordering, fence};

/// Shorter waits are no events, ns: they are too many to be shown one by one, and the ring's one counter would be one more
/// word that all threads write.
pub const SHORTEST_NS: u64 = 5_000;

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Outcome {
    /// The lock was had.
    Acquired = 0,
    /// Its former holder gave it.
    HandedOver = 1,
    /// It was given up.
    TimedOut = 2,
    /// A signal's handler ended it.
    Interrupted = 3,
}

/// Notes a wait for lock `id` by thread `ident`.
pub fn note(id: u64, ident: u64, started_ns: u64, duration_ns: u64, outcome: Outcome) {
    if duration_ns < SHORTEST_NS {
        return;
    }
    let Some(segment) = segment::existing() else { return };
    let number = segment.word(header::EVENTS).fetch_add(1, Ordering::Relaxed);
    let at = (number % segment.capacity(Section::Events) as u64) as usize;
    // SAFETY: a record of the section: as many atomics, never unmapped.
    let words: &[AtomicU64; event::WORDS] = unsafe { &*segment.record(Section::Events, at).cast() };
    words[event::SEQUENCE].store(0, Ordering::Relaxed);
    fence(Ordering::Release); // pairs with: the reader's second look
    words[event::LOCK].store(id, Ordering::Relaxed);
    words[event::IDENT].store(ident, Ordering::Relaxed);
    words[event::STARTED_NS].store(started_ns, Ordering::Relaxed);
    words[event::DURATION_NS].store(duration_ns, Ordering::Relaxed);
    words[event::OUTCOME].store(outcome as u64, Ordering::Relaxed);
    words[event::SEQUENCE].store(number + 1, Ordering::Release); // pairs with: the reader's first look
}
