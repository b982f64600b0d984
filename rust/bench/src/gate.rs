//! The barrier at which the threads of a round start, the flag that stops them, and what they tell their coordinator.

use std::sync::mpsc::Sender;

use crate::clock::Clock;
use crate::os::{self, Switches};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Looks at a flag before yielding to others, in pauses: a few microseconds.
const PAUSES_AT_BARRIER: u32 = 200;

/// Barrier and stop flag. On lines of its own: it is read in every turn.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Gate {
    stop: AtomicBool,
    arrived: AtomicUsize,
    set: AtomicUsize,
    /// Stamp at which the round began.
    open: AtomicU64,
}

impl Gate {
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether all of `threads` threads are through the barrier, or about to be.
    pub(crate) fn is_open(&self, threads: usize) -> bool {
        self.set.load(Ordering::Relaxed) > threads
    }

    /// Ends the round for everybody.
    pub(crate) fn stop(&self) {
        // pairs with: the acquire load in `meet`. Workers look with `stopped`, and need no order.
        self.stop.store(true, Ordering::Release);
    }
}

/// One thread's view of the round.
pub(crate) struct Member<'a> {
    pub me: u32,
    pub gate: &'a Gate,
    pub news: &'a Sender<News>,
    threads: usize,
}

/// A period between [`Member::begin`] and [`Shift::end`].
pub(crate) struct Shift {
    started: u64,
    cpu_s: Option<f64>,
    switches: Option<Switches>,
}

/// What a thread used during its shift.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    /// Stamps of start and end.
    pub period: (u64, u64),
    pub cpu_s: Option<f64>,
    pub switches: Option<Switches>,
}

impl<'a> Member<'a> {
    pub(crate) fn new(me: u32, gate: &'a Gate, threads: usize, news: &'a Sender<News>) -> Self {
        Self { me, gate, news, threads }
    }

    /// Waits for all threads, then starts the measured part. `None`: the round was called off.
    ///
    /// Two barriers: the first gets everybody onto a CPU; between them the system is asked for the thread's accounts, which
    /// takes microseconds; the second, short, starts all within a fraction of one. Otherwise the first thread would be alone
    /// for hundreds of acquisitions, and these would pass for a run.
    pub(crate) fn begin(&self) -> Option<Shift> {
        self.meet(&self.gate.arrived, |_| ())?;
        let (cpu_s, switches) = (os::thread_cpu_s(), os::thread_switches());
        self.meet(&self.gate.set, |gate| {
            gate.open.store(Clock::get().now(), Ordering::Relaxed);
            // The coordinator's clock for the round starts here.
            let _ = self.news.send(News::Opened);
        })?;
        Some(Shift { started: Clock::get().now(), cpu_s, switches })
    }

    /// Counts this thread in and waits for the others; the last one does `open` first.
    fn meet(&self, count: &AtomicUsize, open: impl FnOnce(&Gate)) -> Option<()> {
        if count.fetch_add(1, Ordering::Relaxed) + 1 == self.threads {
            open(self.gate);
            // One more than the threads. pairs with: the acquire load below.
            count.fetch_add(1, Ordering::Release);
        }
        let mut pauses = 0;
        while count.load(Ordering::Acquire) <= self.threads {
            // pairs with: the release store in `stop`. A quick thread may have ended the round already: then it has begun.
            if self.gate.stop.load(Ordering::Acquire) {
                return (count.load(Ordering::Acquire) > self.threads).then_some(());
            }
            pauses += 1;
            if pauses < PAUSES_AT_BARRIER { core::hint::spin_loop() } else { std::thread::yield_now() }
        }
        Some(())
    }

    /// Stamp at which the round began, the same for all threads. Relaxed: the barrier published it.
    pub(crate) fn origin(&self) -> u64 {
        self.gate.open.load(Ordering::Relaxed)
    }
}

impl Shift {
    pub(crate) fn end(self) -> Used {
        let period = (self.started, Clock::get().now());
        Used {
            period,
            cpu_s: os::thread_cpu_s().zip(self.cpu_s).map(|(now, then)| now - then),
            switches: os::thread_switches().zip(self.switches).map(|(now, then)| now - then),
        }
    }
}

/// What threads tell the coordinator.
pub(crate) enum News {
    /// On its CPU, with this native id.
    Placed(u64),
    /// All have arrived; the round begins.
    Opened,
    Done,
    /// The system refused something.
    Refused(String),
    Panicked(String),
}
