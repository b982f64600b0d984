//! Delay watch: reports a delay that outgrew 4/3 of the largest one its thread had reported so far. An exploding delay
//! points at a lock held far too long, or at a waiter that keeps being descheduled. Source: the series' debugging patch.
//!
//! The maximum is kept per thread. A report is made when a wait ends, and handed over after the lock is released, by a
//! thread of the watch's own: the callback never runs with a lock held by its thread, and a slow one delays no waiter and
//! so cannot raise the delay it reports. Until a callback is set, only waits that had to be tuned look at one flag.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use core::cell::Cell;

use super::memory::mark_reported;
use crate::policy::Delay;
use crate::sync::global::{AtomicU32, AtomicU64, Ordering};

/// Reports that may wait for a slow callback; later ones are dropped and counted in [`dropped`]. Reason: a thread
/// reports at most 38 times, each time 4/3 of the last up to the largest storable delay, so this is several threads' worth.
const QUEUE_REPORTS: usize = 256;

/// A delay that outgrew all that its thread had reported before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelayReport {
    /// Id of the lock waited for (its address for a lock without one).
    pub lock: u64,
    /// Generation of the id.
    pub generation: u16,
    /// The largest delay during the wait.
    pub delay: Delay,
    /// The largest delay this thread had reported before.
    pub previous_max: Delay,
    /// Native id of the thread that waited.
    pub native_id: u64,
}

/// What [`set`] takes.
pub type Callback = Box<dyn Fn(&DelayReport) + Send>;

/// Who wants reports: the callback of [`set`], and bindings.
static ARMED: AtomicU32 = AtomicU32::new(0);
/// Whether [`set`] has a callback.
static NATIVE: AtomicU32 = AtomicU32::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static SENDER: Mutex<Option<SyncSender<DelayReport>>> = Mutex::new(None);

thread_local! {
    /// The report of a wait whose lock is still held.
    static PENDING: Cell<Option<DelayReport>> = const { Cell::new(None) };
    /// Set in the watch's own thread: what its callback waits for is not reported.
    static MUTED: Cell<bool> = const { Cell::new(false) };
}

/// Whether waits shall look for reports.
#[inline]
pub(crate) fn is_armed() -> bool {
    ARMED.load(Ordering::Relaxed) != 0 && !is_muted()
}

/// Makes waits report in [`Waited::watch`](super::Waited), for a binding that delivers reports itself. Counted: each call
/// wants its [`disarm`].
pub fn arm() {
    ARMED.fetch_add(1, Ordering::Relaxed);
}

/// Takes one [`arm`] back.
pub fn disarm() {
    // Never below zero: an unpaired call must not arm four billion times.
    let _ = ARMED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
}

/// Whether the calling thread is [`muted`].
pub fn is_muted() -> bool {
    MUTED.try_with(Cell::get).unwrap_or(true)
}

/// Runs `body` without reports of the calling thread, for callbacks that themselves take locks.
pub fn muted<T>(body: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            MUTED.set(self.0);
        }
    }
    let _restore = Restore(MUTED.replace(true));
    body()
}

/// Sets the callback (`None` switches it off). It runs in a thread of its own, which delivers what was reported so far and
/// ends when another one is set; a callback that panics ends it too. A forked child has no such thread: set the callback
/// again there. It waits for ever if, at the fork, another thread was just setting one or handing a report over.
///
/// # Errors
/// When the operating system gives no thread; the former callback then stays off.
pub fn set(callback: Option<Callback>) -> std::io::Result<()> {
    let mut sender = SENDER.lock().unwrap_or_else(PoisonError::into_inner);
    if sender.take().is_some() {
        NATIVE.store(0, Ordering::Relaxed);
        disarm();
    }
    let Some(callback) = callback else { return Ok(()) };
    let (to, reports) = sync_channel(QUEUE_REPORTS);
    thread::Builder::new().name("ticketlock-watch".into()).spawn(move || deliver(&reports, &*callback))?;
    *sender = Some(to);
    NATIVE.store(1, Ordering::Relaxed);
    arm();
    Ok(())
}

fn deliver(reports: &Receiver<DelayReport>, callback: &dyn Fn(&DelayReport)) {
    muted(|| {
        while let Ok(report) = reports.recv() {
            callback(&report);
        }
    });
}

/// Reports dropped because the callback was too slow or had panicked, or because its thread waited again, and for longer,
/// before it released the lock of the first report.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Notes that somebody will hear `report`: its delay is then the largest that the calling thread, which has just waited, has
/// reported. For a binding that delivers reports itself; a report that is dropped may fall due again.
pub fn accept(report: &DelayReport) {
    mark_reported(report.delay);
}

/// Keeps a report until its lock is released, if there is a callback for it.
pub(crate) fn keep(report: DelayReport) {
    if NATIVE.load(Ordering::Relaxed) == 0 {
        return;
    }
    accept(&report);
    if PENDING.try_with(|pending| pending.replace(Some(report))).is_ok_and(|former| former.is_some()) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Hands over the calling thread's report, if it has one. Called after a release.
#[cold]
pub(crate) fn hand_over() {
    if NATIVE.load(Ordering::Relaxed) == 0 {
        return;
    }
    let Some(report) = PENDING.try_with(Cell::take).ok().flatten() else { return };
    // try_lock: a program that sets callbacks in a loop must not stop a thread that only released a lock.
    let sent = match SENDER.try_lock() {
        Ok(sender) => sender.as_ref().map(|to| to.try_send(report)),
        Err(_) => Some(Err(TrySendError::Full(report))),
    };
    if matches!(sent, Some(Err(_))) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}
