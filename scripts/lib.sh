# Shared by the scripts of this folder: where things live, how to say things, how to find the tools.
# Sourced, never run. Keeps to what bash 3.2 (macOS) understands and to tools that every Unix has.
# shellcheck shell=bash
set -euo pipefail

ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
# Interpreters, Debian root, tool environments and stage records; .ci/run also puts the cargo target folder here.
# shellcheck disable=SC2034 # used by the scripts that source this
CACHE=${TICKETLOCK_CACHE:-${HOME:-/tmp}/.cache/ticketlock}
# Virtual environments of the tests. `.venv` in the checkout is the reader's own, for `make bench`.
VENVS=${TICKETLOCK_VENVS:-$ROOT/target/venvs}
# Exit code of a stage that could not run here, as automake has it; the reason goes to $STAGE_NOTE.
readonly SKIPPED=77
# The oldest Rust and Python that build and run this (Cargo.toml rust-version, pyproject.toml requires-python).
readonly MIN_RUST_MINOR=85
readonly MIN_PYTHON_MINOR=11
# What is under test is the installed wheel: nothing may shadow it.
unset PYTHONPATH PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '%s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}
have() { command -v -- "$1" >/dev/null 2>&1; }

# Runs a command after showing it, quoted so that it can be pasted.
run() {
  {
    printf '+'
    printf ' %q' "$@"
    printf '\n'
  } >&2
  "$@"
}

# Ends a stage that cannot run on this machine. What is skipped, and why, is repeated in the last lines of the run.
skip() {
  say "skipped: $*"
  [ -z "${STAGE_NOTE:-}" ] || printf '%s\n' "$*" >"$STAGE_NOTE"
  exit "$SKIPPED"
}

# `done_in NAME SECONDS_AT_START`: the closing line of a part.
done_in() { say "$1: ok in $((SECONDS - $2)) s"; }

# --- what is missing, named with the command that installs it -------------------------------------------------------

MISSING=""
missing() { MISSING="$MISSING
  $1
      $2"; }
# Called once everything has been looked for, so that one run names all.
stop_if_missing() {
  [ -n "$MISSING" ] || return 0
  say "This machine lacks something that the build needs:$MISSING"
  exit 1
}

# `install_command DEBIAN FEDORA ARCH ALPINE HOMEBREW`: for the package manager that is here.
install_command() {
  local sudo="sudo "
  [ "$(id -u)" -ne 0 ] || sudo=""
  if have apt-get; then
    echo "${sudo}apt-get install $1"
  elif have dnf; then
    echo "${sudo}dnf install $2"
  elif have pacman; then
    echo "${sudo}pacman -S $3"
  elif have apk; then
    echo "${sudo}apk add $4"
  elif have brew; then
    echo "brew install $5"
  else
    echo "install $1 with this system's package manager"
  fi
}

# --- Python ---------------------------------------------------------------------------------------------------------

# A version manager's shim may be on PATH and yet have nothing behind it: only an answer counts.
python_version() { "$1" -I -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }
python_fits() {
  "$1" -I -c "import sys; sys.exit(sys.implementation.name != 'cpython' or sys.version_info < (3, $MIN_PYTHON_MINOR))" >/dev/null 2>&1
}

# Sets PYTHON: the caller's PYTHON, else the newest python3.N that answers, else python3 if it is new enough.
find_python() {
  local name seen=""
  if [ -n "${PYTHON:-}" ]; then
    if python_fits "$PYTHON"; then return 0; fi
    missing "Python 3.$MIN_PYTHON_MINOR or newer (PYTHON=$PYTHON is $(python_version "$PYTHON" || echo 'not a working CPython'))" \
      "PYTHON=/path/to/python3.$MIN_PYTHON_MINOR make ..., or leave PYTHON unset to have one looked for"
    return 1
  fi
  for name in python3.15 python3.14 python3.13 python3.12 python3.11 python3; do
    if have "$name"; then
      if python_fits "$name"; then
        PYTHON=$("$name" -I -c 'import sys; print(sys.executable)')
        return 0
      fi
      seen="$seen$name is $(python_version "$name" || echo 'not working'), "
    fi
  done
  missing "Python 3.$MIN_PYTHON_MINOR or newer (${seen:-no python3 on PATH, }CPython)" \
    "$(install_command python3 python3 python python3 python@3.13)   (or, if that is older: uv python install 3.13)"
  return 1
}

# Can PYTHON make a virtual environment that has pip? Debian splits this off its python3 package.
can_make_venv() { "$PYTHON" -I -c 'import venv, ensurepip' >/dev/null 2>&1; }
has_pip() { "$1" -m pip --version >/dev/null 2>&1; }

need_venv() {
  if can_make_venv || have uv; then return 0; fi
  # `python -m pip --python VENV` fills an environment made without pip; both parts may be there without ensurepip.
  if "$PYTHON" -I -c 'import venv' >/dev/null 2>&1 && has_pip "$PYTHON"; then return 0; fi
  local version
  version=$("$PYTHON" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  if [ "$PYTHON" = /usr/bin/python3 ]; then version=3; fi
  missing "python3-venv ($PYTHON cannot make a virtual environment: no ensurepip, no pip, and uv is not installed)" \
    "$(install_command "python$version-venv" python3-pip python python3 "python@$version")"
}

# Makes the environment $1 for PYTHON, with pip inside; keeps it where it still fits.
make_venv() {
  local dir=$1 wanted
  wanted=$("$PYTHON" -I -c 'import os, sys; print(os.path.realpath(sys.executable), sys.version)' | tr '\n' ' ')
  if [ -x "$dir/bin/python" ] && [ "$(cat "$dir/.made-by" 2>/dev/null)" = "$wanted" ] && has_pip "$dir/bin/python"; then
    return 0
  fi
  if [ -e "$dir" ] && [ ! -e "$dir/.made-by" ]; then
    # Not made here: use it if it can be used, never delete it.
    if [ -x "$dir/bin/python" ] && python_fits "$dir/bin/python" && has_pip "$dir/bin/python"; then return 0; fi
    die "$dir exists and cannot be used (wanted: a Python 3.$MIN_PYTHON_MINOR or newer with pip); move it away and run this again"
  fi
  rm -rf -- "$dir"
  mkdir -p -- "$(dirname -- "$dir")"
  if can_make_venv; then
    run "$PYTHON" -m venv "$dir"
  elif have uv; then
    run uv venv --quiet --seed --no-project --python "$PYTHON" "$dir"
  else
    run "$PYTHON" -m venv --without-pip "$dir"
    run "$PYTHON" -m pip --python "$dir/bin/python" install --quiet pip
  fi
  printf '%s' "$wanted" >"$dir/.made-by"
}

pip_install() {
  local dir=$1
  shift
  run "$dir/bin/python" -m pip install --quiet "$@"
}

# --- Rust -----------------------------------------------------------------------------------------------------------

need_cc() {
  if have cc || have gcc || have clang; then return 0; fi
  local how
  if [ "$(uname -s)" = Darwin ]; then
    how="xcode-select --install"
  else
    how=$(install_command "gcc libc6-dev" gcc gcc "gcc musl-dev" gcc)
  fi
  missing "a C compiler (Rust links through cc)" "$how"
}

# Prints the version of the cargo on PATH; fails if there is none or rustup has no toolchain behind it.
cargo_version() { cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9][0-9.]*\).*/\1/p' | grep .; }
cargo_fits() {
  local version
  version=$(cargo_version) || return 1
  [ "$(echo "$version" | cut -d. -f1)" -gt 1 ] || [ "$(echo "$version" | cut -d. -f2)" -ge "$MIN_RUST_MINOR" ]
}
# rustup installs there and asks for a new shell before PATH knows it.
find_cargo() {
  if ! have cargo && [ -x "${CARGO_HOME:-${HOME:-}/.cargo}/bin/cargo" ]; then
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    export PATH
  fi
  cargo_fits
}
missing_cargo() {
  local state
  state=$(cargo_version) && state="cargo here is $state" || state="no working cargo on PATH"
  if have rustup; then
    missing "Rust 1.$MIN_RUST_MINOR or newer ($state)" "rustup default stable && rustup update stable"
  else
    missing "Rust 1.$MIN_RUST_MINOR or newer ($state)" \
      "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh   (or this system's cargo package, if it is new enough)"
  fi
}
need_cargo() { find_cargo || missing_cargo; }

# Where cargo is missing: what a PEP 517 build through maturin does, a private toolchain in the user's cache folder.
bootstrap_cargo() {
  local dir=$1 answer
  say "cargo is missing: asking puccinialin (maturin's bootstrap) for a toolchain of its own"
  pip_install "$dir" puccinialin || return 1
  answer=$dir/puccinialin.json
  run "$dir/bin/python" -m puccinialin --info-json "$answer" </dev/null || return 1
  eval "$("$dir/bin/python" -I - "$answer" <<'PY'
import json, shlex, sys
for name, value in json.load(open(sys.argv[1]))["env"].items():
    print(f"export {name}={shlex.quote(value)}")
PY
  )"
  cargo_fits
}

# --- the wheel ------------------------------------------------------------------------------------------------------

# Everything that the wheel is made of.
readonly WHEEL_INPUTS="Cargo.toml Cargo.lock pyproject.toml README.md LICENSE-MIT LICENSE-APACHE rust python"

# `digest PATH...`: one hash over names and contents, so that a rebuild depends on sources and not on clocks.
# The lists of paths hold no spaces of their own; the checkout's path may.
digest() { (cd -- "$ROOT" && "${PYTHON:-python3}" -I scripts/digest.py "$@"); }

maturin_requirement() { sed -n 's/^requires *= *\[ *"\(maturin[^"]*\)".*/\1/p' "$ROOT/pyproject.toml"; }

# `build_wheel VENV OUT`: builds the release wheel with VENV's maturin for VENV's Python into OUT unless OUT already
# holds the one of these sources; sets WHEEL.
build_wheel() {
  local dir=$1 out=$2 stamp now built
  mkdir -p -- "$out"
  stamp=$out/.wheel-stamp
  # shellcheck disable=SC2086 # a list of words
  now="$(digest $WHEEL_INPUTS) $(rustc --version) $("$dir/bin/python" -I -c 'import sysconfig; print(sysconfig.get_config_var("SOABI"))')"
  if [ -e "$stamp" ] && [ "$(sed 1q "$stamp")" = "$now" ] && [ -e "$(sed -n 2p "$stamp")" ]; then
    WHEEL=$(sed -n 2p "$stamp")
    say "wheel is up to date: $WHEEL"
    return 0
  fi
  rm -rf -- "$out/.new" "$stamp"
  (cd -- "$ROOT" && run "$dir/bin/maturin" build --release --locked --interpreter "$dir/bin/python" --out "$out/.new")
  built=$(ls "$out/.new")
  rm -f -- "$out"/ticketlock-*.whl
  mv -- "$out/.new/$built" "$out/$built"
  rmdir -- "$out/.new"
  WHEEL=$out/$built
  printf '%s\n%s\n' "$now" "$WHEEL" >"$stamp"
}

# `install_wheel VENV WHEEL`: the wheel itself always anew, since its version number says nothing about its contents.
install_wheel() {
  local dir=$1 wheel=$2 now
  now=$(cksum <"$wheel")
  if [ "$(cat "$dir/.wheel-installed" 2>/dev/null)" = "$now" ]; then return 0; fi
  rm -f -- "$dir/.wheel-installed"
  pip_install "$dir" --force-reinstall --no-deps "$wheel"
  pip_install "$dir" "$wheel" rich
  printf '%s' "$now" >"$dir/.wheel-installed"
}

# `test_venv`: makes the environment of the tests (tools of pyproject.toml's group `dev`); sets VENV.
test_venv() {
  VENV=$VENVS/test
  make_venv "$VENV"
  local now
  now=$(digest pyproject.toml)
  if [ "$(cat "$VENV/.tools" 2>/dev/null)" = "$now" ]; then return 0; fi
  pip_install "$VENV" --upgrade 'pip>=25.1'
  (cd -- "$ROOT" && pip_install "$VENV" --group dev)
  printf '%s' "$now" >"$VENV/.tools"
}

# What most parts begin with: everything that building and testing the wheel takes, or one list of what is missing.
need_build_tools() {
  find_python || true
  need_cc
  [ -z "${PYTHON:-}" ] || need_venv
  need_cargo
  stop_if_missing
  test_venv
}

# Cargo builds the binding for this interpreter, whatever python3 on PATH is.
use_python_for_cargo() { export PYO3_PYTHON="$VENV/bin/python"; }

# --- tests ----------------------------------------------------------------------------------------------------------

# Says which build is under test, and fails if it is the source tree.
check_installed() {
  (cd / && "$1" -I - "$ROOT" <<'PY'
import pathlib, sys
import ticketlock
place, root = pathlib.Path(ticketlock.__file__).resolve(), pathlib.Path(sys.argv[1]).resolve()
if place.is_relative_to(root / "python"):
    sys.exit(f"error: {place} is the source tree, not an installed wheel")
print(f"under test: ticketlock {ticketlock.__version__} at {place.parent}, Python {sys.version}")
PY
  )
}

# CPython's own tests, which are run on our locks. Without them their tests are skipped, unless TICKETLOCK_TEST_PACKAGE is
# `required`. Debian packages them apart from its interpreter.
has_test_package() { "$1" -I -c 'import test.lock_tests' >/dev/null 2>&1; }
debian_test_package() { "$1" -I -c 'import sys; print("libpython%d.%d-testsuite" % sys.version_info[:2])'; }

# `run_pytest PYTHON TESTS...`: with the project's settings, wherever the current folder is. A test that hangs dumps
# all stacks and fails; a run that collects nothing fails (pytest's exit code 5).
run_pytest() {
  local python=$1
  shift
  run "$python" -m pytest -c "$ROOT/pyproject.toml" --rootdir "$ROOT" -p no:cacheprovider "$@"
}

# Tests of the viewer, which runs in an interpreter of its own choice, take minutes: they run on the machine's Python and on the
# newest one, and these options leave them out elsewhere. `$1` is the folder of the tests.
without_viewer() {
  local name
  for name in monitor_terminal monitor_terminal_real monitor_views monitor_state monitor_model monitor_exports; do
    printf -- '--ignore=%s/test_%s.py\n' "$1" "$name"
  done
}

# --- Debian: interpreters that this machine does not have ---------------------------------------------------------

# Installs what is missing of the named packages; fails where only root could.
apt_install() {
  local name lacking=""
  for name in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || lacking="$lacking $name"
  done
  [ -n "$lacking" ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    say "not installed, and only root could install:$lacking"
    return 1
  fi
  run apt-get -qq update </dev/null
  # shellcheck disable=SC2086 # a list of words
  DEBIAN_FRONTEND=noninteractive run apt-get -qq install -y --no-install-recommends $lacking </dev/null >&2
}

# Prints the mirror that this machine itself uses; fails where it is not a Debian.
debian_mirror() {
  local codename
  [ -r /etc/os-release ] || return 1
  codename=$(. /etc/os-release && [ "${ID:-}" = debian ] && echo "${VERSION_CODENAME:-}") || return 1
  [ -n "$codename" ] || return 1
  {
    # Both forms of source lists, as lines `URI suite suite ...`.
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
      sed -n 's/^deb[ \t]*\(\[[^]]*\]\)\{0,1\}[ \t]*//p'
    for file in /etc/apt/sources.list.d/*.sources; do
      [ ! -r "$file" ] || awk 'BEGIN { RS = ""; FS = "\n" } !/(^|\n)Enabled: *no/ {
        uri = suites = ""
        for (i = 1; i <= NF; i++) {
          if ($i ~ /^URIs:/) { split($i, part, /[ \t]+/); uri = part[2] }
          if ($i ~ /^Suites:/) { suites = $i; sub(/^Suites:/, "", suites) }
        }
        if (uri != "") print uri, suites
      }' "$file"
    done
  } | awk -v suite="$codename" '{ for (i = 2; i <= NF; i++) if ($i == suite) { print $1; exit } }' | grep .
}

readonly DEBIAN_KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# `private_apt DIR LINE`: an apt of its own for one source line (`deb-src SUITE COMPONENTS`), which leaves the
# machine's lists alone and needs no root; sets APT_CONF for `apt-get -c`. Fails if the mirror does not answer.
private_apt() {
  local dir=$1 kind=${2%% *} rest=${2#* } mirror
  mirror=$(debian_mirror) || {
    say "no Debian mirror is configured on this machine"
    return 1
  }
  mkdir -p -- "$dir/state/lists/partial" "$dir/cache/archives/partial"
  : >"$dir/status"
  printf '%s [signed-by=%s] %s %s\n' "$kind" "$DEBIAN_KEYRING" "$mirror" "$rest" >"$dir/sources.list"
  APT_CONF=$dir/apt.conf
  cat >"$APT_CONF" <<CONF
Dir::State "$dir/state";
Dir::State::status "$dir/status";
Dir::Cache "$dir/cache";
Dir::Etc::sourcelist "$dir/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "root";
CONF
  run apt-get -c "$APT_CONF" -qq -o APT::Update::Error-Mode=any update </dev/null
}

# Copies the checkout's own files (not what git ignores) to an empty folder.
copy_checkout() {
  rm -rf -- "$1"
  mkdir -p -- "$1"
  (
    cd -- "$ROOT"
    git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
      [ ! -e "$file" ] || printf '%s\0' "$file"
    done | tar --null --files-from=- -cf -
  ) | tar -C "$1" -xf -
}
