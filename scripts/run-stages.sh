#!/usr/bin/env bash
# Runs stages one after the other, goes on after a failure, and closes with a table. `make test-all`, `.ci/run`.
#
# Usage: scripts/run-stages.sh [STAGE...]     stages are the scripts in scripts/stages; none named: all of them
#
# A stage says in its head what it reads (`# inputs: PATH...`) and how long it may take (`# minutes: N`). One whose
# inputs have not changed since it last passed on this machine is left out and says so; FORCE=1 runs it. Exit code 77
# means that the stage could not run here (a mirror's fault, no root): it counts as skipped. Anything else fails.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

STAGES=$ROOT/scripts/stages
mkdir -p -- "$CACHE/passed"
find_python || stop_if_missing
export PYTHON

field() { sed -n "s/^# $2: *//p" "$STAGES/$1.sh"; }

# What a pass is valid for: the stage's inputs, its own script, this machine's tools.
state_of() {
  local inputs
  inputs=$(field "$1" inputs)
  # shellcheck disable=SC2086 # a list of words
  echo "$(digest scripts/lib.sh "scripts/stages/$1.sh" $inputs) $(uname -m) $(rustc --version 2>/dev/null) $("$PYTHON" -VV | tr '\n' ' ')"
}

names=("$@")
if [ "${#names[@]}" -eq 0 ]; then
  for script in "$STAGES"/*.sh; do names+=("$(basename -- "$script" .sh)"); done
fi
for name in "${names[@]}"; do
  [ -e "$STAGES/$name.sh" ] || die "no stage '$name'; there are: $(cd -- "$STAGES" && echo *.sh | sed 's/\.sh//g')"
done

# What the caller ran before, as lines of the same table.
rows=${EARLIER_ROWS:-}
notes=""
failed=0
for name in "${names[@]}"; do
  start=$SECONDS
  state=$(state_of "$name")
  if [ -z "${FORCE:-}" ] && [ "$(cat "$CACHE/passed/$name" 2>/dev/null)" = "$state" ]; then
    result="unchanged since it last passed"
  else
    say "=== $name ==="
    STAGE_NOTE=$(mktemp)
    export STAGE_NOTE
    code=0
    timeout --kill-after=30 "$(field "$name" minutes)m" bash "$STAGES/$name.sh" </dev/null || code=$?
    case $code in
      0)
        result=passed
        printf '%s\n' "$state" >"$CACHE/passed/$name"
        ;;
      "$SKIPPED")
        result=skipped
        notes="$notes
skipped: $name: $(cat "$STAGE_NOTE")"
        ;;
      124 | 137) result="FAILED (over its $(field "$name" minutes) minutes)" failed=1 ;;
      *) result="FAILED (exit code $code)" failed=1 ;;
    esac
    rm -f -- "$STAGE_NOTE"
  fi
  rows="$rows$(printf '%-16s %6d s  %s' "$name" "$((SECONDS - start))" "$result")
"
done

printf '\n%s%s\n' "$rows" "$notes"
exit "$failed"
