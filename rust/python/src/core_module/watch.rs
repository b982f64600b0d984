//! Delay watch for Python: who waited, and the traceback that pushed the delay.
//!
//! A report is made while the lock is held, right after the wait, since only then does the stack still show the acquire;
//! it is handed over by `release`, after the lock is free, so that a slow callback lengthens no wait of that lock. The
//! callback belongs to an interpreter and is kept in its module.

use core::ffi::c_int;
use core::ptr;
use std::sync::{Mutex, PoisonError};

use pyo3::ffi;
use ticketlock::lock::watch::{self, DelayReport};

use super::values::{put, text, text_or};

/// Deepest traceback kept, in frames: the acquire and what led to it. The lock is held while frames are read (about 0.5 us
/// each), so a runaway recursion must not make the hold long.
const MAX_FRAMES: usize = 64;

/// A report on its way to the callback. Text instead of Python objects: a lock refers to none, so the collector need not
/// look into it.
pub(super) struct Pending {
    report: DelayReport,
    /// Outermost first, as tracebacks are printed.
    frames: Vec<Frame>,
}

struct Frame {
    file: String,
    line: c_int,
    name: String,
}

/// The callback of one interpreter.
pub(super) struct Callback(Mutex<*mut ffi::PyObject>);

impl Callback {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(ptr::null_mut()))
    }

    /// Nobody calls into the interpreter with this mutex locked, so waiting for it attached cannot deadlock.
    fn slot(&self) -> std::sync::MutexGuard<'_, *mut ffi::PyObject> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new reference to the callback, or null.
    ///
    /// # Safety
    /// Attached.
    pub(super) unsafe fn get(&self) -> *mut ffi::PyObject {
        let slot = self.slot();
        if !slot.is_null() {
            // SAFETY: attached, and the slot's reference keeps the callback alive.
            unsafe { ffi::Py_INCREF(*slot) };
        }
        *slot
    }

    fn is_set(&self) -> bool {
        !self.slot().is_null()
    }

    /// Replaces the callback; takes over the reference (null: none). `changed` is called, in the order of the callbacks, if
    /// there was none before, or is none now: with whether there is one.
    ///
    /// # Safety
    /// Attached.
    pub(super) unsafe fn set(&self, callback: *mut ffi::PyObject, changed: fn(bool)) {
        let mut slot = self.slot();
        let former = core::mem::replace(&mut *slot, callback);
        if former.is_null() != callback.is_null() {
            changed(former.is_null());
        }
        drop(slot);
        if !former.is_null() {
            // SAFETY: the slot's reference; its destructor may run Python, hence outside the mutex.
            unsafe { ffi::Py_DECREF(former) };
        }
    }

    /// For the collector.
    ///
    /// # Safety
    /// Called from a traverse function.
    pub(super) unsafe fn traverse(&self, visit: ffi::visitproc, argument: *mut core::ffi::c_void) -> c_int {
        // Never locked here: the collector runs with other threads stopped, and none stops inside.
        let Ok(slot) = self.0.try_lock() else { return 0 };
        // SAFETY: the collector's own function and argument.
        if slot.is_null() { 0 } else { unsafe { visit(*slot, argument) } }
    }
}

/// For [`Callback::set`]: waits look for reports while there is a callback.
pub(super) fn arm(on: bool) {
    if on { watch::arm() } else { watch::disarm() }
}

/// Makes the report of a wait that just ended, if this interpreter has a callback. The calling thread holds the lock.
///
/// # Safety
/// Attached; no exception is set.
#[cold]
pub(super) unsafe fn capture(report: DelayReport, callback: Option<&Callback>) -> Option<Box<Pending>> {
    if !callback.is_some_and(Callback::is_set) {
        return None;
    }
    watch::accept(&report);
    // SAFETY: the caller's promise.
    let frames = unsafe { frames() };
    Some(Box::new(Pending { report, frames }))
}

/// Hands a report to the callback. The lock is released; what the callback itself waits for is not reported.
///
/// # Safety
/// Attached; no exception is set.
#[cold]
pub(super) unsafe fn deliver(pending: &Pending, callback: Option<&Callback>) {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(callback) = callback else { return };
        let callback = callback.get();
        if callback.is_null() {
            return;
        }
        watch::muted(|| {
            let event = pending.as_dict();
            let answer =
                if event.is_null() { event } else { ffi::PyObject_CallFunctionObjArgs(callback, event, NO_MORE_ARGUMENTS) };
            if answer.is_null() {
                ffi::PyErr_WriteUnraisable(callback);
            }
            ffi::Py_XDECREF(answer);
            ffi::Py_XDECREF(event);
        });
        ffi::Py_DECREF(callback);
    }
}

const NO_MORE_ARGUMENTS: *mut ffi::PyObject = ptr::null_mut();

impl Pending {
    /// The event as Python sees it, or null with an exception set.
    unsafe fn as_dict(&self) -> *mut ffi::PyObject {
        // SAFETY: attached. Every value is a new reference or null, which `put` takes over.
        unsafe {
            let event = ffi::PyDict_New();
            if event.is_null() {
                return event;
            }
            let report = &self.report;
            let complete = put(event, c"lock", ffi::PyLong_FromUnsignedLongLong(report.lock))
                && put(event, c"delay", ffi::PyFloat_FromDouble(report.delay.units()))
                && put(event, c"previous_max", ffi::PyFloat_FromDouble(report.previous_max.units()))
                && put(event, c"native_id", ffi::PyLong_FromUnsignedLongLong(report.native_id))
                && put(event, c"traceback", self.traceback());
            if complete {
                return event;
            }
            ffi::Py_DECREF(event);
            ptr::null_mut()
        }
    }

    unsafe fn traceback(&self) -> *mut ffi::PyObject {
        // SAFETY: attached. `PyTuple_SetItem` and `PyList_SetItem` take references over, also where they fail.
        unsafe {
            let list = ffi::PyList_New(self.frames.len() as ffi::Py_ssize_t);
            if list.is_null() {
                return list;
            }
            for (at, frame) in self.frames.iter().enumerate() {
                let tuple = frame.as_tuple();
                if tuple.is_null() || ffi::PyList_SetItem(list, at as ffi::Py_ssize_t, tuple) != 0 {
                    ffi::Py_DECREF(list);
                    return ptr::null_mut();
                }
            }
            list
        }
    }
}

impl Frame {
    unsafe fn as_tuple(&self) -> *mut ffi::PyObject {
        // SAFETY: as in `traceback`.
        unsafe {
            let tuple = ffi::PyTuple_New(3);
            if tuple.is_null() {
                return tuple;
            }
            let items = [text(&self.file), ffi::PyLong_FromLong(self.line.into()), text(&self.name)];
            let complete = items.iter().all(|item| !item.is_null());
            for (at, item) in items.into_iter().enumerate() {
                if !item.is_null() {
                    ffi::PyTuple_SetItem(tuple, at as ffi::Py_ssize_t, item);
                }
            }
            if complete {
                return tuple;
            }
            ffi::Py_DECREF(tuple);
            ptr::null_mut()
        }
    }
}

/// The calling thread's Python frames, outermost first. Shortened where memory runs out; leaves no exception.
unsafe fn frames() -> Vec<Frame> {
    let mut frames = Vec::new();
    // SAFETY: attached. `PyEval_GetFrame` lends a frame of this thread; from then on references are ours.
    unsafe {
        let mut frame: *mut ffi::PyObject = ffi::PyEval_GetFrame().cast();
        ffi::Py_XINCREF(frame);
        while !frame.is_null() && frames.len() < MAX_FRAMES {
            let code: *mut ffi::PyObject = ffi::PyFrame_GetCode(frame.cast()).cast();
            let file = text_or(ffi::PyObject_GetAttrString(code, c"co_filename".as_ptr()), "?");
            let name = text_or(ffi::PyObject_GetAttrString(code, c"co_qualname".as_ptr()), "?");
            let line = ffi::PyFrame_GetLineNumber(frame.cast());
            ffi::Py_DECREF(code);
            frames.push(Frame { file, line, name });
            let back = ffi::PyObject_GetAttrString(frame, c"f_back".as_ptr());
            ffi::Py_DECREF(frame);
            frame = back;
            if frame == ffi::Py_None() {
                break;
            }
        }
        ffi::Py_XDECREF(frame);
        ffi::PyErr_Clear();
    }
    frames.reverse();
    frames
}
