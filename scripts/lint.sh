#!/usr/bin/env bash
# `make lint`: everything that can be said about the sources without running them. Changes no file.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
start=$SECONDS

need_build_tools
use_python_for_cargo
cd -- "$ROOT"

run cargo fmt --all --check
run cargo clippy --locked --workspace --all-targets -- -D warnings
export RUSTDOCFLAGS="-D warnings"
run cargo doc --locked --workspace --exclude ticketlock-python --no-deps --quiet
# The binding has no public Rust items: its front page points into private modules, for those who read the source.
RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" \
  run cargo doc --locked --package ticketlock-python --no-deps --quiet
run "$VENV/bin/ruff" check .
# Examples in documents align their comments.
run "$VENV/bin/ruff" format --check --exclude '*.md' .
run "$VENV/bin/mypy"
# The figures in README.md are those of the kept documents.
run "$VENV/bin/python" scripts/readme_figures.py --check
# All atomics go through the shim of their crate, which loom and shuttle replace.
if grep -rnE '\b(core|std)::sync::(atomic|\{.*atomic)' rust/*/src --include='*.rs' | grep -v '/sync\.rs:'; then
  die "atomics are imported outside a crate's sync.rs"
fi
# CI has shellcheck; without it the scripts are only parsed.
if have shellcheck; then
  run shellcheck scripts/*.sh scripts/stages/*.sh .ci/run
else
  for script in scripts/*.sh scripts/stages/*.sh .ci/run; do bash -n "$script"; done
fi
done_in lint "$start"
