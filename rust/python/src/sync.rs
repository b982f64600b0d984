//! Atomics, from the workspace's one shim: counters and a pointer, read by anybody, ordered by the lock they belong to.

#[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
pub use ticketlock::sync::global::AtomicUsize;
pub use ticketlock::sync::global::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
