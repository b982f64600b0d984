//! The two mutexes that Rust programs use, each in its own idiom.

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

/// `parking_lot::Mutex`.
pub(crate) struct ParkingLot(parking_lot::Mutex<()>);

impl Adapter for ParkingLot {
    type Config = ();
    type Ctx = ();
    type Held<'a> = parking_lot::MutexGuard<'a, ()>;
    const TRY: bool = true;
    const TIMED: bool = true;

    fn new() -> Self {
        Self(parking_lot::Mutex::new(()))
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

/// `parking_lot::FairMutex`: every release hands over to the first thread that sleeps.
pub(crate) struct ParkingLotFair(parking_lot::FairMutex<()>);

impl Adapter for ParkingLotFair {
    type Config = ();
    type Ctx = ();
    type Held<'a> = parking_lot::FairMutexGuard<'a, ()>;
    const TRY: bool = true;
    const TIMED: bool = true;

    fn new() -> Self {
        Self(parking_lot::FairMutex::new(()))
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
