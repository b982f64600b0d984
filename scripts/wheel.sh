#!/usr/bin/env bash
# `make wheel`: the release wheel, in dist/.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
find_python || true
need_cc
[ -z "${PYTHON:-}" ] || need_venv
need_cargo
stop_if_missing
test_venv
build_wheel "$VENV" "$ROOT/dist"
