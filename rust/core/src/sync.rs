//! The only place of the workspace that names atomics: the standard library's, or a model checker's.
//!
//! `--cfg ticketlock_loom` and `--cfg ticketlock_shuttle` choose the checkers. What they cannot see: loom treats `SeqCst`
//! accesses as acquire/release and knows no `membarrier`; shuttle runs every access as `SeqCst` and so proves schedules,
//! not orderings.

#![allow(unused_imports)] // one shim for all modules: not every build uses every name

#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
mod imp {
    pub use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

    /// Gives the CPU to another runnable thread.
    pub fn yield_now() {
        std::thread::yield_now();
    }
}

#[cfg(ticketlock_loom)]
mod imp {
    pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    pub use loom::thread::yield_now;
}

#[cfg(all(ticketlock_shuttle, not(ticketlock_loom)))]
mod imp {
    pub use shuttle::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    pub use shuttle::thread::yield_now;
}

pub use imp::*;

/// Real atomics in every build: for process-wide switches and counters, which no model explores and which must be `const`.
pub mod global {
    pub use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

/// Orderings that a model weakens on purpose, to show that it would notice.
#[cfg(ticketlock_loom)]
pub mod mutant {
    use core::cell::Cell;

    use super::Ordering;

    thread_local! {
        // A loom model runs all its threads on one thread of the operating system, so tests do not disturb each other.
        static WEAK: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Runs `body` with the ordering of `edge` relaxed.
    pub fn weakening<T>(edge: &'static str, body: impl FnOnce() -> T) -> T {
        struct Restore;
        impl Drop for Restore {
            fn drop(&mut self) {
                WEAK.set(None);
            }
        }
        WEAK.set(Some(edge));
        let _restore = Restore;
        body()
    }

    pub(crate) fn order(edge: &str, strong: Ordering) -> Ordering {
        if WEAK.get() == Some(edge) { Ordering::Relaxed } else { strong }
    }
}

/// The ordering of a named edge: `strong`, but for a model's mutants.
#[cfg(not(ticketlock_loom))]
#[inline]
pub(crate) const fn order(_edge: &str, strong: Ordering) -> Ordering {
    strong
}

#[cfg(ticketlock_loom)]
pub(crate) use mutant::order;
