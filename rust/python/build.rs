//! Passes on what only the build knows: the interpreter's `cfg`s, and the facts that `ticketlock info` prints.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    // Py_3_N, Py_LIMITED_API, Py_GIL_DISABLED: the same that PyO3 itself was built with.
    pyo3_build_config::use_pyo3_cfgs();
    pyo3_build_config::add_extension_module_link_args();

    fact("TARGET", &env::var("TARGET").unwrap_or_default());
    fact("PROFILE", &env::var("PROFILE").unwrap_or_default());
    fact("RUSTC", &rustc_version().unwrap_or_else(|| "unknown".into()));
    fact("PYO3", &pyo3_version().unwrap_or_else(|| "unknown".into()));
    println!("cargo::rerun-if-changed=build.rs");
}

fn fact(name: &str, value: &str) {
    println!("cargo::rustc-env=TICKETLOCK_BUILD_{name}={value}");
}

/// As `rustc --version` prints it, without the date.
fn rustc_version() -> Option<String> {
    let output = Command::new(env::var_os("RUSTC")?).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.split_whitespace().nth(1)?.to_owned())
}

/// From the lock file that this build resolved, in this folder or above it.
fn pyo3_version() -> Option<String> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    let lock = manifest.ancestors().map(|folder| folder.join("Cargo.lock")).find(|path| path.is_file())?;
    println!("cargo::rerun-if-changed={}", lock.display());
    locked_version(&lock, "pyo3")
}

fn locked_version(lock: &Path, package: &str) -> Option<String> {
    let text = fs::read_to_string(lock).ok()?;
    let name = format!("name = \"{package}\"");
    let mut lines = text.lines().skip_while(|line| *line != name).skip(1);
    lines.next()?.strip_prefix("version = \"")?.strip_suffix('"').map(str::to_owned)
}
