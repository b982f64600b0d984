//! The strict family: first come, first served, without exception.
//!
//! Two words, both wrapping, `next - serving` people in the shop:
//!
//! | `next` | `serving` | meaning |
//! |---|---|---|
//! | `t` | `t` | unlocked |
//! | `t + 1` | `t` | ticket `t` holds the lock, nobody waits |
//! | `t + 1 + n` | `t` | ticket `t` holds the lock, `n` wait |
//!
//! Transitions, as `(next, serving)`:
//!
//! * draw: `(n, s) -> (n + 1, s)`, one `fetch_add`; the drawer holds the lock if `n == s`, else waits until `serving == n`
//! * try: `(s, s) -> (s + 1, s)`, one compare-exchange; changes nothing when it fails
//! * release: `(n, s) -> (n, s + 1)`, one plain store by the holder, and nothing is touched after it
//!
//! Orderings. The only edge that mutual exclusion needs is R: the release store of `serving` in `raw_unlock` (or the
//! release CAS in `checked_unlock`) with the acquire load of `serving` by whoever is served next. Drawing needs none: its
//! atomicity alone gives each ticket to one thread. `rust/core/tests/loom_ticket.rs` explores this.

use core::fmt;

use super::driver::{Observer, Real, drive};
use super::memory::Memory;
use super::watch::{self, DelayReport};
use crate::policy::wait::waiters_ahead;
use crate::policy::{Backoff, Bounds, Collision, Delay, LockKey, Outcome, Waiter};
use crate::sync::{AtomicU32, Ordering, global, order};

/// A strict first-come-first-served spinlock, 8 bytes, all-zero when unlocked.
///
/// Acquisition is one atomic addition and a compare, release one plain store; memory is never touched after release, so
/// the holder may free the lock right after unlocking if nobody waits. Waiting is out of line. At most 2^31 - 1 threads
/// may be in line at once.
///
/// For threads that have a CPU each; the [module](super) says why. The lock is not reentrant, and cannot be abandoned while
/// waiting: hence no timed acquisition.
#[repr(C)]
pub struct TicketLock {
    next: AtomicU32,
    serving: AtomicU32,
}

/// How waiters of one acquisition behave. Different callers of one lock may use different tunings: order is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// The back-off rule.
    pub backoff: Backoff,
    /// The rule's surroundings.
    pub bounds: Bounds,
    /// What a slot of the delay table does when another lock used it last.
    pub collision: Collision,
}

impl Tuning {
    /// `backoff` with this machine's delay cap and usable CPUs.
    #[must_use]
    pub fn new(backoff: Backoff) -> Self {
        Self { backoff, bounds: machine_bounds(), collision: Collision::Reset }
    }

    /// With another delay cap, in units (clamped to 1 to 65000).
    #[must_use]
    pub fn with_cap(mut self, units: u32) -> Self {
        self.bounds.cap_units = Bounds::new(units, 1).cap_units;
        self
    }

    /// As if `cpus` CPUs were usable (at least 1): for trying long lines on small machines.
    #[must_use]
    pub fn with_cpus(mut self, cpus: u32) -> Self {
        self.bounds.cpus = cpus.max(1);
        self
    }

    /// With another collision rule.
    #[must_use]
    pub fn with_collision(mut self, collision: Collision) -> Self {
        self.collision = collision;
        self
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self::new(Backoff::default())
    }
}

#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
fn machine_bounds() -> Bounds {
    Bounds::new(crate::machine::delay_cap(), crate::machine::usable_cpus())
}

#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
fn machine_bounds() -> Bounds {
    Bounds::new(16, 4)
}

/// The result of drawing a ticket.
#[derive(Debug)]
#[must_use = "a drawn ticket that nobody waits for blocks everybody behind it"]
pub enum Draw {
    /// The lock is ours.
    Granted,
    /// Somebody is ahead: pass this to [`TicketLock::wait`].
    Wait(Queued),
}

/// A place in line: the ticket, and the number being served that proved the wait. Not `Clone`: a place is waited for once.
#[derive(Debug)]
#[must_use = "a drawn ticket that nobody waits for blocks everybody behind it"]
pub struct Queued {
    ticket: u32,
    serving: u32,
}

impl Queued {
    /// The ticket.
    #[must_use]
    pub fn ticket(&self) -> u32 {
        self.ticket
    }

    /// Waiters ahead when the ticket was drawn, the holder not counted.
    #[must_use]
    pub fn waiters_ahead(&self) -> u32 {
        waiters_ahead(self.ticket, self.serving).unwrap_or(0)
    }
}

/// A finished wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited {
    /// What it cost, and the delay it left.
    pub outcome: Outcome,
    /// A report for the delay watch, if one is armed and due.
    pub watch: Option<DelayReport>,
}

/// The lock was not held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotLocked;

impl fmt::Display for NotLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("release of an unlocked ticket lock")
    }
}

impl core::error::Error for NotLocked {}

impl TicketLock {
    /// An unlocked lock.
    #[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
    #[must_use]
    pub const fn new() -> Self {
        Self { next: AtomicU32::new(0), serving: AtomicU32::new(0) }
    }

    /// An unlocked lock (a model checker's atomics are not `const`).
    #[cfg(any(ticketlock_loom, ticketlock_shuttle))]
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(0)
    }

    /// An unlocked lock whose first ticket is `ticket`: for tests of the wrap-around.
    #[doc(hidden)]
    #[must_use]
    pub fn starting_at(ticket: u32) -> Self {
        Self { next: AtomicU32::new(ticket), serving: AtomicU32::new(ticket) }
    }

    /// Acquires with back-off `auto` and this machine's bounds. Waits as long as it takes.
    #[inline]
    pub fn lock(&self) -> TicketGuard<'_> {
        let contended = match self.draw() {
            Draw::Granted => false,
            Draw::Wait(queued) => {
                self.wait_default(queued);
                true
            }
        };
        TicketGuard { lock: self, contended, not_send: core::marker::PhantomData }
    }

    /// Acquires, waiting as `tuning` says.
    #[inline]
    pub fn lock_with(&self, tuning: &Tuning) -> TicketGuard<'_> {
        let contended = match self.draw() {
            Draw::Granted => false,
            Draw::Wait(queued) => {
                self.wait_keeping_report(queued, tuning);
                true
            }
        };
        TicketGuard { lock: self, contended, not_send: core::marker::PhantomData }
    }

    /// Acquires if the lock is free and nobody is in line; otherwise changes nothing.
    #[inline]
    pub fn try_lock(&self) -> Option<TicketGuard<'_>> {
        self.raw_try_lock().then(|| TicketGuard { lock: self, contended: false, not_send: core::marker::PhantomData })
    }

    /// Whether somebody holds the lock, now.
    #[inline]
    pub fn is_locked(&self) -> bool {
        let (next, serving) = self.ticket_counts();
        next != serving
    }

    /// Threads in line behind the holder, now.
    #[inline]
    pub fn waiters(&self) -> u32 {
        let (next, serving) = self.ticket_counts();
        next.wrapping_sub(serving).saturating_sub(1)
    }

    /// The next ticket to be drawn and the one being served. `serving` is read first, so that their difference is never
    /// negative; both may have moved on since.
    #[inline]
    pub fn ticket_counts(&self) -> (u32, u32) {
        // Acquire keeps the second read behind the first. pairs with: nothing; a count is only shown.
        let serving = self.serving.load(Ordering::Acquire);
        (self.next.load(Ordering::Relaxed), serving)
    }

    /// Draws a ticket. [`Draw::Wait`] must be waited for, or the line stands still.
    #[inline]
    pub fn draw(&self) -> Draw {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        // pairs with: R, the release of `serving`.
        let serving = self.serving.load(order("draw", Ordering::Acquire));
        if ticket == serving { Draw::Granted } else { Draw::Wait(Queued { ticket, serving }) }
    }

    /// Waits for a drawn place. `key` names the lock in its thread's delay table. The one wait loop of the strict family.
    #[cold]
    #[inline(never)]
    pub fn wait(&self, queued: Queued, tuning: &Tuning, key: LockKey) -> Waited {
        self.wait_observed(queued, tuning, key, ()).0
    }

    /// [`wait`](Self::wait), with what the mechanism did.
    #[doc(hidden)]
    #[allow(clippy::needless_pass_by_value)] // by value: a place in line is waited for once
    pub fn wait_observed<O: Observer>(&self, queued: Queued, tuning: &Tuning, key: LockKey, observer: O) -> (Waited, O) {
        let Queued { ticket, serving } = queued;
        let backoff = tuning.backoff;
        // The next in line does not tune under the series' rule, so its wait stays clear of the thread's table.
        let tunes = backoff.is_tuned() && (queued.waiters_ahead() > 0 || matches!(backoff, Backoff::AutoV1(_)));
        let memory = tunes.then(|| Memory::open(backoff, tuning.collision, key));
        let delay = memory.as_ref().map_or(Delay::MIN, Memory::delay);
        let mut waiter = Waiter::new(backoff, tuning.bounds, ticket, serving, delay);
        // pairs with: R, the release of `serving`.
        let read = || self.serving.load(order("wait", Ordering::Acquire));
        let mut mechanism = Real { read, random: ticket.wrapping_mul(0x9E37_79B9), observer };
        drive(&mut waiter, backoff.wants_chance(), &mut mechanism);
        let outcome = waiter.outcome();
        let mut report = None;
        if let Some(memory) = memory {
            let paid = outcome.yields == 0 && outcome.parks == 0;
            memory.close(backoff, tuning.collision, key, outcome.delay, outcome.peak, paid);
            if watch::is_armed() {
                report = memory.outgrown(outcome.peak).map(|(native_id, previous_max)| DelayReport {
                    lock: key.id(),
                    generation: key.generation(),
                    delay: outcome.peak,
                    previous_max,
                    native_id,
                });
            }
        }
        (Waited { outcome, watch: report }, mechanism.observer)
    }

    #[cold]
    #[inline(never)]
    fn wait_default(&self, queued: Queued) {
        self.wait_keeping_report(queued, default_tuning());
    }

    #[cold]
    #[inline(never)]
    fn wait_keeping_report(&self, queued: Queued, tuning: &Tuning) {
        if let Some(report) = self.wait(queued, tuning, self.key()).watch {
            watch::keep(report);
        }
    }

    /// The name of a lock that carries no id: its address.
    fn key(&self) -> LockKey {
        LockKey::at(core::ptr::from_ref(self).addr() as u64)
    }

    /// Acquires without a guard; true if it had to wait. Undo with [`raw_unlock`](Self::raw_unlock) or
    /// [`checked_unlock`](Self::checked_unlock). A delay report that falls due is dropped.
    #[inline]
    pub fn raw_lock(&self, tuning: &Tuning) -> bool {
        match self.draw() {
            Draw::Granted => false,
            Draw::Wait(queued) => {
                self.wait(queued, tuning, self.key());
                true
            }
        }
    }

    /// Acquires without a guard if the lock is free and nobody is in line; otherwise changes nothing.
    #[inline]
    pub fn raw_try_lock(&self) -> bool {
        // pairs with: R, the release of `serving`.
        let serving = self.serving.load(order("try", Ordering::Acquire));
        // Success means `next == serving` at that moment: `serving` never passes `next`, so it still stood where it was read.
        self.next.compare_exchange(serving, serving.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Releases: one plain store.
    ///
    /// # Safety
    /// The lock must be held, and nobody else may be releasing it: a second release of one acquisition lets two threads in.
    #[inline]
    pub unsafe fn raw_unlock(&self) {
        let serving = self.serving.load(Ordering::Relaxed); // only the holder writes it, and that is us
        // R. pairs with: the acquire loads of `serving` in `draw`, `wait` and `raw_try_lock`.
        self.serving.store(serving.wrapping_add(1), order("R", Ordering::Release));
    }

    /// Releases with a check: of two releases racing for one acquisition exactly one fails. Any thread may release.
    ///
    /// # Errors
    /// [`NotLocked`] when nobody held the lock; nothing is changed.
    ///
    /// # Safety
    /// The acquisition released, if there is one, must not be a [`TicketGuard`]'s or one that
    /// [`raw_unlock`](Self::raw_unlock) will release: their release is unchecked, and as the second one lets two threads in.
    #[inline]
    pub unsafe fn checked_unlock(&self) -> Result<(), NotLocked> {
        loop {
            // Acquire keeps the read of `next` behind this one: a `next` equal to an older `serving` then means unlocked.
            let serving = self.serving.load(Ordering::Acquire);
            if self.next.load(Ordering::Relaxed) == serving {
                return Err(NotLocked);
            }
            let served = serving.wrapping_add(1);
            // R. pairs with: the acquire loads of `serving` in `draw`, `wait` and `raw_try_lock`.
            if self.serving.compare_exchange(serving, served, order("R-checked", Ordering::Release), Ordering::Relaxed).is_ok() {
                return Ok(());
            }
        }
    }

    /// Back to unlocked, whatever the state: for a forked child, where holders and waiters of other threads are gone.
    ///
    /// # Safety
    /// No other thread may be using the lock.
    pub unsafe fn reset(&self) {
        self.next.store(0, Ordering::Relaxed);
        self.serving.store(0, Ordering::Relaxed);
    }
}

/// Made once: reading the machine's bounds anew for every wait would cost more than a short wait.
#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
fn default_tuning() -> &'static Tuning {
    static DEFAULT: std::sync::OnceLock<Tuning> = std::sync::OnceLock::new();
    crate::machine::cached(&DEFAULT, Tuning::default)
}

#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
fn default_tuning() -> &'static Tuning {
    const MODEL: Tuning = Tuning { backoff: Backoff::Auto, bounds: Bounds::new(16, 4), collision: Collision::Reset };
    &MODEL
}

impl Default for TicketLock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TicketLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (next, serving) = self.ticket_counts();
        f.debug_struct("TicketLock")
            .field("locked", &(next != serving))
            .field("waiters", &next.wrapping_sub(serving).saturating_sub(1))
            .field("next", &next)
            .field("serving", &serving)
            .finish()
    }
}

/// Holds a [`TicketLock`]; dropping it releases. Stays in its thread, so that a delay report finds the thread that waited.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct TicketGuard<'a> {
    lock: &'a TicketLock,
    contended: bool,
    not_send: core::marker::PhantomData<*const ()>,
}

// SAFETY: a shared guard offers nothing but `Debug`, which reads the lock's atomics; only moving it to another thread
// would separate a pending report from its thread.
unsafe impl Sync for TicketGuard<'_> {}

impl Drop for TicketGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard exists because this acquisition holds the lock; it is dropped once, and nothing else releases it
        // (`raw_unlock` and `checked_unlock` ask for that).
        unsafe { self.lock.raw_unlock() };
        // After an uncontended acquisition this costs a test of a register.
        if self.contended {
            watch::hand_over();
        }
    }
}

/// A number for a lock that carries an id: unique in this process, never 0.
pub fn next_lock_id() -> u64 {
    static NEXT: global::AtomicU64 = global::AtomicU64::new(1);
    NEXT.fetch_add(1, global::Ordering::Relaxed)
}

#[cfg(all(test, not(any(ticketlock_loom, ticketlock_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn eight_zero_bytes_unlocked() {
        assert_eq!(size_of::<TicketLock>(), 8);
        let lock = TicketLock::new();
        assert_eq!(lock.ticket_counts(), (0, 0));
        assert!(!lock.is_locked());
    }

    #[test]
    fn a_failed_try_changes_nothing() {
        let lock = TicketLock::new();
        let guard = lock.try_lock().unwrap();
        let before = lock.ticket_counts();
        assert!(lock.try_lock().is_none());
        assert_eq!(lock.ticket_counts(), before);
        drop(guard);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_checked_release_refuses_a_free_lock() {
        let lock = TicketLock::new();
        // SAFETY: nothing else releases this lock.
        let release = || unsafe { lock.checked_unlock() };
        assert_eq!(release(), Err(NotLocked));
        assert!(lock.raw_try_lock());
        assert_eq!(release(), Ok(()));
        assert_eq!(release(), Err(NotLocked));
        assert_eq!(lock.ticket_counts(), (1, 1));
    }

    #[test]
    fn tickets_wrap() {
        let lock = TicketLock::starting_at(u32::MAX - 1);
        for _ in 0..4 {
            drop(lock.lock());
        }
        assert_eq!(lock.ticket_counts(), (2, 2));
        let lock = TicketLock::starting_at(u32::MAX);
        let guard = lock.lock(); // ticket MAX; next is now 0
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(lock.lock()));
            while lock.waiters() == 0 {
                std::thread::yield_now();
            }
            drop(guard);
            waiter.join().unwrap();
        });
        assert_eq!(lock.ticket_counts(), (1, 1));
    }

    #[test]
    fn debug_shows_the_line() {
        let lock = TicketLock::new();
        let _guard = lock.lock();
        assert_eq!(format!("{lock:?}"), "TicketLock { locked: true, waiters: 0, next: 1, serving: 0 }");
    }
}
