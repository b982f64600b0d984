#!/usr/bin/env bash
# inputs: Cargo.toml Cargo.lock pyproject.toml rust python benches
# minutes: 15
# Runs every benchmark once and briefly, so that they cannot rot. Looks at no time.
. "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"
need_build_tools
build_wheel "$VENV" "$ROOT/dist"
install_wheel "$VENV" "$WHEEL"
cd -- "$ROOT"

# Criterion's test mode runs each benchmark function once.
CARGO_PROFILE_BENCH_LTO=off CARGO_PROFILE_BENCH_CODEGEN_UNITS=16 \
  run cargo bench --locked --package ticketlock-bench --benches -- --test

outside=$(mktemp -d)
trap 'rm -rf -- "$outside"' EXIT
cd -- "$outside"
run_pytest "$VENV/bin/python" "$ROOT/benches" \
  --benchmark-min-rounds=1 --benchmark-max-time=0.05 --benchmark-warmup=off
