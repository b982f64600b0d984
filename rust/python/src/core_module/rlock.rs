//! The `RLock` type: what `threading.RLock` promises, over a [`Gate`] with an owner.

use core::ffi::{CStr, c_int};
use core::ptr;

use pyo3::ffi::{self, PyObject};
use ticketlock::telemetry::layout::Kind;

use super::gate::{Gate, Options, Taken};
use super::gate_members::{FAIRNESS, Gated, ID, NAME, STATS, get_fairness, get_id, get_name, get_stats};
use super::object::{self, create};
use super::request::{Request, request};
use super::tables::{
    self, END_OF_ATTRIBUTES, END_OF_METHODS, Recipe, Table, getter, keywords, no_arguments, one_argument, positional,
};
use super::values::{boolean, class_name, none, options, raise, text, type_name, unsigned};
use crate::attach::thread_ident;
use crate::sync::{AtomicU64, Ordering};

const DOC: &CStr = c"RLock(*, name=None, fairness='balanced')
--

A lock that the thread which holds it may take again: a drop-in for threading.RLock
that is fair.

It is free again when it was released as often as it was taken, by that thread.
name and fairness are those of Lock.";

const ACQUIRE: &CStr = c"acquire($self, /, blocking=True, timeout=-1)
--

Take the lock and return True; False if that was not possible.

If this thread holds the lock already, that succeeds at once, and takes one more
release(). Otherwise it is as for Lock.";
const RELEASE: &CStr = c"release($self, /)
--

Undo one acquire(); the lock is free when none is left.

Raises RuntimeError if this thread does not hold the lock.";
const LOCKED: &CStr = c"locked($self, /)
--

Return whether the lock is held, by whichever thread.";
const ENTER: &CStr = c"__enter__($self, /)
--

Take the lock and return True.";
const EXIT: &CStr = c"__exit__($self, /, *exc_info)
--

Undo one acquire().";
const IS_OWNED: &CStr = c"_is_owned($self, /)
--

Return whether this thread holds the lock.";
const RECURSION_COUNT: &CStr = c"_recursion_count($self, /)
--

Return how often this thread has yet to release the lock.";
const RELEASE_SAVE: &CStr = c"_release_save($self, /)
--

Release the lock for a wait on a condition, however often it was taken; return what
_acquire_restore() wants.";
const ACQUIRE_RESTORE: &CStr = c"_acquire_restore($self, state, /)
--

Take the lock again as often as it was taken before _release_save(), whatever
signals come.";
const REINIT: &CStr = c"_at_fork_reinit($self, /)
--

Make the lock unlocked again, in a forked child or while nobody uses it.

The lock keeps its name, its id and its counts.";

static METHODS: Table<[ffi::PyMethodDef; 12]> = Table([
    keywords(c"acquire", acquire, ACQUIRE),
    no_arguments(c"release", release, RELEASE),
    no_arguments(c"locked", locked, LOCKED),
    no_arguments(c"__enter__", enter, ENTER),
    positional(c"__exit__", exit, EXIT),
    no_arguments(c"_is_owned", is_owned, IS_OWNED),
    no_arguments(c"_recursion_count", recursion_count, RECURSION_COUNT),
    no_arguments(c"_release_save", release_save, RELEASE_SAVE),
    one_argument(c"_acquire_restore", acquire_restore, ACQUIRE_RESTORE),
    no_arguments(c"_at_fork_reinit", at_fork_reinit, REINIT),
    no_arguments(c"stats", get_stats::<Reentrant>, STATS),
    END_OF_METHODS,
]);

static ATTRIBUTES: Table<[ffi::PyGetSetDef; 4]> = Table([
    getter(c"name", get_name::<Reentrant>, NAME),
    getter(c"fairness", get_fairness::<Reentrant>, FAIRNESS),
    getter(c"id", get_id::<Reentrant>, ID),
    END_OF_ATTRIBUTES,
]);

/// The native part of an `RLock`.
///
/// | `owner` | `count` | `gate.lock` | meaning |
/// |---|---|---|---|
/// | 0 | 0 | unlocked | free |
/// | 0 | 0 | locked | taken or given up just now |
/// | ident | `n > 0` | locked | that thread has yet to release it `n` times |
///
/// Only the thread that holds `gate.lock` writes; who reads its own ident in `owner` wrote it.
#[repr(C)]
struct Reentrant {
    owner: AtomicU64,
    count: AtomicU64,
    gate: Gate,
}

impl Gated for Reentrant {
    fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl Reentrant {
    #[inline]
    fn owned_by(&self, thread: u64) -> bool {
        self.owner.load(Ordering::Relaxed) == thread
    }

    /// Writes down that the lock, just taken, is `thread`'s, or nobody's.
    #[inline]
    fn set_owner(&self, thread: u64, count: u64) {
        self.owner.store(thread, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
    }

    /// Takes the lock once more, if it is `thread`'s.
    #[inline]
    unsafe fn reenter(&self, thread: u64) -> Option<Taken> {
        if !self.owned_by(thread) {
            return None;
        }
        let Some(count) = self.count.load(Ordering::Relaxed).checked_add(1) else {
            // SAFETY: attached, as the callers are.
            unsafe { raise(ffi::PyExc_OverflowError, "internal lock count overflowed") };
            return Some(Taken::Raised);
        };
        self.count.store(count, Ordering::Relaxed);
        Some(Taken::Yes)
    }

    /// Takes the lock for the calling thread.
    ///
    /// # Safety
    /// Attached; no exception is set; the caller's reference keeps the lock alive.
    #[inline]
    unsafe fn take(&self, asked: Request) -> Taken {
        let thread = thread_ident();
        // SAFETY: the caller's promise.
        if let Some(taken) = unsafe { self.reenter(thread) } {
            return taken;
        }
        let taken = match asked {
            // SAFETY: the caller's promise.
            Request::Try => unsafe { self.gate.try_take() },
            // SAFETY: likewise.
            Request::Wait(_) => unsafe { self.gate.first_try(true) },
        };
        if taken {
            self.set_owner(thread, 1);
            return Taken::Yes;
        }
        match asked {
            Request::Try => Taken::No,
            // SAFETY: the caller's promise.
            Request::Wait(timeout) => unsafe { self.wait(thread, timeout) },
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn wait(&self, thread: u64, timeout: Option<u64>) -> Taken {
        // SAFETY: as in `take`. A handler may leave the lock with this thread: then waiting on would be for itself.
        unsafe {
            let taken = self.gate.wait(timeout, Some(&|| self.reenter(thread)));
            if taken == Taken::Yes && !self.owned_by(thread) {
                self.set_owner(thread, 1);
            }
            taken
        }
    }

    /// Gives up the lock altogether. For the owner: a plain release is exact.
    ///
    /// # Safety
    /// Attached; no exception is set; `object` is this lock.
    #[inline]
    unsafe fn give(&self, object: *mut PyObject) {
        let more = self.gate.observed.releasing();
        self.set_owner(0, 0);
        // SAFETY: the calling thread holds the lock, and an owner's release is the only one; the caller's promise.
        unsafe { if more { self.give_and_tell(object) } else { self.gate.lock.raw_unlock() } }
    }

    #[cold]
    #[inline(never)]
    unsafe fn give_and_tell(&self, object: *mut PyObject) {
        let left = self.gate.observed.collect(self.gate.id);
        // SAFETY: as in `give`.
        unsafe {
            self.gate.lock.raw_unlock();
            if let Some(left) = left {
                left.deliver(object);
            }
        }
    }

    /// Owner and count that belong together, as far as another thread can tell.
    fn owner_and_count(&self) -> (u64, u64) {
        /// Looks before what was read is taken as it is: a busy lock may change all the time.
        const LOOKS: u32 = 8;
        let mut seen = (0, 0);
        for _ in 0..LOOKS {
            let owner = self.owner.load(Ordering::Relaxed);
            seen = (owner, self.count.load(Ordering::Relaxed));
            if (owner == 0) == (seen.1 == 0) && self.owned_by(owner) {
                break;
            }
        }
        seen
    }
}

/// A new `RLock` type for a module, or null with an exception set.
///
/// # Safety
/// Attached; `module` is our module, being executed.
pub(super) unsafe fn new_type(module: *mut PyObject) -> *mut PyObject {
    let recipe = Recipe {
        name: c"ticketlock.RLock",
        doc: DOC,
        new,
        init: Some(init),
        repr,
        methods: &METHODS.0,
        attributes: &ATTRIBUTES.0,
    };
    // SAFETY: the caller's promise; every function below takes objects made by `new`, with a `Reentrant`.
    unsafe { tables::new_type::<Reentrant>(module, &recipe) }
}

/// Ignores its arguments: they are `__init__`'s, which derived types may give others.
unsafe extern "C" fn new(class: *mut ffi::PyTypeObject, _args: *mut PyObject, _keywords: *mut PyObject) -> *mut PyObject {
    let gate = Gate::new(Kind::RLock, Options::default());
    // SAFETY: the interpreter's calling convention.
    unsafe {
        let object = create(class, Reentrant { owner: AtomicU64::new(0), count: AtomicU64::new(0), gate });
        if !object.is_null() {
            state(object).gate.made(object);
        }
        object
    }
}

unsafe extern "C" fn init(object: *mut PyObject, args: *mut PyObject, keywords: *mut PyObject) -> c_int {
    // SAFETY: the interpreter's calling convention; `object` is ours.
    unsafe {
        let Some(options) = options(args, keywords, c"|$OO:RLock") else { return -1 };
        state(object).gate.set(options);
    }
    0
}

/// # Safety
/// `object` is an `RLock` (a method's `self` is: the interpreter checks before it calls).
#[inline]
unsafe fn state<'a>(object: *mut PyObject) -> &'a Reentrant {
    // SAFETY: the caller's promise, and `new` made it.
    unsafe { object::state(object) }
}

unsafe extern "C" fn repr(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe {
        let state = state(object);
        let locked = if state.gate.lock.is_locked() { "locked" } else { "unlocked" };
        let (owner, count) = state.owner_and_count();
        let (class, name) = (class_name(object), state.gate.name_shown());
        text(&format!("<{locked} {class} object {name}owner={owner} count={count} at {object:p}>"))
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
        let mut asked = Request::Wait(None);
        if count != 0 || !names.is_null() {
            let Some(request) = request(args, count, names) else { return ptr::null_mut() };
            asked = request;
        }
        state(object).take(asked).answer()
    }
}

unsafe extern "C" fn enter(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe { state(object).take(Request::Wait(None)).answer() }
}

unsafe extern "C" fn release(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe {
        let state = state(object);
        if !state.owned_by(thread_ident()) {
            return not_owned();
        }
        match state.count.load(Ordering::Relaxed) {
            count @ 2.. => state.count.store(count - 1, Ordering::Relaxed),
            _ => state.give(object),
        }
        none()
    }
}

#[cold]
unsafe fn not_owned() -> *mut PyObject {
    // SAFETY: attached, as the callers are.
    unsafe { raise(ffi::PyExc_RuntimeError, "cannot release un-acquired lock") }
}

unsafe extern "C" fn exit(object: *mut PyObject, _args: *mut *mut PyObject, _count: ffi::Py_ssize_t) -> *mut PyObject {
    // SAFETY: as in `release`.
    unsafe { release(object, ptr::null_mut()) }
}

unsafe extern "C" fn locked(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe { boolean(state(object).gate.lock.is_locked()) }
}

unsafe extern "C" fn is_owned(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe { boolean(state(object).owned_by(thread_ident())) }
}

unsafe extern "C" fn recursion_count(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours.
    unsafe {
        let state = state(object);
        let count = if state.owned_by(thread_ident()) { state.count.load(Ordering::Relaxed) } else { 0 };
        ffi::PyLong_FromUnsignedLongLong(count)
    }
}

unsafe extern "C" fn release_save(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours. `PyTuple_SetItem` takes the reference over, also where it fails.
    unsafe {
        // Before anything is looked at: making a tuple may run the collector, and so finalizers that use the lock.
        let saved = ffi::PyTuple_New(2);
        if saved.is_null() {
            return saved;
        }
        let (state, owner) = (state(object), thread_ident());
        if !state.owned_by(owner) {
            ffi::Py_DECREF(saved);
            return not_owned();
        }
        for (at, number) in [state.count.load(Ordering::Relaxed), owner].into_iter().enumerate() {
            let number = ffi::PyLong_FromUnsignedLongLong(number);
            if number.is_null() || ffi::PyTuple_SetItem(saved, at as ffi::Py_ssize_t, number) != 0 {
                ffi::Py_DECREF(saved);
                return ptr::null_mut();
            }
        }
        // Only now: what cannot be told to the caller must not be given up.
        state.give(object);
        saved
    }
}

unsafe extern "C" fn acquire_restore(object: *mut PyObject, saved: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours; a tuple lends its items.
    unsafe {
        if ffi::PyTuple_Check(saved) == 0 || ffi::PyTuple_Size(saved) != 2 {
            let given = type_name(saved);
            let message = format!("_acquire_restore() argument must be the tuple that _release_save() returned, not {given}");
            return raise(ffi::PyExc_TypeError, &message);
        }
        let (Some(count), Some(owner)) = (unsigned(ffi::PyTuple_GetItem(saved, 0)), unsigned(ffi::PyTuple_GetItem(saved, 1)))
        else {
            return ptr::null_mut();
        };
        if count == 0 || owner == 0 {
            let message = "_acquire_restore() argument must be the tuple that _release_save() returned: count and owner, not 0";
            return raise(ffi::PyExc_ValueError, message);
        }
        let state = state(object);
        if !state.gate.first_try(false) {
            state.gate.wait(None, None);
        }
        state.set_owner(owner, count);
        none()
    }
}

unsafe extern "C" fn at_fork_reinit(object: *mut PyObject, _unused: *mut PyObject) -> *mut PyObject {
    // SAFETY: `object` is ours; that nobody uses it is the method's documented condition.
    unsafe {
        let state = state(object);
        state.set_owner(0, 0);
        state.gate.lock.reset();
        state.gate.observed.reset();
        none()
    }
}
