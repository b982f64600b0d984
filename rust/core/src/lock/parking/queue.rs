//! The queue of a bucket: nodes on the stacks of waiting threads, eldest first.
//!
//! A node is queued by its own thread, which does not return before the node is out of the queue; so every node that the
//! queue reaches is alive. Everything here happens under the bucket lock.

use core::cell::Cell;
use core::ptr;

use super::parker::{HANDED, Handle, Parker, WAITING, WOKEN};
use super::{LANES_PER_BUCKET, Lane};
use crate::policy::Fairness;
use crate::policy::pacing::{Eldest, Succession, is_overdue, succession};

/// One waiter. Its cells belong to whoever holds the bucket lock.
pub(crate) struct Node {
    next: Cell<*const Node>,
    /// Address of the lock waited for: a name, never followed.
    lock: usize,
    lane: Lane,
    fairness: Fairness,
    since_ns: u64,
    /// The waiter has kept watch until its turn came: the next release is its.
    pub(crate) due: Cell<bool>,
    /// When it was last called as heir, ns; 0 if that was not noted.
    pub(crate) called_ns: Cell<u64>,
    pub(crate) parker: Parker,
}

impl Node {
    pub(crate) fn new(lock: usize, lane: Lane, fairness: Fairness, since_ns: u64) -> Self {
        Self {
            next: Cell::new(ptr::null()),
            lock,
            lane,
            fairness,
            since_ns,
            due: Cell::new(false),
            called_ns: Cell::new(0),
            parker: Parker::new(),
        }
    }
}

/// What a bucket knows.
pub(crate) struct Queue {
    head: *const Node,
    tail: *const Node,
    /// When the next hand-over of a lock in this bucket is due, ns of the monotonic clock.
    next_fair_ns: u64,
    /// State of a xorshift generator.
    random: u32,
    /// Waiters per lane.
    waiters: [u32; LANES_PER_BUCKET],
    /// When a lane of this bucket last left the fast mode, ns.
    pub(super) fenced_at_ns: u64,
}

/// What a holder that releases does for the eldest waiter.
pub(crate) enum Choice {
    /// Gives it the lock.
    HandOver(*const Node),
    /// Releases, with it as the heir.
    Wake,
}

impl Queue {
    /// Empty, with the next hand-over due at `next_fair_ns`.
    pub(super) const fn new(next_fair_ns: u64) -> Self {
        Self {
            head: ptr::null(),
            tail: ptr::null(),
            next_fair_ns,
            random: 0x9E37_79B9,
            waiters: [0; LANES_PER_BUCKET],
            fenced_at_ns: 0,
        }
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        let mut at = self.head;
        core::iter::from_fn(move || {
            // SAFETY: a queued node is alive, and the bucket lock is held.
            let node = unsafe { at.as_ref() }?;
            at = node.next.get();
            Some(node)
        })
    }

    /// Waiters in `lane`.
    pub(crate) fn waiters(&self, lane: Lane) -> u32 {
        self.waiters[lane.in_bucket()]
    }

    /// The eldest waiter for the lock at `lock`.
    pub(crate) fn eldest(&self, lock: usize) -> Option<&Node> {
        self.nodes().find(|node| node.lock == lock)
    }

    /// Whether all waiters in `lane` wait for the lock at `lock`.
    pub(crate) fn is_alone(&self, lock: usize, lane: Lane) -> bool {
        self.nodes().all(|node| node.lane != lane || node.lock == lock)
    }

    pub(crate) fn chance(&mut self) -> u32 {
        // xorshift32 (Marsaglia 2003); never zero.
        let mut x = self.random;
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.random = x;
        x
    }

    pub(crate) fn next_fair_ns(&self) -> u64 {
        self.next_fair_ns
    }

    /// Queues `node` by seniority: behind all who have waited as long. Newcomers go last; a waiter that comes back from a
    /// signal's handler keeps its rank.
    ///
    /// # Safety
    /// `node` stays where it is, and alive, until it is out of the queue: by [`unlink`](Self::unlink), or when its state
    /// says `HANDED`.
    pub(crate) unsafe fn insert(&mut self, node: &Node) {
        let mut before: *const Node = ptr::null();
        // SAFETY: queued nodes are alive.
        if unsafe { self.tail.as_ref() }.is_some_and(|tail| tail.since_ns > node.since_ns) {
            for elder in self.nodes().take_while(|other| other.since_ns <= node.since_ns) {
                before = elder;
            }
        } else {
            before = self.tail;
        }
        // SAFETY: as above.
        if let Some(before) = unsafe { before.as_ref() } {
            node.next.set(before.next.get());
            before.next.set(node);
        } else {
            node.next.set(self.head);
            self.head = node;
        }
        if node.next.get().is_null() {
            self.tail = node;
        }
        self.waiters[node.lane.in_bucket()] += 1;
    }

    /// Takes `node` out. It must be queued.
    pub(crate) fn unlink(&mut self, node: &Node) {
        let mut before: *const Node = ptr::null();
        for other in self.nodes().take_while(|other| !ptr::eq(*other, node)) {
            before = other;
        }
        // SAFETY: queued nodes are alive.
        match unsafe { before.as_ref() } {
            Some(before) => before.next.set(node.next.get()),
            None => self.head = node.next.get(),
        }
        if ptr::eq(self.tail, node) {
            self.tail = before;
        }
        self.waiters[node.lane.in_bucket()] -= 1;
    }

    /// Decides for a holder that is about to release the lock at `lock`; `None` if nobody waits for it, or if, in a `quiet` lane,
    /// somebody who keeps watch is not overdue.
    pub(crate) fn choose(&self, lock: usize, now_ns: u64, quiet: bool) -> Option<Choice> {
        let node = self.eldest(lock)?;
        if quiet {
            return is_overdue(now_ns, self.next_fair_ns).then_some(Choice::HandOver(node));
        }
        let eldest = Eldest { fairness: node.fairness, since_ns: node.since_ns, due: node.due.get() };
        Some(match succession(eldest, now_ns, self.next_fair_ns) {
            Succession::HandOver => Choice::HandOver(node),
            Succession::Wake => Choice::Wake,
        })
    }

    /// Takes the chosen waiter out; the lane is to be mended before [`give`](Self::give).
    pub(crate) fn take_out(&mut self, node: *const Node, now_ns: u64) {
        let chance = self.chance();
        // SAFETY: `choose` found it queued, and the bucket has been locked since; so it is alive until `HANDED` is seen.
        let node = unsafe { &*node };
        self.unlink(node);
        self.next_fair_ns = now_ns.saturating_add(node.fairness.pace_ns(chance));
    }

    /// Makes the waiter that was taken out the owner; the handle to wake it with, if it sleeps.
    #[allow(clippy::unused_self)] // says that the bucket is locked
    pub(crate) fn give(&self, node: *const Node) -> Option<Handle> {
        // SAFETY: as in `take_out`; `HANDED` is set last.
        let parker = unsafe { &(*node).parker };
        let handle = (parker.state() == WAITING).then(|| parker.handle());
        parker.set(HANDED);
        handle
    }

    /// Makes the eldest waiter for the lock at `lock` the heir, if it is not yet; the handle to wake it with. `now_ns` is kept
    /// for the measurement of how long that takes (0: not measured).
    pub(crate) fn call_heir(&self, lock: usize, now_ns: u64) -> Option<Handle> {
        let node = self.eldest(lock)?;
        if node.parker.state() != WAITING {
            return None;
        }
        node.called_ns.set(now_ns);
        let handle = node.parker.handle();
        node.parker.set(WOKEN);
        Some(handle)
    }

    /// Whether an heir of the lock at `lock` may be left to look by himself: nobody else in the lane depends on releases, and
    /// he did not ask to be served at the first one that is due.
    pub(crate) fn may_be_quiet(&self, lock: usize, lane: Lane) -> bool {
        self.is_alone(lock, lane) && self.eldest(lock).is_some_and(|node| node.fairness != Fairness::Strict && !node.due.get())
    }
}
