//! Detaching from the interpreter, and signals: nothing else in this crate does either.
//!
//! A thread that waits must be detached, with a GIL and without: attached, it would block the collector, `fork`, and, with
//! a GIL, the holder that it waits for. Order of locks: ours first, attach second; never the reverse.

use core::cell::Cell;
#[cfg(unix)]
use std::sync::Once;
use std::sync::{Mutex, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;

#[cfg(Py_GIL_DISABLED)]
use crate::sync::AtomicU32;
use crate::sync::{AtomicU64, Ordering};

/// Runs `body` detached, for `_core`. If the interpreter is finalizing, re-attaching never returns: the thread hangs, as a
/// daemon thread does in CPython 3.14. Earlier ones would end it under our frames, which `pyo3::ffi` prevents from 0.29 on;
/// with 0.28, which only free-threaded 3.13 gets, it does end there, so callers keep nothing that must be dropped.
///
/// # Safety
/// The calling thread is attached, and `body` uses nothing of the interpreter.
pub(crate) unsafe fn detached<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: the caller is attached; the state goes back to the thread it came from.
    unsafe {
        let thread_state = ffi::PyEval_SaveThread();
        let value = body();
        ffi::PyEval_RestoreThread(thread_state);
        value
    }
}

/// Runs `body` detached, for `_core`, again and again until it has a value. In between, attached, signals are handled, and
/// then `resume` is asked, which may have a value too. `None`: a handler raised, or `resume` did.
///
/// # Safety
/// As [`detached`].
pub(crate) unsafe fn handling_signals<T>(
    mut body: impl FnMut() -> Option<T>,
    mut resume: impl FnMut() -> Resume<T>,
) -> Option<T> {
    loop {
        // SAFETY: the caller's promise.
        if let Some(value) = unsafe { detached(&mut body) } {
            return Some(value);
        }
        // SAFETY: attached again. Where no handler can run this does nothing, but for a collection that is due (from 3.12 on).
        if unsafe { ffi::PyErr_CheckSignals() } != 0 {
            return None;
        }
        match resume() {
            Resume::Wait => {}
            Resume::Done(value) => return Some(value),
            Resume::Raised => return None,
        }
    }
}

/// What to do after signals were handled.
pub(crate) enum Resume<T> {
    /// Wait on.
    Wait,
    /// No need to.
    Done(T),
    /// An exception is set.
    Raised,
}

/// The calling thread, as `threading.get_ident()` has it; never 0. It is `pthread_self()`, or Windows' thread id.
#[inline]
pub(crate) fn thread_ident() -> u64 {
    #[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
    // SAFETY: the ABI of x86-64 has the thread's control block begin with its own address, and that is what `pthread_self`
    // returns, in glibc and in musl. The call would be the dearest part of an `RLock`'s methods.
    unsafe {
        let block: u64;
        core::arch::asm!("mov {}, fs:[0]", out(reg) block, options(pure, readonly, nostack, preserves_flags));
        block
    }
    #[cfg(all(unix, not(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))))]
    // SAFETY: no arguments, cannot fail. It is what CPython itself asks; its own function for it costs a second call.
    unsafe {
        libc::pthread_self() as u64
    }
    #[cfg(not(unix))]
    ticketlock::machine::thread_id()
}

/// Ident of the thread that runs signal handlers; 0 while unknown. A number, and the same for all interpreters.
static SIGNAL_THREAD: AtomicU64 = AtomicU64::new(0);

/// How often the interpreter was started, at least: what was learnt of threads before is forgotten.
static STARTS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The start at which the calling thread was found not to handle signals. It never will, but in a forked child, where
    /// `SIGNAL_THREAD` is known.
    static DOES_NOT: Cell<u64> = const { Cell::new(0) };
}

/// Whether the interpreter would run signal handlers in the calling thread: it is the main thread of the main interpreter.
///
/// # Safety
/// Attached; no exception is set.
pub(crate) unsafe fn handles_signals() -> bool {
    // SAFETY: attached.
    if unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) } != 0 {
        return false;
    }
    match SIGNAL_THREAD.load(Ordering::Relaxed) {
        // SAFETY: the caller's promise.
        0 => DOES_NOT.get() != STARTS.load(Ordering::Relaxed) && unsafe { find_signal_thread() },
        known => known == thread_ident(),
    }
}

/// The main interpreter, which may have been started again, imports the library.
///
/// # Safety
/// As [`handles_signals`].
pub(crate) unsafe fn on_import() {
    // SAFETY: attached, as the caller says.
    if unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) } == 0 {
        STARTS.fetch_add(1, Ordering::Relaxed);
        SIGNAL_THREAD.store(0, Ordering::Relaxed);
    }
    // SAFETY: the caller's promise.
    unsafe { handles_signals() };
}

/// Looks whether the calling thread handles signals, to know it later without asking; notes what a fork does to it.
///
/// # Safety
/// Attached; no exception is set.
#[cold]
unsafe fn find_signal_thread() -> bool {
    #[cfg(unix)]
    {
        extern "C" fn in_child() {
            // Whichever thread forked is the main thread of the child.
            SIGNAL_THREAD.store(thread_ident(), Ordering::Relaxed);
        }
        static WATCH_FORKS: Once = Once::new();
        // SAFETY: the handler only stores a number. Were it refused, forking threads other than the main one would not be
        // found in their children.
        WATCH_FORKS.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        });
    }
    // SAFETY: the caller's promise.
    if unsafe { may_set_handlers() } {
        SIGNAL_THREAD.store(thread_ident(), Ordering::Relaxed);
        return true;
    }
    // SAFETY: likewise. Late in its exit the interpreter imports nothing, not even to ask: but then only the main thread runs.
    if unsafe { is_finalizing() } {
        return true;
    }
    DOES_NOT.set(STARTS.load(Ordering::Relaxed));
    false
}

/// Asks by a call that has no effect. Only the thread that runs handlers may set where signals are announced: others get
/// `ValueError`, and it gets `OSError` for a descriptor that cannot be open.
unsafe fn may_set_handlers() -> bool {
    const NOT_OPEN: core::ffi::c_int = core::ffi::c_int::MAX;
    // SAFETY: attached, as the caller says; the format has one int.
    unsafe {
        let module = ffi::PyImport_ImportModule(c"_signal".as_ptr());
        if !module.is_null() {
            let answer = ffi::PyObject_CallMethod(module, c"set_wakeup_fd".as_ptr(), c"i".as_ptr(), NOT_OPEN);
            ffi::Py_XDECREF(answer);
            ffi::Py_DECREF(module);
        }
        let here = !ffi::PyErr_Occurred().is_null() && ffi::PyErr_ExceptionMatches(ffi::PyExc_OSError) != 0;
        ffi::PyErr_Clear();
        here
    }
}

/// Whether this interpreter has a GIL, whatever happens: then only one thread at a time is in a method of ours.
#[cfg(not(Py_GIL_DISABLED))]
#[inline]
pub(crate) const fn always_has_gil() -> bool {
    true
}

/// Likewise: a free-threaded build's GIL can be off.
#[cfg(all(Py_GIL_DISABLED, not(Py_LIMITED_API)))]
#[inline]
pub(crate) const fn always_has_gil() -> bool {
    false
}

/// Likewise: the stable interface of free-threaded builds is also that of those with a GIL, and only [`learn_gil`] knows.
#[cfg(all(Py_GIL_DISABLED, Py_LIMITED_API))]
#[inline]
pub(crate) fn always_has_gil() -> bool {
    ALWAYS_HAS_GIL.load(Ordering::Relaxed) != 0
}

#[cfg(all(Py_GIL_DISABLED, Py_LIMITED_API))]
static ALWAYS_HAS_GIL: AtomicU32 = AtomicU32::new(0);

/// Finds out which build of the interpreter this is. Before the first lock is made.
#[cfg(all(Py_GIL_DISABLED, Py_LIMITED_API))]
pub(crate) fn learn_gil() {
    // SAFETY: a static text. That it says so is documented for `sys.version`.
    let version = unsafe { core::ffi::CStr::from_ptr(ffi::Py_GetVersion()) };
    let free_threaded = version.to_string_lossy().contains("free-threading");
    ALWAYS_HAS_GIL.store((!free_threaded).into(), Ordering::Relaxed);
}

/// Whether a thread that computes keeps others from running Python: then a waiter must not spin. A free-threaded build runs
/// with a GIL where somebody asked for it, or imported a module that wants one. The answer is wrong for a moment after that:
/// what hangs on it is speed.
///
/// # Safety
/// Attached; no exception is set.
pub(crate) unsafe fn gil_is_on() -> bool {
    // SAFETY: the caller's promise.
    always_has_gil() || unsafe { gil_was_on() }
}

#[cfg(not(Py_GIL_DISABLED))]
unsafe fn gil_was_on() -> bool {
    true
}

#[cfg(Py_GIL_DISABLED)]
unsafe fn gil_was_on() -> bool {
    /// Answers that one question serves, since asking costs a call of a Python function (some 50 ns).
    const KEPT_FOR: u32 = 64;
    const ON: u32 = 1 << 31;
    /// The last answer, and how often it was used. Racing updates lose a count, nothing more.
    static KNOWN: AtomicU32 = AtomicU32::new(KEPT_FOR);

    let known = KNOWN.load(Ordering::Relaxed);
    let used = known & !ON;
    if used < KEPT_FOR {
        KNOWN.store((known & ON) | (used + 1), Ordering::Relaxed);
        return known & ON != 0;
    }
    // SAFETY: as in `gil_is_on`. Free-threaded interpreters have the function.
    let on = match unsafe { asked_of_sys(c"_is_gil_enabled") } {
        Asked::Answer(on) => on,
        Asked::Missing => false,
        // Ask again next time.
        Asked::Failed => return known & ON != 0,
    };
    KNOWN.store(if on { ON } else { 0 }, Ordering::Relaxed);
    on
}

/// Whether the interpreter is on its way out: no thread but this one runs Python any more.
///
/// # Safety
/// Attached; no exception is set.
pub(crate) unsafe fn is_finalizing() -> bool {
    // SAFETY: the caller's promise.
    match unsafe { asked_of_sys(c"is_finalizing") } {
        Asked::Answer(finalizing) => finalizing,
        // At the very end `sys` is empty.
        Asked::Missing => true,
        // Out of stack, or of memory: the question comes again with the next slice of the wait.
        Asked::Failed => false,
    }
}

/// What became of a question.
enum Asked {
    Answer(bool),
    /// There is no such function.
    Missing,
    /// It raised.
    Failed,
}

/// The answer of a function of `sys` without arguments; leaves no exception.
unsafe fn asked_of_sys(function: &core::ffi::CStr) -> Asked {
    // SAFETY: attached, as the caller says; the function is lent by `sys`, so it gets a reference for the call.
    unsafe {
        let function = ffi::PySys_GetObject(function.as_ptr());
        // A module that is taken down has its contents replaced by None.
        if function.is_null() || function == ffi::Py_None() {
            return Asked::Missing;
        }
        ffi::Py_INCREF(function);
        let answer = ffi::PyObject_CallNoArgs(function);
        ffi::Py_DECREF(function);
        let truth = if answer.is_null() { -1 } else { ffi::PyObject_IsTrue(answer) };
        ffi::Py_XDECREF(answer);
        if truth < 0 {
            ffi::PyErr_Clear();
            return Asked::Failed;
        }
        Asked::Answer(truth == 1)
    }
}

/// Runs `body` detached, for `_lab`: work that takes milliseconds and cannot be stopped.
pub(crate) fn blocking<T: Send>(py: Python<'_>, body: impl FnOnce() -> T + Send) -> T {
    py.detach(body)
}

/// Runs `body` detached, for `_lab`. It gets a function to call at least every 50 ms, which handles signals and answers
/// whether to stop because a handler raised (`KeyboardInterrupt`); what was raised is then the result.
pub(crate) fn interruptible<T: Send>(py: Python<'_>, body: impl FnOnce(&dyn Fn() -> bool) -> T + Send) -> PyResult<T> {
    let raised = Mutex::new(None);
    let value = py.detach(|| {
        body(&|| {
            Python::attach(|py| match py.check_signals() {
                Ok(()) => false,
                Err(error) => {
                    *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    true
                }
            })
        })
    });
    match raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(value),
    }
}
