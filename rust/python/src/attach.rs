//! Detaching from the interpreter, and signals: nothing else in this crate does either.
//!
//! A thread that waits must be detached, with a GIL and without: attached, it would block the collector, `fork`, and, with
//! a GIL, the holder that it waits for. Order of locks: ours first, attach second; never the reverse.

use std::sync::{Mutex, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;

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
