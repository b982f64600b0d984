//! Delays per hashed lock address: 64 slots in storage that the caller gives, so that a table can live in an exported
//! segment. One thread writes a table; any thread may read it.
//!
//! A slot is three 64-bit words, each read and written whole:
//!
//! | word | bits | field |
//! |---|---|---|
//! | 0 | 63..32 | full hash of the lock's address |
//! |   | 31..8 | delay, fixed point (0 = never used, read as one unit) |
//! |   | 7..0 | spin score, signed: whether spinning on this lock has paid |
//! | 1 | 63..16 | lock id, 48 bits (0 = slot empty) |
//! |   | 15..0 | generation of that id |
//! | 2 | 63..32 | hits: waits that found their own delay |
//! |   | 31..0 | collisions: waits that found another lock's |
//!
//! Words 0 and 1 decide; word 2 only counts. A reader may see words of two writes: it then shows one row of a live display
//! wrongly for one frame, nothing depends on it.

use super::constants::{TABLE_SHIFT, TABLE_SLOTS, WORDS_PER_SLOT};
use super::delay::Delay;

/// Words that one table needs.
pub const TABLE_WORDS: usize = TABLE_SLOTS * WORDS_PER_SLOT;

/// Storage for a table: [`TABLE_WORDS`] 64-bit words, zero at first. Relaxed atomics in a lock, plain cells in a simulator.
pub trait Words {
    /// Word `index` (below [`TABLE_WORDS`]).
    fn get(&self, index: usize) -> u64;
    /// Replaces word `index`.
    fn set(&self, index: usize, value: u64);
}

/// What to do with a slot that another lock used last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Collision {
    /// Start at the minimum (the series).
    #[default]
    Reset,
    /// Start from the other lock's delay (a reviewer's wish).
    Inherit,
}

/// A lock as the table knows it: where it is (for the slot) and who it is (for the display).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockKey {
    /// Full hash of the address.
    hash: u32,
    /// Id (48 bits, not 0) and generation.
    identity: u64,
}

impl LockKey {
    /// Largest id.
    pub const MAX_ID: u64 = (1 << 48) - 1;

    /// A lock at `address` with an id of its own. Ids beyond 48 bits keep their low bits; 0 becomes [`Self::MAX_ID`], since
    /// an empty slot has id 0.
    #[must_use]
    pub const fn new(address: u64, id: u64, generation: u16) -> Self {
        // Fibonacci hashing (Knuth, TAOCP 6.4): the high half of address * 2^64/phi.
        let hash = (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32;
        let id = id & Self::MAX_ID;
        let id = if id == 0 { Self::MAX_ID } else { id };
        Self { hash, identity: (id << 16) | generation as u64 }
    }

    /// A lock that carries no id (eight bytes inside somebody's struct): its address names it while it lives.
    #[must_use]
    pub const fn at(address: u64) -> Self {
        Self::new(address, address, 0)
    }

    /// The id.
    #[must_use]
    pub const fn id(self) -> u64 {
        self.identity >> 16
    }

    /// The id's generation.
    #[must_use]
    pub const fn generation(self) -> u16 {
        self.identity as u16
    }

    /// The full hash.
    #[must_use]
    pub const fn hash(self) -> u32 {
        self.hash
    }

    /// Its slot.
    #[must_use]
    pub const fn slot(self) -> usize {
        // Fibonacci hashing again, for 32 bits: the nearest prime to 2^32/phi.
        (self.hash.wrapping_mul(0x9E37_79B1) >> (32 - TABLE_SHIFT)) as usize
    }
}

/// A slot opened for one wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The slot.
    pub slot: usize,
    /// The delay to start from.
    pub delay: Delay,
    /// Spin score: positive where spinning has paid more often than not (-128 to 127).
    pub spin_score: i8,
}

/// One used slot, decoded for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotView {
    /// Slot number.
    pub slot: usize,
    /// Id of the lock that used it last.
    pub lock: u64,
    /// Generation of the id.
    pub generation: u16,
    /// Its delay.
    pub delay: Delay,
    /// Waits that found their own delay.
    pub hits: u32,
    /// Waits that found another lock's.
    pub collisions: u32,
    /// Whether spinning has paid.
    pub spin_score: i8,
}

/// The spin score in a decision word.
const fn score(decision: u64) -> i8 {
    i8::from_ne_bytes([decision as u8])
}

/// A view of a table in given storage.
#[derive(Debug, Clone, Copy)]
pub struct DelayTable<'a, W: ?Sized> {
    words: &'a W,
    collision: Collision,
}

impl<'a, W: Words + ?Sized> DelayTable<'a, W> {
    /// A table over `words` with a collision rule.
    #[must_use]
    pub const fn new(words: &'a W, collision: Collision) -> Self {
        Self { words, collision }
    }

    /// Looks up `key` for a wait, counting a hit or a collision.
    pub fn open(&self, key: LockKey) -> Opened {
        let slot = key.slot();
        let base = slot * WORDS_PER_SLOT;
        let (decision, identity, counts) = (self.words.get(base), self.words.get(base + 1), self.words.get(base + 2));
        let own = identity == key.identity && (decision >> 32) as u32 == key.hash;
        let (mut hits, mut collisions) = ((counts >> 32) as u32, counts as u32);
        if own {
            hits = hits.saturating_add(1);
        } else if identity != 0 {
            collisions = collisions.saturating_add(1);
        }
        self.words.set(base + 2, (u64::from(hits) << 32) | u64::from(collisions));
        let keeps = own || self.collision == Collision::Inherit;
        Opened {
            slot,
            delay: if keeps { Delay::from_bits((decision as u32) >> 8) } else { Delay::MIN },
            spin_score: if own { score(decision) } else { 0 },
        }
    }

    /// Stores the result of a wait: the delay, and whether spinning got the lock (`paid`) or had to be given up.
    pub fn close(&self, key: LockKey, opened: Opened, delay: Delay, paid: bool) {
        let base = opened.slot * WORDS_PER_SLOT;
        let score = if paid { opened.spin_score.saturating_add(1) } else { opened.spin_score.saturating_sub(1) };
        let bits = delay.bits().min((1 << 24) - 1);
        self.words.set(base, (u64::from(key.hash) << 32) | (u64::from(bits) << 8) | u64::from(score as u8));
        self.words.set(base + 1, key.identity);
    }

    /// The used slots.
    pub fn used(&self) -> impl Iterator<Item = SlotView> + 'a {
        let words = self.words;
        (0..TABLE_SLOTS).filter_map(move |slot| {
            let base = slot * WORDS_PER_SLOT;
            let (decision, identity, counts) = (words.get(base), words.get(base + 1), words.get(base + 2));
            (identity != 0).then(|| SlotView {
                slot,
                lock: identity >> 16,
                generation: identity as u16,
                delay: Delay::from_bits((decision as u32) >> 8),
                hits: (counts >> 32) as u32,
                collisions: counts as u32,
                spin_score: score(decision),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    struct Cells(Vec<Cell<u64>>);

    impl Cells {
        fn new() -> Self {
            Self(vec![Cell::new(0); TABLE_WORDS])
        }
    }

    impl Words for Cells {
        fn get(&self, index: usize) -> u64 {
            self.0[index].get()
        }
        fn set(&self, index: usize, value: u64) {
            self.0[index].set(value);
        }
    }

    /// Two addresses that share a slot and differ in their full hash.
    fn colliding() -> (LockKey, LockKey) {
        let first = LockKey::new(0x1000, 1, 0);
        let second = (2..10_000u64)
            .map(|n| LockKey::new(0x1000 + n * 64, n, 0))
            .find(|key| key.slot() == first.slot() && key.hash() != first.hash())
            .expect("10,000 addresses over 64 slots collide");
        (first, second)
    }

    #[test]
    fn a_lock_finds_its_own_delay_again() {
        let cells = Cells::new();
        let table = DelayTable::new(&cells, Collision::Reset);
        let key = LockKey::new(0xdead_b000, 7, 3);
        let opened = table.open(key);
        assert_eq!((opened.delay, opened.spin_score), (Delay::MIN, 0));
        table.close(key, opened, Delay::from_units(16_000), true);
        let again = table.open(key);
        assert_eq!((again.delay, again.spin_score), (Delay::from_units(16_000), 1));
        table.close(key, again, again.delay, false);
        let view: Vec<_> = table.used().collect();
        assert_eq!(view.len(), 1);
        assert_eq!((view[0].lock, view[0].generation, view[0].hits, view[0].collisions, view[0].spin_score), (7, 3, 1, 0, 0));
    }

    #[test]
    fn a_collision_resets_or_inherits() {
        let (first, second) = colliding();
        for (rule, expected) in [(Collision::Reset, 1), (Collision::Inherit, 40)] {
            let cells = Cells::new();
            let table = DelayTable::new(&cells, rule);
            let opened = table.open(first);
            table.close(first, opened, Delay::from_units(40), true);
            let other = table.open(second);
            assert_eq!(other.delay, Delay::from_units(expected), "{rule:?}");
            assert_eq!(other.spin_score, 0, "a score belongs to one lock");
            table.close(second, other, other.delay, true);
            let view = table.used().next().unwrap();
            assert_eq!((view.lock, view.hits, view.collisions), (second.id(), 0, 1));
        }
    }

    #[test]
    fn an_address_used_again_by_another_lock_is_a_collision() {
        let cells = Cells::new();
        let table = DelayTable::new(&cells, Collision::Reset);
        let (old, new) = (LockKey::new(0x5000, 1, 0), LockKey::new(0x5000, 2, 0));
        let opened = table.open(old);
        table.close(old, opened, Delay::from_units(9), true);
        assert_eq!(table.open(new).delay, Delay::MIN);
        // The same id after a re-initialisation has another generation.
        let opened = table.open(new);
        table.close(new, opened, Delay::from_units(9), true);
        assert_eq!(table.open(LockKey::new(0x5000, 2, 1)).delay, Delay::MIN);
    }

    #[test]
    fn slots_spread_over_typical_addresses() {
        let used: std::collections::HashSet<_> = (0..64u64).map(|n| LockKey::at(0x7f00_0000_1000 + n * 64).slot()).collect();
        assert!(used.len() >= 32, "64 neighbouring locks use only {} slots", used.len());
    }
}
