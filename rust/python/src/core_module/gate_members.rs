//! Methods and attributes that are the same for `Lock` and `RLock`.

use core::ffi::{CStr, c_void};

use pyo3::ffi::{self, PyObject};

use super::gate::Gate;
use super::object::state;
use super::stats;
use super::values::{none, text};

/// A native part with a [`Gate`] in it.
pub(super) trait Gated {
    fn gate(&self) -> &Gate;
}

impl Gated for Gate {
    fn gate(&self) -> &Gate {
        self
    }
}

pub(super) const STATS: &CStr = c"stats($self, /)
--

Return what the lock counted since it was made, as a dict.

acquisitions   how often it was taken
contended      how often that took a wait
wait_ns_sum    length of these waits in all, in nanoseconds
wait_ns_max    length of the longest
wait_ns_log2   list: item i counts waits of 2**i up to 2**(i+1) nanoseconds
parks          how often a waiter slept
timeouts       how often a wait was given up
hand_overs     how often a holder passed the lock on to a waiter";
pub(super) const NAME: &CStr = c"What the lock is for: the name given to it, or None.";
pub(super) const FAIRNESS: &CStr = c"How turns are given: 'throughput', 'balanced' or 'strict'.";
pub(super) const ID: &CStr = c"Number of this lock, unique in the process and never used again.";

pub(super) unsafe extern "C" fn get_stats<S: Gated>(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: a method's `self`, with an `S`.
    unsafe { stats::as_dict(&state::<S>(object).gate().observed) }
}

pub(super) unsafe extern "C" fn get_name<S: Gated>(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: as in `stats`.
    unsafe { state::<S>(object).gate().name().unwrap_or_else(|| none()) }
}

pub(super) unsafe extern "C" fn get_fairness<S: Gated>(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: as in `stats`.
    unsafe { text(state::<S>(object).gate().fairness().name()) }
}

pub(super) unsafe extern "C" fn get_id<S: Gated>(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: as in `stats`.
    unsafe { ffi::PyLong_FromUnsignedLongLong(state::<S>(object).gate().id) }
}
