//! The queue lock of Mellor-Crummey and Scott (1991): each waiter spins on a node of its own.

use core::ptr;

use crate::adapter::Adapter;
use crate::sync::{AtomicBool, AtomicPtr, Ordering};

/// Pauses between two yields of a waiter. A textbook waiter never yields, and with more threads than CPUs each hand-over
/// then costs a time slice; this bound is of the order of our own strict family's (16 us at 4-40 ns a pause).
const PAUSES_BEFORE_YIELD: u32 = 1_000;

/// | `tail` | meaning |
/// |---|---|
/// | null | free |
/// | a node | held; the node is the last in line, or the holder's |
pub(crate) struct Mcs {
    tail: AtomicPtr<Node>,
}

/// A thread's place, on cache lines of its own (128: x86 fetches lines in pairs).
#[repr(align(128))]
pub(crate) struct Node {
    next: AtomicPtr<Node>,
    waiting: AtomicBool,
}

/// A held [`Mcs`]. Must be dropped, not forgotten: its node is reachable by other threads until then.
pub(crate) struct McsHeld<'a> {
    lock: &'a Mcs,
    node: &'a Node,
}

impl Adapter for Mcs {
    type Config = ();
    type Ctx = Box<Node>;
    type Held<'a> = McsHeld<'a>;
    const TRY: bool = true;

    fn new() -> Self {
        Self { tail: AtomicPtr::new(ptr::null_mut()) }
    }

    fn ctx((): &()) -> Box<Node> {
        Box::new(Node { next: AtomicPtr::new(ptr::null_mut()), waiting: AtomicBool::new(false) })
    }

    #[inline]
    fn lock<'a>(&'a self, node: &'a mut Box<Node>) -> McsHeld<'a> {
        let node: &Node = node;
        node.next.store(ptr::null_mut(), Ordering::Relaxed);
        node.waiting.store(true, Ordering::Relaxed);
        // Release publishes the node to the successor; acquire pairs with: the release of `tail` in `drop`.
        let before = self.tail.swap(ptr::from_ref(node).cast_mut(), Ordering::AcqRel);
        if !before.is_null() {
            wait(node, before);
        }
        McsHeld { lock: self, node }
    }

    #[inline]
    fn try_lock<'a>(&'a self, node: &'a mut Box<Node>) -> Option<McsHeld<'a>> {
        let node: &Node = node;
        node.next.store(ptr::null_mut(), Ordering::Relaxed);
        let place = ptr::from_ref(node).cast_mut();
        // Orderings as in `lock`.
        self.tail
            .compare_exchange(ptr::null_mut(), place, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
            .then(|| McsHeld { lock: self, node })
    }
}

#[cold]
#[inline(never)]
fn wait(node: &Node, before: *mut Node) {
    // SAFETY: the predecessor's release waits for this store before it leaves its node.
    // pairs with: the acquire loads of `next` in `drop`.
    unsafe { &*before }.next.store(ptr::from_ref(node).cast_mut(), Ordering::Release);
    let mut pauses = 0;
    // pairs with: the release store of `waiting` in `drop`.
    while node.waiting.load(Ordering::Acquire) {
        core::hint::spin_loop();
        pauses += 1;
        if pauses == PAUSES_BEFORE_YIELD {
            pauses = 0;
            std::thread::yield_now();
        }
    }
}

impl Drop for McsHeld<'_> {
    #[inline]
    fn drop(&mut self) {
        let place = ptr::from_ref(self.node).cast_mut();
        // pairs with: the release store of `next` in `wait`.
        let mut next = self.node.next.load(Ordering::Acquire);
        if next.is_null() {
            // pairs with: the acquire of `tail` in `lock` and `try_lock`.
            if self.lock.tail.compare_exchange(place, ptr::null_mut(), Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
            // A successor has taken the tail and is about to announce itself.
            let mut pauses = 0;
            loop {
                next = self.node.next.load(Ordering::Acquire);
                if !next.is_null() {
                    break;
                }
                core::hint::spin_loop();
                pauses += 1;
                if pauses == PAUSES_BEFORE_YIELD {
                    pauses = 0;
                    std::thread::yield_now();
                }
            }
        }
        // SAFETY: the successor waits on its node until this store, and does not free it before.
        // pairs with: the acquire load of `waiting` in `wait`.
        unsafe { &*next }.waiting.store(false, Ordering::Release);
    }
}
