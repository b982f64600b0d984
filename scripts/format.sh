#!/usr/bin/env bash
# `make format`: what `make lint` would ask for.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
find_python || true
[ -z "${PYTHON:-}" ] || need_venv
need_cargo
stop_if_missing
test_venv
cd -- "$ROOT"
run cargo fmt --all
run "$VENV/bin/ruff" check --fix .
run "$VENV/bin/ruff" format --exclude '*.md' .
