//! Slow waits: a callback for each that took longer than asked for, after the lock that was waited for is free again.

use core::ptr;

use pyo3::ffi::{self, PyObject};
use ticketlock::lock::watch as delay_watch;
use ticketlock::telemetry::sites::Site;

use super::slow_of;
use super::values::put;
use crate::sync::{AtomicU64, Ordering};

/// Waits that took so many ns are told; none by default. One limit for all interpreters, the latest one that was set: each has its
/// own callback.
static FROM_NS: AtomicU64 = AtomicU64::new(u64::MAX);

/// Sets the limit, in ns. It stays when an interpreter wants no more to be told: another one may.
pub(super) fn set_limit(from_ns: u64) {
    FROM_NS.store(from_ns, Ordering::Relaxed);
}

/// Tells of a wait, if it was slow. Waits of the callback itself are not told.
///
/// # Safety
/// Attached; no exception is set; `object` is the lock.
#[inline]
pub(super) unsafe fn tell(object: *mut PyObject, id: u64, ident: u64, ns: u64, site: Option<Site>) {
    if ns >= FROM_NS.load(Ordering::Relaxed) {
        // SAFETY: the caller's promise.
        unsafe { tell_slow(object, id, ident, ns, site) };
    }
}

#[cold]
unsafe fn tell_slow(object: *mut PyObject, id: u64, ident: u64, ns: u64, site: Option<Site>) {
    // SAFETY: the caller's promise; values are new references or null, which `put` takes over.
    unsafe {
        if delay_watch::is_muted() {
            return;
        }
        let Some(callback) = slow_of(object) else { return };
        let callback = callback.get();
        if callback.is_null() {
            return;
        }
        delay_watch::muted(|| {
            let event = ffi::PyDict_New();
            let site = site.map_or(0, |site| u64::from(site.number()) + 1);
            let complete = !event.is_null()
                && put(event, c"lock", ffi::PyLong_FromUnsignedLongLong(id))
                && put(event, c"wait_ns", ffi::PyLong_FromUnsignedLongLong(ns))
                && put(event, c"ident", ffi::PyLong_FromUnsignedLongLong(ident))
                && put(event, c"site", ffi::PyLong_FromUnsignedLongLong(site));
            let answer = if complete {
                ffi::PyObject_CallFunctionObjArgs(callback, event, ptr::null_mut::<PyObject>())
            } else {
                ptr::null_mut()
            };
            if answer.is_null() {
                ffi::PyErr_WriteUnraisable(callback);
            }
            ffi::Py_XDECREF(answer);
            ffi::Py_XDECREF(event);
        });
        ffi::Py_DECREF(callback);
    }
}
