#!/usr/bin/env bash
# inputs: Cargo.toml Cargo.lock pyproject.toml README.md LICENSE-MIT LICENSE-APACHE rust python
# minutes: 10
# What `pip install --no-binary` would do: the wheel is built from the unpacked source distribution alone, with its
# lock file and without a network.
. "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"
need_build_tools

scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
cd -- "$ROOT"
run "$VENV/bin/maturin" sdist --out "$scratch"
tar -xzf "$scratch"/ticketlock-*.tar.gz -C "$scratch"
cd -- "$scratch"/ticketlock-*/
for file in Cargo.lock LICENSE-MIT LICENSE-APACHE README.md python/ticketlock/py.typed; do
  [ -e "$file" ] || die "the source distribution lacks $file"
done
# A target folder of its own: cargo goes by time stamps, those in the archive are old, and it would take the checkout's
# crates for these.
export CARGO_TARGET_DIR=$scratch/target
# Downloads what the lock file names; the build itself then may not.
run cargo fetch --locked
run "$VENV/bin/maturin" build --release --locked --offline --interpreter "$VENV/bin/python" --out "$scratch/wheel"

make_venv "$scratch/venv"
pip_install "$scratch/venv" "$scratch"/wheel/ticketlock-*.whl
check_installed "$scratch/venv/bin/python"
cd /
run "$scratch/venv/bin/ticketlock" info
