//! The order in which threads take locks, for those who look for deadlocks before they happen.
//!
//! Two locks that are taken in both orders, by whichever threads at whichever times, can be waited for in a circle. While
//! this is switched on, locks made from then on note what is held when they are waited for; a pair that closes a circle is
//! kept with the four lines that took them. Idea: Linux's lockdep; here by lock, not by class, so that locks of one line which
//! are taken in a proper order of their own (accounts by number) are not reported.
//!
//! An acquisition that does not wait (`acquire(False)`) closes no circle, but what is waited for while it is held may.

use core::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use ticketlock::telemetry::sites::Site;

use super::frames;
use crate::attach::thread_ident;
use crate::sync::{AtomicU32, Ordering};

static ON: AtomicU32 = AtomicU32::new(0);

/// Whether locks are to take part from their making on.
#[inline]
pub(super) fn is_on() -> bool {
    ON.load(Ordering::Relaxed) != 0
}

pub(crate) fn set(on: bool) {
    ON.store(on.into(), Ordering::Relaxed);
}

/// A lock that a thread holds.
#[derive(Clone, Copy)]
struct Held {
    lock: u64,
    at: Option<Site>,
}

thread_local! {
    /// What the calling thread holds, in the order in which it was taken. A lock that another thread released stays until
    /// this one takes it again, or releases.
    static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
}

/// Locks held at one time by one thread that are believed; beyond, something releases elsewhere.
const MOST_HELD: usize = 64;
/// Pairs of locks kept; later ones are counted.
const MOST_PAIRS: usize = 65_536;
/// Ended locks after which the pairs are swept.
const ENDED_KEPT: usize = 1_024;
/// Inversions kept.
const MOST_INVERSIONS: usize = 256;

/// `then` was waited for while `first` was held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) first: u64,
    pub(crate) then: u64,
    /// Site + 1 where `first` was taken, and where `then` was; 0 if unknown.
    pub(crate) first_site: u32,
    pub(crate) then_site: u32,
    /// The thread.
    pub(crate) ident: u64,
}

/// A pair, and the first pair of the way back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inversion {
    pub(crate) pair: Pair,
    pub(crate) back: Pair,
}

#[derive(Default)]
struct Graph {
    pairs: HashMap<u64, Vec<Pair>>,
    count: usize,
    /// Locks that have ended and may still be the second of a pair.
    ended: HashSet<u64>,
    inversions: Vec<Inversion>,
}

static GRAPH: Mutex<Option<Graph>> = Mutex::new(None);

impl Graph {
    /// The first pair on a way from one lock to another.
    fn way(&self, from: u64, to: u64) -> Option<Pair> {
        let mut seen = HashSet::from([from]);
        // Each entry: the lock reached, and the pair that the way to it began with.
        let mut open: Vec<(u64, Option<Pair>)> = vec![(from, None)];
        while let Some((at, begin)) = open.pop() {
            for &pair in self.pairs.get(&at).into_iter().flatten() {
                let begin = begin.unwrap_or(pair);
                if pair.then == to {
                    return Some(begin);
                }
                if seen.insert(pair.then) {
                    open.push((pair.then, Some(begin)));
                }
            }
        }
        None
    }

    /// A lock has ended: its number will not come again.
    fn forget(&mut self, lock: u64) {
        self.count -= self.pairs.remove(&lock).map_or(0, |pairs| pairs.len());
        // Pairs that lead to it lead nowhere: they are dropped when there are many of them.
        self.ended.insert(lock);
        if self.ended.len() >= ENDED_KEPT {
            for pairs in self.pairs.values_mut() {
                let before = pairs.len();
                pairs.retain(|pair| !self.ended.contains(&pair.then));
                self.count -= before - pairs.len();
            }
            self.pairs.retain(|_, pairs| !pairs.is_empty());
            self.ended.clear();
        }
    }

    fn add(&mut self, pair: Pair) {
        let known = self.pairs.get(&pair.first).is_some_and(|pairs| pairs.iter().any(|other| other.then == pair.then));
        if known || self.count >= MOST_PAIRS {
            return;
        }
        if let Some(back) = self.way(pair.then, pair.first) {
            if self.inversions.len() < MOST_INVERSIONS {
                self.inversions.push(Inversion { pair, back });
            }
        }
        self.pairs.entry(pair.first).or_default().push(pair);
        self.count += 1;
    }
}

fn run(body: impl FnOnce(&mut Graph)) {
    // Not waited for: a child of a fork may inherit it locked, and a pair comes again.
    if let Ok(mut graph) = GRAPH.try_lock() {
        body(graph.get_or_insert_with(Graph::default));
    }
}

/// The calling thread has taken a lock; `waiting` unless it would have left without.
///
/// # Safety
/// Attached; no exception is set.
#[cold]
pub(super) unsafe fn taken(lock: u64, waiting: bool) {
    // SAFETY: the caller's promise.
    let at = unsafe { frames::site() };
    let site = |site: Option<Site>| site.map_or(0, |site| site.number() + 1);
    let _ = HELD.try_with(|held| {
        let Ok(mut held) = held.try_borrow_mut() else { return };
        held.retain(|other| other.lock != lock);
        if waiting {
            run(|graph| {
                for first in held.iter() {
                    graph.add(Pair {
                        first: first.lock,
                        then: lock,
                        first_site: site(first.at),
                        then_site: site(at),
                        ident: thread_ident(),
                    });
                }
            });
        }
        if held.len() == MOST_HELD {
            held.remove(0);
        }
        held.push(Held { lock, at });
    });
}

/// The calling thread releases a lock.
#[cold]
pub(super) fn released(lock: u64) {
    let _ = HELD.try_with(|held| {
        if let Ok(mut held) = held.try_borrow_mut() {
            held.retain(|other| other.lock != lock);
        }
    });
}

/// A lock has ended, perhaps while held: a condition makes one for every wait.
#[cold]
pub(super) fn forget(lock: u64) {
    released(lock);
    run(|graph| graph.forget(lock));
}

/// What was found so far.
pub(crate) fn inversions() -> Vec<Inversion> {
    GRAPH.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or_else(Vec::new, |graph| graph.inversions.clone())
}
