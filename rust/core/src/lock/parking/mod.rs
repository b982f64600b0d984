//! The parking table: where threads sleep that wait for a lock of one byte.
//!
//! A lock has no room for its waiters. They queue in a static table, by the lock's address: 256 buckets, each a small lock
//! and a queue of nodes on the waiters' stacks. What a *release* must know is kept apart, one byte for every sixteenth of a
//! bucket, its *lane*; so that a waiter for one lock does not slow down releases of the others in its bucket.
//!
//! | lane | a release ... | left by |
//! |---|---|---|
//! | 0, fenced | swaps `owner`, then looks here again | a waiter that queues (to `PARKED`); 1,024 releases (to `FAST`) |
//! | `FAST` | stores `owner`, then looks here again | a waiter that queues: to `PARKED`, with a `membarrier` |
//! | `PARKED` | decides under the bucket lock who is next | the last waiter that leaves (to 0); a waker (to `PARKED \| QUIET`) |
//! | `PARKED \| QUIET` | as fenced: somebody will look by himself | that somebody (to `PARKED`), or the last that leaves (to 0) |
//!
//! `CROWDED` comes and goes with `PARKED` lanes: so many wait that a newcomer had better not spin; only a hint.
//! All writes happen under the bucket lock.
//!
//! Invariants, checked by models (`rust/core/tests`):
//! * N: a lane with a queued waiter has `PARKED`, and not `FAST`.
//! * Q: in a `QUIET` lane all waiters wait for one lock, and one of them is awake or keeps watch.
//!
//! Why no well-kept crate: the table must survive `fork` (the child drops its parent's waiters), a sleep must end when a
//! signal comes, and a lock is never touched after its release unless a queued waiter keeps it alive.

mod bucket;
mod parker;
mod queue;

pub(crate) use bucket::Locked;
pub(crate) use parker::{HANDED, WAITING, WOKEN, Woke};
pub(crate) use queue::{Choice, Node};

use crate::policy::pacing::looks_at_clock;
use crate::sync::{AtomicU8, AtomicU32, Ordering, order};
use bucket::Bucket;

/// Release by a plain store.
pub(crate) const FAST: u8 = 1;
/// Somebody waits in this lane's bucket.
pub(crate) const PARKED: u8 = 2;
/// Somebody who waits will look at the lock by himself.
pub(crate) const QUIET: u8 = 4;
/// At least as many wait as CPUs are usable.
pub(crate) const CROWDED: u8 = 8;

/// Lanes of a bucket.
pub(crate) const LANES_PER_BUCKET: usize = if cfg!(any(ticketlock_loom, ticketlock_shuttle)) { 1 } else { 16 };
/// Buckets. 256 of two cache lines are 32 KiB of zeros that untouched cost nothing; CPython has 257, `parking_lot` three per
/// thread. In a model all locks share one bucket and one lane.
const BUCKETS: usize = if cfg!(any(ticketlock_loom, ticketlock_shuttle)) { 1 } else { 256 };
const LANES: usize = BUCKETS * LANES_PER_BUCKET;

/// Releases of a fenced lane without a waiter after which it may be fast again. A counter, since an uncontended release
/// reads no clock.
const FAST_AFTER_RELEASES: u32 = if cfg!(any(ticketlock_loom, ticketlock_shuttle)) { 1 } else { 1_024 };

/// A lane by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane(u16);

#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
mod table {
    use super::{AtomicU8, AtomicU32, BUCKETS, Bucket, LANES};

    static WORDS: [AtomicU8; LANES] = [const { AtomicU8::new(0) }; LANES];
    static BUCKET: [Bucket; BUCKETS] = [const { Bucket::new() }; BUCKETS];
    /// Releases in fenced and in quiet lanes, by bucket; plain stores, so a lost count only delays.
    static RELEASES: [AtomicU32; BUCKETS] = [const { AtomicU32::new(0) }; BUCKETS];

    #[inline]
    pub(super) fn words() -> &'static [AtomicU8; LANES] {
        &WORDS
    }
    #[inline]
    pub(super) fn buckets() -> &'static [Bucket; BUCKETS] {
        &BUCKET
    }
    pub(super) fn releases() -> &'static [AtomicU32; BUCKETS] {
        &RELEASES
    }
}

/// A model builds its table anew for every execution.
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
mod table {
    #[cfg(ticketlock_loom)]
    use loom::lazy_static;
    #[cfg(all(ticketlock_shuttle, not(ticketlock_loom)))]
    use shuttle::lazy_static;

    use super::{AtomicU8, AtomicU32, BUCKETS, Bucket, LANES, model};

    lazy_static! {
        static ref WORDS: [AtomicU8; LANES] = [AtomicU8::new(model::first_word())];
        static ref BUCKET: [Bucket; BUCKETS] = [Bucket::new()];
        static ref RELEASES: [AtomicU32; BUCKETS] = [AtomicU32::new(0)];
    }

    pub(super) fn words() -> &'static [AtomicU8; LANES] {
        &WORDS
    }
    pub(super) fn buckets() -> &'static [Bucket; BUCKETS] {
        &BUCKET
    }
    pub(super) fn releases() -> &'static [AtomicU32; BUCKETS] {
        &RELEASES
    }
}

impl Lane {
    /// The lane of the lock at `address`.
    #[inline]
    pub(crate) const fn of(address: usize) -> Self {
        // Fibonacci hashing (Knuth, TAOCP 6.4): the high bits of address * 2^64/phi.
        let hash = (address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self(if LANES == 1 { 0 } else { (hash >> (64 - LANES.trailing_zeros())) as u16 })
    }

    /// Its number within its bucket.
    pub(crate) const fn in_bucket(self) -> usize {
        self.0 as usize % LANES_PER_BUCKET
    }

    #[inline]
    fn word(self) -> &'static AtomicU8 {
        // The mask shows the compiler that the index is in bounds.
        &table::words()[self.0 as usize & (LANES - 1)]
    }

    /// What a holder about to release goes by.
    #[inline]
    pub(crate) fn bits(self) -> u8 {
        self.word().load(Ordering::Relaxed)
    }

    /// What a former holder goes by, after a plain store or a swap of `owner`.
    #[inline]
    pub(crate) fn bits_after_release(self) -> u8 {
        // On x86 the fence is the swap, or the parker's `membarrier`. Elsewhere both are `SeqCst` accesses, which keep their
        // order. pairs with: P1, P3.
        self.word().load(order("U3", Ordering::SeqCst))
    }

    /// The bucket, locked.
    pub(crate) fn lock(self) -> Locked<'static> {
        table::buckets()[self.0 as usize / LANES_PER_BUCKET].lock()
    }

    fn set(self, bits: u8) {
        // A read-modify-write even though the bucket lock serialises writers: P1 is a full fence before the look P3.
        self.word().swap(bits, order("P1", Ordering::SeqCst));
    }

    /// P1, P2. Announces a waiter that is about to queue, for the lock at `lock`: from here on every release either sees it, or
    /// is seen by the look that follows (P3).
    pub(crate) fn announce(self, queue: &mut Locked<'_>, lock: usize) {
        let bits = self.bits();
        // A waiter for another lock ends the quiet: whoever keeps watch does not watch that lock.
        let quiet = if bits & QUIET != 0 && queue.is_alone(lock, self) { QUIET } else { 0 };
        let new = PARKED | quiet | (bits & CROWDED);
        if new == bits {
            return;
        }
        self.set(new); // P1. pairs with: U3, and the look after a swap
        if bits & FAST != 0 {
            barrier::heavy(); // P2. pairs with: the compiler's fence between U2 and U3
            queue.fenced_at_ns = barrier::now_ns();
        }
    }

    /// Counts a release in the quiet lane; whether it is one that looks at the clock.
    pub(crate) fn count_quiet_release(self) -> bool {
        let releases = &table::releases()[self.0 as usize / LANES_PER_BUCKET];
        let count = releases.load(Ordering::Relaxed).wrapping_add(1);
        releases.store(count, Ordering::Relaxed);
        looks_at_clock(count)
    }

    /// Makes the lane fit its queue after a waiter came or went. `quiet` says whether somebody will look by himself.
    pub(crate) fn mend(self, queue: &Locked<'_>, quiet: bool) {
        let (bits, waiters) = (self.bits(), queue.waiters(self));
        let new = if waiters == 0 {
            bits & FAST
        } else {
            let crowded = if waiters >= crate::lock::general::cpus() { CROWDED } else { 0 };
            PARKED | crowded | if quiet { QUIET } else { 0 }
        };
        if new != bits {
            if new & !bits & QUIET != 0 {
                table::releases()[self.0 as usize / LANES_PER_BUCKET].store(0, Ordering::Relaxed);
            }
            self.set(new);
        }
    }

    /// Counts a release that swapped and found nobody, and makes the lane fast again in time.
    #[cold]
    pub(crate) fn count_fenced_release(self) {
        if !barrier::decided() {
            ready();
            return;
        }
        let releases = &table::releases()[self.0 as usize / LANES_PER_BUCKET];
        let count = releases.load(Ordering::Relaxed).wrapping_add(1);
        releases.store(count, Ordering::Relaxed);
        if count % FAST_AFTER_RELEASES == 0 && barrier::available() {
            let queue = self.lock();
            // Not at once after a barrier: a lock whose waiters come and go would pay one each time.
            let rested = barrier::rested(queue.fenced_at_ns);
            if rested && queue.waiters(self) == 0 {
                self.set(FAST);
            }
        }
    }
}

/// Before anything is queued: decides how releases and parkers divide the fence between them, and makes forked children drop
/// what they inherit. Costs three system calls once, later a load.
#[cold]
pub(crate) fn ready() {
    barrier::decide();
}

/// Number of forks between this process and the one that loaded the library, modulo 256: a lock that carries another one
/// has counts of threads that are gone.
pub(crate) use barrier::fork_generation;

/// Longest sleep, if a barrier has failed: what it should have made visible is then found by looking.
pub(crate) use barrier::longest_sleep_ns;

#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
mod barrier {
    //! Who pays for the fence between a release and a waiter that queues.

    use super::{FAST, LANES_PER_BUCKET, Lane, table};
    pub(super) use crate::machine::clock::now_ns;
    use crate::machine::membarrier::{self, Membarrier};
    use crate::policy::constants::{FAST_AGAIN_NS, SLEEP_WITHOUT_BARRIER_NS};
    use crate::sync::global::{AtomicU32, Ordering};

    /// Nobody has asked the kernel yet; no lane is fast.
    const UNDECIDED: u32 = 0;
    /// Lanes may be fast.
    const YES: u32 = 1;
    /// No lane is fast, or will be again.
    const NO: u32 = 2;
    /// As NO, but lanes have been fast: sleeps are short.
    const FAILED: u32 = 3;

    /// | from | to | when |
    /// |---|---|---|
    /// | UNDECIDED | YES, NO | at the first park or fenced release |
    /// | YES | FAILED | a barrier was refused (a filter came after registration) |
    static STATE: AtomicU32 = AtomicU32::new(UNDECIDED);
    static FORKS: AtomicU32 = AtomicU32::new(0);
    static FORK_HANDLER: AtomicU32 = AtomicU32::new(0);

    /// Whether a plain store of `owner` needs the waiter's barrier to be seen in time. Where it does not, the release is a
    /// `SeqCst` store, which the architecture orders before the load that follows.
    const NEEDS_BARRIER: bool = cfg!(any(target_arch = "x86", target_arch = "x86_64"));

    /// Whether the last barrier, at `at_ns`, is long ago.
    pub(super) fn rested(at_ns: u64) -> bool {
        now_ns().saturating_sub(at_ns) >= FAST_AGAIN_NS
    }

    pub(super) fn decided() -> bool {
        STATE.load(Ordering::Relaxed) != UNDECIDED
    }

    pub(super) fn available() -> bool {
        STATE.load(Ordering::Relaxed) == YES
    }

    pub(super) fn decide() {
        register_fork_handler();
        // pairs with: the release below; whoever sees YES may use the barrier that was registered before.
        if STATE.load(Ordering::Acquire) != UNDECIDED {
            return;
        }
        let state = match membarrier::probe() {
            Membarrier::PrivateExpedited => YES,
            Membarrier::Off => NO,
            Membarrier::Unavailable(_) => {
                if NEEDS_BARRIER {
                    NO
                } else {
                    YES
                }
            }
        };
        if STATE.compare_exchange(UNDECIDED, state, Ordering::Release, Ordering::Relaxed).is_ok() && state == YES {
            for bucket in 0..super::BUCKETS {
                let first = Lane((bucket * LANES_PER_BUCKET) as u16);
                let queue = first.lock();
                for lane in (0..LANES_PER_BUCKET as u16).map(|n| Lane(first.0 + n)) {
                    if queue.waiters(lane) == 0 {
                        lane.set(FAST);
                    }
                }
            }
        }
    }

    /// P2. A full fence on every CPU that runs a thread of this process.
    #[cold]
    pub(super) fn heavy() {
        if NEEDS_BARRIER && membarrier::barrier().is_err() {
            STATE.store(FAILED, Ordering::Relaxed);
        }
    }

    pub(crate) fn longest_sleep_ns() -> Option<u64> {
        (STATE.load(Ordering::Relaxed) == FAILED).then_some(SLEEP_WITHOUT_BARRIER_NS)
    }

    #[inline]
    pub(crate) fn fork_generation() -> u8 {
        FORKS.load(Ordering::Relaxed) as u8
    }

    #[cfg(unix)]
    fn register_fork_handler() {
        extern "C" fn in_child() {
            FORKS.store(FORKS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            let word = if STATE.load(Ordering::Relaxed) == YES { FAST } else { 0 };
            for bucket in table::buckets() {
                // SAFETY: the child has one thread, and it is here.
                unsafe { bucket.reset() };
            }
            for lane in table::words() {
                lane.store(word, crate::sync::Ordering::Relaxed);
            }
        }
        // Two first users may both register: the handler may run twice.
        if FORK_HANDLER.load(Ordering::Relaxed) == 0 {
            // SAFETY: the handler only stores to static memory, as a child of a threaded process may. On failure (no memory)
            // children inherit waiters that are gone; the next waiter tries again.
            if unsafe { libc::pthread_atfork(None, None, Some(in_child)) } == 0 {
                FORK_HANDLER.store(1, Ordering::Relaxed);
            }
        }
    }

    #[cfg(not(unix))]
    fn register_fork_handler() {
        let _ = (&FORK_HANDLER, &FORKS, table::words());
    }
}

#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
mod barrier {
    pub(super) use crate::machine::clock::now_ns;
    use crate::sync::light_fence;

    pub(super) fn rested(_at_ns: u64) -> bool {
        true
    }
    pub(super) fn decided() -> bool {
        true
    }
    pub(super) fn available() -> bool {
        super::model::first_word() == super::FAST
    }
    pub(super) fn decide() {}
    pub(super) fn heavy() {
        light_fence();
    }
    pub(crate) fn longest_sleep_ns() -> Option<u64> {
        None
    }
    pub(crate) fn fork_generation() -> u8 {
        0
    }
}

/// What a model chooses.
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
pub mod model {
    use core::cell::Cell;

    thread_local! {
        // All threads of a model run on one thread of the operating system.
        static FENCED: Cell<bool> = const { Cell::new(false) };
        static HAND_OVER_LATER: Cell<bool> = const { Cell::new(false) };
    }

    /// Whether the table starts, and stays, without `membarrier`.
    pub fn without_membarrier(without: bool) {
        FENCED.set(without);
    }

    /// Whether the first release that sees waiters hands over.
    pub fn hand_over_first(first: bool) {
        HAND_OVER_LATER.set(!first);
    }

    pub(super) fn first_fair_ns() -> u64 {
        if HAND_OVER_LATER.get() { u64::MAX } else { 0 }
    }

    pub(super) fn first_word() -> u8 {
        if FENCED.get() { 0 } else { super::FAST }
    }
}
