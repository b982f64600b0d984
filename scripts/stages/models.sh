#!/usr/bin/env bash
# inputs: Cargo.toml Cargo.lock rust/core
# minutes: 25
# The model checkers run the same lock code with their own atomics behind `core::sync`: loom explores every
# interleaving of small scenes, shuttle random schedules of larger ones. Then what no model has: strikes, machine code.
. "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"
need_cc
need_cargo
stop_if_missing
cd -- "$ROOT"

# Fast code, but with debug assertions and overflow checks; link-time optimisation would only cost build time.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=line-tables-only
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true
# loom ends every execution with a panic of its own: symbolised backtraces would take minutes.
export RUST_BACKTRACE=0
base=${CARGO_TARGET_DIR:-$ROOT/target}

for checker in loom shuttle; do
  # A folder each: the flags are part of every dependency's fingerprint, and changing them would rebuild all.
  CARGO_TARGET_DIR="$base/$checker" RUSTFLAGS="--cfg ticketlock_$checker" \
    run cargo test --locked --release --package ticketlock --test "${checker}_*" -- --nocapture 2>&1 |
    # Those panics say nothing: two lines for each of thousands of executions.
    sed -e '/^$/d' -e '/^Box<dyn Any>$/d' -e '/panicked at .*\/generator-/d'
done

# The default lock, struck at every named step of its protocol by delays, signals and forks.
CARGO_TARGET_DIR="$base/faults" RUSTFLAGS="--cfg ticketlock_faults" \
  run cargo test --locked --release --package ticketlock --test faults_lock -- --nocapture

# The large scenes of the x86-TSO explorer; `make test` runs the small ones.
CARGO_TARGET_DIR="$base/plain" run cargo test --locked --release --package ticketlock --test tso_lock -- --ignored --nocapture

# The reader of segments against hostile bytes; `make test` does so for two seconds.
CARGO_TARGET_DIR="$base/plain" TICKETLOCK_FUZZ_SECONDS=60 TICKETLOCK_FUZZ_INPUTS=1000000 \
  run cargo test --locked --release --package ticketlock --test fuzz_reader -- --nocapture

# The machine code of an uncontended pair, as users build it.
CARGO_TARGET_DIR="$base/plain" CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=false \
  run cargo test --locked --release --package ticketlock --test one_locked_instruction -- --nocapture
