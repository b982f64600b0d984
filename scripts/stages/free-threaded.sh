#!/usr/bin/env bash
# inputs: Cargo.toml pyproject.toml ci rust python tests docs examples scripts/free-threaded-python.sh
# minutes: 40
# The Python suite on a free-threaded CPython 3.13, with the last PyO3 that builds for it (ci/Cargo-pyo3-0.28.lock).
. "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"
need_build_tools

free_threaded=$("$ROOT/scripts/free-threaded-python.sh")
venv=$VENVS/free-threaded
PYTHON=$free_threaded make_venv "$venv"
pip_install "$venv" --upgrade 'pip>=25.1'
# Of each tool the newest version that still has a wheel for this interpreter.
(cd -- "$ROOT" && pip_install "$venv" --only-binary :all: --group test)

# Another lock file means another PyO3, so the build happens in a copy; warnings are denied only on the newest.
target=${CARGO_TARGET_DIR:-$ROOT/target}/pyo3-0.28
copy=$target/checkout
copy_checkout "$copy"
cp -- "$ROOT/ci/Cargo-pyo3-0.28.lock" "$copy/Cargo.lock"
rm -rf -- "$target/wheel"
cd -- "$copy"
# A free-threaded interpreter has no stable interface before 3.15: the wheel is for this version alone.
CARGO_TARGET_DIR=$target run "$VENV/bin/maturin" build --release --locked --interpreter "$free_threaded" --out "$target/wheel"
pip_install "$venv" --force-reinstall --no-deps "$target"/wheel/ticketlock-*-cp313t-*.whl
pip_install "$venv" "$target"/wheel/ticketlock-*-cp313t-*.whl

check_installed "$venv/bin/python"
outside=$(mktemp -d)
trap 'rm -rf -- "$outside"' EXIT
cd -- "$outside"
# Nothing may tell the interpreter what to do with the GIL: an extension that has not declared itself turns it on.
unset PYTHON_GIL
run "$venv/bin/python" -W error - <<'PY'
import sys

assert not sys._is_gil_enabled(), "the GIL is on before the import"
import ticketlock
import ticketlock._lab

assert not sys._is_gil_enabled(), "importing ticketlock turned the GIL on"
print(f"the GIL stays off: Python {sys.version}")
PY
# The interpreter was built with CPython's own tests beside it.
mapfile -t left_out < <(without_viewer "$ROOT/tests")
TICKETLOCK_TEST_PACKAGE=required run_pytest "$venv/bin/python" "${left_out[@]}" "$ROOT/tests"
