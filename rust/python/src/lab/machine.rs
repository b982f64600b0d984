//! `machine()`: what decides how a lock behaves on this computer, and how this library was built.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use ticketlock::machine::{self as here, cpus, membarrier, pause};

use crate::attach;

/// What of the interpreter's interface this build uses.
const INTERFACE: &str = if cfg!(all(Py_LIMITED_API, Py_GIL_DISABLED)) {
    "abi3t"
} else if cfg!(Py_LIMITED_API) {
    "abi3"
} else if cfg!(Py_GIL_DISABLED) {
    "free-threaded"
} else {
    "version-specific"
};

/// Describe this machine and this build. The first call calibrates the pause (some 20 us) and asks the kernel for `membarrier`.
#[pyfunction]
pub(super) fn machine(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let (pause_ns, spins_per_unit, membarrier) =
        attach::blocking(py, || (pause::pause_ns(), pause::spins_per_unit(), membarrier::probe()));
    let seen = here::hypervisor();

    let hypervisor = PyDict::new(py);
    hypervisor.set_item("present", seen.present)?;
    hypervisor.set_item("vendor", seen.vendor.as_ref().map(ToString::to_string))?;
    hypervisor.set_item("signature", seen.signature.as_deref())?;
    hypervisor.set_item("source", seen.source.to_string())?;

    let cpu = PyDict::new(py);
    cpu.set_item("online", cpus::online())?;
    cpu.set_item("affinity", cpus::affinity().len())?;
    cpu.set_item("quota", cpus::quota())?;
    cpu.set_item("usable", here::usable_cpus())?;

    let build = PyDict::new(py);
    build.set_item("version", env!("CARGO_PKG_VERSION"))?;
    build.set_item("profile", env!("TICKETLOCK_BUILD_PROFILE"))?;
    build.set_item("target", env!("TICKETLOCK_BUILD_TARGET"))?;
    build.set_item("rustc", env!("TICKETLOCK_BUILD_RUSTC"))?;
    build.set_item("debug_assertions", cfg!(debug_assertions))?;
    build.set_item("features", [INTERFACE])?;
    build.set_item("pyo3", env!("TICKETLOCK_BUILD_PYO3"))?;

    let described = PyDict::new(py);
    described.set_item("hypervisor", hypervisor)?;
    described.set_item("delay_cap", here::delay_cap())?;
    described.set_item("pause_ns", pause_ns)?;
    described.set_item("spins_per_unit", spins_per_unit)?;
    // A guest cannot see whether its host turned them on.
    described.set_item("pause_loop_exits", "unknown")?;
    described.set_item("membarrier", membarrier.to_string())?;
    described.set_item("cpus", cpu)?;
    described.set_item("build", build)?;
    Ok(described)
}
