//! Where a thread is, and what threads are called: the little that telemetry must ask the interpreter.
//!
//! Nothing here means to run Python code. But what it allocates may start a collection, and with it finalizers, on 3.11 at once:
//! so nothing is asked between a thread's drawing of a ticket and its wait, nor with a mutex of ours locked.

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::ffi::{self, PyObject};
use ticketlock::telemetry::sites::{self, Site};
use ticketlock::telemetry::threads::named;

use super::values::{borrowed_text, text_or};
use crate::attach::thread_ident;

/// Frames looked at for one that is the user's own.
const DEEPEST: usize = 16;

/// Folders whose code is internal: the standard library's, and ours. Texts, the same for all interpreters of the process.
static INTERNAL: OnceLock<[String; 2]> = OnceLock::new();

/// Learns where the standard library and this package are.
///
/// # Safety
/// Attached; `module` is ours.
pub(super) unsafe fn learn_folders(module: *mut PyObject) {
    // SAFETY: the caller's promise; `sys` lends what it has; references got are given back by `text_or`.
    unsafe {
        let library = ffi::PySys_GetObject(c"_stdlib_dir".as_ptr());
        ffi::Py_XINCREF(library);
        let library = text_or(library, "");
        let spec = ffi::PyObject_GetAttrString(module, c"__spec__".as_ptr());
        let origin = if spec.is_null() { spec } else { ffi::PyObject_GetAttrString(spec, c"origin".as_ptr()) };
        ffi::Py_XDECREF(spec);
        let mut ours = text_or(origin, "");
        ours.truncate(ours.rfind(['/', '\\']).unwrap_or(0));
        ffi::PyErr_Clear();
        let _ = INTERNAL.set([library, ours]);
    }
}

fn is_internal(path: &str) -> bool {
    if path.starts_with("<frozen ") {
        return true;
    }
    let Some([library, ours]) = INTERNAL.get() else { return false };
    let within = |folder: &str| !folder.is_empty() && path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(['/', '\\']));
    within(ours) || (within(library) && !path.contains("site-packages") && !path.contains("dist-packages"))
}

/// Lines that make locks, by code object and line: a program makes most of its locks in a few places, and finding a path's
/// number takes three times as long as all the rest. Belongs to an interpreter, and keeps the code objects alive, so that
/// their addresses are not used again.
pub(super) struct Codes(Mutex<[Known; Codes::PLACES]>);

#[derive(Clone, Copy)]
struct Known {
    code: *mut PyObject,
    line: c_int,
    site: Option<Site>,
}

impl Codes {
    const PLACES: usize = 64;

    pub(super) const fn new() -> Self {
        Self(Mutex::new([Known { code: ptr::null_mut(), line: 0, site: None }; Self::PLACES]))
    }

    fn place(code: *mut PyObject, line: c_int) -> usize {
        // Fibonacci hashing (Knuth, TAOCP 6.4).
        ((code.addr() as u64 ^ line as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize % Self::PLACES
    }

    fn find(&self, code: *mut PyObject, line: c_int) -> Option<Site> {
        let known = self.0.try_lock().ok()?[Self::place(code, line)];
        if known.code == code && known.line == line { known.site } else { None }
    }

    /// Keeps a line; takes a reference of its own.
    unsafe fn keep(&self, code: *mut PyObject, line: c_int, site: Site) {
        let Ok(mut table) = self.0.try_lock() else { return };
        // SAFETY: attached, as the caller says; `code` is alive.
        unsafe { ffi::Py_INCREF(code) };
        let known = Known { code, line, site: Some(site) };
        let former = core::mem::replace(&mut table[Self::place(code, line)], known);
        drop(table);
        // SAFETY: the table's reference; outside the mutex, since its end may run Python.
        unsafe { ffi::Py_XDECREF(former.code) };
    }

    /// Lets go of all.
    ///
    /// # Safety
    /// Attached.
    pub(super) unsafe fn clear(&self) {
        let table = core::mem::replace(
            &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner),
            [Known { code: ptr::null_mut(), line: 0, site: None }; Self::PLACES],
        );
        for known in table {
            // SAFETY: the table's reference.
            unsafe { ffi::Py_XDECREF(known.code) };
        }
    }

    /// For the collector.
    ///
    /// # Safety
    /// Called from a traverse function.
    pub(super) unsafe fn traverse(&self, visit: ffi::visitproc, argument: *mut c_void) -> c_int {
        // Never locked here: the collector runs with other threads stopped, and none stops inside.
        let Ok(table) = self.0.try_lock() else { return 0 };
        for known in table.iter().filter(|known| !known.code.is_null()) {
            // SAFETY: the collector's own function and argument.
            let stop = unsafe { visit(known.code, argument) };
            if stop != 0 {
                return stop;
            }
        }
        0
    }
}

/// The line that makes a lock: as [`site`], through what is known already.
///
/// # Safety
/// As [`site`].
pub(super) unsafe fn site_of_making(codes: &Codes) -> Option<Site> {
    // SAFETY: the caller's promise; the frame is lent by this thread, and the code is ours until the end.
    unsafe {
        let frame: *mut PyObject = ffi::PyEval_GetFrame().cast();
        if frame.is_null() {
            return None;
        }
        let code: *mut PyObject = ffi::PyFrame_GetCode(frame.cast()).cast();
        let line = ffi::PyFrame_GetLineNumber(frame.cast());
        let known = codes.find(code, line);
        let found = known.or_else(|| {
            let (place, internal) = place_of(frame, false, false);
            // What an internal line makes belongs to whoever called it, as something that a library made for itself.
            if internal {
                return outward(true);
            }
            if let Some(site) = place {
                codes.keep(code, line, site);
            }
            place
        });
        ffi::Py_DECREF(code);
        found
    }
}

/// The line that the calling thread executes: the innermost one that is the user's own or, where all are internal, the
/// innermost. `None` without a Python frame, or where there is no room for one more site.
///
/// # Safety
/// Attached; no exception is set, and none is left.
pub(super) unsafe fn site() -> Option<Site> {
    // SAFETY: the caller's promise.
    unsafe { outward(false) }
}

/// Likewise; `for_itself`: as a site of what a library made for itself.
unsafe fn outward(for_itself: bool) -> Option<Site> {
    // SAFETY: the caller's promise. `PyEval_GetFrame` lends a frame of this thread; from then on references are ours.
    unsafe {
        let mut frame: *mut PyObject = ffi::PyEval_GetFrame().cast();
        ffi::Py_XINCREF(frame);
        let mut innermost = None;
        let mut depth = 0;
        let mut found = None;
        while !frame.is_null() && frame != ffi::Py_None() && depth < DEEPEST {
            let (place, internal) = place_of(frame, depth == 0, for_itself);
            if !internal {
                found = place;
                break;
            }
            innermost = innermost.or(place);
            depth += 1;
            let back = ffi::PyObject_GetAttrString(frame, c"f_back".as_ptr());
            ffi::Py_DECREF(frame);
            frame = back;
        }
        ffi::Py_XDECREF(frame);
        ffi::PyErr_Clear();
        found.or(innermost)
    }
}

/// The site of a frame, if it is the user's or `wanted`; and whether it is internal. `for_itself` as in [`outward`].
unsafe fn place_of(frame: *mut PyObject, wanted: bool, for_itself: bool) -> (Option<Site>, bool) {
    // SAFETY: attached, as the caller is; `frame` is a live frame, and what its code lends lives as long as `path`.
    unsafe {
        let code: *mut PyObject = ffi::PyFrame_GetCode(frame.cast()).cast();
        let path = ffi::PyObject_GetAttrString(code, c"co_filename".as_ptr());
        let mut found = (None, false);
        if let Some(text) = (!path.is_null()).then(|| borrowed_text(path)).flatten() {
            let line = u32::try_from(ffi::PyFrame_GetLineNumber(frame.cast())).unwrap_or(0);
            let internal = is_internal(text);
            if !internal || wanted {
                let known = sites::find(text, line, internal || for_itself);
                found.0 = known.or_else(|| {
                    let function = text_or(ffi::PyObject_GetAttrString(code, c"co_qualname".as_ptr()), "?");
                    sites::intern(text, line, &function, internal || for_itself)
                });
            }
            found.1 = internal;
        } else {
            ffi::PyErr_Clear(); // a path that is no text: nobody could name the line
        }
        ffi::Py_XDECREF(path);
        ffi::Py_DECREF(code);
        found
    }
}

/// Sees to it that readers know what the calling thread, and the thread `owner` that it waits for, are called.
///
/// # Safety
/// Attached; no exception is set, and none is left.
pub(super) unsafe fn name_threads(owner: u64, now: u64) {
    let ident = thread_ident();
    // SAFETY: the caller's promise.
    unsafe {
        if named::is_wanted_here(now) {
            if let Some((_, name)) = known_as(ident) {
                named::name_self(ident, &name);
            }
        }
        if owner != ident && named::is_wanted(owner, now) {
            if let Some((native_id, name)) = known_as(owner) {
                named::name_other(owner, native_id, &name);
            }
        }
    }
}

/// Native id and name of a thread, as `threading` has written them down. Its dicts are read, its code does not run.
unsafe fn known_as(ident: u64) -> Option<(u64, String)> {
    // SAFETY: attached, as the callers are; every reference got is given back.
    unsafe {
        let modules = ffi::PySys_GetObject(c"modules".as_ptr());
        let threading = owned_item(modules, ffi::PyUnicode_FromString(c"threading".as_ptr()));
        let active = attribute(threading, c"_active");
        ffi::Py_XDECREF(threading);
        let thread = owned_item(active, ffi::PyLong_FromUnsignedLongLong(ident));
        ffi::Py_XDECREF(active);
        let (name, native_id) = (attribute(thread, c"_name"), attribute(thread, c"_native_id"));
        ffi::Py_XDECREF(thread);
        let native =
            if native_id.is_null() || ffi::PyLong_Check(native_id) == 0 { 0 } else { ffi::PyLong_AsUnsignedLongLong(native_id) };
        ffi::Py_XDECREF(native_id);
        let name = if !name.is_null() && ffi::PyUnicode_Check(name) != 0 {
            Some(text_or(name, "?"))
        } else {
            ffi::Py_XDECREF(name);
            None
        };
        ffi::PyErr_Clear();
        name.map(|name| (native, name))
    }
}

/// `of[key]`, a reference of ours, or null; takes the key's over.
unsafe fn owned_item(of: *mut PyObject, key: *mut PyObject) -> *mut PyObject {
    // SAFETY: attached; `of` is alive or null, the key ours or null.
    unsafe {
        let mut item = ptr::null_mut();
        if !of.is_null() && !key.is_null() && ffi::PyDict_CheckExact(of) != 0 {
            item = ffi::PyObject_GetItem(of, key);
        }
        ffi::Py_XDECREF(key);
        ffi::PyErr_Clear();
        item
    }
}

/// An attribute without the class's own `__getattribute__`; a reference of ours, or null.
unsafe fn attribute(of: *mut PyObject, name: &CStr) -> *mut PyObject {
    // SAFETY: attached; `of` is alive or null.
    unsafe {
        let key = ffi::PyUnicode_FromString(name.as_ptr());
        let mut value = ptr::null_mut();
        if !of.is_null() && !key.is_null() {
            value = ffi::PyObject_GenericGetAttr(of, key);
        }
        ffi::Py_XDECREF(key);
        ffi::PyErr_Clear();
        value
    }
}
