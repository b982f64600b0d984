#!/usr/bin/env bash
# `make bench`: from a fresh clone to a table of measured locks. Options are those of `ticketlock bench`.
# Makes .venv, builds the release wheel into dist/, installs it (a real install, not an editable one), measures.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

VENV=${VENV:-$ROOT/.venv}

have_python=yes
find_python || have_python=no
need_cc
if [ "$have_python" = yes ]; then need_venv; fi
# With a Python that can hold packages, a missing cargo can be fetched; otherwise it is named along with the rest.
have_cargo=yes
find_cargo || have_cargo=no
if [ "$have_cargo" = no ] && [ -n "$MISSING" ]; then missing_cargo; fi
stop_if_missing

make_venv "$VENV"
if [ "$have_cargo" = no ] && ! bootstrap_cargo "$VENV"; then
  missing_cargo
  stop_if_missing
fi
if [ ! -x "$VENV/bin/maturin" ]; then pip_install "$VENV" "$(maturin_requirement)"; fi
build_wheel "$VENV" "$ROOT/dist"
install_wheel "$VENV" "$WHEEL"
run "$VENV/bin/ticketlock" bench "$@"
