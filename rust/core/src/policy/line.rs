//! Spinners of the default lock: tickets say who may try first, and never who owns.
//!
//! A ticket at or below `head` may take the lock when it is free. Losing, skipping or wrapping one disturbs order only, so
//! 16 bits do: the distance is exact for fewer than 2^15 spinners, and there are never more than CPUs.

use super::constants::{SPIN_BUDGET_RANGE_NS, SPIN_SCORE_HALVING};

/// Every spinner's ticket as the strict family's [`Waiter`](super::Waiter) sees it: only distances matter there, and this one
/// has room for all of them below it.
pub const TICKET: u32 = 1 << 16;

/// Distances beyond half of all tickets count backwards.
const HALF: u16 = u16::MAX / 2;

/// The place of one spinner in line.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    ticket: u16,
    head: u16,
    stalled: u32,
    patience_looks: u32,
}

impl Place {
    /// A spinner that drew `ticket`. Each ticket ahead counts as abandoned after `patience_looks` looks at a free lock that
    /// nobody takes (see [`PATIENCE_LOOKS`](super::constants::PATIENCE_LOOKS)).
    #[must_use]
    pub const fn new(ticket: u16, head: u16, patience_looks: u32) -> Self {
        Self { ticket, head, stalled: 0, patience_looks }
    }

    /// Spinners with an earlier ticket that may still try, from the last look.
    #[must_use]
    pub const fn ahead(&self) -> u32 {
        let distance = self.ticket.wrapping_sub(self.head);
        if distance > HALF { 0 } else { distance as u32 }
    }

    /// The number being served as the strict family's waiter with [`TICKET`] sees it: as many are ahead of it as of us.
    #[must_use]
    pub const fn serving(&self) -> u32 {
        TICKET - 1 - self.ahead()
    }

    /// A look at the lock: whether the spinner may try to take it now.
    pub fn looked(&mut self, free: bool, head: u16) -> bool {
        if head != self.head {
            self.head = head;
            self.stalled = 0;
        }
        let ahead = self.ahead();
        if !free || ahead == 0 {
            return free;
        }
        self.stalled += 1;
        self.stalled > self.patience_looks.saturating_mul(ahead)
    }

    /// `head` once this spinner has won: its successor may try next, unless a later one may already.
    #[must_use]
    pub const fn head_after(&self, head: u16) -> u16 {
        let next = self.ticket.wrapping_add(1);
        if matches!(next.wrapping_sub(head), 1..=HALF) { next } else { head }
    }
}

/// Whether one more spinner can be running: the holder, those who spin and the newcomer need a CPU each.
#[must_use]
pub const fn has_room(spinners: u32, cpus: u32) -> bool {
    spinners + 2 <= cpus
}

/// Units of `unit_ns` each that a waiter may spin before it sleeps: what going to sleep and being woken costs, halved for every
/// [`SPIN_SCORE_HALVING`] times that spinning on this lock did not pay, down to none, and none at all if already the planned
/// wait of `planned_units` exceeds it.
#[must_use]
pub fn spin_budget_units(park_cost_ns: u64, unit_ns: f64, spin_score: i8, planned_units: u64) -> u64 {
    let (least, most) = SPIN_BUDGET_RANGE_NS;
    let units = (park_cost_ns.clamp(least, most) as f64 / unit_ns) as u64;
    let units = if spin_score < 0 { units >> (u32::from(spin_score.unsigned_abs()) / SPIN_SCORE_HALVING) } else { units };
    if planned_units > units { 0 } else { units }
}

#[cfg(test)]
mod tests {
    use super::super::constants::PATIENCE_LOOKS;
    use super::*;

    #[test]
    fn only_the_head_of_the_line_may_try() {
        let mut place = Place::new(3, 1, PATIENCE_LOOKS);
        assert_eq!(place.ahead(), 2);
        assert!(!place.looked(true, 1));
        assert!(!place.looked(false, 3));
        assert_eq!(place.ahead(), 0);
        assert!(place.looked(true, 3));
        assert_eq!(place.head_after(3), 4);
    }

    #[test]
    fn the_strict_waiter_sees_the_same_distance() {
        use super::super::wait::waiters_ahead;
        for (ticket, head) in [(3, 1), (3, 3), (3, 9), (0, u16::MAX), (0x7fff, 0)] {
            let place = Place::new(ticket, head, PATIENCE_LOOKS);
            assert_eq!(waiters_ahead(TICKET, place.serving()), Some(place.ahead()));
        }
        assert_eq!(waiters_ahead(TICKET, TICKET), None);
    }

    #[test]
    fn a_later_ticket_that_may_try_is_not_taken_back() {
        assert_eq!(Place::new(3, 9, PATIENCE_LOOKS).head_after(9), 9);
        assert_eq!(Place::new(3, 9, PATIENCE_LOOKS).ahead(), 0);
    }

    #[test]
    fn an_abandoned_ticket_costs_a_few_looks() {
        let mut place = Place::new(2, 1, PATIENCE_LOOKS);
        let looks = (1..=10).find(|_| place.looked(true, 1)).expect("never skipped");
        assert_eq!(looks, PATIENCE_LOOKS + 1);
        // Progress of the line, or a held lock, is no sign of an abandoned ticket.
        let mut place = Place::new(9, 1, PATIENCE_LOOKS);
        for head in 1..9 {
            assert!(!place.looked(true, head));
            assert!(!place.looked(false, head));
        }
    }

    #[test]
    fn tickets_wrap() {
        let mut place = Place::new(1, u16::MAX, PATIENCE_LOOKS);
        assert_eq!(place.ahead(), 2);
        assert!(!place.looked(true, 0));
        assert!(place.looked(true, 1));
        assert_eq!(Place::new(u16::MAX, u16::MAX, PATIENCE_LOOKS).head_after(u16::MAX), 0);
    }

    #[test]
    fn room_is_for_holder_spinners_and_newcomer() {
        assert!(!has_room(0, 1));
        assert!(has_room(0, 2));
        assert!(!has_room(1, 2));
        assert!(has_room(2, 4));
    }

    #[test]
    fn the_budget_follows_cost_and_success() {
        let (least, most) = SPIN_BUDGET_RANGE_NS;
        let units = |ns: u64| ns / 4;
        assert_eq!(spin_budget_units(0, 4.0, 0, 1), units(least));
        assert_eq!(spin_budget_units(u64::MAX, 4.0, 127, 1), units(most));
        assert_eq!(spin_budget_units(most, 26.0, 0, 1), most / 26, "a unit may take longer than 4 ns");
        assert_eq!(spin_budget_units(most, 4.0, -(SPIN_SCORE_HALVING as i8), 1), units(most) / 2);
        assert_eq!(spin_budget_units(most, 4.0, i8::MIN, 1), units(most) >> 8, "a probe is left");
        assert_eq!(spin_budget_units(least, 4.0, 0, units(least) + 1), 0, "a first wait that long cannot pay");
    }
}
