#!/usr/bin/env bash
# `make test-python`: builds the wheel, installs it beside the test tools and tests that, not the source tree.
# Options go to pytest.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
start=$SECONDS

need_build_tools
build_wheel "$VENV" "$ROOT/dist"
install_wheel "$VENV" "$WHEEL"

check_installed "$VENV/bin/python"
# From a folder that has no `ticketlock` in it. The stubs are held to the installed modules by tests/test_stubs.py.
outside=$(mktemp -d)
trap 'rm -rf -- "$outside"' EXIT
cd -- "$outside"
run_pytest "$VENV/bin/python" "$ROOT/tests" "$@"
done_in test-python "$start"
