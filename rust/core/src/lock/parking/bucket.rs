//! A bucket: the small lock over a queue of waiters.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use super::queue::Queue;

/// Waiters of the locks whose lanes belong to this bucket.
#[repr(align(128))] // two lines: adjacent-line prefetch would couple neighbours
pub(super) struct Bucket {
    lock: raw::BucketLock,
    queue: UnsafeCell<Queue>,
}

// SAFETY: the queue is reached through the guard only, which holds the lock; the nodes that it points to are alive while
// queued (see `queue`).
unsafe impl Sync for Bucket {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for Bucket {}

/// The queue of a locked bucket.
pub(crate) struct Locked<'a> {
    bucket: &'a Bucket,
    _held: raw::Held<'a>,
}

impl Bucket {
    #[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
    pub(super) const fn new() -> Self {
        Self { lock: raw::BucketLock::new(), queue: UnsafeCell::new(Queue::new(0)) }
    }

    #[cfg(any(ticketlock_loom, ticketlock_shuttle))]
    pub(super) fn new() -> Self {
        let queue = Queue::new(super::model::first_fair_ns());
        Self { lock: raw::BucketLock::new(), queue: UnsafeCell::new(queue) }
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        Locked { _held: self.lock.hold(), bucket: self }
    }

    /// Empties the bucket: the child of a fork has none of the waiters, and whoever held the lock is gone.
    ///
    /// # Safety
    /// No other thread of this process uses the bucket.
    #[cfg(unix)]
    #[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
    pub(super) unsafe fn reset(&self) {
        self.lock.reset();
        // SAFETY: the caller's promise.
        unsafe { *self.queue.get() = Queue::new(0) };
    }
}

impl Deref for Locked<'_> {
    type Target = Queue;
    #[inline]
    fn deref(&self) -> &Queue {
        // SAFETY: the bucket's lock is held.
        unsafe { &*self.bucket.queue.get() }
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Queue {
        // SAFETY: the bucket's lock is held, and `self` is borrowed exclusively.
        unsafe { &mut *self.bucket.queue.get() }
    }
}

#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
mod raw {
    use super::super::parker::{rest, rouse};
    use crate::machine::spin_units;
    use crate::sync::{AtomicU32, Ordering};

    /// Looks at a held bucket lock before sleeping, each a policy unit or more apart. Reason: a bucket is held for some
    /// 50 ns, or 10 us around a `membarrier`; whoever holds it longer has been descheduled.
    const LOOKS: u32 = 100;

    const FREE: u32 = 0;
    const HELD: u32 = 1;
    /// Held, and somebody may be asleep.
    const AWAITED: u32 = 2;

    /// A mutex of three states (Drepper, "Futexes are tricky", mutex 3). It guards a few dozen instructions.
    ///
    /// | word | meaning | left by |
    /// |---|---|---|
    /// | `FREE` | free | CAS by a taker |
    /// | `HELD` | held, nobody sleeps | swap by the holder, or by a waiter to `AWAITED` |
    /// | `AWAITED` | held, somebody may sleep | swap by the holder, who then wakes one |
    pub(super) struct BucketLock(AtomicU32);

    pub(super) struct Held<'a>(&'a BucketLock);

    impl BucketLock {
        pub(super) const fn new() -> Self {
            Self(AtomicU32::new(FREE))
        }

        #[inline]
        pub(super) fn hold(&self) -> Held<'_> {
            // pairs with: the release in `drop`.
            if self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
                self.wait();
            }
            Held(self)
        }

        #[cold]
        fn wait(&self) {
            for _ in 0..LOOKS {
                // pairs with: the release in `drop`.
                if self.0.load(Ordering::Relaxed) == FREE
                    && self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    return;
                }
                spin_units(1);
            }
            // pairs with: the release in `drop`.
            while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
                rest(&self.0, AWAITED);
            }
        }

        pub(super) fn reset(&self) {
            self.0.store(FREE, Ordering::Relaxed);
        }
    }

    impl Drop for Held<'_> {
        #[inline]
        fn drop(&mut self) {
            // pairs with: the acquires in `hold` and `wait`.
            if self.0.0.swap(FREE, Ordering::Release) == AWAITED {
                rouse(&self.0.0);
            }
        }
    }
}

/// A model takes the bucket lock as a whole.
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
mod raw {
    use crate::sync::{Mutex, MutexGuard};

    pub(super) struct BucketLock(Mutex<()>);
    pub(super) struct Held<'a>(#[allow(dead_code)] MutexGuard<'a, ()>);

    impl BucketLock {
        pub(super) fn new() -> Self {
            Self(Mutex::new(()))
        }
        pub(super) fn hold(&self) -> Held<'_> {
            Held(self.0.lock().expect("no model panics with a bucket held"))
        }
    }
}
