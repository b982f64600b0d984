//! The `Lock` type: what `threading.Lock` promises, over [`Gate`].

use core::ffi::CStr;
use core::ptr;

use pyo3::ffi::{self, PyObject};
use ticketlock::telemetry::layout::Kind;

use super::gate::{Gate, Taken};
use super::gate_members::{FAIRNESS, ID, NAME, STATS, get_fairness, get_id, get_name, get_stats};
use super::object::{create, state};
use super::request::{Request, request};
use super::tables::{
    self, END_OF_ATTRIBUTES, END_OF_METHODS, Recipe, Table, getter, keywords, no_arguments, one_argument, positional,
};
use super::values::{boolean, none, options, raise, text};
use crate::attach;

const DOC: &CStr = c"Lock(*, name=None, fairness='balanced')
--

A lock for the threads of one process: a drop-in for threading.Lock that is fair.

Whoever finds the lock free takes it, and those who wait for it sleep. So that they
do not wait for ever, a release hands the lock on to the eldest at a pace that
fairness sets: 'throughput' (every 5 to 10 ms), 'balanced' (about every half
millisecond), or 'strict' (to all who have waited for 1 ms: when a lock is busy,
that is a switch of threads for nearly every acquisition).

name says what the lock is for, in its repr and in reports.

Any thread may release a held lock. A thread that acquires a lock it holds waits
for itself.";

const ACQUIRE: &CStr = c"acquire($self, /, blocking=True, timeout=-1)
--

Take the lock and return True; False if that was not possible.

With blocking=False, do not wait. With a timeout, wait so many seconds at most; -1
means as long as it takes.

In the main thread signal handlers run meanwhile: if one raises, so does acquire,
and the lock is not taken.";
const ACQUIRE_LOCK: &CStr = c"acquire_lock($self, /, blocking=True, timeout=-1)
--

The same as acquire().";
const RELEASE: &CStr = c"release($self, /)
--

Release the lock. Any thread may do so, not just the one that took it.

Raises RuntimeError if the lock is not held.";
const RELEASE_LOCK: &CStr = c"release_lock($self, /)
--

The same as release().";
const LOCKED: &CStr = c"locked($self, /)
--

Return whether the lock is held, by whichever thread.";
const LOCKED_LOCK: &CStr = c"locked_lock($self, /)
--

The same as locked().";
const ENTER: &CStr = c"__enter__($self, /)
--

Take the lock and return True.";
const EXIT: &CStr = c"__exit__($self, /, *exc_info)
--

Release the lock.";
const RELEASE_SAVE: &CStr = c"_release_save($self, /)
--

Release the lock for a wait on a condition.";
const ACQUIRE_RESTORE: &CStr = c"_acquire_restore($self, state, /)
--

Take the lock again after a wait on a condition, whatever signals come: a condition
whose wait ends without the lock would go on to release somebody else's.";
const REINIT: &CStr = c"_at_fork_reinit($self, /)
--

Make the lock unlocked again, in a forked child or while nobody uses it.

The lock keeps its name, its id and its counts.";

static METHODS: Table<[ffi::PyMethodDef; 13]> = Table([
    keywords(c"acquire", acquire, ACQUIRE),
    no_arguments(c"release", release, RELEASE),
    no_arguments(c"locked", locked, LOCKED),
    no_arguments(c"__enter__", enter, ENTER),
    positional(c"__exit__", exit, EXIT),
    keywords(c"acquire_lock", acquire, ACQUIRE_LOCK),
    no_arguments(c"release_lock", release, RELEASE_LOCK),
    no_arguments(c"locked_lock", locked, LOCKED_LOCK),
    no_arguments(c"_release_save", release, RELEASE_SAVE),
    one_argument(c"_acquire_restore", acquire_restore, ACQUIRE_RESTORE),
    no_arguments(c"_at_fork_reinit", at_fork_reinit, REINIT),
    no_arguments(c"stats", get_stats::<Gate>, STATS),
    END_OF_METHODS,
]);

static ATTRIBUTES: Table<[ffi::PyGetSetDef; 4]> = Table([
    getter(c"name", get_name::<Gate>, NAME),
    getter(c"fairness", get_fairness::<Gate>, FAIRNESS),
    getter(c"id", get_id::<Gate>, ID),
    END_OF_ATTRIBUTES,
]);

/// A new `Lock` type for a module, or null with an exception set.
///
/// # Safety
/// Attached; `module` is our module, being executed.
pub(super) unsafe fn new_type(module: *mut PyObject) -> *mut PyObject {
    // Not to be derived from, as threading.Lock is not.
    let recipe =
        Recipe { name: c"ticketlock.Lock", doc: DOC, new, init: None, repr, methods: &METHODS.0, attributes: &ATTRIBUTES.0 };
    // SAFETY: the caller's promise; every function below takes objects made by `new`, with a `Gate`.
    unsafe { tables::new_type::<Gate>(module, &recipe) }
}

unsafe extern "C" fn new(class: *mut ffi::PyTypeObject, args: *mut PyObject, keywords: *mut PyObject) -> *mut PyObject {
    // SAFETY: the interpreter's calling convention.
    unsafe {
        let Some(options) = options(args, keywords, c"|$OO:Lock") else { return ptr::null_mut() };
        let object = create(class, Gate::new(Kind::Lock, options));
        if !object.is_null() {
            gate(object).made(object);
        }
        object
    }
}

/// # Safety
/// `object` is a `Lock` (a method's `self` is: the interpreter checks before it calls).
#[inline]
unsafe fn gate<'a>(object: *mut PyObject) -> &'a Gate {
    // SAFETY: the caller's promise, and `new` made it.
    unsafe { state(object) }
}

unsafe extern "C" fn repr(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe {
        let gate = gate(object);
        let locked = if gate.lock.is_locked() { "locked" } else { "unlocked" };
        text(&format!("<{locked} ticketlock.Lock object {}at {object:p}>", gate.name_shown()))
    }
}

/// Takes the lock, waiting as long as it takes.
///
/// # Safety
/// Attached; `object` is ours.
#[inline]
unsafe fn take(object: *mut PyObject, timeout: Option<u64>) -> Taken {
    // SAFETY: the caller's promise.
    unsafe {
        let gate = gate(object);
        if gate.first_try(true) { Taken::Yes } else { gate.wait(timeout, Some(&|| None)) }
    }
}

unsafe extern "C" fn acquire(
    object: *mut PyObject,
    args: *const *mut PyObject,
    count: ffi::Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the interpreter's calling convention; `object` is ours.
    unsafe {
        if count == 0 && names.is_null() {
            return take(object, None).answer();
        }
        match request(args, count, names) {
            None => ptr::null_mut(),
            Some(Request::Try) => boolean(gate(object).try_take()),
            Some(Request::Wait(timeout)) => take(object, timeout).answer(),
        }
    }
}

/// With a GIL every checked release runs under it, so looking and then storing is exact, and cheaper. Without one, two
/// threads may release at once, and exactly one of them must fail. A process has one or the other.
#[inline]
fn unlock(gate: &Gate) -> bool {
    if attach::always_has_gil() {
        let held = gate.lock.is_locked();
        if held {
            // SAFETY: the lock is held, and Python lets any thread release it on the holder's behalf.
            unsafe { gate.lock.raw_unlock() };
        }
        held
    } else {
        // SAFETY: a `Lock` object's acquisitions are released here and nowhere else.
        unsafe { gate.lock.checked_unlock() }.is_ok()
    }
}

/// One copy of the code, to which `__exit__` jumps: with one of its own `with` was 5 ns dearer on Python 3.15, whose own lock
/// leaves no room for that.
#[inline(never)]
unsafe extern "C" fn release(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe {
        let gate = gate(object);
        let released = if gate.observed.releasing() { release_and_tell(object) } else { unlock(gate) };
        if released { none() } else { raise(ffi::PyExc_RuntimeError, "release unlocked lock") }
    }
}

/// Releases, and sees to what waits for that.
#[cold]
#[inline(never)]
unsafe fn release_and_tell(object: *mut PyObject) -> bool {
    // SAFETY: `object` is ours, as the caller says; a method is called without an exception set.
    unsafe {
        let gate = gate(object);
        let left = gate.observed.collect(gate.id);
        let released = unlock(gate);
        if let Some(left) = left {
            left.deliver(object);
        }
        released
    }
}

unsafe extern "C" fn enter(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe { take(object, None).answer() }
}

unsafe extern "C" fn exit(object: *mut PyObject, _args: *mut *mut PyObject, _count: ffi::Py_ssize_t) -> *mut PyObject {
    // SAFETY: as in `release`.
    unsafe { release(object, ptr::null_mut()) }
}

unsafe extern "C" fn acquire_restore(object: *mut PyObject, _state: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe {
        let gate = gate(object);
        if !gate.first_try(false) {
            gate.wait(None, None);
        }
        none()
    }
}

unsafe extern "C" fn locked(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe { boolean(gate(object).lock.is_locked()) }
}

unsafe extern "C" fn at_fork_reinit(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours; that nobody uses it is the method's documented condition.
    unsafe {
        gate(object).lock.reset();
        gate(object).observed.reset();
        none()
    }
}
