//! The default lock: one byte decides, tickets order those who spin, and a table holds those who sleep.
//!
//! | field | meaning | written by |
//! |---|---|---|
//! | `owner` | 0 free, else held (2: by a checked release that is passing it on): all that mutual exclusion depends on | CAS 0 -> 1 to take; store, swap or CAS to 0 to release; stays 1 when handed over |
//! | `fork` | fork generation of the counts below | a waiter, under the bucket lock |
//! | `head` | highest ticket that may try | the holder (plain), a spinner that leaves (CAS) |
//! | `line` | low half: spinners, exact; high half: next ticket | RMW by spinners that come and go |
//!
//! Transitions, as `(owner, waiters asleep)`; the steps are named as in `parking` and in the models:
//!
//! * take: `(0, n) -> (1, n)`, one compare-exchange
//! * release: `(1, 0) -> (0, 0)`, U2, one plain store; nothing but the static table is looked at after it
//! * release: `(1, n) -> (0, n)`, U4, with the eldest made heir: woken, still queued, to compete
//! * hand-over: `(1, n) -> (1, n - 1)`, U4, the eldest owns the lock
//! * park: `(1, n) -> (1, n + 1)`, P1 to P4; leave: `(o, n) -> (o, n - 1)`, L1 to L3
//!
//! Tickets and counts of spinners are hints. Losing one, or skipping it, disturbs order and nothing else: that is why a
//! waiter can leave at any time, and why a child of a fork that inherits counts of dead threads is merely slow, once.

use core::fmt;
use std::time::{Duration, Instant};

use super::parking::{Choice, FAST, Lane, PARKED, QUIET};
use super::ticket::NotLocked;
use crate::policy::{Fairness, LockKey};
use crate::sync::{AtomicU8, AtomicU16, AtomicU32, Ordering, fault_point, fence, light_fence, model_fence, order};
use clock::now_ns;

mod clock;
#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
mod report;
mod sleep;
mod spin;

pub use clock::Deadline;
pub(crate) use clock::cpus;
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
pub use clock::model;
#[doc(hidden)]
pub use spin::Spun;

const FREE: u8 = 0;
const HELD: u8 = 1;
/// Held, and a checked release is deciding under the bucket lock whom it goes to.
const PASSING: u8 = 2;

/// What became of a release that saw waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passed {
    /// Handed over, or released with an heir.
    On,
    /// Nobody waits for this lock, or somebody keeps watch who is not overdue; it is still to be released.
    NotNow,
    /// The lock was not held.
    NotLocked,
}

/// A lock for everything: 8 bytes, all-zero when unlocked, fair by a knob, asleep when it cannot be had soon.
///
/// Uncontended, a pair costs one locked instruction (where Linux has `membarrier`; two elsewhere on x86). Waiters that run
/// are served in order, up to the arrival race of those who find the lock free; waiters that sleep are handed the lock at a
/// pace that [`Fairness`] sets. Memory is not touched after a release unless a waiter keeps it alive, so a lock may be freed
/// by whoever acquired it last. Not reentrant. Not to be moved while it is used. For threads of one process.
#[repr(C, align(8))]
pub struct Lock {
    owner: AtomicU8,
    fork: AtomicU8,
    head: AtomicU16,
    line: AtomicU32,
}

/// How one acquisition waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Whom the lock goes to while this waiter is the eldest asleep.
    pub fairness: Fairness,
    /// When to give up.
    pub deadline: Option<Deadline>,
    /// Return [`Ended::Interrupted`] when a signal's handler ran in this thread, and every 50 ms at least, since a signal
    /// that comes just before the sleep is noticed by nobody.
    pub interruptible: bool,
    /// Whether spinning can help: not if the holder needs something that this thread's spinning, or its wake-up, takes from
    /// it (an interpreter's lock).
    pub spin: bool,
}

impl Wait {
    /// As long as it takes.
    #[must_use]
    pub const fn new(fairness: Fairness) -> Self {
        Self { fairness, deadline: None, interruptible: false, spin: true }
    }
}

/// One acquisition that waits, over all its calls of [`Lock::wait`]: how long so far, and how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    since_ns: u64,
    /// For statistics.
    pub stats: WaitStats,
}

/// What a wait was like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitStats {
    /// Length so far, in ns.
    pub ns: u64,
    /// Looks at the lock while spinning.
    pub polls: u64,
    /// Sleeps.
    pub parks: u32,
    /// Times that it was woken and found the lock taken again.
    pub futile: u32,
    /// The former holder handed the lock over.
    pub handed_over: bool,
}

/// How a call of [`Lock::wait`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an acquired lock must be released"]
pub enum Ended {
    /// The lock is ours.
    Acquired,
    /// The deadline passed.
    TimedOut,
    /// A signal may have come. The place in line is given up, the rank is kept by the [`Waiting`].
    Interrupted,
}

impl Lock {
    /// An unlocked lock.
    #[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
    #[must_use]
    pub const fn new() -> Self {
        Self { owner: AtomicU8::new(FREE), fork: AtomicU8::new(0), head: AtomicU16::new(0), line: AtomicU32::new(0) }
    }

    /// An unlocked lock (a model checker's atomics are not `const`).
    #[cfg(any(ticketlock_loom, ticketlock_shuttle))]
    #[must_use]
    pub fn new() -> Self {
        Self { owner: AtomicU8::new(FREE), fork: AtomicU8::new(0), head: AtomicU16::new(0), line: AtomicU32::new(0) }
    }

    /// Acquires, with balanced fairness. Waits as long as it takes.
    #[inline]
    pub fn lock(&self) -> LockGuard<'_> {
        self.lock_with(Fairness::Balanced)
    }

    /// Acquires, waiting as long as it takes.
    #[inline]
    pub fn lock_with(&self, fairness: Fairness) -> LockGuard<'_> {
        self.raw_lock(fairness);
        LockGuard::of(self)
    }

    /// Acquires if the lock is free, whoever waits; otherwise changes nothing. Never fails on a free lock.
    #[inline]
    pub fn try_lock(&self) -> Option<LockGuard<'_>> {
        self.raw_try_lock().then(|| LockGuard::of(self))
    }

    /// Acquires, waiting at most `limit`; nothing is kept if that fails.
    #[inline]
    pub fn try_lock_for(&self, limit: Duration) -> Option<LockGuard<'_>> {
        let acquired = self.raw_try_lock_in_line() || self.wait_until(|| Deadline::after(limit));
        acquired.then(|| LockGuard::of(self))
    }

    /// Acquires, waiting until `deadline` at most.
    #[inline]
    pub fn try_lock_until(&self, deadline: Instant) -> Option<LockGuard<'_>> {
        let limit = || Deadline::after(deadline.saturating_duration_since(Instant::now()));
        let acquired = self.raw_try_lock_in_line() || self.wait_until(limit);
        acquired.then(|| LockGuard::of(self))
    }

    /// Whether somebody holds the lock, now.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != FREE
    }

    /// Acquires without a guard. Undo with [`raw_unlock`](Self::raw_unlock) or [`checked_unlock`](Self::checked_unlock).
    #[inline]
    pub fn raw_lock(&self, fairness: Fairness) {
        if !self.raw_try_lock_in_line() {
            self.wait_plain(fairness);
        }
    }

    /// Acquires without a guard if the lock is free: one compare-exchange.
    #[inline]
    pub fn raw_try_lock(&self) -> bool {
        // pairs with: the release of `owner`, U2 and the swaps.
        self.owner.compare_exchange(FREE, HELD, order("take", Ordering::Acquire), Ordering::Relaxed).is_ok()
    }

    /// As [`raw_try_lock`](Self::raw_try_lock), but gives way to threads that spin for the lock already: the first step of an
    /// acquisition that is ready to wait.
    #[inline]
    pub fn raw_try_lock_in_line(&self) -> bool {
        self.line.load(Ordering::Relaxed) as u16 == 0 && self.raw_try_lock()
    }

    /// Waits for the lock, which could not be had at once, and measures how long. `key` names the lock in its thread's delay
    /// table. The one wait function of this lock; a thread of an interpreter must be detached from it.
    #[cold]
    #[inline(never)]
    pub fn wait(&self, wait: &Wait, waiting: &mut Waiting, key: LockKey) -> Ended {
        let again = waiting.since_ns != 0;
        if !again {
            waiting.since_ns = now_ns().max(1);
        }
        // Whoever comes back from a signal's handler has spun before.
        let ended = self.wait_unmeasured(wait, waiting, key, wait.spin && !again, false);
        waiting.stats.ns = now_ns().saturating_sub(waiting.since_ns);
        ended
    }

    /// [`wait`](Self::wait) without reading the clock before it has to sleep. With `report`, it reports the sleep itself.
    fn wait_unmeasured(&self, wait: &Wait, waiting: &mut Waiting, key: LockKey, spin: bool, report: bool) -> Ended {
        self.adopt();
        if spin && self.spin(wait, &mut waiting.stats, key) {
            return Ended::Acquired;
        }
        if waiting.since_ns == 0 {
            waiting.since_ns = now_ns().max(1);
        }
        #[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
        if report {
            let asleep = report::Asleep::begin(key, waiting.since_ns);
            let ended = self.sleep(wait, waiting);
            let ns = now_ns().saturating_sub(waiting.since_ns);
            asleep.end(ended == Ended::Acquired, ns, &waiting.stats);
            return ended;
        }
        let _ = report;
        self.sleep(wait, waiting)
    }

    #[cold]
    #[inline(never)]
    fn wait_plain(&self, fairness: Fairness) {
        let ended = self.wait_unmeasured(&Wait::new(fairness), &mut Waiting::default(), self.key(), true, true);
        debug_assert_eq!(ended, Ended::Acquired);
    }

    #[cold]
    #[inline(never)]
    fn wait_until(&self, deadline: impl FnOnce() -> Deadline) -> bool {
        let wait = Wait { deadline: Some(deadline()), ..Wait::new(Fairness::Balanced) };
        self.wait_unmeasured(&wait, &mut Waiting::default(), self.key(), true, true) == Ended::Acquired
    }

    /// The name of a lock that carries no id: its address.
    fn key(&self) -> LockKey {
        LockKey::at(self.address() as u64)
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    #[inline]
    fn lane(&self) -> Lane {
        Lane::of(self.address())
    }

    /// Releases.
    ///
    /// # Safety
    /// The lock must be held, and nobody else may be releasing it: a second release of one acquisition lets two threads in.
    #[inline]
    pub unsafe fn raw_unlock(&self) {
        let lane = self.lane();
        // U1
        if lane.bits() == FAST {
            fault_point("U2");
            self.store_free(); // U2
            fault_point("U3");
            let bits = lane.bits_after_release(); // U3
            if bits != FAST {
                released_while_changing(self.address(), lane);
            }
        } else {
            self.unlock_slowly(lane);
        }
    }

    /// U2. The release of a fast lane.
    #[inline]
    fn store_free(&self) {
        // pairs with: the acquire of `raw_try_lock`. What must be seen by a waiter that queues is ordered before the look at
        // the lane: on x86 by that waiter's `membarrier`, elsewhere by both being `SeqCst`.
        #[cfg(any(target_arch = "x86", target_arch = "x86_64", ticketlock_loom, ticketlock_shuttle))]
        self.owner.store(FREE, order("U2", Ordering::Release));
        #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", ticketlock_loom, ticketlock_shuttle)))]
        self.owner.store(FREE, Ordering::SeqCst);
        light_fence(); // pairs with: P2
    }

    #[cold]
    #[inline(never)]
    fn unlock_slowly(&self, lane: Lane) {
        if concerns_the_queue(lane, lane.bits()) && self.pass_on(lane, false) == Passed::On {
            return;
        }
        // pairs with: the acquire of `raw_try_lock`; as a full fence, with P1.
        self.owner.swap(FREE, order("swap", Ordering::SeqCst));
        look_after_release(self.address(), lane);
    }

    /// Releases with a check: of two releases racing for one acquisition exactly one fails. Any thread may release.
    ///
    /// # Errors
    /// [`NotLocked`] when nobody held the lock; nothing is changed.
    ///
    /// # Safety
    /// The acquisition released, if there is one, must not be a [`LockGuard`]'s or one that [`raw_unlock`](Self::raw_unlock)
    /// will release: their release is unchecked, and as the second one lets two threads in.
    #[inline]
    pub unsafe fn checked_unlock(&self) -> Result<(), NotLocked> {
        let lane = self.lane();
        // pairs with: the acquire of `raw_try_lock`; as a full fence, with P1.
        if !concerns_the_queue(lane, lane.bits())
            && self.owner.compare_exchange(HELD, FREE, order("swap", Ordering::SeqCst), Ordering::Relaxed).is_ok()
        {
            model_fence(); // pairs with: P1
            if lane.bits_after_release() != FAST {
                look_after_release(self.address(), lane);
            }
            return Ok(());
        }
        self.checked_unlock_slowly(lane)
    }

    #[cold]
    #[inline(never)]
    fn checked_unlock_slowly(&self, lane: Lane) -> Result<(), NotLocked> {
        loop {
            match self.owner.load(Ordering::Relaxed) {
                FREE => return Err(NotLocked),
                HELD if !concerns_the_queue(lane, lane.bits()) => {}
                // Waiters, or another release that is passing the lock on: one after the other, under the bucket lock.
                _ => match self.pass_on(lane, true) {
                    Passed::On => return Ok(()),
                    Passed::NotLocked => return Err(NotLocked),
                    Passed::NotNow => {}
                },
            }
            // pairs with: the acquire of `raw_try_lock`; as a full fence, with P1.
            if self.owner.compare_exchange(HELD, FREE, order("swap", Ordering::SeqCst), Ordering::Relaxed).is_ok() {
                look_after_release(self.address(), lane);
                return Ok(());
            }
        }
    }

    /// U4. A release that sees waiters decides under the bucket lock, while it still owns the lock. With `check` it first makes
    /// sure that it does: `PASSING` keeps other releases out that did not see the waiters.
    fn pass_on(&self, lane: Lane, check: bool) -> Passed {
        let now_ns = now_ns();
        fault_point("U4");
        let mut queue = lane.lock();
        let quiet = lane.bits() & QUIET != 0;
        let Some(choice) = queue.choose(self.address(), now_ns, quiet) else { return Passed::NotNow };
        // pairs with: the acquire of `raw_try_lock`, through the store below.
        if check && self.owner.compare_exchange(HELD, PASSING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Passed::NotLocked;
        }
        let handle = match choice {
            Choice::HandOver(node) => {
                queue.take_out(node, now_ns);
                // Before anybody can release again: a release that found the lane still quiet would leave it to the watch that
                // has just been taken out.
                lane.mend(&queue, false);
                if check {
                    // pairs with: the acquire of whoever takes what another racing release then frees.
                    self.owner.store(HELD, Ordering::Release);
                }
                fault_point("handed");
                queue.give(node) // the lock is its from here on
            }
            Choice::Wake => {
                // Whoever queues looks at `owner` under the bucket lock, after us. pairs with: the acquire of `raw_try_lock`.
                self.owner.store(FREE, order("U4", Ordering::Release));
                let handle = queue.call_heir(self.address(), now_ns);
                lane.mend(&queue, queue.may_be_quiet(self.address(), lane));
                handle
            }
        };
        drop(queue);
        if let Some(handle) = handle {
            handle.wake();
        }
        Passed::On
    }

    /// `head`, the next ticket and the number of spinners, now: for tests of the line.
    #[doc(hidden)]
    pub fn line_counts(&self) -> (u16, u16, u16) {
        let line = self.line.load(Ordering::Relaxed);
        (self.head.load(Ordering::Relaxed), (line >> 16) as u16, line as u16)
    }

    /// Back to unlocked, whatever the state: for a forked child, where holders and waiters of other threads are gone.
    ///
    /// # Safety
    /// No other thread may be using the lock.
    pub unsafe fn reset(&self) {
        self.head.store(0, Ordering::Relaxed);
        self.line.store(0, Ordering::Relaxed);
        self.owner.store(FREE, Ordering::Relaxed);
    }
}

/// Whether a release that sees `bits` is to decide under the bucket lock.
#[inline]
fn concerns_the_queue(lane: Lane, bits: u8) -> bool {
    bits & PARKED != 0 && (bits & QUIET == 0 || lane.count_quiet_release())
}

/// U3 saw that the lane is no longer fast: the store before it may not have been seen, nor may what it should have seen.
#[cold]
#[inline(never)]
fn released_while_changing(address: usize, lane: Lane) {
    fence(Ordering::SeqCst); // pairs with: P1
    look_after_release(address, lane);
}

/// After a release that was a full fence: wakes an heir if somebody sleeps whom nobody else wakes. `address` is a name: the
/// lock may be gone.
#[cold]
#[inline(never)]
fn look_after_release(address: usize, lane: Lane) {
    model_fence(); // pairs with: P1
    let bits = lane.bits_after_release();
    if bits & (PARKED | QUIET) == PARKED {
        // W
        fault_point("W");
        let queue = lane.lock();
        let handle = queue.call_heir(address, 0);
        if handle.is_some() {
            lane.mend(&queue, queue.may_be_quiet(address, lane));
        }
        drop(queue);
        if let Some(handle) = handle {
            handle.wake();
        }
    } else if bits == 0 {
        lane.count_fenced_release();
    }
}

impl Default for Lock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("locked", &self.is_locked()).finish_non_exhaustive()
    }
}

/// Holds a [`Lock`]; dropping it releases. May be sent to another thread, which then releases.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct LockGuard<'a> {
    lock: &'a Lock,
}

impl<'a> LockGuard<'a> {
    fn of(lock: &'a Lock) -> Self {
        Self { lock }
    }
}

impl Drop for LockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard exists because this acquisition holds the lock; it is dropped once, and nothing else releases it
        // (`raw_unlock` and `checked_unlock` ask for that).
        unsafe { self.lock.raw_unlock() };
    }
}

#[cfg(all(test, not(any(ticketlock_loom, ticketlock_shuttle))))]
mod tests;
