//! What a lock counts about itself, and the dict that shows it.
//!
//! All but the timeouts is written by the holder, with plain loads and stores: the lock orders them. Without contention
//! that is one addition, and no clock is read.

use core::ffi::CStr;
use core::ptr;

use pyo3::ffi::{self, PyObject};
use ticketlock::WaitStats;

use super::values::put;
use crate::sync::{AtomicPtr, AtomicU64, Ordering};

/// Classes of waiting times: one for each power of two of a `u64` in ns.
const CLASSES: usize = 64;

/// The counts of one lock.
#[derive(Default)]
pub(super) struct Counters {
    acquisitions: AtomicU64,
    /// By threads that do not hold the lock, so by atomic addition.
    timeouts: AtomicU64,
    /// Made when the lock was waited for.
    waits: AtomicPtr<Waits>,
}

/// Of a lock that was waited for.
struct Waits {
    contended: AtomicU64,
    ns_sum: AtomicU64,
    ns_max: AtomicU64,
    parks: AtomicU64,
    hand_overs: AtomicU64,
    ns_log2: [AtomicU64; CLASSES],
}

/// Adds for the holder. Where locks are released behind their holder's back, counts may get lost.
#[inline]
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

impl Counters {
    /// Counts an acquisition. For the holder.
    #[inline]
    pub(super) fn count(&self) {
        add(&self.acquisitions, 1);
    }

    /// Counts what waiting for the acquisition took. For the holder.
    pub(super) fn count_wait(&self, wait: &WaitStats) {
        let waits = self.waits();
        add(&waits.contended, 1);
        add(&waits.ns_sum, wait.ns);
        if wait.ns > waits.ns_max.load(Ordering::Relaxed) {
            waits.ns_max.store(wait.ns, Ordering::Relaxed);
        }
        add(&waits.parks, wait.parks.into());
        add(&waits.hand_overs, wait.handed_over.into());
        // Below 2 ns, which no clock shows, is class 0.
        add(&waits.ns_log2[wait.ns.checked_ilog2().unwrap_or(0) as usize], 1);
    }

    /// Counts an acquisition that was given up.
    pub(super) fn count_timeout(&self) {
        self.timeouts.fetch_add(1, Ordering::Relaxed);
    }

    fn waits(&self) -> &Waits {
        let mut waits = self.waits.load(Ordering::Acquire); // pairs with: the exchange below
        if waits.is_null() {
            let fresh = Box::into_raw(Box::new(Waits {
                contended: AtomicU64::new(0),
                ns_sum: AtomicU64::new(0),
                ns_max: AtomicU64::new(0),
                parks: AtomicU64::new(0),
                hand_overs: AtomicU64::new(0),
                ns_log2: [const { AtomicU64::new(0) }; CLASSES],
            }));
            // By exchange, although the holder is alone: not if somebody released the lock behind its back.
            // pairs with: the acquire loads.
            match self.waits.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => waits = fresh,
                Err(other) => {
                    // SAFETY: just made, and seen by nobody.
                    drop(unsafe { Box::from_raw(fresh) });
                    waits = other;
                }
            }
        }
        // SAFETY: once set it stays, until the counters go.
        unsafe { &*waits }
    }

    /// The counts as Python sees them, or null with an exception set. Threads may be counting: each number is right, their
    /// sums may be one apart.
    ///
    /// # Safety
    /// Attached.
    pub(super) unsafe fn as_dict(&self) -> *mut PyObject {
        // SAFETY: attached; once set the pointer stays, until the counters go.
        unsafe {
            let dict = ffi::PyDict_New();
            if dict.is_null() {
                return dict;
            }
            let waits = self.waits.load(Ordering::Acquire).as_ref(); // pairs with: the exchange
            let of = |counter: fn(&Waits) -> &AtomicU64| waits.map_or(0, |waits| counter(waits).load(Ordering::Relaxed));
            let numbers: [(&CStr, u64); 7] = [
                (c"acquisitions", self.acquisitions.load(Ordering::Relaxed)),
                (c"contended", of(|waits| &waits.contended)),
                (c"wait_ns_sum", of(|waits| &waits.ns_sum)),
                (c"wait_ns_max", of(|waits| &waits.ns_max)),
                (c"parks", of(|waits| &waits.parks)),
                (c"timeouts", self.timeouts.load(Ordering::Relaxed)),
                (c"hand_overs", of(|waits| &waits.hand_overs)),
            ];
            let complete = numbers.iter().all(|&(name, number)| put(dict, name, ffi::PyLong_FromUnsignedLongLong(number)))
                && put(dict, c"wait_ns_log2", histogram(waits));
            if complete {
                return dict;
            }
            ffi::Py_DECREF(dict);
            ptr::null_mut()
        }
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        let waits = self.waits.load(Ordering::Relaxed);
        if !waits.is_null() {
            // SAFETY: it came from `Box::into_raw`, and nobody else has the counters any more.
            drop(unsafe { Box::from_raw(waits) });
        }
    }
}

/// The list of classes, up to the last one that is not empty; null with an exception set if that fails.
unsafe fn histogram(waits: Option<&Waits>) -> *mut PyObject {
    let counts: Vec<u64> =
        waits.map_or_else(Vec::new, |waits| waits.ns_log2.iter().map(|class| class.load(Ordering::Relaxed)).collect());
    let length = counts.iter().rposition(|&count| count != 0).map_or(0, |last| last + 1);
    // SAFETY: attached, as the caller says. `PyList_SetItem` takes the reference over, also where it fails.
    unsafe {
        let list = ffi::PyList_New(length as ffi::Py_ssize_t);
        if list.is_null() {
            return list;
        }
        for (at, &count) in counts[..length].iter().enumerate() {
            let number = ffi::PyLong_FromUnsignedLongLong(count);
            if number.is_null() || ffi::PyList_SetItem(list, at as ffi::Py_ssize_t, number) != 0 {
                ffi::Py_DECREF(list);
                return ptr::null_mut();
            }
        }
        list
    }
}
