//! Bad locks that the checks and the harness must catch, and what catching each looks like.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::adapter::Adapter;
use crate::exclusion::{exclusion, service_order, stalls};
use crate::sync::{AtomicU64, Ordering};

/// Lets everybody in.
struct NoExclusion;

impl Adapter for NoExclusion {
    type Config = ();
    type Ctx = ();
    type Held<'a> = ();
    const TRY: bool = true;

    fn new() -> Self {
        Self
    }

    fn ctx((): &()) {}

    fn lock<'a>(&'a self, (): &'a mut ()) {}

    fn try_lock<'a>(&'a self, (): &'a mut ()) -> Option<()> {
        Some(())
    }
}

/// A lock with a list of waiters, the last of which is served first (or, for comparison, the first).
struct Listed<const LIFO: bool> {
    state: Mutex<List>,
    changed: Condvar,
}

#[derive(Default)]
struct List {
    held: bool,
    next: u64,
    waiting: VecDeque<u64>,
    chosen: Option<u64>,
}

struct ListedHeld<'a, const LIFO: bool>(&'a Listed<LIFO>);

impl<const LIFO: bool> Drop for ListedHeld<'_, LIFO> {
    fn drop(&mut self) {
        let mut list = self.0.state.lock().unwrap();
        list.chosen = if LIFO { list.waiting.pop_back() } else { list.waiting.pop_front() };
        list.held = list.chosen.is_some();
        self.0.changed.notify_all();
    }
}

impl<const LIFO: bool> Adapter for Listed<LIFO> {
    type Config = ();
    type Ctx = ();
    type Held<'a> = ListedHeld<'a, LIFO>;

    fn new() -> Self {
        Self { state: Mutex::new(List::default()), changed: Condvar::new() }
    }

    fn ctx((): &()) {}

    fn lock<'a>(&'a self, (): &'a mut ()) -> Self::Held<'a> {
        let mut list = self.state.lock().unwrap();
        if list.held {
            let me = list.next;
            list.next += 1;
            list.waiting.push_back(me);
            while list.chosen != Some(me) {
                list = self.changed.wait(list).unwrap();
            }
            list.chosen = None;
        }
        list.held = true;
        ListedHeld(self)
    }
}

/// A good lock that now and then takes 5 ms.
struct Stalling {
    lock: Mutex<()>,
    taken: AtomicU64,
}

const STALL: Duration = Duration::from_millis(5);
const STALL_ONE_IN: u64 = 1_000;

impl Adapter for Stalling {
    type Config = ();
    type Ctx = ();
    type Held<'a> = MutexGuard<'a, ()>;

    fn new() -> Self {
        Self { lock: Mutex::new(()), taken: AtomicU64::new(0) }
    }

    fn ctx((): &()) {}

    fn lock<'a>(&'a self, (): &'a mut ()) -> MutexGuard<'a, ()> {
        let guard = self.lock.lock().unwrap();
        if self.taken.fetch_add(1, Ordering::Relaxed) % STALL_ONE_IN == STALL_ONE_IN - 1 {
            std::thread::sleep(STALL);
        }
        guard
    }
}

/// A lock that one thread may take again and again for 40 ms while the others wait, then another one.
struct Favouring(Mutex<Option<(ThreadId, Instant)>>);

const FAVOUR: Duration = Duration::from_millis(40); // beyond any time slice, so that a busy machine looks different

/// Sleep between two looks of those out of favour.
const OUT_OF_FAVOUR: Duration = Duration::from_micros(100);

impl Adapter for Favouring {
    type Config = ();
    type Ctx = ();
    type Held<'a> = MutexGuard<'a, Option<(ThreadId, Instant)>>;

    fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn ctx((): &()) {}

    fn lock<'a>(&'a self, (): &'a mut ()) -> Self::Held<'a> {
        let me = std::thread::current().id();
        loop {
            let mut favour = self.0.lock().unwrap();
            let now = Instant::now();
            match *favour {
                Some((favourite, until)) if now < until => {
                    if favourite == me {
                        return favour;
                    }
                }
                Some((favourite, _)) if favourite == me => *favour = None,
                _ => {
                    *favour = Some((me, now + FAVOUR));
                    return favour;
                }
            }
            drop(favour);
            std::thread::sleep(OUT_OF_FAVOUR);
        }
    }
}

/// A lock whose thread dies while it waits.
struct Panicking(Mutex<u32>);

impl Adapter for Panicking {
    type Config = ();
    type Ctx = ();
    type Held<'a> = MutexGuard<'a, u32>;

    fn new() -> Self {
        Self(Mutex::new(0))
    }

    fn ctx((): &()) {}

    fn lock<'a>(&'a self, (): &'a mut ()) -> MutexGuard<'a, u32> {
        let mut guard = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *guard += 1;
        assert!(*guard != 50, "planted panic");
        guard
    }
}

mod caught {
    use super::*;
    use crate::contended;
    use crate::crew::{PATIENCE, Plan};
    use crate::lock_id::LockSpec;
    use crate::result::RoundResult;
    use crate::spec::{BenchError, Mode, Preset, RoundSpec};
    use crate::testing::alone;
    use crate::validity::Waiting;

    fn round<A: Adapter<Config = ()>>(threads: usize, hold_ns: u64) -> Result<RoundResult, BenchError> {
        let mut spec = RoundSpec::new(Preset::Semaphore, LockSpec::Std); // the name is not used: the adapter is given
        (spec.threads, spec.hold_ns, spec.seconds, spec.mode) = (threads, hold_ns, 0.3, Mode::Waits);
        let plan = Plan { threads, cpus: &[], seconds: 0.3, waiting: Waiting::Sleeping, patience: PATIENCE, cancel: &|| false };
        contended::run::<A>(&plan, &spec, ())
    }

    fn overtaking_share(result: &RoundResult) -> f64 {
        result.overtakes.unwrap() as f64 / result.overtakes_examined.unwrap() as f64
    }

    #[test]
    fn no_exclusion() {
        let _alone = alone();
        let fault = exclusion::<NoExclusion>((), 4, 100_000).unwrap_err();
        assert!(fault.contains("two threads held it at once"), "{fault}");
    }

    #[test]
    fn last_in_first_out() {
        let _alone = alone();
        let fault = service_order::<Listed<true>>(&(), 5).unwrap_err();
        assert!(fault.contains("not served in the order of their arrival"), "{fault}");
        assert_eq!(service_order::<Listed<false>>(&(), 5), Ok(()));
        assert_eq!(exclusion::<Listed<true>>((), 4, 2_000), Ok(()), "its exclusion is sound");
    }

    /// The round's own count tells the same two locks apart. The hold is long against a wake-up, so that all threads queue.
    #[test]
    fn last_in_first_out_overtakes() {
        let _alone = alone();
        let told_apart = || {
            let (latest, first) = (round::<Listed<true>>(4, 200_000).unwrap(), round::<Listed<false>>(4, 200_000).unwrap());
            let (latest, first) = (overtaking_share(&latest), overtaking_share(&first));
            latest > 3.0 * first && latest > 0.2
        };
        // A round that the machine disturbed is run again, as in use.
        assert!((0..3).any(|_| told_apart()));
    }

    #[test]
    fn a_stall() {
        let _alone = alone();
        let fault = stalls::<Stalling>(&(), 50_000).unwrap_err();
        assert!(fault.contains("took over 4 ms"), "{fault}");
        assert_eq!(exclusion::<Stalling>((), 2, 2_000), Ok(()), "its exclusion is sound");
    }

    /// The round's exact maximum shows it too: a sleep is never shorter than asked.
    #[test]
    fn a_stall_is_the_longest_wait() {
        let _alone = alone();
        let result = round::<Stalling>(2, 0).unwrap();
        assert!(result.acquisitions.iter().sum::<u64>() >= STALL_ONE_IN);
        assert!(result.wait.unwrap().max_ns >= 5_000_000);
    }

    /// The favourite re-acquires for milliseconds while others wait; a lock that serves in order has no such time.
    #[test]
    fn a_monopoly() {
        let _alone = alone();
        let told_apart = || {
            let (favouring, fair) = (round::<Favouring>(3, 0).unwrap(), round::<Listed<false>>(3, 200_000).unwrap());
            let (favouring, fair) = (favouring.monopoly_ns.unwrap(), fair.monopoly_ns.unwrap());
            favouring >= 30_000_000 && fair < 20_000_000
        };
        assert!((0..3).any(|_| told_apart()));
    }

    #[test]
    fn a_panic_in_the_lock_fails_the_round_and_frees_the_others() {
        let _alone = alone();
        let Err(BenchError::Panicked(why)) = round::<Panicking>(3, 0) else { panic!("the round should have failed") };
        assert!(why.contains("planted panic"), "{why}");
    }
}
