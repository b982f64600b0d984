//! Native benchmarks: rounds in and out as dicts. Running them is `ticketlock-bench`'s, looping over them Python's.

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString};
use ticketlock_bench::{
    BenchError, Extra, LockInfo, LockSpec, MAX_THREADS, Mode, Preset, RoundResult, RoundSpec, check_exclusion, locks, order,
    parse_lock, run_round,
};

use crate::attach;

/// Every lock that can be named, also those that this platform lacks.
#[pyfunction]
pub(super) fn bench_locks(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    locks().iter().map(|info| described(py, info)).collect()
}

/// What is known of a lock; ValueError, naming what is accepted, for an unknown one.
#[pyfunction]
#[pyo3(signature = (lock, /))]
pub(super) fn bench_parse_lock<'py>(py: Python<'py>, lock: &str) -> PyResult<Bound<'py, PyDict>> {
    let lock = named(lock)?;
    let answer = described(py, lock.info())?;
    answer.set_item("id", lock.to_string())?;
    Ok(answer)
}

/// A random permutation of the cells for every round.
#[pyfunction]
#[pyo3(signature = (seed, cells, rounds, /))]
pub(super) fn bench_order(seed: u64, cells: usize, rounds: usize) -> Vec<Vec<usize>> {
    order(seed, cells, rounds)
}

/// Run one round of one cell on native threads, detached from the interpreter.
///
/// Signals are handled every 50 ms; one whose handler raises (KeyboardInterrupt) ends the round. ValueError for a round that
/// cannot be run as asked, RuntimeError when it broke off.
#[pyfunction]
#[pyo3(signature = (spec, /))]
pub(super) fn bench_round<'py>(py: Python<'py>, spec: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let spec = read(spec)?;
    spec.validate().map_err(refused)?;
    let result = attach::interruptible(py, |stop| run_round(&spec, stop))?.map_err(refused)?;
    written(py, result)
}

/// Check that a lock excludes: threads take it iterations times together. RuntimeError says what is wrong with it.
#[pyfunction]
#[pyo3(signature = (lock, threads, iterations, /))]
pub(super) fn bench_check(py: Python<'_>, lock: &str, threads: usize, iterations: u64) -> PyResult<()> {
    let lock = named(lock)?;
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(PyValueError::new_err(format!("threads must be 1 to {MAX_THREADS}, not {threads}")));
    }
    attach::blocking(py, || check_exclusion(&lock, threads, iterations)).map_err(PyRuntimeError::new_err)
}

fn named(lock: &str) -> PyResult<LockSpec> {
    parse_lock(lock).map_err(PyValueError::new_err)
}

fn refused(error: BenchError) -> PyErr {
    match error {
        BenchError::BadSpec(message) => PyValueError::new_err(message),
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

fn described<'py>(py: Python<'py>, info: &LockInfo) -> PyResult<Bound<'py, PyDict>> {
    let answer = PyDict::new(py);
    answer.set_item("pattern", info.pattern)?;
    answer.set_item("family", info.family)?;
    answer.set_item("fair", info.fair)?;
    answer.set_item("spins", info.spins)?;
    answer.set_item("parameter", info.parameter)?;
    answer.set_item("available", info.available)?;
    answer.set_item("try_lock", info.try_lock)?;
    answer.set_item("timed", info.timed)?;
    answer.set_item("about", info.about)?;
    Ok(answer)
}

const FIELDS: [&str; 14] = [
    "preset",
    "lock",
    "threads",
    "hold_ns",
    "think_ns",
    "seconds",
    "iterations",
    "lock_count",
    "cpus",
    "mode",
    "seed",
    "cap",
    "emulated_cpus",
    "line",
];

const COUNT: &str = "a whole number from 0 on";

/// A round from its dict. `preset` and `lock` must be there, other fields have the defaults of [`RoundSpec::new`].
fn read(given: &Bound<'_, PyDict>) -> PyResult<RoundSpec> {
    for key in given.keys() {
        let known = key.cast::<PyString>().is_ok_and(|key| FIELDS.iter().any(|field| key == field));
        if !known {
            return Err(PyValueError::new_err(format!("a round has no {}; it has: {}", key.repr()?, FIELDS.join(", "))));
        }
    }
    let preset: String = field(given, "preset", "a name")?.ok_or_else(|| lacks("preset"))?;
    let lock: String = field(given, "lock", "a name")?.ok_or_else(|| lacks("lock"))?;
    let mut spec = RoundSpec::new(preset.parse::<Preset>().map_err(refused)?, named(&lock)?);
    if let Some(mode) = field::<String>(given, "mode", "a name")? {
        spec.mode = mode.parse::<Mode>().map_err(refused)?;
    }
    set(&mut spec.threads, given, "threads", COUNT)?;
    set(&mut spec.hold_ns, given, "hold_ns", COUNT)?;
    set(&mut spec.think_ns, given, "think_ns", COUNT)?;
    set(&mut spec.seconds, given, "seconds", "a number")?;
    set(&mut spec.lock_count, given, "lock_count", COUNT)?;
    set(&mut spec.cpus, given, "cpus", "a list of CPU numbers")?;
    set(&mut spec.seed, given, "seed", COUNT)?;
    set(&mut spec.line, given, "line", COUNT)?;
    spec.iterations = field(given, "iterations", COUNT)?;
    spec.cap = field(given, "cap", COUNT)?;
    spec.emulated_cpus = field(given, "emulated_cpus", COUNT)?;
    Ok(spec)
}

fn lacks(field: &str) -> PyErr {
    PyValueError::new_err(format!("a round needs '{field}'"))
}

/// The value of a key; `None` if it is missing or `None`.
fn field<'py, T>(given: &Bound<'py, PyDict>, key: &str, accepted: &str) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    let Some(value) = given.get_item(key)?.filter(|value| !value.is_none()) else { return Ok(None) };
    if let Ok(read) = value.extract() {
        return Ok(Some(read));
    }
    let message = format!("{key} must be {accepted}, not {}", value.repr()?);
    // A number out of range is a bad value, anything else a bad type.
    Err(if value.is_instance_of::<PyInt>() { PyValueError::new_err(message) } else { PyTypeError::new_err(message) })
}

fn set<'py, T>(place: &mut T, given: &Bound<'py, PyDict>, key: &str, accepted: &str) -> PyResult<()>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    if let Some(value) = field(given, key, accepted)? {
        *place = value;
    }
    Ok(())
}

/// A result as its dict.
fn written(py: Python<'_>, result: RoundResult) -> PyResult<Bound<'_, PyDict>> {
    let switches = match result.context_switches {
        None => None,
        Some(counted) => {
            let switches = PyDict::new(py);
            switches.set_item("voluntary", counted.voluntary)?;
            switches.set_item("involuntary", counted.involuntary)?;
            Some(switches)
        }
    };

    let answer = PyDict::new(py);
    answer.set_item("status", result.status.name())?;
    answer.set_item("why", result.why)?;
    answer.set_item("seconds", result.seconds)?;
    answer.set_item("acquisitions", result.acquisitions)?;
    answer.set_item("cpu_s", Some(result.cpu_s).filter(|times| !times.is_empty()))?;
    answer.set_item("process_cpu_s", result.process_cpu_s)?;
    answer.set_item("steal_s", result.steal_s)?;
    answer.set_item("context_switches", switches)?;
    answer.set_item("overtakes", result.overtakes)?;
    answer.set_item("overtakes_examined", result.overtakes_examined)?;
    answer.set_item("cycles", result.cycles)?;
    answer.set_item("cycles_unit", result.cycles_unit.name())?;

    let wait = result.wait.map(|waits| {
        let dict = PyDict::new(py);
        dict.set_item("histogram", waits.histogram)?;
        dict.set_item("max_ns", waits.max_ns)?;
        dict.set_item("sum_ns", waits.sum_ns)?;
        dict.set_item("count", waits.count)?;
        PyResult::Ok(dict)
    });
    answer.set_item("wait", wait.transpose()?)?;

    let run_length = result.run_length.map(|runs| {
        let dict = PyDict::new(py);
        dict.set_item("histogram", runs.histogram)?;
        dict.set_item("longest", runs.longest)?;
        dict.set_item("mean", runs.mean)?;
        dict.set_item("runs", runs.runs)?;
        PyResult::Ok(dict)
    });
    answer.set_item("run_length", run_length.transpose()?)?;

    answer.set_item("monopoly_ns", result.monopoly_ns)?;
    answer.set_item("windows", result.windows)?;

    let pair = result.pair_ns.map(|pair| {
        let dict = PyDict::new(py);
        dict.set_item("net", pair.net)?;
        dict.set_item("gross", pair.gross)?;
        dict.set_item("loop", pair.loop_ns)?;
        PyResult::Ok(dict)
    });
    answer.set_item("pair_ns", pair.transpose()?)?;

    let extra = PyDict::new(py);
    for (name, figure) in result.extra {
        match figure {
            Extra::Number(number) => extra.set_item(name, number)?,
            Extra::List(series) => extra.set_item(name, series)?,
        }
    }
    answer.set_item("extra", extra)?;
    Ok(answer)
}
