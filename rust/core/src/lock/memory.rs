//! What a thread remembers of its earlier waits: its delay table, its shared delays, its maximum.
//!
//! It lives in the payload of the thread's record:
//!
//! | words | meaning |
//! |---|---|
//! | 0 | largest delay of any wait of this thread, fixed point |
//! | 1 | largest delay already reported by the delay watch |
//! | 2 | the one delay of rule `auto-shared` |
//! | 3 | the one delay of the `auto-v1` rules |
//! | 4 ... | the [`DelayTable`](crate::policy::DelayTable) |

use crate::policy::{Backoff, Delay, SlotView};

/// The delays of one live thread, as [`delays`] found them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadDelays {
    /// Native id of the thread.
    pub native_id: u64,
    /// Largest delay of any wait of this thread.
    pub max_delay: Delay,
    /// The one delay of rule `auto-shared`, if the thread has waited under it.
    pub shared: Option<Delay>,
    /// The one delay of the `auto-v1` rules, likewise.
    pub shared_v1: Option<Delay>,
    /// The used slots of its table.
    pub slots: Vec<SlotView>,
}

#[cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]
mod imp {
    use super::{Backoff, Delay, ThreadDelays};
    use crate::policy::{Collision, DelayTable, LockKey, Opened, Words};
    use crate::telemetry::layout::thread::DELAYS as TABLE;
    use crate::telemetry::threads::{self, ThreadRecord};

    const MAX_DELAY: usize = 0;
    const REPORTED: usize = 1;
    const SHARED: usize = 2;
    const SHARED_V1: usize = 3;
    const _: () = assert!(SHARED_V1 < TABLE);

    struct Table(&'static ThreadRecord);

    impl Words for Table {
        #[inline]
        fn get(&self, index: usize) -> u64 {
            self.0.get(TABLE + index)
        }
        #[inline]
        fn set(&self, index: usize, value: u64) {
            self.0.set(TABLE + index, value);
        }
    }

    /// The calling thread's memory of one lock, for the length of one wait.
    pub(crate) struct Memory {
        record: Option<&'static ThreadRecord>,
        opened: Option<Opened>,
        delay: Delay,
    }

    fn shared_word(backoff: Backoff) -> usize {
        if matches!(backoff, Backoff::AutoV1(_)) { SHARED_V1 } else { SHARED }
    }

    impl Memory {
        pub(crate) fn open(backoff: Backoff, collision: Collision, key: LockKey) -> Self {
            let Some(record) = threads::current() else {
                return Self { record: None, opened: None, delay: Delay::MIN };
            };
            if backoff.is_shared() {
                let delay = Delay::from_bits(record.get(shared_word(backoff)) as u32);
                return Self { record: Some(record), opened: None, delay };
            }
            let opened = DelayTable::new(&Table(record), collision).open(key);
            Self { record: Some(record), opened: Some(opened), delay: opened.delay }
        }

        pub(crate) fn delay(&self) -> Delay {
            self.delay
        }

        /// Whether spinning on the lock has paid: positive if so. 0 for rules without a table.
        pub(crate) fn spin_score(&self) -> i8 {
            self.opened.map_or(0, |opened| opened.spin_score)
        }

        pub(crate) fn close(&self, backoff: Backoff, collision: Collision, key: LockKey, delay: Delay, peak: Delay, paid: bool) {
            let Some(record) = self.record else { return };
            match self.opened {
                Some(opened) => DelayTable::new(&Table(record), collision).close(key, opened, delay, paid),
                None => record.set(shared_word(backoff), u64::from(delay.bits())),
            }
            if u64::from(peak.bits()) > record.get(MAX_DELAY) {
                record.set(MAX_DELAY, u64::from(peak.bits()));
            }
        }

        /// If `peak` outgrew 4/3 of the largest delay reported so far, the thread and that earlier maximum.
        pub(crate) fn outgrown(&self, peak: Delay) -> Option<(u64, Delay)> {
            let record = self.record?;
            let before = Delay::from_bits(record.get(REPORTED) as u32);
            if u64::from(before.bits()) * 4 >= u64::from(peak.bits()) * 3 {
                return None;
            }
            Some((record.native_id(), before))
        }
    }

    /// The calling thread's new maximum of reported delays.
    pub(crate) fn mark_reported(delay: Delay) {
        if let Some(record) = threads::current() {
            record.set(REPORTED, u64::from(delay.bits()));
        }
    }

    /// The delays of all live threads of this process that have waited under a tuned rule, read while they run: each row is
    /// exact, but rows may be of different moments. Takes no lock.
    #[must_use]
    pub fn delays() -> Vec<ThreadDelays> {
        let used = |record: &ThreadRecord, word| match record.get(word) {
            0 => None,
            bits => Some(Delay::from_bits(bits as u32)),
        };
        threads::live()
            .map(|record| ThreadDelays {
                native_id: record.native_id(),
                max_delay: Delay::from_bits(record.get(MAX_DELAY) as u32),
                shared: used(record, SHARED),
                shared_v1: used(record, SHARED_V1),
                slots: DelayTable::new(&Table(record), Collision::Reset).used().collect(),
            })
            .collect()
    }
}

/// A model explores schedules, not delays: every wait starts from the minimum.
#[cfg(any(ticketlock_loom, ticketlock_shuttle))]
#[allow(clippy::unused_self)] // the shape of the real one
mod imp {
    use super::{Backoff, Delay, ThreadDelays};
    use crate::policy::{Collision, LockKey};

    pub(crate) struct Memory;

    impl Memory {
        pub(crate) fn open(_: Backoff, _: Collision, _: LockKey) -> Self {
            Self
        }
        pub(crate) fn delay(&self) -> Delay {
            Delay::MIN
        }
        pub(crate) fn spin_score(&self) -> i8 {
            0
        }
        pub(crate) fn close(&self, _: Backoff, _: Collision, _: LockKey, _: Delay, _: Delay, _: bool) {}
        pub(crate) fn outgrown(&self, _: Delay) -> Option<(u64, Delay)> {
            None
        }
    }

    pub(crate) fn mark_reported(_: Delay) {}

    /// A model keeps no delays.
    #[must_use]
    pub fn delays() -> Vec<ThreadDelays> {
        Vec::new()
    }
}

pub use imp::delays;
pub(crate) use imp::{Memory, mark_reported};
