//! `delays()` and `set_delay_watch()`: what this process's threads have learnt, now and as it happens.

use pyo3::prelude::*;
use ticketlock::policy::Delay;

/// Native id, lock, generation, slot, delay in units, hits, collisions.
type Row = (u64, u64, u16, i32, f64, u32, u32);

/// Slot of a delay that a thread shares among all its locks; its lock is 0.
const SHARED: i32 = -1;

/// The tuned delays of all live threads of this process, read while they run.
///
/// One tuple each: (native_id, lock, generation, slot, delay, hits, collisions). A delay that a thread shares among its
/// locks has slot -1 and lock 0.
#[pyfunction]
pub(super) fn delays() -> Vec<Row> {
    let mut rows = Vec::new();
    for thread in ticketlock::delays() {
        let shared = |delay: Delay| (thread.native_id, 0, 0, SHARED, delay.units(), 0, 0);
        rows.extend(thread.shared.map(shared));
        rows.extend(thread.shared_v1.map(shared));
        rows.extend(thread.slots.iter().map(|slot| {
            let delay = slot.delay.units();
            (thread.native_id, slot.lock, slot.generation, slot.slot as i32, delay, slot.hits, slot.collisions)
        }));
    }
    rows
}

/// Call callback(event) for every delay that outgrew 4/3 of the largest that its thread had reported; None switches off.
///
/// The event is a dict with lock, delay, previous_max, native_id and traceback, a list of (filename, lineno, name) that
/// ends with the call that waited. The callback runs in the thread that releases, right after the release of that lock. It
/// may hold others, so a callback should only pass the report on, as ticketlock.on_delay_watch does; what it raises goes to
/// sys.unraisablehook.
#[pyfunction]
#[pyo3(signature = (callback, /))]
pub(super) fn set_delay_watch(py: Python<'_>, callback: &Bound<'_, PyAny>) -> PyResult<()> {
    // The callback is kept by the module that made the locks, one per interpreter.
    py.import("ticketlock._core")?.call_method1("_set_delay_watch", (callback,))?;
    Ok(())
}
