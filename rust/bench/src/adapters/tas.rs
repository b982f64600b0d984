//! The two i386 spinlocks of the 2005 mail thread on spinlock fairness, as 32-bit words (the published test used 32 bits).
//!
//! | word | meaning |
//! |---|---|
//! | 1 | free |
//! | 0 | held |
//! | `-n` | held, and `n` failed decrements since the last release |
//!
//! Both decrement atomically and own the lock if the result is not negative; otherwise both pause and read until the word
//! is positive, and decrement again. They execute the same operations in the same order. They differ only in how the
//! branch after the read is laid out:
//!
//! * `tas-retry` (the *old* code of the published runs): the branch backwards, which is the likely one while waiting, goes
//!   to the pause; seeing the lock free falls through to an unconditional jump to the decrement.
//! * `tas-retest` (the *new* code): the branch backwards goes to the decrement; seeing the lock taken falls through to an
//!   unconditional jump to the pause. Seeing it free costs one jump less, seeing it taken one more.
//!
//! A compiler is free to turn one layout into the other, hence assembly on x86-64. Elsewhere the portable form says the
//! same with the source order of the two branches, and the layout is the compiler's.

use crate::adapter::Adapter;
use crate::sync::{AtomicI32, Ordering};

/// `tas-retest` if `RETEST`, else `tas-retry`.
pub(crate) struct Tas<const RETEST: bool>(AtomicI32);

/// A held [`Tas`].
pub(crate) struct TasHeld<'a>(&'a AtomicI32);

impl Drop for TasHeld<'_> {
    #[inline]
    fn drop(&mut self) {
        // pairs with: the locked decrement in `acquire` and the acquire of `try_lock`.
        self.0.store(1, Ordering::Release);
    }
}

impl<const RETEST: bool> Adapter for Tas<RETEST> {
    type Config = ();
    type Ctx = ();
    type Held<'a> = TasHeld<'a>;
    const TRY: bool = true;

    fn new() -> Self {
        Self(AtomicI32::new(1))
    }

    fn ctx((): &()) {}

    #[inline]
    fn lock<'a>(&'a self, (): &'a mut ()) -> TasHeld<'a> {
        acquire::<RETEST>(&self.0);
        TasHeld(&self.0)
    }

    #[inline]
    fn try_lock<'a>(&'a self, (): &'a mut ()) -> Option<TasHeld<'a>> {
        // pairs with: the release store in `drop`.
        self.0.compare_exchange(1, 0, Ordering::Acquire, Ordering::Relaxed).is_ok().then(|| TasHeld(&self.0))
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn acquire<const RETEST: bool>(word: &AtomicI32) {
    let at = word.as_ptr();
    if RETEST {
        // SAFETY: `at` points to a live atomic; the block touches only it and the flags, and, being opaque, orders the
        // memory accesses around it. The locked decrement is a full barrier; pairs with: the release store in `drop`.
        unsafe {
            core::arch::asm!(
                "20:",
                "lock dec dword ptr [{at}]",
                "jns 40f",
                "30:",
                "pause",
                "cmp dword ptr [{at}], 0",
                "jg 20b",
                "jmp 30b",
                "40:",
                at = in(reg) at,
                options(nostack),
            );
        }
    } else {
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                "20:",
                "lock dec dword ptr [{at}]",
                "jns 40f",
                "30:",
                "pause",
                "cmp dword ptr [{at}], 0",
                "jle 30b",
                "jmp 20b",
                "40:",
                at = in(reg) at,
                options(nostack),
            );
        }
    }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
#[inline]
fn acquire<const RETEST: bool>(word: &AtomicI32) {
    // pairs with: the release store in `drop`.
    while word.fetch_sub(1, Ordering::Acquire) <= 0 {
        if RETEST {
            loop {
                core::hint::spin_loop();
                if word.load(Ordering::Relaxed) > 0 {
                    break;
                }
            }
        } else {
            core::hint::spin_loop();
            while word.load(Ordering::Relaxed) <= 0 {
                core::hint::spin_loop();
            }
        }
    }
}
