//! `ticketlock._lab`: machine facts, live delays and native benchmarks, as plain dicts and lists.
//!
//! An ordinary PyO3 module, so the main interpreter's alone. It measures and describes; locks are in `core_module`.

#![allow(clippy::doc_markdown, reason = "these texts become Python docstrings")]

mod bench;
mod delays;
mod machine;
mod segment;

use pyo3::prelude::*;

/// Machine facts, live delays and native benchmarks.
#[pymodule]
mod _lab {
    #[pymodule_export]
    use super::bench::{bench_check, bench_locks, bench_order, bench_parse_lock, bench_round};
    #[pymodule_export]
    use super::delays::{delays, set_delay_watch};
    #[pymodule_export]
    use super::machine::machine;
    #[pymodule_export]
    use super::segment::{SegmentReader, order_inversions, own_segment, set_order, set_sites, telemetry};
}
