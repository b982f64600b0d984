//! What the harness asks of a lock, and how it gets from a lock's name to code in which that lock is inlined.

use std::time::Duration;

use ticketlock::Tuning;

use crate::adapters::lock::Parking;
use crate::adapters::{mcs::Mcs, rivals::ParkingLot, rivals::ParkingLotFair, rivals::Std, tas::Tas, ticket::Ticket};
use crate::lock_id::LockSpec;

/// One lock, as the harness uses it. Every use is monomorphised: the fast path is inlined into the measuring loop exactly
/// as it would be in a user's program.
pub(crate) trait Adapter: Send + Sync + Sized + 'static {
    /// What is decided once for all threads of a round.
    type Config: Clone + Send + Sync + 'static;
    /// What one thread keeps between its acquisitions: a queue node, a tuning.
    type Ctx: 'static;
    /// A held lock: dropping it releases, so a panicking thread lets the others go on. Never forgotten.
    type Held<'a>
    where
        Self: 'a;
    /// Whether [`try_lock`](Self::try_lock) is there.
    const TRY: bool = false;
    /// Whether [`lock_for`](Self::lock_for) is there.
    const TIMED: bool = false;

    fn new() -> Self;

    fn ctx(config: &Self::Config) -> Self::Ctx;

    fn lock<'a>(&'a self, ctx: &'a mut Self::Ctx) -> Self::Held<'a>;

    /// Never waits. A lock without it never succeeds.
    #[inline]
    fn try_lock<'a>(&'a self, _ctx: &'a mut Self::Ctx) -> Option<Self::Held<'a>> {
        None
    }

    /// Waits at most about `limit`. A lock without it never succeeds.
    fn lock_for<'a>(&'a self, _ctx: &'a mut Self::Ctx, _limit: Duration) -> Option<Self::Held<'a>> {
        None
    }
}

/// Something to do with a lock whose type is known only at run time.
pub(crate) trait Task {
    type Out;
    fn run<A: Adapter>(self, config: A::Config) -> Self::Out;
}

/// Bounds that a round may set for the ticket family; other locks have none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Overrides {
    pub cap_units: Option<u32>,
    pub cpus: Option<u32>,
}

impl Overrides {
    pub(crate) fn tuning(self, backoff: ticketlock::Backoff) -> Tuning {
        let mut tuning = Tuning::new(backoff);
        if let Some(units) = self.cap_units {
            tuning = tuning.with_cap(units);
        }
        if let Some(cpus) = self.cpus {
            tuning = tuning.with_cpus(cpus);
        }
        tuning
    }
}

/// Runs `task` with the adapter of `lock`; `None` if this platform has no such lock.
pub(crate) fn dispatch<T: Task>(lock: LockSpec, overrides: Overrides, task: T) -> Option<T::Out> {
    Some(match lock {
        LockSpec::Ticket(backoff) => task.run::<Ticket>(overrides.tuning(backoff)),
        LockSpec::Lock(fairness) => task.run::<Parking>(fairness),
        LockSpec::TasRetest => task.run::<Tas<true>>(()),
        LockSpec::TasRetry => task.run::<Tas<false>>(()),
        LockSpec::Mcs => task.run::<Mcs>(()),
        LockSpec::Std => task.run::<Std>(()),
        LockSpec::ParkingLot => task.run::<ParkingLot>(()),
        LockSpec::ParkingLotFair => task.run::<ParkingLotFair>(()),
        #[cfg(unix)]
        LockSpec::Pthread => task.run::<crate::adapters::pthread::Pthread>(()),
        #[cfg(target_os = "linux")]
        LockSpec::PthreadSpin => task.run::<crate::adapters::pthread::PthreadSpin>(()),
        #[allow(unreachable_patterns)] // reachable where the C library lacks one of its locks
        _ => return None,
    })
}
