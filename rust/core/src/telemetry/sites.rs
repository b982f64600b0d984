//! Lines of code, each with a number: where locks are made, waited for and released.
//!
//! A site is complete once `READY` is 1, and never changes or goes after that; beside it stand the counts of its locks that
//! are gone. Site 0 stands for "nobody looked".

use core::slice;

use super::layout::{Section, header, site};
use super::segment::{self, Segment};
use crate::sync::global::AtomicU32;
use crate::sync::{AtomicU64, Ordering};

/// Number of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Site(u32);

impl Site {
    /// Nobody looked where.
    pub const UNKNOWN: Self = Self(0);

    /// Its number, for a record.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// From a word that holds number + 1 in its low half; `None` for 0.
    #[must_use]
    pub const fn from_stored(word: u64) -> Option<Self> {
        match (word as u32).checked_sub(1) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

/// Sites by hash: number, 0 for none. Private to the process: readers go by the records. Twice as many places as sites, so
/// that a search is short.
static INDEX: [AtomicU32; PLACES] = [const { AtomicU32::new(0) }; PLACES];
const PLACES: usize = 16_384;
/// Places looked at before a site is taken to be new.
const PROBES: usize = 32;

/// The words of a site; of site 0 for a number that is none.
pub(super) fn words(segment: Segment, number: usize) -> &'static [AtomicU64; site::WORDS] {
    let number = if number < segment.capacity(Section::Sites) { number } else { 0 };
    // SAFETY: a record of the section: as many atomics, never unmapped.
    unsafe { &*segment.record(Section::Sites, number).cast() }
}

/// What makes a site, 8 bytes at a time (the multiplier is Knuth's, TAOCP 6.4); never 0.
fn hash(path: &str, line: u32, internal: bool) -> u64 {
    let mix = |hash: u64, word: u64| (hash.rotate_left(29) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let words = path.as_bytes().chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let hash = words.fold(mix(path.len() as u64, u64::from(line) | u64::from(internal) << 32), mix);
    (hash ^ (hash >> 32)).max(1)
}

/// The number of a site that was written down before.
#[must_use]
pub fn find(path: &str, line: u32, internal: bool) -> Option<Site> {
    let segment = segment::existing()?;
    let key = hash(path, line, internal);
    for probe in 0..PROBES {
        // pairs with: the release store in `intern`, so that the record is seen complete.
        match INDEX[(key as usize).wrapping_add(probe) % PLACES].load(Ordering::Acquire) {
            0 => return None,
            TAKEN => {}
            number if words(segment, number as usize)[site::KEY].load(Ordering::Relaxed) == key => return Some(Site(number)),
            _ => {}
        }
    }
    None
}

/// The number of a site, which is written down at its first use. `internal`: the line is in a library, or made one make a lock
/// for itself; the same line may be a site of either kind. `None` if there is no room. Two threads that
/// write it down at the same time make two of it.
#[must_use]
pub fn intern(path: &str, line: u32, function: &str, internal: bool) -> Option<Site> {
    let segment = segment::segment()?;
    let key = hash(path, line, internal);
    for probe in 0..PROBES {
        let place = &INDEX[(key as usize).wrapping_add(probe) % PLACES];
        // pairs with: the release store below, so that the record is seen complete.
        let number = place.load(Ordering::Acquire);
        if number != 0 && number != TAKEN {
            if words(segment, number as usize)[site::KEY].load(Ordering::Relaxed) == key {
                return Some(Site(number));
            }
        } else if number == 0 && place.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            let made = write(segment, key, path, line, function, internal);
            // pairs with: the acquire load above.
            place.store(made.map_or(0, |site| site.0), Ordering::Release);
            return made;
        }
    }
    segment.dropped(header::DROPPED_SITES);
    None
}

/// In a place: somebody is writing the site down.
const TAKEN: u32 = u32::MAX;

#[cold]
fn write(segment: Segment, key: u64, path: &str, line: u32, function: &str, internal: bool) -> Option<Site> {
    let Some(number) = segment.take_fresh(Section::Sites, 1) else {
        segment.dropped(header::DROPPED_SITES);
        return None;
    };
    let words = words(segment, number);
    let set = |index: usize, value: u64| words[index].store(value, Ordering::Relaxed);
    set(site::KEY, key);
    set(site::PATH, store_text(segment, path));
    set(site::FUNCTION, store_text(segment, function));
    set(site::LINE, u64::from(line) | if internal { site::INTERNAL } else { 0 });
    words[site::READY].store(1, Ordering::Release); // pairs with: the reader's look
    Some(Site(number as u32))
}

/// Copies a text into the strings; its place and length, 0 if there is no room.
fn store_text(segment: Segment, text: &str) -> u64 {
    /// Longest text, bytes: longer paths lose their beginning, which tells less.
    const LONGEST: usize = 1_024;
    let mut from = text.len().saturating_sub(LONGEST);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let text = &text.as_bytes()[from..];
    // Whole words: readers may look at any time, and bytes are not atomics.
    let Some(at) = segment.take_fresh(Section::Strings, text.len().next_multiple_of(8).max(8)) else {
        segment.dropped(header::DROPPED_STRINGS);
        return 0;
    };
    let base: *const AtomicU64 = segment.record(Section::Strings, at).cast();
    // SAFETY: the words just taken, which nobody else has; offsets are multiples of 8, as all are taken that way.
    let place = unsafe { slice::from_raw_parts(base, text.len().div_ceil(8)) };
    for (to, from) in place.iter().zip(text.chunks(8)) {
        let mut word = [0; 8];
        word[..from.len()].copy_from_slice(from);
        to.store(u64::from_ne_bytes(word), Ordering::Relaxed);
    }
    (at as u64) << 32 | text.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_one_number() {
        let first = intern("a/b.py", 3, "f", false).unwrap();
        assert_eq!(intern("a/b.py", 3, "f", false), Some(first));
        assert_eq!((find("a/b.py", 3, false), find("a/b.py", 3, true)), (Some(first), None));
        assert_ne!(intern("a/b.py", 4, "f", false).unwrap(), first);
        assert_ne!(first, Site::UNKNOWN);
        let words = words(segment::segment().unwrap(), first.number() as usize);
        assert_eq!(words[site::LINE].load(Ordering::Relaxed), 3);
        assert_eq!(words[site::PATH].load(Ordering::Relaxed) as u32, 6);
    }
}
