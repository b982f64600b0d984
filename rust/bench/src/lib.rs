//! Native lock benchmarks: one harness, and one adapter of a few lines per lock.
//!
//! [`run_round`] runs one round of one cell on real threads. Who calls it loops over rounds in the [`order()`] computed here,
//! reruns rounds that come back [`Status::Invalid`], and takes medians. [`check_exclusion`] is run once per lock before its
//! figures are believed.
//!
//! Built in layers: what a lock must offer (`adapter`, `adapters`), the threads (`gate`, `crew`, `validity`), what is computed
//! (`histogram`, `runs`, `arrivals`, `overtakes`), the experiments (`uncontended`, `contended`, `phantom`), the entrance (`round`).
//!
//! ```
//! use ticketlock_bench::{Preset, RoundSpec, parse_lock, run_round};
//!
//! let spec = RoundSpec { seconds: 0.01, ..RoundSpec::new(Preset::Semaphore, parse_lock("auto")?) };
//! let result = run_round(&spec, &|| false)?;
//! assert!(result.acquisitions.iter().sum::<u64>() > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adapter;
mod adapters;
mod arrivals;
mod clock;
mod contended;
mod crew;
mod exclusion;
mod gate;
mod histogram;
mod lock_id;
mod order;
mod os;
mod overtakes;
mod phantom;
#[cfg(test)]
mod planted;
mod result;
mod round;
mod runs;
mod spec;
mod sync;
#[cfg(test)]
mod testing;
mod uncontended;
mod validity;
mod work;

pub use clock::Ticks;
pub use exclusion::{check_exclusion, check_service_order, check_stalls};
pub use lock_id::{LockInfo, LockSpec, locks, parse_lock};
pub use order::order;
pub use os::Switches;
pub use result::{Extra, PairNs, RoundResult, RunLengths, Status, WINDOW_NS, Waits};
pub use round::run_round;
pub use spec::{
    BenchError, FAIRNESS_HOLD_NS, MAX_CAP_UNITS, MAX_LINE, MAX_LOCKS, MAX_SECONDS, MAX_THREADS, MAX_WORK_NS, Mode,
    OVERSUBSCRIBED_HOLD_NS, OVERSUBSCRIBED_THINK_NS, Preset, RoundSpec,
};
