//! What a lock counted about itself, as the dict that `stats()` gives.

use core::ffi::CStr;
use core::ptr;

use pyo3::ffi::{self, PyObject};
use ticketlock::telemetry::layout::counters;
use ticketlock::telemetry::locks::LockRecord;

use super::observed::Observed;
use super::values::put;

/// The counts, or null with an exception set. Threads may be counting: each number is right, their sums may be one apart.
///
/// # Safety
/// Attached.
pub(super) unsafe fn as_dict(observed: &Observed) -> *mut PyObject {
    let record = observed.waits();
    let of = |counter: usize| record.map_or(0, |record| record.counter(counter));
    let numbers: [(&CStr, u64); 7] = [
        (c"acquisitions", observed.acquisitions()),
        (c"contended", of(counters::CONTENDED)),
        (c"wait_ns_sum", of(counters::WAIT_NS)),
        (c"wait_ns_max", of(counters::WAIT_NS_MAX)),
        (c"parks", of(counters::PARKS)),
        (c"timeouts", of(counters::TIMEOUTS)),
        (c"hand_overs", of(counters::HAND_OVERS)),
    ];
    // SAFETY: attached; `put` takes new references over.
    unsafe {
        let dict = ffi::PyDict_New();
        if dict.is_null() {
            return dict;
        }
        let complete = numbers.iter().all(|&(name, number)| put(dict, name, ffi::PyLong_FromUnsignedLongLong(number)))
            && put(dict, c"wait_ns_log2", histogram(record));
        if complete {
            return dict;
        }
        ffi::Py_DECREF(dict);
        ptr::null_mut()
    }
}

/// The list of classes, up to the last one that is not empty; null with an exception set if that fails.
unsafe fn histogram(record: Option<&LockRecord>) -> *mut PyObject {
    let class = |class: usize| record.map_or(0, |record| record.counter(counters::LOG2 + class));
    let counts: [u64; counters::CLASSES] = core::array::from_fn(class);
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
