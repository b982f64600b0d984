//! How one thread sleeps and another wakes it: a word per waiter, and a file per platform.
//!
//! A waiter sleeps on a word of its own, never on a lock's: a lock's word can come back to a value that was slept on.
//!
//! | state | meaning | written by |
//! |---|---|---|
//! | `WAITING` | queued and asleep, or about to be | the waiter: before it queues, and, under the bucket lock, to sleep again |
//! | `WOKEN` | queued and awake: the heir | a waker, or the waiter when its watch ends; under the bucket lock |
//! | `HANDED` | not queued; owns the lock | the former holder, under the bucket lock |

use crate::sync::{AtomicU32, Ordering, order};

#[cfg(all(any(target_os = "linux", target_os = "android"), not(any(ticketlock_loom, ticketlock_shuttle))))]
#[path = "linux.rs"]
mod platform;
#[cfg(not(all(any(target_os = "linux", target_os = "android"), not(any(ticketlock_loom, ticketlock_shuttle)))))]
#[path = "portable.rs"]
mod platform;

pub(crate) use platform::Handle;
#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
pub(crate) use platform::{rest, rouse};

/// Queued and asleep.
pub(crate) const WAITING: u32 = 0;
/// Queued and awake.
pub(crate) const WOKEN: u32 = 1;
/// Out of the queue, and owner.
pub(crate) const HANDED: u32 = 2;

/// Why a sleep ended. Any of them may come without reason: the state tells what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woke {
    /// Somebody called.
    Called,
    /// The deadline passed.
    TimedOut,
    /// A signal's handler ran in this thread.
    #[allow(dead_code)] // only the futex tells
    Signalled,
}

/// The word of one waiter.
pub(crate) struct Parker {
    state: AtomicU32,
    sleeper: platform::Sleeper,
}

impl Parker {
    /// `WAITING`, for the calling thread.
    pub(crate) fn new() -> Self {
        Self { state: AtomicU32::new(WAITING), sleeper: platform::Sleeper::new() }
    }

    #[inline]
    pub(crate) fn state(&self) -> u32 {
        // pairs with: the release store in `set`: the new owner sees what the former one did.
        self.state.load(order("handed", Ordering::Acquire))
    }

    /// Under the bucket lock. After `HANDED` the waiter may be gone at any moment: take a [`handle`](Self::handle) first.
    pub(crate) fn set(&self, state: u32) {
        // pairs with: the acquire load in `state`.
        self.state.store(state, order("handed", Ordering::Release));
    }

    pub(crate) fn handle(&self) -> Handle {
        self.sleeper.handle(&self.state)
    }

    /// P4. Sleeps while the state is `WAITING`, until `until_ns` of the monotonic clock, or until a signal.
    pub(crate) fn sleep(&self, until_ns: Option<u64>) -> Woke {
        if self.state() == WAITING { self.sleeper.sleep(&self.state, WAITING, until_ns) } else { Woke::Called }
    }
}
