//! What a lock object tells readers: who holds it, who waits, and what waiting took.
//!
//! A lock has a record (see `telemetry::locks`) from its first wait on, or from its making while sites are recorded. Until
//! then it counts its acquisitions and knows its holder itself, so that an uncontended lock costs no memory elsewhere.
//!
//! | word | written by |
//! |---|---|
//! | `record` | the first waiter (CAS), once; never replaced |
//! | `acquisitions`, `owner` | the holder, while `record` is null |
//! | `attention` | waiters (RMW), a release (RMW): what the next release is to see to |
//! | `waited` | the holder, plain: 1 if it waited for its acquisition |
//! | the record's words about the holder's wait | the holder, before it sets `waited`; read by the release, which is the holder's |
//!
//! What must be done besides releasing is collected before the release and done after it, so that no waiter waits for it.

use core::cell::Cell;
use core::ptr;

use pyo3::ffi::PyObject;
use ticketlock::WaitStats;
use ticketlock::machine::clock::now_ns;
use ticketlock::telemetry::events::{self, Outcome};
use ticketlock::telemetry::layout::Kind;
use ticketlock::telemetry::locks::{self, Identity, LockRecord, WaitCount};
use ticketlock::telemetry::segment;
use ticketlock::telemetry::sites::Site;
use ticketlock::telemetry::threads::{self, ThreadRecord};

use super::{codes_of, frames, order, slow};
use crate::attach::thread_ident;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Bits of `attention`.
mod attention {
    /// A waiter wants to know where the holder releases.
    pub(super) const BLAME: u32 = 2;
    /// The record's count of earlier acquisitions is to be completed.
    pub(super) const REBASE: u32 = 4;
    /// The order of locks is noted. From the lock's making on, and for good.
    pub(super) const ORDER: u32 = 8;
}

/// The observed side of one lock.
pub(super) struct Observed {
    record: AtomicPtr<LockRecord>,
    acquisitions: AtomicU64,
    owner: AtomicU64,
    attention: AtomicU32,
    waited: AtomicU32,
}

/// Who a lock is, as its object knows.
pub(super) struct Who<'a> {
    pub(super) id: u64,
    pub(super) kind: Kind,
    pub(super) name: Option<&'a str>,
}

/// What was learnt before a wait.
pub(super) struct Asked {
    /// When; 0 if nothing was asked.
    since_ns: u64,
    /// The wait is one whose lines are looked at.
    token: bool,
    site: Option<Site>,
}

impl Asked {
    /// The wait came unexpectedly.
    pub(super) const NOTHING: Self = Self { since_ns: 0, token: false, site: None };
}

/// A wait that has begun.
pub(super) struct Begun {
    record: &'static LockRecord,
    thread: Option<&'static ThreadRecord>,
    id: u64,
    since_ns: u64,
    site: Option<Site>,
    /// The segment in which it is counted among the waiters.
    epoch: Cell<u64>,
}

/// What a release found to do after it.
pub(super) struct Left {
    record: &'static LockRecord,
    /// Count, ident, since when, where.
    wait: Option<(WaitCount, u64, u64, Option<Site>)>,
    blame_since_ns: Option<u64>,
}

impl Observed {
    pub(super) fn new() -> Self {
        Self {
            record: AtomicPtr::new(ptr::null_mut()),
            acquisitions: AtomicU64::new(0),
            owner: AtomicU64::new(0),
            attention: AtomicU32::new(if order::is_on() { attention::ORDER } else { 0 }),
            waited: AtomicU32::new(0),
        }
    }

    /// Notes where the lock is made, and gives it a record. Called while sites are recorded.
    ///
    /// # Safety
    /// Attached; no exception is set; `object` is the lock.
    #[cold]
    pub(super) unsafe fn made(&self, object: *mut PyObject, who: &Who<'_>) {
        // SAFETY: the caller's promise.
        let site = unsafe { codes_of(object).and_then(|codes| frames::site_of_making(codes)) };
        self.registered(who, site);
    }

    #[inline]
    fn record(&self) -> Option<&'static LockRecord> {
        // pairs with: the release exchange in `registered`.
        // SAFETY: once set it stays, until the lock goes.
        unsafe { self.record.load(Ordering::Acquire).as_ref() }
    }

    /// The lock's record. `site` is where it was made, if this is a good moment to know.
    fn registered(&self, who: &Who<'_>, site: Option<Site>) -> &'static LockRecord {
        if let Some(record) = self.record() {
            // In a forked child the record may be anybody's: the parent went on to use it while the child looked.
            if record.id() != who.id {
                record.identify(&self.identity(who, site));
                record.published();
            }
            return record;
        }
        let fresh = locks::register(&self.identity(who, site));
        // The holder may be about to count where it always did: whoever releases next completes the number.
        match self.record.compare_exchange(ptr::null_mut(), ptr::from_ref(fresh).cast_mut(), Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => {
                fresh.published();
                // pairs with: the acquire in `collect`, so that a release that sees the bit sees the record.
                self.attention.fetch_or(attention::REBASE, Ordering::Release);
                fresh
            }
            // SAFETY: just registered, and seen by nobody; the first one stays until the lock goes.
            Err(first) => unsafe {
                locks::discard(fresh);
                &*first
            },
        }
    }

    fn identity<'a>(&self, who: &Who<'a>, site: Option<Site>) -> Identity<'a> {
        Identity {
            id: who.id,
            kind: who.kind,
            name: who.name,
            site,
            counted: true,
            before: self.acquisitions.load(Ordering::Relaxed),
            owner: self.owner.load(Ordering::Relaxed),
        }
    }

    /// Counts an acquisition of lock `id`, and notes its order if it is to. `waiting` unless it would have left without. For the
    /// holder.
    ///
    /// # Safety
    /// Attached; no exception is set.
    #[inline]
    pub(super) unsafe fn taken_in_order(&self, id: u64, waiting: bool) {
        self.taken();
        if self.attention.load(Ordering::Relaxed) & attention::ORDER != 0 {
            // SAFETY: the caller's promise.
            unsafe { order::taken(id, waiting) };
        }
    }

    /// Notes the order of an acquisition that waited, if it got the lock. For the holder.
    ///
    /// # Safety
    /// Attached; no exception is set.
    pub(super) unsafe fn note_order(&self, id: u64, got: bool, waiting: bool) {
        if got && self.attention.load(Ordering::Relaxed) & attention::ORDER != 0 {
            // SAFETY: the caller's promise.
            unsafe { order::taken(id, waiting) };
        }
    }

    /// Counts an acquisition. For the holder.
    #[inline]
    fn taken(&self) {
        // Acquire, as in `record`: free on x86.
        let record = self.record.load(Ordering::Acquire);
        if record.is_null() {
            self.acquisitions.store(self.acquisitions.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            self.owner.store(thread_ident(), Ordering::Relaxed);
        } else {
            // SAFETY: once set it stays, until the lock goes.
            unsafe { (*record).taken(thread_ident()) };
        }
    }

    /// The holder is about to release. Whether there is something to [`collect`](Self::collect) before.
    #[inline]
    pub(super) fn releasing(&self) -> bool {
        let record = self.record.load(Ordering::Acquire);
        if record.is_null() {
            self.owner.store(0, Ordering::Relaxed);
        } else {
            // SAFETY: as in `taken`.
            unsafe { (*record).released() };
        }
        self.attention.load(Ordering::Relaxed) | self.waited.load(Ordering::Relaxed) != 0
    }

    /// What is to be done after the release. For the holder.
    #[cold]
    pub(super) fn collect(&self, id: u64) -> Option<Left> {
        // pairs with: the release in `registered`, and in `begin_wait`.
        let mut bits = self.attention.load(Ordering::Relaxed);
        if bits & !attention::ORDER != 0 {
            bits = self.attention.fetch_and(attention::ORDER, Ordering::AcqRel);
        }
        let waited = self.waited.load(Ordering::Relaxed) != 0;
        self.waited.store(0, Ordering::Relaxed);
        if bits & attention::ORDER != 0 {
            order::released(id);
        }
        let record = self.record()?;
        record.released();
        if bits & attention::REBASE != 0 {
            record.set_base(self.acquisitions.load(Ordering::Relaxed));
        }
        let wait = if waited { record.kept_wait() } else { None };
        let blame_since_ns = (bits & attention::BLAME != 0).then(|| record.asked_since());
        Some(Left { record, wait, blame_since_ns })
    }

    /// Whether the record says who this lock is.
    pub(super) fn knows(&self, id: u64) -> bool {
        self.record().is_some_and(|record| record.id() == id)
    }

    /// What a wait wants to know of the interpreter: the line that waits, if it is one that is looked at. Before the wait
    /// begins, since finalizers may run.
    ///
    /// # Safety
    /// Attached; no exception is set.
    pub(super) unsafe fn before_wait(&self) -> Asked {
        let since_ns = now_ns();
        let owner = self.record().map_or_else(|| self.owner.load(Ordering::Relaxed), LockRecord::owner);
        let _ = threads::current();
        // SAFETY: the caller's promise.
        let (token, site) = unsafe {
            frames::name_threads(owner, since_ns);
            let token = locks::take_token(since_ns);
            (token, if token { frames::site() } else { None })
        };
        Asked { since_ns, token, site }
    }

    /// A wait begins.
    pub(super) fn begin_wait(&self, who: &Who<'_>, asked: &Asked) -> Begun {
        // Asking is part of waiting.
        let since_ns = if asked.since_ns == 0 { now_ns() } else { asked.since_ns };
        let record = self.registered(who, None);
        let ident = thread_ident();
        let thread = threads::current();
        if let Some(thread) = thread {
            thread.begin_wait(ident, who.id, since_ns);
        }
        record.begin_wait();
        if asked.token {
            record.ask_where(since_ns);
            // pairs with: the acquire in `collect`.
            self.attention.fetch_or(attention::BLAME, Ordering::Release);
        }
        Begun { record, thread, id: who.id, since_ns, site: asked.site, epoch: Cell::new(segment::epoch()) }
    }

    /// The wait ended with the lock. For the holder.
    pub(super) fn won(&self, begun: &Begun, stats: &WaitStats) {
        begun.ended(stats);
        self.taken();
        let count = WaitCount { ns: stats.ns, parks: stats.parks, handed_over: stats.handed_over };
        begun.record.keep_wait(&count, thread_ident(), begun.since_ns, begun.site);
        self.waited.store(1, Ordering::Relaxed);
    }

    /// The wait ended without it. `timed_out`: the deadline came; otherwise a handler ended it.
    pub(super) fn gave_up(begun: &Begun, stats: &WaitStats, timed_out: bool) {
        begun.ended(stats);
        if timed_out {
            begun.record.count_timeout(stats.ns, stats.parks);
        }
        let outcome = if timed_out { Outcome::TimedOut } else { Outcome::Interrupted };
        events::note(begun.record.id(), thread_ident(), begun.since_ns, stats.ns, outcome);
        if let Some(site) = begun.site {
            begun.record.blame(site, false, stats.ns);
        }
    }

    /// Acquisitions so far.
    pub(super) fn acquisitions(&self) -> u64 {
        match self.record() {
            None => self.acquisitions.load(Ordering::Relaxed),
            Some(record) if self.attention.load(Ordering::Relaxed) & attention::REBASE == 0 => record.acquisitions(),
            // Not completed yet.
            Some(record) => self
                .acquisitions
                .load(Ordering::Relaxed)
                .wrapping_add(record.get(ticketlock::telemetry::layout::lock::ACQUISITIONS)),
        }
    }

    /// The record, if the lock has one.
    pub(super) fn waits(&self) -> Option<&'static LockRecord> {
        self.record()
    }

    /// The lock is called otherwise from now on.
    pub(super) fn renamed(&self, name: Option<&str>) {
        if let Some(record) = self.record() {
            record.set_name(name);
        }
    }

    /// A forked child starts afresh with the lock, which nobody holds.
    pub(super) fn reset(&self) {
        self.owner.store(0, Ordering::Relaxed);
        // What is still to be completed stays to be completed.
        self.attention.fetch_and(attention::REBASE | attention::ORDER, Ordering::Relaxed);
        self.waited.store(0, Ordering::Relaxed);
        if let Some(record) = self.record() {
            record.released();
        }
    }
}

impl Begun {
    /// Ns since it began.
    pub(super) fn lasted(&self) -> u64 {
        now_ns().saturating_sub(self.since_ns)
    }

    /// It goes on, after signal handlers that may have waited for something else, or forked.
    pub(super) fn again(&self) {
        if self.epoch.replace(segment::epoch()) != segment::epoch() {
            self.record.begin_wait();
        }
        if let Some(thread) = self.thread {
            thread.begin_wait(thread_ident(), self.id, self.since_ns);
        }
    }

    fn ended(&self, stats: &WaitStats) {
        self.record.end_wait();
        if let Some(thread) = self.thread {
            thread.end_wait(stats.ns, stats.parks, stats.polls);
        }
    }
}

impl Left {
    /// Does it. After the release.
    ///
    /// # Safety
    /// Attached; no exception is set; `object` is the lock, which the caller's reference keeps, and so its record.
    #[cold]
    pub(super) unsafe fn deliver(self, object: *mut PyObject) {
        let Self { record, wait, blame_since_ns } = self;
        let now = if wait.is_some() || blame_since_ns.is_some() { now_ns() } else { 0 };
        if let Some((count, ident, since_ns, site)) = wait {
            record.count_wait(&count);
            if let Some(site) = site {
                record.blame(site, false, count.ns);
            }
            let outcome = if count.handed_over { Outcome::HandedOver } else { Outcome::Acquired };
            events::note(record.id(), ident, since_ns, count.ns, outcome);
            segment::stay_findable(now);
            // SAFETY: the caller's promise.
            unsafe { slow::tell(object, record.id(), ident, count.ns, site) };
        }
        if let Some(since_ns) = blame_since_ns {
            // SAFETY: the caller's promise. The frame that released is still there.
            if let Some(site) = unsafe { frames::site() } {
                record.blame(site, true, now.saturating_sub(since_ns));
            }
        }
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        if let Some(record) = self.record() {
            if self.attention.load(Ordering::Relaxed) & attention::ORDER != 0 {
                order::forget(record.id());
            }
            if self.attention.load(Ordering::Relaxed) & attention::REBASE != 0 {
                record.set_base(self.acquisitions.load(Ordering::Relaxed));
            }
            // SAFETY: registered for this lock alone, which goes.
            unsafe { locks::forget(record) };
        }
    }
}
