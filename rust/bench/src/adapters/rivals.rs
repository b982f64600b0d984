//! The two mutexes that Rust programs use, each in its own idiom.

use parking_lot::lock_api::{self, RawMutexTimed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::adapter::Adapter;

/// `std::sync::Mutex`.
pub(crate) struct Std(Mutex<()>);

impl Adapter for Std {
    type Config = ();
    type Ctx = ();
    type Held<'a> = MutexGuard<'a, ()>;
    const TRY: bool = true;

    fn new() -> Self {
        Self(Mutex::new(()))
    }

    fn ctx((): &()) {}

    #[inline]
    fn lock<'a>(&'a self, (): &'a mut ()) -> MutexGuard<'a, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn try_lock<'a>(&'a self, (): &'a mut ()) -> Option<MutexGuard<'a, ()>> {
        self.0.try_lock().ok()
    }
}

/// `parking_lot`'s lock over one of its raw locks.
pub(crate) struct ParkingLotOf<R>(lock_api::Mutex<R, ()>);

/// `parking_lot::Mutex`.
pub(crate) type ParkingLot = ParkingLotOf<parking_lot::RawMutex>;

/// `parking_lot::FairMutex`: every release hands over to the first thread that sleeps.
pub(crate) type ParkingLotFair = ParkingLotOf<parking_lot::RawFairMutex>;

impl<R: RawMutexTimed<Duration = Duration> + Send + Sync + 'static> Adapter for ParkingLotOf<R> {
    type Config = ();
    type Ctx = ();
    type Held<'a> = lock_api::MutexGuard<'a, R, ()>;
    const TRY: bool = true;
    const TIMED: bool = true;

    fn new() -> Self {
        Self(lock_api::Mutex::new(()))
    }

    fn ctx((): &()) {}

    #[inline]
    fn lock<'a>(&'a self, (): &'a mut ()) -> Self::Held<'a> {
        self.0.lock()
    }

    #[inline]
    fn try_lock<'a>(&'a self, (): &'a mut ()) -> Option<Self::Held<'a>> {
        self.0.try_lock()
    }

    fn lock_for<'a>(&'a self, (): &'a mut (), limit: Duration) -> Option<Self::Held<'a>> {
        self.0.try_lock_for(limit)
    }
}
