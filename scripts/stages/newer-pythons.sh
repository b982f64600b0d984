#!/usr/bin/env bash
# inputs: Cargo.toml Cargo.lock pyproject.toml rust python tests docs examples
# minutes: 40
# The abi3 wheel and the Python suite on CPython 3.14 and 3.15, and the abi3t wheel on 3.15. The interpreters come as
# packages of Debian's unstable suite; their libc is newer than a stable Debian's, so they are run in a root of their own.
. "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"
readonly VERSIONS="3.14 3.15"

[ "$(id -u)" -eq 0 ] || skip "making and entering a Debian root needs root"
need_build_tools
apt_install debootstrap debian-archive-keyring || skip "debootstrap could not be installed"
build_wheel "$VENV" "$ROOT/dist"

# The number is the recipe's: raise it when the list of packages changes.
debian=$CACHE/debian-unstable-1
if [ ! -e "$debian/.complete" ]; then
  mirror=$(debian_mirror) || skip "no Debian mirror is configured on this machine"
  rm -rf -- "$debian"
  packages=
  for version in $VERSIONS; do packages="$packages,python$version-venv,libpython$version-testsuite"; done
  run debootstrap --variant=minbase --keyring="$DEBIAN_KEYRING" --include="${packages#,}" unstable "$debian" "$mirror" >&2 || {
    tail -n 20 "$debian/debootstrap/debootstrap.log" >&2 || true
    skip "the Debian mirror did not give a root of the unstable suite with Python $VERSIONS"
  }
  rm -rf -- "$debian"/var/cache/apt/archives/*.deb
  touch "$debian/.complete"
fi

# Runs a command in the root, in a mount namespace that takes its mounts along when it ends.
inside() {
  # shellcheck disable=SC2016 # expanded by the inner shell
  unshare --mount bash -ec '
    root=$1
    shift
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TICKETLOCK_TEST_PACKAGE=required "$@"
  ' inside "$debian" "$@"
}
inside true || skip "this machine does not let root mount inside a namespace"

copy_checkout "$debian/checkout"
rm -rf -- "$debian/wheels"
mkdir -- "$debian/wheels"
cp -- "$WHEEL" "$debian/wheels"
for version in $VERSIONS; do
  # Downloaded out here, where pip knows its index; in there it has neither network settings nor certificates.
  (cd -- "$ROOT" && run "$VENV/bin/python" -m pip download --quiet --python-version "$version" --only-binary :all: \
    --dest "$debian/wheels" --group test "$WHEEL")
  inside rm -rf "/venv$version"
  run inside "python$version" -m venv "/venv$version"
  # shellcheck disable=SC2016 # expanded inside
  run inside sh -ec 'cd /checkout && "$1" -m pip install --quiet --no-index --find-links /wheels --group test ticketlock' \
    install "/venv$version/bin/python"
  run inside "/venv$version/bin/python" -I -c 'import sys, ticketlock; print("under test:", ticketlock.__file__, sys.version)'
  left_out=()
  [ "$version" = "${VERSIONS##* }" ] || mapfile -t left_out < <(without_viewer /checkout/tests)
  run inside "/venv$version/bin/python" -m pytest -c /checkout/pyproject.toml --rootdir /checkout -p no:cacheprovider \
    "${left_out[@]}" /checkout/tests
done

# Where a release has it, pip takes the wheel of the stable interface of 3.15 (abi3t) for the one of 3.11, with a GIL too.
# maturin asks the interpreter what it is, so it gets one that answers from inside the root.
asked=$debian/python3.15-inside
printf '#!/bin/sh\nexec chroot %q /usr/bin/env -i /usr/bin/python3.15 "$@"\n' "$debian" >"$asked"
chmod +x "$asked"
rm -rf -- "$debian/abi3t"
(cd -- "$ROOT" && run "$VENV/bin/maturin" build --release --locked --features pyo3/abi3t-py315 --interpreter "$asked" --out "$debian/abi3t")
# shellcheck disable=SC2016 # expanded inside
run inside sh -ec '"$1" -m pip install --quiet --no-index --no-deps --force-reinstall /abi3t/ticketlock-*-cp315-abi3.abi3t-*.whl' \
  install /venv3.15/bin/python
run inside /venv3.15/bin/python -m pytest -c /checkout/pyproject.toml --rootdir /checkout -p no:cacheprovider \
  /checkout/tests/test_ticketlock.py /checkout/tests/test_lab.py /checkout/tests/test_bench_native.py \
  /checkout/tests/test_cpython_lock_tests.py /checkout/tests/test_lock_reports.py /checkout/tests/test_lock_stress.py
