//! Sleeping in the parking table. The steps carry the names that the models use.
//!
//! What a sleeper does, by the state of its node:
//!
//! | state, and why awake | does | then |
//! |---|---|---|
//! | `WAITING`, its deadline or a signal | leaves: L1 takes itself out, L2 looks, L3 calls another heir if the duty was its | out |
//! | `WAITING`, a look of its watch | H1 looks at the lock | sleeps on, or owns |
//! | `WAITING`, the end of its watch | S1 is due, S2 ends the quiet, so that the next release decides | competes as the heir |
//! | `WOKEN` | H1 competes; else H2 sleeps again, H3 after a last look | keeps watch, or owns |
//! | `HANDED` | owns the lock | out |
//!
//! The heir that finds the lock taken again knows that running threads keep it among themselves: it keeps watch instead of
//! having every release wake somebody (the lane is quiet), and is served when its watch ends, being awake by then.

use super::clock::{cpus, now_ns, units_in};
use super::spin::{park_cost_ns, park_took};
use super::{Ended, FREE, HELD, Lock, Wait, WaitStats, Waiting};
use crate::lock::driver::pause_units;
use crate::lock::parking::{self, CROWDED, HANDED, Lane, Locked, Node, QUIET, WAITING, WOKEN, Woke};
use crate::policy::Fairness;
use crate::policy::constants::{DUE_SPIN_NS, SIGNAL_SLICE_NS};
use crate::policy::pacing::Watch;
use crate::sync::{Ordering, fault_point, model_fence, order};
#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
use crate::telemetry::threads::{Doing, now_doing as doing};

/// A model's threads tell nobody what they do.
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
mod untold {
    pub(super) enum Doing {
        Parked,
        Spinning,
    }
    pub(super) fn doing(_: Doing) {}
}
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
use untold::{Doing, doing};

/// One sleeper.
struct Sleeper<'a> {
    lock: &'a Lock,
    lane: Lane,
    node: &'a Node,
    wait: &'a Wait,
    stats: &'a mut WaitStats,
    watch: Option<Watch>,
}

impl Lock {
    /// Sleeps until the lock is had, or the wait is over.
    pub(super) fn sleep(&self, wait: &Wait, waiting: &mut Waiting) -> Ended {
        parking::ready();
        fault_point("P1");
        let lane = self.lane();
        let node = Node::new(self.address(), lane, wait.fairness, waiting.since_ns);
        {
            let mut queue = lane.lock();
            lane.announce(&mut queue, self.address()); // P1, P2
            fault_point("P3");
            let quiet = lane.bits() & QUIET != 0;
            let had = self.look(); // P3
            if !had {
                // SAFETY: the node stays here; each way out of the loop below follows its unlinking or `HANDED`.
                unsafe { queue.insert(&node) };
            }
            lane.mend(&queue, quiet);
            if had {
                return Ended::Acquired;
            }
        }
        Sleeper { lock: self, lane, node: &node, wait, stats: &mut waiting.stats, watch: None }.run()
    }

    /// A look that a release cannot slip past, after an announcement under the bucket lock. Takes the lock if it is free.
    fn look(&self) -> bool {
        model_fence(); // pairs with: U3, and the swap
        // A `SeqCst` compare-exchange, also when it fails: elsewhere than on x86 its order behind P1 is what counts.
        self.owner.compare_exchange(FREE, HELD, order("P3", Ordering::SeqCst), order("P3", Ordering::SeqCst)).is_ok()
    }

    /// A look that may miss a release, which is then found later.
    fn seems_free(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == FREE
    }
}

impl Sleeper<'_> {
    fn run(mut self) -> Ended {
        let slice_ends = self.wait.interruptible.then(|| now_ns().saturating_add(SIGNAL_SLICE_NS));
        loop {
            let look = self.watch.as_mut().map(|watch| watch.next_look_ns(now_ns()));
            let limit = parking::longest_sleep_ns().map(|longest| now_ns().saturating_add(longest));
            let deadline = self.wait.deadline.map(super::Deadline::ns);
            let until = [look, limit, deadline, slice_ends].into_iter().flatten().min();
            self.stats.parks += 1;
            fault_point("P4");
            doing(Doing::Parked);
            let woke = self.node.parker.sleep(until); // P4
            doing(Doing::Spinning);
            fault_point("woke");
            let had = match self.node.parker.state() {
                HANDED => self.handed(),
                WAITING => {
                    let now = now_ns();
                    let timed_out = deadline.is_some_and(|deadline| now >= deadline);
                    let signalled =
                        self.wait.interruptible && (woke == Woke::Signalled || slice_ends.is_some_and(|end| now >= end));
                    if timed_out || signalled {
                        return self.leave(if timed_out { Ended::TimedOut } else { Ended::Interrupted });
                    }
                    self.woke_by_itself(now)
                }
                _ => {
                    match self.node.called_ns.replace(0) {
                        0 => {}
                        called => park_took(now_ns().saturating_sub(called)),
                    }
                    self.compete(self.heir_spin_ns())
                }
            };
            if had {
                return Ended::Acquired;
            }
        }
    }

    fn handed(&mut self) -> bool {
        self.stats.handed_over = true;
        true
    }

    /// H1. Takes the lock if it is free. Under the bucket lock, since others may release what is taken here (Python allows it): a
    /// release that then found this node queued, and believed it to be waiting, would hand it the lock a second time.
    fn try_now(&mut self) -> bool {
        if !self.lock.seems_free() {
            return false;
        }
        fault_point("H1");
        let queue = self.lane.lock();
        if self.node.parker.state() == HANDED {
            return self.handed();
        }
        self.lock.look() && self.took(queue)
    }

    /// Takes the node out after the lock was taken, under the bucket lock, while queued.
    fn took(&mut self, mut queue: Locked<'_>) -> bool {
        queue.unlink(self.node);
        self.lane.mend(&queue, false);
        self.pass_the_duty(queue);
        true
    }

    /// L3. Whoever is awake, or keeps watch, stands for all sleepers of its lock. It leaves, the quiet is over, and a release
    /// before that may have counted on it: calls another heir if the lock is free.
    fn pass_the_duty(&self, queue: Locked<'_>) {
        fault_point("L3");
        model_fence(); // pairs with: the look after a swap
        if self.lock.owner.load(order("L3", Ordering::SeqCst)) == FREE {
            let heir = queue.call_heir(self.lock.address(), 0);
            if let Some(heir) = heir {
                self.lane.mend(&queue, queue.may_be_quiet(self.lock.address(), self.lane));
                drop(queue);
                heir.wake();
            }
        }
    }

    /// A look of the watch, or its end; or no reason at all.
    fn woke_by_itself(&mut self, now: u64) -> bool {
        let Some(watch) = self.watch else {
            // A missed release, if barriers fail.
            return parking::longest_sleep_ns().is_some() && self.try_now();
        };
        if !watch.is_over(now) {
            return self.try_now(); // H1
        }
        let queue = self.lane.lock();
        if self.node.parker.state() == HANDED {
            return self.handed();
        }
        fault_point("S1");
        // S1
        self.watch = None;
        self.node.due.set(true);
        self.node.parker.set(WOKEN);
        // S2. pairs with: the look after a swap
        self.lane.mend(&queue, false);
        if self.lock.look() {
            return self.took(queue);
        }
        drop(queue);
        self.compete(if cpus() > 1 { DUE_SPIN_NS } else { 0 })
    }

    /// How long the heir spins for the lock: not at all where so many wait that others need the CPU more.
    fn heir_spin_ns(&self) -> u64 {
        if self.wait.spin && cpus() > 1 && self.lane.bits() & CROWDED == 0 { park_cost_ns() } else { 0 }
    }

    /// Awake, and still queued: tries to get the lock, which may be handed over meanwhile. If it cannot be had, goes back to
    /// sleep, with a watch to keep.
    fn compete(&mut self, spin_ns: u64) -> bool {
        // H1
        let mut units = units_in(spin_ns);
        loop {
            if self.node.parker.state() == HANDED {
                return self.handed();
            }
            self.stats.polls += 1;
            if self.try_now() {
                return true;
            }
            if units == 0 {
                break;
            }
            pause_units(1);
            units -= 1;
        }
        self.stats.futile += 1;
        fault_point("H2");
        let queue = self.lane.lock();
        if self.node.parker.state() == HANDED {
            return self.handed();
        }
        self.node.parker.set(WAITING); // H2
        let quiet =
            !self.node.due.get() && self.wait.fairness != Fairness::Strict && queue.is_alone(self.lock.address(), self.lane);
        self.lane.mend(&queue, quiet);
        fault_point("H3");
        // H3. pairs with: U3, and the look after a swap
        if self.lock.look() {
            return self.took(queue);
        }
        self.watch = quiet.then(|| Watch::new(now_ns(), queue.next_fair_ns(), self.wait.spin));
        false
    }

    /// Leaves the line with `reason`, unless the lock is had after all.
    fn leave(&mut self, reason: Ended) -> Ended {
        fault_point("L1");
        let mut queue = self.lane.lock();
        let state = self.node.parker.state();
        if state == HANDED {
            self.handed();
            return Ended::Acquired;
        }
        // L2
        if reason == Ended::TimedOut && self.lock.look() {
            self.took(queue);
            return Ended::Acquired;
        }
        queue.unlink(self.node); // L1
        let duty = state == WOKEN || self.watch.is_some();
        self.lane.mend(&queue, !duty && self.lane.bits() & QUIET != 0);
        if duty {
            self.pass_the_duty(queue);
        }
        reason
    }
}
