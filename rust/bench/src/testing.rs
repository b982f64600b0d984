//! For tests that start threads: one at a time, or they would measure each other.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keeps other such tests out until it is dropped.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
