//! Our default lock, entered as a Rust user enters it.

use std::time::Duration;

use ticketlock::{Fairness, Lock, LockGuard};

use crate::adapter::Adapter;

/// One lock for all three fairness settings; each thread carries its own, so that the lock keeps its 8 bytes.
pub(crate) struct Parking(Lock);

impl Adapter for Parking {
    type Config = Fairness;
    type Ctx = Fairness;
    type Held<'a> = LockGuard<'a>;
    const TRY: bool = true;
    const TIMED: bool = true;

    fn new() -> Self {
        Self(Lock::new())
    }

    fn ctx(config: &Fairness) -> Fairness {
        *config
    }

    #[inline]
    fn lock<'a>(&'a self, fairness: &'a mut Fairness) -> LockGuard<'a> {
        self.0.lock_with(*fairness)
    }

    #[inline]
    fn try_lock<'a>(&'a self, _: &'a mut Fairness) -> Option<LockGuard<'a>> {
        self.0.try_lock()
    }

    fn lock_for<'a>(&'a self, _: &'a mut Fairness, limit: Duration) -> Option<LockGuard<'a>> {
        self.0.try_lock_for(limit)
    }
}
