//! What `Lock` and `RLock` share: the native lock, its name, its counts, and how a Python thread waits for it.

use core::cell::Cell;
use core::ptr;
use std::sync::{Mutex, PoisonError};

use pyo3::ffi::{self, PyObject};
use ticketlock::policy::LockKey;
use ticketlock::telemetry::layout::Kind;
use ticketlock::telemetry::locks;
use ticketlock::{Deadline, Ended, Fairness, Lock, Wait, Waiting, lock};

use super::observed::{Observed, Who};
use super::values::{boolean, raise, shown, text};
use crate::attach::{self, Resume};
use crate::sync::{AtomicU32, Ordering};

/// The native part of a `Lock`, and the larger one of an `RLock`.
#[repr(C)]
pub(super) struct Gate {
    pub(super) lock: Lock,
    pub(super) observed: Observed,
    /// Unique in the process, never used again.
    pub(super) id: u64,
    /// Index in `Fairness::ALL`. An `RLock` learns it after it was made.
    fairness: AtomicU32,
    /// Which of the two it is.
    kind: Kind,
    /// Text instead of a Python object: a lock refers to none, so the collector need not look into it. Nobody calls into
    /// the interpreter with this mutex locked.
    name: Mutex<Option<Box<str>>>,
}

/// What a lock is made with.
#[derive(Default)]
pub(super) struct Options {
    pub(super) name: Option<Box<str>>,
    pub(super) fairness: Fairness,
}

/// How an acquisition ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    No,
    /// An exception is set.
    Raised,
}

impl Taken {
    /// What `acquire` returns.
    ///
    /// # Safety
    /// Attached.
    #[inline]
    pub(super) unsafe fn answer(self) -> *mut PyObject {
        match self {
            // SAFETY: the caller's promise.
            Self::Yes => unsafe { boolean(true) },
            // SAFETY: likewise.
            Self::No => unsafe { boolean(false) },
            Self::Raised => ptr::null_mut(),
        }
    }
}

/// Asked after signal handlers have run: whether the lock came to this thread that way.
pub(super) type AfterHandlers<'a> = &'a dyn Fn() -> Option<Taken>;

fn index_of(fairness: Fairness) -> u32 {
    Fairness::ALL.iter().position(|&known| known == fairness).map_or(0, |index| index as u32)
}

impl Gate {
    pub(super) fn new(kind: Kind, options: Options) -> Self {
        Self {
            lock: Lock::new(),
            observed: Observed::new(),
            kind,
            id: lock::next_lock_id(),
            fairness: AtomicU32::new(index_of(options.fairness)),
            name: Mutex::new(options.name),
        }
    }

    /// Notes where the lock is made, if somebody wants to know.
    ///
    /// # Safety
    /// Attached; no exception is set; `object` is this lock.
    #[inline]
    pub(super) unsafe fn made(&self, object: *mut PyObject) {
        if locks::sites_are_on() {
            // SAFETY: the caller's promise.
            self.known(|who| unsafe { self.observed.made(object, who) });
        }
    }

    /// Runs `body` with who this lock is.
    fn known<T>(&self, body: impl FnOnce(&Who<'_>) -> T) -> T {
        if self.observed.knows(self.id) {
            return body(&Who { id: self.id, kind: self.kind, name: None });
        }
        let name = self.name.lock().unwrap_or_else(PoisonError::into_inner).clone();
        body(&Who { id: self.id, kind: self.kind, name: name.as_deref() })
    }

    pub(super) fn set(&self, options: Options) {
        self.observed.renamed(options.name.as_deref());
        self.fairness.store(index_of(options.fairness), Ordering::Relaxed);
        let former = core::mem::replace(&mut *self.name.lock().unwrap_or_else(PoisonError::into_inner), options.name);
        drop(former);
    }

    pub(super) fn fairness(&self) -> Fairness {
        Fairness::ALL[self.fairness.load(Ordering::Relaxed) as usize]
    }

    /// The name as Python sees it.
    ///
    /// # Safety
    /// Attached.
    pub(super) unsafe fn name(&self) -> Option<*mut PyObject> {
        let name = self.name.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // SAFETY: the caller's promise.
        name.map(|name| unsafe { text(&name) })
    }

    /// The name for a `repr`, with a space behind it.
    ///
    /// # Safety
    /// Attached.
    pub(super) unsafe fn name_shown(&self) -> String {
        // SAFETY: the caller's promise; the reference is ours.
        unsafe {
            match self.name() {
                None => String::new(),
                Some(name) if name.is_null() => {
                    ffi::PyErr_Clear();
                    String::new()
                }
                Some(name) => {
                    let shown = shown(name);
                    ffi::Py_DECREF(name);
                    format!("name={shown} ")
                }
            }
        }
    }

    /// Takes the lock if it is free, whoever waits.
    ///
    /// # Safety
    /// Attached; no exception is set.
    #[inline]
    pub(super) unsafe fn try_take(&self) -> bool {
        let taken = self.lock.raw_try_lock();
        if taken {
            // SAFETY: the caller's promise.
            unsafe { self.observed.taken_in_order(self.id, false) };
        }
        taken
    }

    /// The first step of an acquisition that may wait. With a GIL it takes a free lock whoever waits: giving way would cost
    /// a switch of threads for every acquisition. Without, it gives way to those who spin. `in_order`: the acquisition is one whose
    /// order tells something, not a condition's that takes again what it gave up.
    ///
    /// # Safety
    /// Attached; no exception is set.
    #[inline]
    pub(super) unsafe fn first_try(&self, in_order: bool) -> bool {
        #[cfg(not(Py_GIL_DISABLED))]
        let taken = self.lock.raw_try_lock();
        #[cfg(Py_GIL_DISABLED)]
        let taken = self.lock.raw_try_lock_in_line();
        if taken {
            // SAFETY: the caller's promise.
            unsafe { self.observed.taken_in_order(self.id, in_order) };
        }
        taken
    }

    /// Waits, detached, for a lock that could not be had at once, at most `timeout` ns. With `handlers`, signal handlers run
    /// if this is the thread for them, and may end the wait; while they run this thread has no place in line.
    ///
    /// # Safety
    /// Attached; no exception is set; the caller's reference keeps the lock alive.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn wait(&self, timeout: Option<u64>, handlers: Option<AfterHandlers<'_>>) -> Taken {
        // SAFETY: the caller's promise; the wait uses nothing of the interpreter.
        unsafe {
            let asked = self.observed.before_wait();
            let begun = self.known(|who| self.observed.begin_wait(who, &asked));
            let wait = Wait {
                fairness: self.fairness(),
                deadline: timeout.map(Deadline::after_ns),
                interruptible: handlers.is_some() && attach::handles_signals(),
                spin: !attach::gil_is_on(),
            };
            let key = LockKey::new(ptr::from_ref(&self.lock) as u64, self.id, 0);
            let mut waiting = Waiting::default();
            let ended = Cell::new(false);
            let wait_once = || match self.lock.wait(&wait, &mut waiting, key) {
                Ended::Acquired => {
                    ended.set(true);
                    self.observed.won(&begun, &waiting.stats);
                    Some(Taken::Yes)
                }
                Ended::TimedOut => {
                    ended.set(true);
                    Observed::gave_up(&begun, &waiting.stats, true);
                    Some(Taken::No)
                }
                Ended::Interrupted => None,
            };
            let resume = || {
                // A handler may have waited itself, or forked.
                begun.again();
                match handlers.and_then(|after| after()) {
                    Some(taken) => Resume::Done(taken),
                    None if wait.deadline.is_none() && attach::is_finalizing() => {
                        refuse_at_exit();
                        Resume::Raised
                    }
                    None => Resume::Wait,
                }
            };
            let taken = attach::handling_signals(wait_once, resume).unwrap_or(Taken::Raised);
            if ended.get() {
                self.observed.note_order(self.id, taken == Taken::Yes, handlers.is_some());
            } else {
                Observed::gave_up(&begun, &waiting.stats, false);
            }
            taken
        }
    }
}

/// Other threads run no Python any more, so no Python thread will release the lock: the wait could only hang the exit.
#[cold]
unsafe fn refuse_at_exit() {
    // SAFETY: attached, as the caller is; the interpreter lends its builtins and what is in them.
    unsafe {
        let builtins = ffi::PyEval_GetBuiltins();
        let mut exception = ptr::null_mut();
        if !builtins.is_null() {
            exception = ffi::PyDict_GetItemString(builtins, c"PythonFinalizationError".as_ptr()); // from 3.13 on
        }
        if exception.is_null() {
            exception = ffi::PyExc_RuntimeError;
        }
        raise(exception, "cannot acquire lock at interpreter finalization");
    }
}
