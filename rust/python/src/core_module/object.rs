//! What a Python lock object holds, and the one accessor that knows where.

use core::cell::UnsafeCell;
#[cfg(not(all(Py_LIMITED_API, Py_GIL_DISABLED)))]
use core::mem::offset_of;
use core::ptr;

use pyo3::ffi;
use ticketlock::policy::LockKey;
use ticketlock::{Backoff, TicketLock, Tuning, lock};

use super::watch::Pending;
#[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
use crate::sync::AtomicUsize;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The native part of a `TicketLock` object.
#[repr(C)]
pub(super) struct State {
    pub(super) lock: TicketLock,
    /// Tickets have 32 bits, which 100 million acquisitions a second use up in 43 s; this counts on. Written by the holder
    /// alone, so a plain load and store are exact.
    acquisitions: AtomicU64,
    /// A delay report to be handed over after the release. Stored by the holder.
    pending: AtomicPtr<Pending>,
    /// Head of the list of weak references; the interpreter's.
    weak_references: UnsafeCell<*mut ffi::PyObject>,
    /// Unique in the process, never used again.
    pub(super) id: u64,
    generation: AtomicU32,
    pub(super) tuning: Tuning,
}

impl State {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self {
            lock: TicketLock::new(),
            acquisitions: AtomicU64::new(0),
            pending: AtomicPtr::new(ptr::null_mut()),
            weak_references: UnsafeCell::new(ptr::null_mut()),
            id: lock::next_lock_id(),
            generation: AtomicU32::new(0),
            tuning: Tuning::new(backoff),
        }
    }

    /// The lock as delay tables know it.
    pub(super) fn key(&self) -> LockKey {
        LockKey::new(ptr::from_ref(&self.lock) as u64, self.id, self.generation.load(Ordering::Relaxed) as u16)
    }

    /// Counts one acquisition. For the holder.
    #[inline]
    pub(super) fn count(&self) {
        self.acquisitions.store(self.acquisitions.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(super) fn acquisitions(&self) -> u64 {
        self.acquisitions.load(Ordering::Relaxed)
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
    }

    pub(super) fn has_weak_references(&self) -> bool {
        // SAFETY: called by the deallocator, when no other thread can reach the object.
        !unsafe { *self.weak_references.get() }.is_null()
    }
}

/// Object layout where the header's size is part of the interface: version-specific builds and abi3.
#[cfg(not(all(Py_LIMITED_API, Py_GIL_DISABLED)))]
#[repr(C)]
struct Object {
    header: ffi::PyObject,
    state: State,
}

/// `basicsize` for the type specification: of the whole object.
#[cfg(not(all(Py_LIMITED_API, Py_GIL_DISABLED)))]
pub(super) const BASIC_SIZE: i32 = size_of::<Object>() as i32;
/// Offset and flags for `__weaklistoffset__`: from the start of the object.
#[cfg(not(all(Py_LIMITED_API, Py_GIL_DISABLED)))]
pub(super) const WEAK_LIST: (isize, i32) =
    ((offset_of!(Object, state) + offset_of!(State, weak_references)) as isize, ffi::Py_READONLY);

/// Under abi3t the header is opaque: a negative `basicsize` asks for that many bytes after it.
#[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
pub(super) const BASIC_SIZE: i32 = -(size_of::<State>() as i32);
/// Likewise: relative to our own part.
#[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
pub(super) const WEAK_LIST: (isize, i32) =
    (core::mem::offset_of!(State, weak_references) as isize, ffi::Py_READONLY | ffi::Py_RELATIVE_OFFSET);

/// Under abi3t: how far after the header our part begins. Only the interpreter knows, but it is the same for all objects of
/// the process (types of ours all derive from `object`), and asking for it in every method would cost two calls.
#[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
static STATE_OFFSET: AtomicUsize = AtomicUsize::new(0);

/// Puts the native part into a fresh object.
///
/// # Safety
/// `object` was just allocated for our type, and nobody else uses it.
pub(super) unsafe fn fill(object: *mut ffi::PyObject, state: State) {
    #[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
    // SAFETY: the type is final, so the object's type is the one that asked for the extra bytes.
    unsafe {
        let place = ffi::PyObject_GetTypeData(object, ffi::Py_TYPE(object));
        STATE_OFFSET.store(place.addr() - object.addr(), Ordering::Relaxed);
    }
    // SAFETY: the caller's promise.
    unsafe { state_pointer(object).write(state) };
}

/// Where the native part of a lock object is.
///
/// # Safety
/// `object` is of our type (a method's `self` is: the type is final, and the interpreter checks before it calls).
#[inline]
pub(super) unsafe fn state_pointer(object: *mut ffi::PyObject) -> *mut State {
    #[cfg(not(all(Py_LIMITED_API, Py_GIL_DISABLED)))]
    // SAFETY: the object is an `Object`, by the type's `basicsize`.
    unsafe {
        &raw mut (*object.cast::<Object>()).state
    }
    #[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
    // SAFETY: `fill` has found the offset for this object, if not for an earlier one, and whoever has the object has seen
    // that store.
    unsafe {
        object.byte_add(STATE_OFFSET.load(Ordering::Relaxed)).cast()
    }
}

/// The native part of a lock object.
///
/// # Safety
/// As [`state_pointer`], and the constructor has filled it; the reference is not kept beyond the caller's hold on `object`.
#[inline]
pub(super) unsafe fn state<'a>(object: *mut ffi::PyObject) -> &'a State {
    // SAFETY: the caller's promise.
    unsafe { &*state_pointer(object) }
}
