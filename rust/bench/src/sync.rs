//! Atomics, from the workspace's one shim.

pub(crate) use ticketlock::sync::global::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
