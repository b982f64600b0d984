//! Reading what a process's locks report: this one's, or another's through a descriptor.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use ticketlock::machine::clock::now_ns;
use ticketlock::telemetry::reader::{BlameView, Counts, Error, LockView, ProcessView, Reader, SiteView, ThreadView};
use ticketlock::telemetry::{locks, segment};

use crate::attach;
use crate::core_module::order;

#[cfg(unix)]
type Source = std::fs::File;
#[cfg(not(unix))]
type Source = NoFile;

/// Where segments are in no file.
#[cfg(not(unix))]
#[derive(Debug)]
struct NoFile;

#[cfg(not(unix))]
impl ticketlock::telemetry::reader::Bytes for NoFile {
    fn read_at(&self, _: &mut [u8], _: u64) -> std::io::Result<usize> {
        Ok(0)
    }

    fn length(&self) -> std::io::Result<u64> {
        Ok(0)
    }
}

/// SegmentReader(fd, /)
/// --
///
/// Reads the segment behind a descriptor, which is duplicated. Raises ValueError if its bytes are none of ours, or of
/// another major version.
#[pyclass(frozen, module = "ticketlock._lab")]
pub(super) struct SegmentReader(Mutex<Reader<Source>>);

fn error(error: Error) -> PyErr {
    match error {
        Error::Io(error) => PyOSError::new_err(error.to_string()),
        other => PyValueError::new_err(other.to_string()),
    }
}

#[cfg(unix)]
fn open(fd: i32) -> PyResult<SegmentReader> {
    use std::os::fd::{BorrowedFd, FromRawFd as _, IntoRawFd as _};
    if fd < 0 {
        return Err(PyValueError::new_err(format!("fd={fd} is not accepted: a descriptor is 0 or more")));
    }
    // SAFETY: borrowed for the duplication alone, which fails if it is not open; the duplicate is ours.
    let file = unsafe {
        let borrowed = BorrowedFd::borrow_raw(fd);
        std::fs::File::from_raw_fd(borrowed.try_clone_to_owned()?.into_raw_fd())
    };
    Reader::new(file).map(|reader| SegmentReader(Mutex::new(reader))).map_err(error)
}

#[cfg(not(unix))]
fn open(_fd: i32) -> PyResult<SegmentReader> {
    Err(PyOSError::new_err("reading other processes is not supported on this system"))
}

#[pymethods]
impl SegmentReader {
    #[new]
    #[pyo3(signature = (fd, /))]
    fn new(fd: i32) -> PyResult<Self> {
        open(fd)
    }

    /// Who reports, as a dict.
    fn process<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let view = self.locked().process().map_err(error)?;
        process(py, &view)
    }

    /// Everything, but of the locks at most limit.
    #[pyo3(signature = (limit = 1000))]
    fn sample<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyDict>> {
        let sample = attach::blocking(py, || self.locked().sample(limit)).map_err(error)?;
        let raw = PyDict::new(py);
        raw.set_item("at_ns", now_ns())?;
        raw.set_item("process", process(py, &sample.process)?)?;
        let each = |lock: &LockView| lock_dict(py, lock);
        raw.set_item("locks", PyList::new(py, sample.locks.iter().map(each).collect::<PyResult<Vec<_>>>()?)?)?;
        let each = |site: &SiteView| site_dict(py, site);
        raw.set_item("sites", PyList::new(py, sample.sites.iter().map(each).collect::<PyResult<Vec<_>>>()?)?)?;
        let each = |thread: &ThreadView| thread_dict(py, thread);
        raw.set_item("threads", PyList::new(py, sample.threads.iter().map(each).collect::<PyResult<Vec<_>>>()?)?)?;
        let blames = PyList::empty(py);
        for blame in sample.locks.iter().flat_map(|lock| &lock.blames) {
            blames.append(blame_dict(py, blame)?)?;
        }
        raw.set_item("blames", blames)?;
        let retired = PyList::empty(py);
        for (index, site) in sample.sites.iter().enumerate() {
            for blame in &site.blames {
                let dict = blame_dict(py, blame)?;
                dict.set_item("of_site", index)?;
                retired.append(dict)?;
            }
        }
        raw.set_item("retired_blames", retired)?;
        let dropped = PyDict::new(py);
        for (name, count) in ["locks", "sites", "threads", "strings", "blames"].into_iter().zip(sample.dropped) {
            dropped.set_item(name, count)?;
        }
        raw.set_item("dropped", dropped)?;
        let totals = PyDict::new(py);
        for (name, count) in ["locks", "acquisitions", "contended", "wait_ns_sum"].into_iter().zip(sample.totals) {
            totals.set_item(name, count)?;
        }
        raw.set_item("totals", totals)?;
        raw.set_item("next_event", sample.next_event)?;
        Ok(raw)
    }

    /// The waits that ended, from number since on, oldest first, at most limit.
    #[pyo3(signature = (since, limit = 65536))]
    fn events<'py>(&self, py: Python<'py>, since: u64, limit: usize) -> PyResult<Bound<'py, PyList>> {
        let events = attach::blocking(py, || self.locked().events(since, limit)).map_err(error)?;
        let list = PyList::empty(py);
        for event in events {
            let dict = PyDict::new(py);
            dict.set_item("sequence", event.sequence)?;
            dict.set_item("lock", event.lock)?;
            dict.set_item("ident", event.ident)?;
            dict.set_item("started_ns", event.started_ns)?;
            dict.set_item("duration_ns", event.duration_ns)?;
            dict.set_item("outcome", event.outcome)?;
            list.append(dict)?;
        }
        Ok(list)
    }
}

impl SegmentReader {
    fn locked(&self) -> std::sync::MutexGuard<'_, Reader<Source>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn process<'py>(py: Python<'py>, view: &ProcessView) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("pid", view.pid)?;
    dict.set_item("inner_pid", view.pid)?;
    dict.set_item("start_ticks", view.start_ticks)?;
    dict.set_item("created_ns", view.created_ns)?;
    dict.set_item("python", &view.python)?;
    dict.set_item("free_threaded", view.free_threaded)?;
    dict.set_item("version", &view.version)?;
    dict.set_item("sites", view.sites)?;
    Ok(dict)
}

fn counters<'py>(py: Python<'py>, counts: &Counts) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("acquisitions", counts.acquisitions)?;
    dict.set_item("contended", counts.contended)?;
    dict.set_item("wait_ns_sum", counts.wait_ns_sum)?;
    dict.set_item("wait_ns_max", counts.wait_ns_max)?;
    dict.set_item("wait_ns_log2", &counts.wait_ns_log2)?;
    dict.set_item("parks", counts.parks)?;
    dict.set_item("timeouts", counts.timeouts)?;
    dict.set_item("hand_overs", counts.hand_overs)?;
    Ok(dict)
}

fn lock_dict<'py>(py: Python<'py>, lock: &LockView) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("id", lock.id)?;
    dict.set_item("name", &lock.name)?;
    dict.set_item("kind", lock.kind)?;
    dict.set_item("site", lock.site)?;
    dict.set_item("owner", lock.owner)?;
    dict.set_item("waiters", lock.waiters)?;
    dict.set_item("waiters_max", lock.waiters_max)?;
    dict.set_item("counters", counters(py, &lock.counts)?)?;
    Ok(dict)
}

fn site_dict<'py>(py: Python<'py>, site: &SiteView) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("path", &site.path)?;
    dict.set_item("line", site.line)?;
    dict.set_item("function", &site.function)?;
    dict.set_item("internal", site.internal)?;
    dict.set_item("created", site.created)?;
    dict.set_item("live", site.live)?;
    dict.set_item("retired_kind", site.kind)?;
    dict.set_item("retired_waiters_max", site.waiters_max)?;
    dict.set_item("retired", counters(py, &site.retired)?)?;
    Ok(dict)
}

fn thread_dict<'py>(py: Python<'py>, thread: &ThreadView) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("ident", thread.ident)?;
    dict.set_item("native_id", thread.native_id)?;
    dict.set_item("name", &thread.name)?;
    dict.set_item("state", thread.state)?;
    dict.set_item("waiting_on", thread.waiting.map(|(lock, _)| lock))?;
    dict.set_item("wait_started_ns", thread.waiting.map(|(_, since)| since))?;
    dict.set_item("waits", thread.waits)?;
    dict.set_item("wait_ns_sum", thread.wait_ns_sum)?;
    dict.set_item("parks", thread.parks)?;
    dict.set_item("polls", thread.polls)?;
    let delays = PyList::empty(py);
    for delay in &thread.delays {
        let row = PyDict::new(py);
        row.set_item("lock", delay.lock)?;
        row.set_item("delay", delay.delay)?;
        row.set_item("hits", delay.hits)?;
        row.set_item("collisions", delay.collisions)?;
        row.set_item("spin_score", delay.spin_score)?;
        delays.append(row)?;
    }
    dict.set_item("delays", delays)?;
    dict.set_item("recent_waits_ns", &thread.recent_waits_ns)?;
    Ok(dict)
}

fn blame_dict<'py>(py: Python<'py>, blame: &BlameView) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("lock", blame.lock)?;
    dict.set_item("role", if blame.holder { "holder" } else { "waiter" })?;
    dict.set_item("site", blame.site)?;
    dict.set_item("samples", blame.samples)?;
    dict.set_item("weight_ns", blame.weight_ns)?;
    Ok(dict)
}

/// A reader of this process's own segment; None if there is none to read.
#[pyfunction]
pub(super) fn own_segment() -> PyResult<Option<SegmentReader>> {
    segment::descriptor().map(open).transpose()
}

/// How this process's locks report, as a dict: state ("memfd", "file" or "off"), why it is off, path of the file, sites.
#[pyfunction]
pub(super) fn telemetry(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    let state = match segment::state() {
        segment::State::Memfd => "memfd",
        segment::State::File => "file",
        segment::State::Private | segment::State::NotYet => "off",
    };
    dict.set_item("state", state)?;
    let why = (state == "off").then_some("TICKETLOCK_TELEMETRY=0, or the system gives no memory that others could read");
    dict.set_item("why", why)?;
    dict.set_item("path", segment::path().map(std::path::PathBuf::into_os_string))?;
    dict.set_item("sites", locks::sites_are_on())?;
    Ok(dict)
}

/// Whether locks made from now on note where, and report from the start.
#[pyfunction]
#[pyo3(signature = (on, /))]
pub(super) fn set_sites(on: bool) {
    locks::set_sites(on);
}

/// Whether locks made from now on note in which order threads take them.
#[pyfunction]
#[pyo3(signature = (on, /))]
pub(super) fn set_order(on: bool) {
    order::set(on);
}

/// Pairs of locks that were taken in both orders, each a dict: first, then (ids), first_site, then_site (numbers of sites,
/// None if unknown), ident, and the same of the pair that leads back, as a dict under back.
#[pyfunction]
pub(super) fn order_inversions(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let pair_dict = |pair: &order::Pair| -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("first", pair.first)?;
        dict.set_item("then", pair.then)?;
        dict.set_item("first_site", pair.first_site.checked_sub(1))?;
        dict.set_item("then_site", pair.then_site.checked_sub(1))?;
        dict.set_item("ident", pair.ident)?;
        Ok(dict)
    };
    let list = PyList::empty(py);
    for inversion in order::inversions() {
        let dict = pair_dict(&inversion.pair)?;
        dict.set_item("back", pair_dict(&inversion.back)?)?;
        list.append(dict)?;
    }
    Ok(list)
}
