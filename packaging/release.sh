#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# release.sh - all that a release is, of what is committed, into build/release/
#
# The same commit gives the same bytes wherever it lies, on the same packages of Debian.
# What the machine cannot make is said and left out: arm64 where its packages are not.
set -eu
cd "$(dirname "$0")/.."
export SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) LC_ALL=C.UTF-8 TZ=UTC
unset MAKEFLAGS MAKELEVEL MFLAGS B PREFIX DESTDIR CFLAGS LDFLAGS
umask 022
out=$PWD/build/release
src=$out/source
name=unshardfs-$VERSION
run() { make -s JOBS="${JOBS:-$(nproc)}" "$@" >>"$out/log" 2>&1 || { tail -n 20 "$out/log" >&2; exit 1; }; }

grep -q "^## $VERSION " CHANGELOG.md && grep -q "^unshardfs ($VERSION) " packaging/debian/changelog || {
	echo "release: CHANGELOG.md and packaging/debian/changelog: expected $VERSION, as in the Makefile" >&2
	exit 1
}
rm -rf "$out" && mkdir -p "$src"
git archive HEAD | tar -x -C "$src"
run dist
cp "build/dist/$name.tar.gz" "$out"
DEB_BUILD_OPTIONS=nocheck run deb
cp $(ls build/deb/*.deb | grep -v dbgsym) "$out"

cd "$src"
executable() { # FOLDER ARCHITECTURE OCI'S-NAME-OF-IT
	cp "$1/static/unshard" "$out/unshard-$VERSION-linux-$2"
	packaging/sbom.py "$VERSION" "$out/unshard-$VERSION-linux-$2" "$1/static/unshard.map" \
		>"$out/unshard-$VERSION-linux-$2.spdx.json"
	packaging/oci.sh "$1/static/unshard" "$3" "$out/$name-oci-$3.tar" >>"$out/log" 2>&1
}
run CFLAGS=-O2 static wheel rpm
executable build x86_64 amd64
cp build/wheel/*.whl build/rpm/*.rpm "$out"
if packaging/deps.sh arm64 >>"$out/log" 2>&1; then
	run CFLAGS=-O2 static-arm64
	executable build-arm64 aarch64 arm64
else
	echo "release: nothing for arm64: $(tail -n 1 "$out/log")" >&2
fi
cd "$out"
rm -rf source log
sha256sum -- * >SHA256SUMS
cat SHA256SUMS
echo "release: the maintainer's to add: tag v$VERSION, its signature, and an address in packaging/debian/control" >&2
