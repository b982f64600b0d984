//! Our strict family, entered as a Rust user enters it.

use ticketlock::{TicketGuard, TicketLock, Tuning};

use crate::adapter::Adapter;

/// All seven back-off rules are one lock; each thread carries the tuning, so that the lock keeps its 8 bytes.
pub(crate) struct Ticket(TicketLock);

impl Adapter for Ticket {
    type Config = Tuning;
    type Ctx = Tuning;
    type Held<'a> = TicketGuard<'a>;
    const TRY: bool = true;

    fn new() -> Self {
        Self(TicketLock::new())
    }

    fn ctx(config: &Tuning) -> Tuning {
        *config
    }

    #[inline]
    fn lock<'a>(&'a self, tuning: &'a mut Tuning) -> TicketGuard<'a> {
        self.0.lock_with(tuning)
    }

    #[inline]
    fn try_lock<'a>(&'a self, _: &'a mut Tuning) -> Option<TicketGuard<'a>> {
        self.0.try_lock()
    }
}
