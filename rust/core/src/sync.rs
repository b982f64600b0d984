//! The only place of the workspace that names atomics: the standard library's, or a model checker's.
//!
//! `--cfg ticketlock_loom` and `--cfg ticketlock_shuttle` choose the checkers. What they cannot see: loom treats `SeqCst`
//! accesses as acquire/release and knows no `membarrier`; shuttle runs every access as `SeqCst` and so proves schedules,
//! not orderings.

#![allow(unused_imports)] // one shim for all modules: not every build uses every name

#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
mod imp {
    pub use core::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };

    /// Gives the CPU to another runnable thread.
    pub fn yield_now() {
        std::thread::yield_now();
    }

    /// The cheap side of an asymmetric pair of fences: keeps the compiler from reordering; the other side's `membarrier` is
    /// the fence for both.
    #[inline]
    pub fn light_fence() {
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
    }

    /// Nothing: the read-modify-write before it is a full fence, or is `SeqCst` like the access after it.
    #[inline]
    pub const fn model_fence() {}

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub use std::thread::{Thread, current, park};
}

#[cfg(ticketlock_loom)]
mod imp {
    pub use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub use loom::sync::{Mutex, MutexGuard};
    pub use loom::thread::{Thread, current, park, yield_now};

    /// A model has no `membarrier`: both sides are fences.
    pub fn light_fence() {
        if !super::mutant::is_weak("light fence") {
            fence(Ordering::SeqCst);
        }
    }

    /// A model does not know that two `SeqCst` accesses keep their order.
    pub fn model_fence() {
        if !super::mutant::is_weak("model fence") {
            fence(Ordering::SeqCst);
        }
    }
}

#[cfg(all(ticketlock_shuttle, not(ticketlock_loom)))]
mod imp {
    pub use shuttle::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub use shuttle::sync::{Mutex, MutexGuard};
    pub use shuttle::thread::{Thread, current, park, yield_now};

    /// A model has no `membarrier`: both sides are fences.
    pub fn light_fence() {
        fence(Ordering::SeqCst);
    }

    /// A model does not know that two `SeqCst` accesses keep their order.
    pub fn model_fence() {
        fence(Ordering::SeqCst);
    }
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
        if is_weak(edge) { Ordering::Relaxed } else { strong }
    }

    pub(crate) fn is_weak(edge: &str) -> bool {
        WEAK.get() == Some(edge)
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

/// Named places of the protocol where tests strike: with a fork, a signal, a delay.
#[cfg(ticketlock_faults)]
pub mod fault {
    use std::sync::{PoisonError, RwLock};

    /// What a test does at a place.
    pub type Strike = Box<dyn Fn(&'static str) + Send + Sync>;

    static STRIKE: RwLock<Option<Strike>> = RwLock::new(None);

    /// Sets what happens at places; `None` ends it.
    pub fn set(strike: Option<Strike>) {
        *STRIKE.write().unwrap_or_else(PoisonError::into_inner) = strike;
    }

    pub(crate) fn point(place: &'static str) {
        // A forked child may inherit a read lock of a thread that is gone; readers do not mind.
        if let Ok(strike) = STRIKE.try_read() {
            if let Some(strike) = &*strike {
                strike(place);
            }
        }
    }
}

/// Nothing, but in builds that test what happens at `place`.
#[inline]
pub(crate) fn fault_point(place: &'static str) {
    #[cfg(ticketlock_faults)]
    fault::point(place);
    let _ = place;
}
