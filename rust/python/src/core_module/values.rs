//! Small bridges between Python values and Rust ones.

use core::ffi::{CStr, c_char};
use core::ptr;

use pyo3::ffi;
use ticketlock::{Backoff, Fairness, UnknownFairness};

use super::gate::Options;

/// First version of the interpreter whose constants need no reference counts, as `Py_Version` spells it.
#[cfg(not(Py_3_12))]
const IMMORTAL_SINCE: core::ffi::c_ulong = 0x030C_0000;

/// A reference to `None`, `True` or `False` to return.
///
/// # Safety
/// Attached; `constant` is one of these.
#[inline]
unsafe fn constant(constant: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // A build for 3.11 also runs on later versions, where writing the count of an object that interpreters share would
    // only cost. On 3.11 itself the stable interface's own header counts in place, as here.
    #[cfg(not(Py_3_12))]
    // SAFETY: the caller's promise.
    unsafe {
        if ffi::Py_Version < IMMORTAL_SINCE {
            (*constant).ob_refcnt += 1;
        }
    }
    constant
}

/// `None`, to return.
///
/// # Safety
/// Attached.
#[inline]
pub(super) unsafe fn none() -> *mut ffi::PyObject {
    // SAFETY: the caller's promise.
    unsafe { constant(ffi::Py_None()) }
}

/// `True` or `False`, to return.
///
/// # Safety
/// Attached.
#[inline]
pub(super) unsafe fn boolean(value: bool) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise.
    unsafe { constant(if value { ffi::Py_True() } else { ffi::Py_False() }) }
}

/// A new `str`, or null with an exception set.
///
/// # Safety
/// Attached.
pub(super) unsafe fn text(value: &str) -> *mut ffi::PyObject {
    // SAFETY: pointer and length of a live `str`.
    unsafe { ffi::PyUnicode_FromStringAndSize(value.as_ptr().cast(), value.len() as ffi::Py_ssize_t) }
}

/// Sets an exception and returns null.
///
/// # Safety
/// Attached; `exception` is an exception type.
#[cold]
pub(super) unsafe fn raise(exception: *mut ffi::PyObject, message: &str) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise; a failed allocation has set its own exception.
    unsafe {
        let message = text(message);
        if !message.is_null() {
            ffi::PyErr_SetObject(exception, message);
            ffi::Py_DECREF(message);
        }
    }
    ptr::null_mut()
}

/// `repr(object)` for a message; the type's name where that fails.
///
/// # Safety
/// Attached; `object` is alive.
pub(super) unsafe fn shown(object: *mut ffi::PyObject) -> String {
    // SAFETY: the caller's promise.
    unsafe { text_or(ffi::PyObject_Repr(object), "that value") }
}

/// The text of a `str`, whose reference is taken over; `otherwise`, without an exception, if it is null or not UTF-8.
///
/// # Safety
/// Attached; `object` is alive, or null with an exception set.
pub(super) unsafe fn text_or(object: *mut ffi::PyObject, otherwise: &str) -> String {
    // SAFETY: `object` is alive until the `DECREF`, and what it lends is copied before.
    unsafe {
        let text = if object.is_null() { None } else { borrowed_text(object).map(str::to_owned) };
        ffi::Py_XDECREF(object);
        text.unwrap_or_else(|| {
            ffi::PyErr_Clear();
            otherwise.into()
        })
    }
}

/// The text of a `str`, lent by it. `None` (with an exception set) if it is not UTF-8.
///
/// # Safety
/// Attached; `object` is alive, and stays so as long as the text is used.
pub(super) unsafe fn borrowed_text<'a>(object: *mut ffi::PyObject) -> Option<&'a str> {
    let mut length: ffi::Py_ssize_t = 0;
    // SAFETY: the buffer belongs to `object`, which lives, and has the length reported; the interpreter made it UTF-8.
    unsafe {
        let bytes = ffi::PyUnicode_AsUTF8AndSize(object, &raw mut length);
        if bytes.is_null() {
            return None;
        }
        let bytes = core::slice::from_raw_parts(bytes.cast::<u8>(), length as usize);
        Some(core::str::from_utf8_unchecked(bytes))
    }
}

/// The back-off rule that a `backoff` argument names, or `None` with `ValueError` or `TypeError` set.
///
/// # Safety
/// Attached; `object` is alive.
pub(super) unsafe fn backoff(object: *mut ffi::PyObject) -> Option<Backoff> {
    let accepted =
        format!("{}; an int N from 1 to {} means proportional:N", ticketlock::policy::UnknownBackoff, Backoff::MAX_FACTOR);
    // SAFETY: the caller's promise.
    unsafe {
        if ffi::PyUnicode_Check(object) != 0 {
            if let Some(Ok(rule)) = borrowed_text(object).map(str::parse) {
                return Some(rule);
            }
            ffi::PyErr_Clear(); // a lone surrogate is no name either
        } else if ffi::PyLong_Check(object) != 0 && ffi::PyBool_Check(object) == 0 {
            let mut overflow = 0;
            let factor = ffi::PyLong_AsLongAndOverflow(object, &raw mut overflow);
            if factor == -1 && !ffi::PyErr_Occurred().is_null() {
                return None;
            }
            match u32::try_from(factor) {
                Ok(factor) if overflow == 0 && (1..=Backoff::MAX_FACTOR).contains(&factor) => {
                    return Some(Backoff::Proportional(factor));
                }
                _ => {}
            }
        } else {
            let message = format!("backoff must be a str or an int, not {}: {accepted}", type_name(object));
            raise(ffi::PyExc_TypeError, &message);
            return None;
        }
        raise(ffi::PyExc_ValueError, &format!("backoff={} is not accepted: {accepted}", shown(object)));
        None
    }
}

/// The options that a `Lock` or `RLock` is made with, or `None` with an exception set. `format` takes two objects, by
/// keyword, and names the type.
///
/// # Safety
/// Attached; the interpreter's calling convention.
pub(super) unsafe fn options(args: *mut ffi::PyObject, keywords: *mut ffi::PyObject, format: &CStr) -> Option<Options> {
    // SAFETY: the caller's promise; the names end with null. What is found is lent by `keywords`.
    unsafe {
        let mut options = Options::default();
        if keywords.is_null() && ffi::PyTuple_Size(args) == 0 {
            return Some(options);
        }
        let (mut name, mut fairness): (*mut ffi::PyObject, *mut ffi::PyObject) = (ptr::null_mut(), ptr::null_mut());
        let mut names = [c"name".as_ptr().cast_mut(), c"fairness".as_ptr().cast_mut(), ptr::null_mut::<c_char>()];
        let names = names.as_mut_ptr().cast();
        if ffi::PyArg_ParseTupleAndKeywords(args, keywords, format.as_ptr(), names, &raw mut name, &raw mut fairness) == 0 {
            return None;
        }
        if !name.is_null() && name != ffi::Py_None() {
            if ffi::PyUnicode_Check(name) == 0 {
                raise(ffi::PyExc_TypeError, &format!("name must be a str or None, not {}", type_name(name)));
                return None;
            }
            options.name = Some(borrowed_text(name)?.into());
        }
        if !fairness.is_null() {
            options.fairness = self::fairness(fairness)?;
        }
        Some(options)
    }
}

unsafe fn fairness(object: *mut ffi::PyObject) -> Option<Fairness> {
    // SAFETY: as in `options`.
    unsafe {
        if ffi::PyUnicode_Check(object) == 0 {
            let message = format!("fairness must be a str, not {}: {UnknownFairness}", type_name(object));
            raise(ffi::PyExc_TypeError, &message);
            return None;
        }
        if let Some(Ok(fairness)) = borrowed_text(object).map(str::parse) {
            return Some(fairness);
        }
        ffi::PyErr_Clear(); // a lone surrogate is no name either
        raise(ffi::PyExc_ValueError, &format!("fairness={} is not accepted: {UnknownFairness}", shown(object)));
        None
    }
}

/// A number from 0 to 2^64 - 1, or `None` with `TypeError` or `OverflowError` set.
///
/// # Safety
/// Attached; `object` is alive.
pub(super) unsafe fn unsigned(object: *mut ffi::PyObject) -> Option<u64> {
    // SAFETY: the caller's promise; the index is our reference.
    unsafe {
        let index = ffi::PyNumber_Index(object);
        if index.is_null() {
            return None;
        }
        let number = ffi::PyLong_AsUnsignedLongLong(index);
        ffi::Py_DECREF(index);
        if number == u64::MAX && !ffi::PyErr_Occurred().is_null() { None } else { Some(number) }
    }
}

/// Sets one key; takes over `value`, which may be null with an exception set. Says whether that worked.
///
/// # Safety
/// Attached; `dict` is a dict.
pub(super) unsafe fn put(dict: *mut ffi::PyObject, key: &CStr, value: *mut ffi::PyObject) -> bool {
    if value.is_null() {
        return false;
    }
    // SAFETY: the caller's promise; both objects are alive.
    unsafe {
        let set = ffi::PyDict_SetItemString(dict, key.as_ptr(), value) == 0;
        ffi::Py_DECREF(value);
        set
    }
}

/// Name of an object's type.
///
/// # Safety
/// Attached; `object` is alive.
pub(super) unsafe fn type_name(object: *mut ffi::PyObject) -> String {
    // SAFETY: the caller's promise.
    unsafe { text_or(ffi::PyType_GetName(ffi::Py_TYPE(object)), "that type") }
}

/// The type of an object by its full name.
///
/// # Safety
/// Attached; `object` is alive.
pub(super) unsafe fn class_name(object: *mut ffi::PyObject) -> String {
    // SAFETY: the caller's promise.
    unsafe {
        let class = ffi::Py_TYPE(object);
        let module = text_or(ffi::PyObject_GetAttrString(class.cast(), c"__module__".as_ptr()), "?");
        let name = text_or(ffi::PyType_GetQualName(class), "?");
        format!("{module}.{name}")
    }
}

/// Whether a keyword's name is `expected`.
///
/// # Safety
/// Attached; `name` is a `str`.
pub(super) unsafe fn is_name(name: *mut ffi::PyObject, expected: &CStr) -> bool {
    // SAFETY: the caller's promise.
    unsafe { ffi::PyUnicode_CompareWithASCIIString(name, expected.as_ptr()) == 0 }
}

/// A keyword's name, for a message.
///
/// # Safety
/// Attached; `name` is a `str`.
pub(super) unsafe fn name_of(name: *mut ffi::PyObject) -> String {
    // SAFETY: the caller's promise.
    unsafe { shown(name) }
}
