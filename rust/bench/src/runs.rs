//! Runs: consecutive acquisitions of one lock by one thread. Kept beside the lock, in data that the lock protects.

/// No thread's number.
const NOBODY: u32 = u32::MAX;

/// Who is served, and since when (stamps in ticks since the round's start). Written by the holder only.
#[derive(Debug)]
pub(crate) struct Turn {
    owner: u32,
    length: u64,
    since: u64,
    latest: u64,
    served: u64,
}

/// A run that ended because another thread was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// Acquisitions.
    pub length: u64,
    /// Stamp of the first one.
    since: u64,
    /// Stamp of the last one.
    latest: u64,
}

impl Turn {
    pub(crate) const fn new() -> Self {
        Self { owner: NOBODY, length: 0, since: 0, latest: 0, served: 0 }
    }

    /// Called by the holder: thread `me` was served at `stamp` (0 in rounds that time nothing). Returns the run that this
    /// ended, if any.
    #[inline]
    pub(crate) fn serve(&mut self, me: u32, stamp: u64) -> Option<Run> {
        self.served += 1;
        if self.owner == me {
            self.length += 1;
            self.latest = stamp;
            return None;
        }
        let ended = self.current();
        *self = Self { owner: me, length: 1, since: stamp, latest: stamp, served: self.served };
        ended
    }

    /// Acquisitions so far: called by the holder, the number of its own plus one.
    #[inline]
    pub(crate) fn served(&self) -> u64 {
        self.served
    }

    /// The run that is going on, if anybody was ever served.
    #[inline]
    pub(crate) fn current(&self) -> Option<Run> {
        (self.owner != NOBODY).then_some(Run { length: self.length, since: self.since, latest: self.latest })
    }
}

impl Run {
    /// From the run's first acquisition to its last one: no monopoly of it is longer. 0 for a run of one.
    #[inline]
    pub(crate) fn span(self) -> u64 {
        self.latest - self.since
    }

    /// How long the run's thread kept re-acquiring while others waited, the first of whom had arrived at `arrived`: from
    /// the later of that arrival and the run's first acquisition to the run's last acquisition.
    #[inline]
    pub(crate) fn monopoly(self, arrived: u64) -> u64 {
        self.latest.saturating_sub(self.since.max(arrived))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves threads in this order at stamps 10, 20, 30, ...; returns the runs that ended.
    fn serve(order: &[u32]) -> (Vec<Run>, Turn) {
        let mut turn = Turn::new();
        let runs = order.iter().zip(1..).filter_map(|(&me, at)| turn.serve(me, at * 10)).collect();
        (runs, turn)
    }

    #[test]
    fn runs_are_split_where_the_thread_changes() {
        let (runs, turn) = serve(&[0, 0, 0, 1, 0, 2, 2]);
        assert_eq!(runs.iter().map(|run| run.length).collect::<Vec<_>>(), [3, 1, 1]);
        assert_eq!(turn.current().map(|run| run.length), Some(2));
        assert_eq!(turn.served(), 7);
        let total: u64 = runs.iter().chain(&turn.current()).map(|run| run.length).sum();
        assert_eq!(total, 7);
    }

    #[test]
    fn nobody_served_is_no_run() {
        assert_eq!(Turn::new().current(), None);
    }

    #[test]
    fn a_monopoly_lasts_from_arrival_or_start_to_the_last_acquisition() {
        let run = serve(&[0, 0, 0, 0, 1]).0[0]; // 10, 20, 30, 40
        assert_eq!(run.span(), 30);
        assert_eq!(run.monopoly(5), 30); // was there before the run began
        assert_eq!(run.monopoly(25), 15);
        assert_eq!(run.monopoly(45), 0); // came after the last one
        assert_eq!(serve(&[0, 1]).0[0].monopoly(5), 0); // a run of one
    }
}
