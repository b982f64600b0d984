#!/usr/bin/env bash
# `make wheel`: the release wheel, in dist/.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
need_build_tools
build_wheel "$VENV" "$ROOT/dist"
