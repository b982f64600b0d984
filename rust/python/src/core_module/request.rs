//! What an `acquire(blocking=True, timeout=-1)` asks for: the standard library's rules, in its order and, where its
//! versions differ, in the words of the newest.

use pyo3::ffi::{self, PyObject};

use super::values::{is_name, name_of, raise};

/// An acquisition, as asked for.
#[derive(Clone, Copy)]
pub(super) enum Request {
    /// If the lock is free.
    Try,
    /// Wait for so many ns, or for ever.
    Wait(Option<u64>),
}

/// "No timeout", as a number of seconds.
const FOR_EVER_NS: i64 = -1_000_000_000;

/// `threading.TIMEOUT_MAX` and what it is rounded from: elsewhere as far as 64 bits count.
#[cfg(windows)]
const TIMEOUT_MAX_NS: i64 = 0xFFFF_FFFE * 1_000_000;

/// Reads the arguments of a call; `None` with an exception set if they are not right.
///
/// # Safety
/// Attached; the interpreter's calling convention: `count` positional arguments, then those that `names` names.
pub(super) unsafe fn request(args: *const *mut PyObject, count: ffi::Py_ssize_t, names: *mut PyObject) -> Option<Request> {
    // SAFETY: the caller's promise.
    unsafe {
        let [blocking, timeout] = arguments(args, count, names)?;
        let blocking = match blocking {
            None => true,
            Some(object) => match ffi::PyObject_IsTrue(object) {
                -1 => return None,
                truth => truth != 0,
            },
        };
        let timeout = match timeout {
            None => FOR_EVER_NS,
            Some(object) => nanoseconds(object)?,
        };
        if !blocking {
            if timeout == FOR_EVER_NS {
                return Some(Request::Try);
            }
            raise(ffi::PyExc_ValueError, "can't specify a timeout for a non-blocking call");
            return None;
        }
        #[cfg(windows)]
        if timeout > TIMEOUT_MAX_NS {
            raise(ffi::PyExc_OverflowError, "timeout value is too large");
            return None;
        }
        match u64::try_from(timeout) {
            Ok(0) => Some(Request::Try),
            Ok(ns) => Some(Request::Wait(Some(ns))),
            Err(_) if timeout == FOR_EVER_NS => Some(Request::Wait(None)),
            Err(_) => {
                raise(ffi::PyExc_ValueError, "timeout value must be a non-negative number");
                None
            }
        }
    }
}

/// The two arguments, as far as they are given.
unsafe fn arguments(
    args: *const *mut PyObject,
    count: ffi::Py_ssize_t,
    names: *mut PyObject,
) -> Option<[Option<*mut PyObject>; 2]> {
    // SAFETY: as in `request`.
    unsafe {
        let named = if names.is_null() { 0 } else { ffi::PyTuple_Size(names) };
        if count + named > 2 {
            let message = format!("acquire() takes at most 2 arguments ({} given)", count + named);
            raise(ffi::PyExc_TypeError, &message);
            return None;
        }
        let mut found = [None, None];
        for (at, place) in found.iter_mut().enumerate().take(count as usize) {
            *place = Some(*args.add(at));
        }
        for at in 0..named {
            let name = ffi::PyTuple_GetItem(names, at);
            let place = if is_name(name, c"blocking") {
                0
            } else if is_name(name, c"timeout") {
                1
            } else {
                let message = format!("acquire() got an unexpected keyword argument {}", name_of(name));
                raise(ffi::PyExc_TypeError, &message);
                return None;
            };
            if found[place].is_some() {
                let name = name_of(name);
                let message = format!("argument for acquire() given by name ({name}) and position ({})", place + 1);
                raise(ffi::PyExc_TypeError, &message);
                return None;
            }
            found[place] = Some(*args.offset(count + at));
        }
        Some(found)
    }
}

/// Seconds as nanoseconds, rounded away from zero; `None` with an exception set if it is no number, or too large.
unsafe fn nanoseconds(seconds: *mut PyObject) -> Option<i64> {
    // SAFETY: attached, as the caller says; `seconds` is alive.
    unsafe {
        if ffi::PyFloat_Check(seconds) == 0 && ffi::PyIndex_Check(seconds) != 0 {
            let whole = ffi::PyLong_AsLongLong(seconds);
            if whole == -1 && !ffi::PyErr_Occurred().is_null() {
                if ffi::PyErr_ExceptionMatches(ffi::PyExc_OverflowError) != 0 {
                    ffi::PyErr_Clear();
                    return out_of_range();
                }
                return None;
            }
            return whole.checked_mul(1_000_000_000).or_else(|| out_of_range());
        }
        let seconds = ffi::PyFloat_AsDouble(seconds);
        #[allow(clippy::float_cmp, reason = "the value that the interpreter's function reports an error with")]
        if seconds == -1.0 && !ffi::PyErr_Occurred().is_null() {
            return None;
        }
        if seconds.is_nan() {
            raise(ffi::PyExc_ValueError, "Invalid value NaN (not a number)");
            return None;
        }
        let ns = seconds * 1e9;
        let ns = if ns < 0.0 { ns.floor() } else { ns.ceil() };
        // The least number is exact as a float, the largest is not.
        let least = i64::MIN as f64;
        if (least..-least).contains(&ns) { Some(ns as i64) } else { out_of_range() }
    }
}

#[cold]
unsafe fn out_of_range() -> Option<i64> {
    // SAFETY: attached, as the caller says.
    unsafe { raise(ffi::PyExc_OverflowError, "timestamp out of range for C PyTime_t") };
    None
}
