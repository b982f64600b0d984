#!/usr/bin/env bash
# `make test-rust`: unit, property, stress and documentation tests of the crates. Options go to cargo test.
# The binding has no Rust tests of its own: it is tested from Python, as the wheel that users install.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
start=$SECONDS

need_cc
need_cargo
stop_if_missing
cd -- "$ROOT"

run cargo test --locked --workspace --exclude ticketlock-python "$@"
done_in test-rust "$start"
