//! The native part of a `TicketLock` object.

use core::ptr;

use ticketlock::policy::LockKey;
use ticketlock::telemetry::layout::Kind;
use ticketlock::{Backoff, TicketLock, Tuning, lock};

use super::observed::{Observed, Who};
use super::watch::Pending;
use crate::sync::{AtomicPtr, AtomicU32, Ordering};

/// One lock, with what is known of it.
#[repr(C)]
pub(super) struct State {
    pub(super) lock: TicketLock,
    /// Counts on where 32-bit tickets wrap (43 s at 100 million acquisitions a second).
    pub(super) observed: Observed,
    /// A delay report to be handed over after the release. Stored by the holder.
    pending: AtomicPtr<Pending>,
    /// Unique in the process, never used again.
    pub(super) id: u64,
    generation: AtomicU32,
    pub(super) tuning: Tuning,
}

impl State {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self {
            lock: TicketLock::new(),
            observed: Observed::new(),
            pending: AtomicPtr::new(ptr::null_mut()),
            id: lock::next_lock_id(),
            generation: AtomicU32::new(0),
            tuning: Tuning::new(backoff),
        }
    }

    /// The lock as delay tables know it.
    pub(super) fn key(&self) -> LockKey {
        LockKey::new(ptr::from_ref(&self.lock) as u64, self.id, self.generation.load(Ordering::Relaxed) as u16)
    }

    /// Who it is, for its record.
    pub(super) fn who(&self) -> Who<'static> {
        Who { id: self.id, kind: Kind::TicketLock, name: None }
    }

    /// Whether a report waits for the release.
    #[inline]
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.load(Ordering::Relaxed).is_null()
    }

    /// Leaves a report for the release. For the holder.
    pub(super) fn put_pending(&self, pending: Box<Pending>) {
        let former = self.pending.swap(Box::into_raw(pending), Ordering::AcqRel);
        if !former.is_null() {
            // SAFETY: every non-null pointer in the slot came from `Box::into_raw`, and the swap made it ours alone.
            drop(unsafe { Box::from_raw(former) });
        }
    }

    /// Takes the report. A swap: on a free-threaded interpreter two threads may wrongly release at once.
    pub(super) fn take_pending(&self) -> Option<Box<Pending>> {
        let pending = self.pending.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: as in `put_pending`.
        (!pending.is_null()).then(|| unsafe { Box::from_raw(pending) })
    }

    /// Back to unlocked, as a lock of the next generation: delays learnt before no longer belong to it.
    ///
    /// # Safety
    /// No other thread uses the lock: this is a forked child, or nobody waits or holds.
    pub(super) unsafe fn reset(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.lock.reset() };
        self.generation.store(self.generation.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        drop(self.take_pending());
        self.observed.reset();
    }
}

impl Drop for State {
    /// A lock may go while it is held, with its report.
    fn drop(&mut self) {
        drop(self.take_pending());
    }
}
