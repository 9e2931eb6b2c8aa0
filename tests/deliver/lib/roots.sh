# SPDX-License-Identifier: Apache-2.0
# Bare roots of Debian, as debootstrap makes them, and commands in them.  Sourced by
# the scripts above, which are run again in a mount namespace of their own: what is
# mounted into the roots is seen there alone, and ends with the script.
#
# The first root of each suite is kept in build/deliver/SUITE.tar.
set -eu
TOP=$(cd "$(dirname "$0")/../.." && pwd)
BASE=${B:-$TOP/build}/deliver
PATH=$PATH:/usr/sbin:/sbin

say() { echo "$(basename "$0"): $*" >&2; }
fail() { say "FAILED: $*"; exit 1; }
skip() { say "skipped: $*"; exit 77; }
. "$TOP/tests/lib/ended.sh"

[ "$(id -u)" = 0 ] || skip "needs root"
command -v debootstrap >/dev/null || skip "needs debootstrap"
if [ -z "${INSIDE-}" ]; then
	unshare -m true 2>/dev/null || skip "needs mount namespaces"
	INSIDE=1 exec unshare -m --propagation private bash "$0"
fi
WORK=$(mktemp -d)

# base SUITE: $BASE/SUITE.tar; 1, and a line: it cannot be had.
base() {
	[ ! -e "$BASE/$1.tar" ] || return 0
	mkdir -p "$BASE"
	if ! debootstrap --variant=minbase "$1" "$WORK/base-$1" >"$WORK/log" 2>&1; then
		say "debootstrap $1: $(tail -n 1 "$WORK/log")"
		return 1
	fi
	sed -i "p; s|/debian $1 |/debian-security $1-security |" \
		"$WORK/base-$1/etc/apt/sources.list"
	tar --numeric-owner -C "$WORK/base-$1" -cf "$BASE/$1.tar.new" .
	mv "$BASE/$1.tar.new" "$BASE/$1.tar"
}

bare() { # NAME [SUITE]: another root, with all updates
	mkdir "$WORK/$1"
	tar --numeric-owner -C "$WORK/$1" -xf "$BASE/${2-bookworm}.tar"
	mount -t proc proc "$WORK/$1/proc"
	mount --rbind /dev "$WORK/$1/dev"
	within "$1" "apt-get -q update && apt-get -q -y upgrade"
}

within() { # NAME COMMANDS
	say "$1: $2"
	chroot "$WORK/$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
		LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive TMPDIR=/tmp \
		http_proxy="${http_proxy-}" sh -ec "cd /root; $2" ||
		fail "$1: $2"
}
INSTALL="apt-get -q -y install --no-install-recommends"

deps() { # GROUP...: their packages
	awk -v groups=" $* " 'index(groups, " " $1 " ") && $3 != "mtab" { print $3 }' \
		"$TOP/packaging/deps.list" | sort -u | xargs
}
