#!/usr/bin/env bash
# Builds a free-threaded CPython 3.13 from the source package of Debian 13 (trixie) and keeps it in the cache folder.
# Prints the path of the interpreter on stdout, everything else on stderr. Exit code 77: it cannot be had here.
# No distribution packages a free-threaded interpreter for the machines that this project is tested on.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# The number is the recipe's: raise it when the options below change.
prefix=$CACHE/python3.13t-1
python=$prefix/bin/python3.13t
if [ -x "$python" ]; then
  echo "$python"
  exit 0
fi

apt_install dpkg-dev gcc make pkg-config xz-utils debian-archive-keyring \
  libssl-dev zlib1g-dev libffi-dev libbz2-dev liblzma-dev libsqlite3-dev >&2 ||
  skip "the packages that building CPython 3.13 needs are not there and could not be installed"

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
private_apt "$work/apt" "deb-src trixie main" >&2 || skip "the Debian mirror did not give the lists of trixie"
cd -- "$work"
run apt-get -c "$APT_CONF" -qq source --download-only python3.13 </dev/null >&2 ||
  skip "the Debian mirror did not give the source package of python3.13"
# As upstream wrote it: Debian's patches move site-packages to places that a free-threaded build does not look in.
run dpkg-source --extract --skip-patches python3.13_*.dsc "$work/source" >&2

mkdir build
cd build
# Plain -O2: a profile-guided build takes ten times as long, and what is compared runs on the same interpreter.
run ../source/configure -q --prefix="$prefix" --disable-gil --with-ensurepip=no --disable-test-modules \
  OPT='-O2 -g0 -DNDEBUG -Wall' >configure.log 2>&1 || {
  tail -n 40 configure.log >&2
  die "configuring CPython failed"
}
run make -s -j "$(nproc)" >make.log 2>&1 || {
  tail -n 40 make.log >&2
  die "building CPython failed"
}
run make -s install DESTDIR="$work/install" >install.log 2>&1 || {
  tail -n 40 install.log >&2
  die "installing CPython failed"
}
# The test modules written in C are left out for their build time; those in Python hold the lock contract's own tests.
cp -R ../source/Lib/test "$work/install$prefix/lib/python3.13t/"
# The interpreter appears whole or not at all.
mkdir -p -- "$(dirname -- "$prefix")"
rm -rf -- "$prefix"
mv -- "$work/install$prefix" "$prefix"
"$python" -I -c 'import sys, ssl, zlib, ctypes, sqlite3; assert not sys._is_gil_enabled()' >&2
echo "$python"
