//! The `TicketLock` type: slots and fast-call methods over [`State`].

use core::ffi::{CStr, c_char, c_void};
use core::ptr;

use pyo3::ffi::{self, PyObject};
use ticketlock::telemetry::locks;
use ticketlock::{Draw, WaitStats};

use super::object::create;
use super::observed::Asked;
use super::tables::{
    END_OF_ATTRIBUTES, END_OF_METHODS, Recipe, Table, getter, keywords, new_type as new_type_of, no_arguments, positional,
};
use super::ticket_state::State;
use super::values::{backoff, boolean, is_name, name_of, none, raise, text};
use super::{callback_of, object, watch};
use crate::attach;

const DOC: &CStr = c"TicketLock(backoff='auto')
--

A strict ticket lock: threads get it in the order in which they asked for it.

backoff names how a waiter spaces its looks at the lock: 'none', 'proportional:N'
(or just the int N), 'proportional-v1:N', 'auto', 'auto-shared', 'auto-v1:2' or
'auto-v1:2.7'.

Good where every contending thread has a CPU of its own. With more threads than
CPUs the next in line is often not running, and everybody behind it waits for the
scheduler: use a lock that parks there.

Waiting cannot be interrupted: a signal's handler (Ctrl-C) runs once the lock is
granted. A thread that acquires a lock it holds waits for ever. A lock that others
wait for at a fork keeps their tickets in the child, where nobody will serve them:
call _at_fork_reinit() there.";

const ACQUIRE: &CStr = c"acquire($self, /, blocking=True)
--

Take the lock and return True.

With a false argument, return False at once if the lock is held. There is no
timeout: a ticket, once drawn, cannot be given back.";
const ACQUIRE_LOCK: &CStr = c"acquire_lock($self, /, blocking=True)
--

The same as acquire().";
const RELEASE: &CStr = c"release($self, /)
--

Let the next in line in. Any thread may release a held lock.

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
const REINIT: &CStr = c"_at_fork_reinit($self, /)
--

Make the lock unlocked again, in a forked child or while nobody uses it.

The lock keeps its id and its count of acquisitions, but not the delays learnt.";

static METHODS: Table<[ffi::PyMethodDef; 10]> = Table([
    keywords(c"acquire", acquire, ACQUIRE),
    no_arguments(c"release", release, RELEASE),
    no_arguments(c"locked", locked, LOCKED),
    no_arguments(c"__enter__", enter, ENTER),
    positional(c"__exit__", exit, EXIT),
    keywords(c"acquire_lock", acquire, ACQUIRE_LOCK),
    no_arguments(c"release_lock", release, RELEASE_LOCK),
    no_arguments(c"locked_lock", locked, LOCKED_LOCK),
    no_arguments(c"_at_fork_reinit", at_fork_reinit, REINIT),
    END_OF_METHODS,
]);

static ATTRIBUTES: Table<[ffi::PyGetSetDef; 4]> = Table([
    getter(c"backoff", get_backoff, c"How a waiter spaces its looks at the lock, by name."),
    getter(c"id", get_id, c"Number of this lock, unique in the process and never used again."),
    getter(c"acquisitions", get_acquisitions, c"How often the lock was taken; exact."),
    END_OF_ATTRIBUTES,
]);

/// A new `TicketLock` type for a module, or null with an exception set.
///
/// # Safety
/// Attached; `module` is our module, being executed.
pub(super) unsafe fn new_type(module: *mut PyObject) -> *mut PyObject {
    // Not to be derived from, as threading.Lock is not.
    let recipe = Recipe {
        name: c"ticketlock.TicketLock",
        doc: DOC,
        new,
        init: None,
        repr,
        methods: &METHODS.0,
        attributes: &ATTRIBUTES.0,
    };
    // SAFETY: the caller's promise; every function below takes objects made by `new`, with a `State`.
    unsafe { new_type_of::<State>(module, &recipe) }
}

unsafe extern "C" fn new(class: *mut ffi::PyTypeObject, args: *mut PyObject, keywords: *mut PyObject) -> *mut PyObject {
    let mut name: *mut PyObject = ptr::null_mut();
    let mut names = [c"backoff".as_ptr().cast_mut(), ptr::null_mut::<c_char>()];
    // SAFETY: attached; the names end with null, and the format has one object.
    unsafe {
        let format = c"|O:TicketLock".as_ptr();
        if ffi::PyArg_ParseTupleAndKeywords(args, keywords, format, names.as_mut_ptr().cast(), &raw mut name) == 0 {
            return ptr::null_mut();
        }
        let rule = if name.is_null() {
            ticketlock::Backoff::Auto
        } else {
            match backoff(name) {
                Some(rule) => rule,
                None => return ptr::null_mut(),
            }
        };
        let object = create(class, State::new(rule));
        if !object.is_null() {
            let state = state(object);
            if locks::sites_are_on() {
                state.observed.made(object, &state.who());
            }
        }
        object
    }
}

unsafe extern "C" fn repr(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe {
        let state = state(object);
        let locked = if state.lock.is_locked() { "locked" } else { "unlocked" };
        text(&format!("<{locked} ticketlock.TicketLock object backoff={} at {object:p}>", state.tuning.backoff))
    }
}

/// # Safety
/// `object` is a `TicketLock` (a method's `self` is: the interpreter checks before it calls).
#[inline]
unsafe fn state<'a>(object: *mut PyObject) -> &'a State {
    // SAFETY: the caller's promise, and `new` made it.
    unsafe { object::state(object) }
}

/// Takes the lock, waiting if it must.
///
/// # Safety
/// Attached; `object` is ours.
#[inline]
unsafe fn take(object: *mut PyObject) {
    // SAFETY: the caller's promise.
    unsafe {
        let state = state(object);
        // What must be asked of the interpreter is asked before a ticket is drawn: a finalizer that runs meanwhile may take this
        // lock, and would wait for ever behind its own thread's ticket.
        let asked = if state.lock.is_locked() { Some(state.observed.before_wait()) } else { None };
        match state.lock.draw() {
            Draw::Wait(queued) => wait(object, queued, asked.as_ref()),
            Draw::Granted => state.observed.taken_in_order(state.id, true),
        }
    }
}

/// Waits for a drawn ticket, detached, and leaves a report for the release if the delay outgrew all before.
#[cold]
#[inline(never)]
unsafe fn wait(object: *mut PyObject, queued: ticketlock::Queued, asked: Option<&Asked>) {
    // SAFETY: attached; the caller's reference keeps `object` alive; the wait uses nothing of the interpreter.
    unsafe {
        let state = state(object);
        let begun = state.observed.begin_wait(&state.who(), asked.unwrap_or(&Asked::NOTHING));
        let (waited, ns) = attach::detached(|| {
            let waited = state.lock.wait(queued, &state.tuning, state.key());
            (waited, begun.lasted())
        });
        let stats = WaitStats { ns, polls: waited.outcome.polls, ..WaitStats::default() };
        state.observed.won(&begun, &stats);
        state.observed.note_order(state.id, true, true);
        if let Some(report) = waited.watch {
            if let Some(pending) = watch::capture(report, callback_of(object)) {
                state.put_pending(pending);
            }
        }
    }
}

/// Releases the lock, if it is held; says whether it was.
///
/// # Safety
/// Attached; `object` is ours.
#[inline]
unsafe fn give(object: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let state = state(object);
        if state.observed.releasing() || state.has_pending() {
            return give_and_deliver(object);
        }
        unlock(state)
    }
}

/// With a GIL every checked release runs under it, so looking and then storing is exact, and cheaper. Without one, two
/// threads may release at once, and exactly one of them must fail. A process has one or the other.
#[inline]
fn unlock(state: &State) -> bool {
    if attach::always_has_gil() {
        let held = state.lock.is_locked();
        if held {
            // SAFETY: the lock is held, and Python lets any thread release it on the holder's behalf.
            unsafe { state.lock.raw_unlock() };
        }
        held
    } else {
        // SAFETY: a lock object's acquisitions are released here and nowhere else.
        unsafe { state.lock.checked_unlock() }.is_ok()
    }
}

#[cold]
#[inline(never)]
unsafe fn give_and_deliver(object: *mut PyObject) -> bool {
    // SAFETY: as in `give`; a method is called without an exception set.
    unsafe {
        let state = state(object);
        let (left, pending) = (state.observed.collect(state.id), state.take_pending());
        let held = unlock(state);
        if let Some(left) = left {
            left.deliver(object);
        }
        if let Some(pending) = pending {
            watch::deliver(&pending, callback_of(object));
        }
        held
    }
}

unsafe extern "C" fn acquire(
    object: *mut PyObject,
    args: *const *mut PyObject,
    count: ffi::Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the interpreter's calling convention: `count` positional arguments, then those that `names` names.
    unsafe {
        if count != 0 || !names.is_null() {
            match blocking(args, count, names) {
                None => return ptr::null_mut(),
                Some(true) => {}
                Some(false) => {
                    let state = state(object);
                    let taken = state.lock.raw_try_lock();
                    if taken {
                        state.observed.taken_in_order(state.id, false);
                    }
                    return boolean(taken);
                }
            }
        }
        take(object);
        boolean(true)
    }
}

/// The argument of `acquire`, or `None` with `TypeError` set.
unsafe fn blocking(args: *const *mut PyObject, count: ffi::Py_ssize_t, names: *mut PyObject) -> Option<bool> {
    // SAFETY: as in `acquire`.
    unsafe {
        let named = if names.is_null() { 0 } else { ffi::PyTuple_Size(names) };
        let mut value = if count > 0 { *args } else { ptr::null_mut() };
        for at in 0..named {
            let name = ffi::PyTuple_GetItem(names, at);
            if is_name(name, c"timeout") {
                return no_timeout();
            }
            if !is_name(name, c"blocking") {
                let message = format!("acquire() got an unexpected keyword argument {}", name_of(name));
                raise(ffi::PyExc_TypeError, &message);
                return None;
            }
            if !value.is_null() {
                raise(ffi::PyExc_TypeError, "acquire() got multiple values for argument 'blocking'");
                return None;
            }
            value = *args.offset(count + at);
        }
        match count {
            0 | 1 => {}
            2 => return no_timeout(),
            _ => {
                raise(ffi::PyExc_TypeError, &format!("acquire() takes at most 1 argument ({count} given)"));
                return None;
            }
        }
        // Callers may also say that there are no keywords with an empty tuple: then nothing was given.
        if value.is_null() {
            return Some(true);
        }
        match ffi::PyObject_IsTrue(value) {
            -1 => None,
            truth => Some(truth != 0),
        }
    }
}

unsafe fn no_timeout() -> Option<bool> {
    // SAFETY: attached, as the caller is.
    unsafe {
        raise(
            ffi::PyExc_TypeError,
            "acquire() of a TicketLock takes no timeout: a ticket, once drawn, cannot be given back, and those behind it \
             would wait for ever; timed acquisition belongs to Lock",
        );
    }
    None
}

unsafe extern "C" fn release(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe { if give(object) { none() } else { raise(ffi::PyExc_RuntimeError, "release unlocked lock") } }
}

unsafe extern "C" fn enter(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe {
        take(object);
        boolean(true)
    }
}

unsafe extern "C" fn exit(object: *mut PyObject, _args: *mut *mut PyObject, _count: ffi::Py_ssize_t) -> *mut PyObject {
    // SAFETY: as in `release`.
    unsafe { release(object, ptr::null_mut()) }
}

unsafe extern "C" fn locked(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe { boolean(state(object).lock.is_locked()) }
}

unsafe extern "C" fn at_fork_reinit(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours; that nobody uses it is the method's documented condition.
    unsafe {
        state(object).reset();
        none()
    }
}

unsafe extern "C" fn get_backoff(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe { text(&state(object).tuning.backoff.to_string()) }
}

unsafe extern "C" fn get_id(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe { ffi::PyLong_FromUnsignedLongLong(state(object).id) }
}

unsafe extern "C" fn get_acquisitions(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe { ffi::PyLong_FromUnsignedLongLong(state(object).observed.acquisitions()) }
}
