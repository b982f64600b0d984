//! One record per lock that reports: what it counted, who holds it, how many wait.
//!
//! | words | written by | how |
//! |---|---|---|
//! | acquisitions, owner, base | the holder | plain loads and stores: the lock orders them |
//! | identity | whoever claims or frees the record | between an odd and an even generation |
//! | waiters | a waiter, as it begins and ends | read-modify-write |
//! | the rest | a former waiter, after its release | read-modify-write |
//!
//! A record is the lock's from its first contended wait (or its making) to its end, when its counts are folded into the site
//! that made it. A lock for which there is no room has a record of its own outside the segment, and its waits count for its
//! site at once.

use core::ptr;

use super::layout::{self, Kind, Section, counters, header, lock, site};
use super::segment::{self, Segment, write_name};
use super::sites::{self, Site};
use crate::sync::{AtomicU64, Ordering};

/// A lock's record.
#[repr(C, align(128))] // two lines: adjacent-line prefetch would couple neighbours
#[derive(Debug)]
pub struct LockRecord {
    words: [AtomicU64; lock::WORDS],
}

const _: () = assert!(size_of::<LockRecord>() == lock::WORDS * 8);

/// Who a lock is.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// Its number: unique in the process, never used again, not 0.
    pub id: u64,
    /// What it is.
    pub kind: Kind,
    /// What it is called.
    pub name: Option<&'a str>,
    /// Where it was made.
    pub site: Option<Site>,
    /// Acquisitions are counted.
    pub counted: bool,
    /// Acquisitions before it had a record.
    pub before: u64,
    /// Ident of the holder, as it last wrote itself.
    pub owner: u64,
}

/// A wait that ended, to be counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitCount {
    /// Its length.
    pub ns: u64,
    /// Sleeps.
    pub parks: u32,
    /// The lock was handed over.
    pub handed_over: bool,
}

/// Adds for the holder.
#[inline]
fn add(word: &AtomicU64, amount: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

impl LockRecord {
    /// Outside the segment, for a lock that found no room there.
    fn outside() -> *const Self {
        Box::into_raw(Box::new(Self { words: [const { AtomicU64::new(0) }; lock::WORDS] }))
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.words[index]
    }

    /// A word, relaxed.
    #[inline]
    pub fn get(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Relaxed)
    }

    fn set(&self, index: usize, value: u64) {
        self.words[index].store(value, Ordering::Relaxed);
    }

    /// One of the [`counters`].
    #[inline]
    pub fn counter(&self, index: usize) -> u64 {
        self.get(lock::COUNTERS + index)
    }

    /// Counts an acquisition by thread `ident`. For the holder.
    #[inline]
    pub fn taken(&self, ident: u64) {
        add(&self.words[lock::ACQUISITIONS], 1);
        self.words[lock::OWNER].store(ident, Ordering::Relaxed);
    }

    /// The holder is about to release.
    #[inline]
    pub fn released(&self) {
        self.words[lock::OWNER].store(0, Ordering::Relaxed);
    }

    /// Acquisitions, with those before the record was claimed.
    pub fn acquisitions(&self) -> u64 {
        self.get(lock::BASE).wrapping_add(self.get(lock::ACQUISITIONS))
    }

    /// Who holds the lock, as the holder last wrote; 0 for nobody.
    pub fn owner(&self) -> u64 {
        self.get(lock::OWNER)
    }

    /// Acquisitions before the record was claimed, once nobody adds to them any more. Not in a forked child, which counts from
    /// its fork on. For the holder.
    pub fn set_base(&self, before: u64) {
        if self.get(lock::EPOCH) == segment::epoch() {
            self.set(lock::BASE, before);
        }
    }

    /// The lock's number.
    pub fn id(&self) -> u64 {
        self.get(lock::ID)
    }

    /// Writes down who the lock is, and what is true of it so far.
    pub fn identify(&self, identity: &Identity<'_>) {
        self.changing(|| {
            let cut = write_name(&|index, word| self.set(lock::NAME + index, word), identity.name.unwrap_or_default());
            let mut meta = identity.kind as u64 | (u64::from(identity.site.unwrap_or(Site::UNKNOWN).number()) << 32);
            if cut {
                meta |= lock::NAME_CUT;
            }
            if !identity.counted {
                meta |= lock::UNCOUNTED;
            }
            self.set(lock::META, meta);
            self.set(lock::EPOCH, segment::epoch());
            self.set(lock::BASE, identity.before);
            self.set(lock::OWNER, identity.owner);
            self.set(lock::ID, identity.id);
        });
    }

    /// The record is its lock's from now on: its site counts it.
    pub fn published(&self) {
        let Some(segment) = segment::existing() else { return };
        let words = sites::words(segment, self.site());
        words[site::COUNTERS + counters::WAITERS].fetch_add(1, Ordering::Relaxed);
        words[site::COUNTERS + counters::WAITERS_MAX].fetch_add(1, Ordering::Relaxed);
        self.word(lock::META).fetch_or(lock::PUBLISHED, Ordering::Relaxed);
        if self.index(segment).is_none() {
            segment.dropped(header::DROPPED_LOCKS);
        }
    }

    /// Names the lock.
    pub fn set_name(&self, name: Option<&str>) {
        self.changing(|| {
            let cut = write_name(&|index, word| self.set(lock::NAME + index, word), name.unwrap_or_default());
            let meta = self.get(lock::META) & !lock::NAME_CUT;
            self.set(lock::META, meta | if cut { lock::NAME_CUT } else { 0 });
        });
    }

    /// Runs `change` with an odd generation.
    fn changing(&self, change: impl FnOnce()) {
        let generation = self.word(lock::GENERATION);
        // pairs with: the reader's second look. A read-modify-write: what follows is not seen before it.
        let odd = generation.fetch_or(1, Ordering::AcqRel) | 1;
        change();
        // A store: whatever a move of the segment made of the number, it is even afterwards.
        generation.store(odd.wrapping_add(1), Ordering::Release);
    }

    /// Keeps what the holder's wait took, until its release. For the holder.
    pub fn keep_wait(&self, wait: &WaitCount, ident: u64, since_ns: u64, site: Option<Site>) {
        self.set(lock::HELD_WAIT_IDENT, ident);
        self.set(lock::HELD_WAIT_NS, wait.ns);
        self.set(lock::HELD_WAIT_SINCE, since_ns);
        self.set(lock::HELD_WAIT_HOW, u64::from(wait.parks) | u64::from(wait.handed_over) << 32);
        self.set(lock::HELD_WAIT_SITE, site.map_or(0, |site| u64::from(site.number()) + 1));
    }

    /// What was kept, who waited since when, and where; `None` in a forked child of a process that waited. For the holder.
    pub fn kept_wait(&self) -> Option<(WaitCount, u64, u64, Option<Site>)> {
        let since_ns = self.get(lock::HELD_WAIT_SINCE);
        if since_ns == 0 {
            return None;
        }
        let how = self.get(lock::HELD_WAIT_HOW);
        let wait = WaitCount { ns: self.get(lock::HELD_WAIT_NS), parks: how as u32, handed_over: how >> 32 != 0 };
        Some((wait, self.get(lock::HELD_WAIT_IDENT), since_ns, Site::from_stored(self.get(lock::HELD_WAIT_SITE))))
    }

    /// A waiter since `since_ns` wants to know where the holder releases. The latest one's word counts.
    pub fn ask_where(&self, since_ns: u64) {
        self.set(lock::BLAME_SINCE, since_ns);
    }

    /// Since when whoever asked has waited.
    pub fn asked_since(&self) -> u64 {
        self.get(lock::BLAME_SINCE)
    }

    /// A waiter begins.
    pub fn begin_wait(&self) {
        let waiters = self.word(lock::COUNTERS + counters::WAITERS).fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        // More than there can be threads: ends of waits that a move of the segment, or a fork, has left without a beginning.
        if waiters < 1 << 32 {
            raise(self.word(lock::COUNTERS + counters::WAITERS_MAX), waiters);
        }
    }

    /// A waiter ends, with or without the lock.
    pub fn end_wait(&self) {
        self.word(lock::COUNTERS + counters::WAITERS).fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a wait that got the lock. For the former waiter, after its release.
    pub fn count_wait(&self, wait: &WaitCount) {
        count_wait(&self.words[lock::COUNTERS..], wait);
        if let Some(words) = self.site_outside() {
            count_wait(&words[site::COUNTERS..], wait);
        }
    }

    /// Counts a wait that was given up after `ns`.
    pub fn count_timeout(&self, ns: u64, parks: u32) {
        let give_up = |counters: &[AtomicU64], vain: &AtomicU64| {
            counters[counters::TIMEOUTS].fetch_add(1, Ordering::Relaxed);
            counters[counters::PARKS].fetch_add(parks.into(), Ordering::Relaxed);
            vain.fetch_add(ns, Ordering::Relaxed);
        };
        give_up(&self.words[lock::COUNTERS..], self.word(lock::VAIN_NS));
        if let Some(words) = self.site_outside() {
            give_up(&words[site::COUNTERS..], &words[site::VAIN_NS]);
        }
    }

    /// Charges a line with a wait: where a thread waited, or (`holder`) where the lock was released while others waited.
    pub fn blame(&self, site: Site, holder: bool, weight_ns: u64) {
        blame(&self.words[lock::COUNTERS..], site, holder, weight_ns);
    }

    fn site(&self) -> usize {
        (self.get(lock::META) >> 32) as usize
    }

    /// The site's words, if this record is not in the segment.
    fn site_outside(&self) -> Option<&'static [AtomicU64; site::WORDS]> {
        let segment = segment::existing()?;
        if self.index(segment).is_some() {
            return None;
        }
        Some(sites::words(segment, self.site()))
    }

    fn index(&self, segment: Segment) -> Option<usize> {
        segment.index_of(Section::Locks, ptr::from_ref(self).cast())
    }
}

/// Raises a maximum.
fn raise(word: &AtomicU64, value: u64) {
    if value > word.load(Ordering::Relaxed) {
        word.fetch_max(value, Ordering::Relaxed);
    }
}

fn count_wait(words: &[AtomicU64], wait: &WaitCount) {
    words[counters::CONTENDED].fetch_add(1, Ordering::Relaxed);
    words[counters::WAIT_NS].fetch_add(wait.ns, Ordering::Relaxed);
    raise(&words[counters::WAIT_NS_MAX], wait.ns);
    // Below 2 ns, which no clock shows, is class 0.
    let class = (wait.ns.checked_ilog2().unwrap_or(0) as usize).min(counters::CLASSES - 1);
    words[counters::LOG2 + class].fetch_add(1, Ordering::Relaxed);
    if wait.parks != 0 {
        words[counters::PARKS].fetch_add(wait.parks.into(), Ordering::Relaxed);
    }
    if wait.handed_over {
        words[counters::HAND_OVERS].fetch_add(1, Ordering::Relaxed);
    }
}

/// Adds a sample to a list of lines; the lightest gives way to a new one. Samples of two threads at once may be lost.
fn blame(words: &[AtomicU64], site: Site, holder: bool, weight_ns: u64) {
    let first = if holder { counters::HOLDER_SITES } else { counters::WAITER_SITES };
    let key = u64::from(site.number()) + 1;
    let mut lightest = (u64::MAX, first);
    for at in (first..first + 2 * counters::BLAMES).step_by(2) {
        let (line, weight) = (&words[at], &words[at + 1]);
        let seen = line.load(Ordering::Relaxed);
        if seen & 0xFFFF_FFFF == key || (seen == 0 && line.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed).is_ok())
        {
            line.fetch_add(1 << 32, Ordering::Relaxed);
            weight.fetch_add(weight_ns, Ordering::Relaxed);
            return;
        }
        let heavy = weight.load(Ordering::Relaxed);
        if heavy < lightest.0 {
            lightest = (heavy, at);
        }
    }
    if lightest.0 < weight_ns {
        words[lightest.1].store(key | 1 << 32, Ordering::Relaxed);
        words[lightest.1 + 1].store(weight_ns, Ordering::Relaxed);
    }
    if let Some(segment) = segment::existing() {
        segment.dropped(header::DROPPED_BLAMES);
    }
}

/// A record for a lock, in the segment or, where that is full, outside. Its site does not know of it before
/// [`published`](LockRecord::published). Kept until [`forget`].
#[must_use]
pub fn register(identity: &Identity<'_>) -> &'static LockRecord {
    let segment = segment::segment();
    let index = segment.and_then(|segment| segment.claim(Section::Locks, lock::NEXT_FREE));
    let record: *const LockRecord = if let (Some(segment), Some(index)) = (segment, index) {
        segment.record(Section::Locks, index).cast()
    } else {
        LockRecord::outside()
    };
    // SAFETY: in the segment a record of this type's size and alignment, never unmapped; outside a box, freed by `forget`,
    // whose caller says that nobody uses it any more.
    let record = unsafe { &*record };
    record.set(lock::NEXT_FREE, 0);
    record.identify(identity);
    record
}

/// In a site's word: its locks were of several kinds.
const SEVERAL_KINDS: u64 = 0xFF;

/// The lock ends: its counts go to its site, and the record is free.
///
/// # Safety
/// `record` came from [`register`] and was published, and nobody uses it any more.
pub unsafe fn forget(record: &'static LockRecord) {
    let published = record.get(lock::META) & lock::PUBLISHED != 0;
    if let Some(segment) = segment::existing().filter(|_| published) {
        let to = sites::words(segment, record.site());
        to[site::COUNTERS + counters::WAITERS].fetch_sub(1, Ordering::Relaxed);
        to[site::ACQUISITIONS].fetch_add(record.acquisitions(), Ordering::Relaxed);
        let kind = record.get(lock::META) & 0xFF;
        if to[site::KIND].load(Ordering::Relaxed) != kind {
            // Racing ends of the first two of different kinds may leave one of them: a name in a report.
            let first = to[site::KIND].compare_exchange(0, kind, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if !first && to[site::KIND].load(Ordering::Relaxed) != kind {
                to[site::KIND].store(SEVERAL_KINDS, Ordering::Relaxed);
            }
        }
        raise(&to[site::WAITERS_MAX], record.counter(counters::WAITERS_MAX));
        // Outside the segment its waits have counted for the site already.
        if record.index(segment).is_some() && record.counter(counters::CONTENDED) | record.counter(counters::TIMEOUTS) != 0 {
            fold(record, to);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { discard(record) };
}

/// The record is free again, as if it had never been.
///
/// # Safety
/// `record` came from [`register`], and nobody uses it any more.
pub unsafe fn discard(record: &'static LockRecord) {
    let place = segment::existing().and_then(|segment| record.index(segment).map(|index| (segment, index)));
    let Some((segment, index)) = place else {
        // SAFETY: not in the segment, so from a box; the caller's promise.
        drop(unsafe { Box::from_raw(ptr::from_ref(record).cast_mut()) });
        return;
    };
    let waited = record.counter(counters::WAITERS_MAX) | record.counter(counters::WAITERS) != 0
        || record.counter(counters::CONTENDED) | record.counter(counters::TIMEOUTS) != 0;
    record.changing(|| {
        // What nobody waited for has nothing else.
        let end = if waited { lock::WORDS } else { lock::COUNTERS };
        (0..end).filter(|&word| word != lock::GENERATION).for_each(|word| record.set(word, 0));
    });
    segment.give_back(Section::Locks, lock::NEXT_FREE, index);
}

fn fold(record: &LockRecord, to: &[AtomicU64; site::WORDS]) {
    to[site::VAIN_NS].fetch_add(record.get(lock::VAIN_NS), Ordering::Relaxed);
    let sums = [counters::CONTENDED, counters::WAIT_NS, counters::PARKS, counters::TIMEOUTS, counters::HAND_OVERS];
    for index in sums.into_iter().chain(counters::LOG2..counters::LOG2 + counters::CLASSES) {
        let amount = record.counter(index);
        if amount != 0 {
            to[site::COUNTERS + index].fetch_add(amount, Ordering::Relaxed);
        }
    }
    raise(&to[site::COUNTERS + counters::WAIT_NS_MAX], record.counter(counters::WAIT_NS_MAX));
    for (first, holder) in [(counters::WAITER_SITES, false), (counters::HOLDER_SITES, true)] {
        for at in (first..first + 2 * counters::BLAMES).step_by(2) {
            if let Some(site) = Site::from_stored(record.counter(at)) {
                blame(&to[site::COUNTERS..], site, holder, record.counter(at + 1));
            }
        }
    }
}

/// Whether one more stack may be looked at, which costs some hundred nanoseconds: a thousand a second in all, so that no
/// program is slowed down by more than a thousandth. Taken before the wait, so every wait has the same chance.
pub fn take_token(now_ns: u64) -> bool {
    /// Time that a token takes to come back, ns.
    const INTERVAL_NS: u64 = 1_000_000;
    /// How far the balance may be behind, in ns: 50 tokens at once.
    const BURST_NS: u64 = 50 * INTERVAL_NS;
    static DUE_NS: AtomicU64 = AtomicU64::new(0);

    let due = DUE_NS.load(Ordering::Relaxed);
    let next = due.max(now_ns.saturating_sub(BURST_NS)) + INTERVAL_NS;
    next <= now_ns.saturating_add(INTERVAL_NS) && DUE_NS.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Whether locks are to look where they are made, and to have a record from then on.
#[inline]
pub fn sites_are_on() -> bool {
    segment::existing().is_some_and(|segment| segment.flag(layout::flags::SITES))
}

/// Switches that on or off for locks made from now on.
pub fn set_sites(on: bool) {
    if let Some(segment) = segment::segment() {
        segment.set_flag(layout::flags::SITES, on);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(id: u64) -> Identity<'static> {
        Identity { id, kind: Kind::Lock, name: Some("a name"), site: None, counted: true, before: 5, owner: 0 }
    }

    #[test]
    fn a_record_counts_and_its_counts_go_to_the_site() {
        let site = sites::intern("test.py", 7, "made_here", false).unwrap();
        let record = register(&Identity { site: Some(site), ..identity(1 << 40) });
        record.published();
        record.taken(77);
        assert_eq!((record.acquisitions(), record.owner()), (6, 77));
        record.begin_wait();
        record.begin_wait();
        record.end_wait();
        record.count_wait(&WaitCount { ns: 1_500, parks: 2, handed_over: true });
        record.blame(site, false, 1_500);
        record.blame(site, false, 500);
        record.released();
        assert_eq!(record.counter(counters::WAITERS), 1);
        assert_eq!(record.counter(counters::WAITERS_MAX), 2);
        assert_eq!(record.counter(counters::LOG2 + 10), 1);
        assert_eq!(record.counter(counters::WAITER_SITES), u64::from(site.number() + 1) | 2 << 32);
        assert_eq!(record.counter(counters::WAITER_SITES + 1), 2_000);
        record.end_wait();
        // SAFETY: registered above, and not used after this.
        unsafe { forget(record) };
        let words = sites::words(segment::segment().unwrap(), site.number() as usize);
        let of = |index: usize| words[site::COUNTERS + index].load(Ordering::Relaxed);
        assert_eq!(words[site::ACQUISITIONS].load(Ordering::Relaxed), 6);
        assert_eq!((of(counters::CONTENDED), of(counters::WAIT_NS), of(counters::WAIT_NS_MAX)), (1, 1_500, 1_500));
        assert_eq!((of(counters::WAITERS), of(counters::WAITERS_MAX)), (0, 1));
        assert_eq!(of(counters::WAITER_SITES + 1), 2_000);
    }

    #[test]
    fn the_lightest_line_gives_way() {
        let record = register(&identity(1 << 41));
        record.published();
        for line in 0..counters::BLAMES as u32 {
            record.blame(Site::from_stored(u64::from(line) + 1).unwrap(), true, 100 + u64::from(line));
        }
        record.blame(Site::from_stored(100).unwrap(), true, 50);
        assert_eq!(record.counter(counters::HOLDER_SITES) as u32, 1, "a light newcomer stays out");
        record.blame(Site::from_stored(100).unwrap(), true, 1_000);
        assert_eq!(record.counter(counters::HOLDER_SITES) as u32, 100);
        // SAFETY: registered above, and not used after this.
        unsafe { forget(record) };
    }

    #[test]
    fn tokens_come_back_at_their_rate() {
        let start = 10_u64.pow(12);
        let taken = (0..1_000).filter(|_| take_token(start)).count();
        assert!((50..=51).contains(&taken), "{taken}");
        assert!(!take_token(start + 500_000));
        assert!(take_token(start + 2_000_000));
        let later = (0..1_000_u64).filter(|step| take_token(start + 3_000_000 + step * 100_000)).count();
        assert!((95..=103).contains(&later), "{later}");
    }
}
