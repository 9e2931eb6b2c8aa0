# SPDX-License-Identifier: Apache-2.0
#
# Sourced first by the scripts in tests/cmd and tests/mount:
#
#	. "$TOP/tests/common.sh"
#
# A script runs by bash -eu -o pipefail (tests/run-scripts, also by hand:
# tests/run-scripts tests/mount/x.sh) in an empty folder of its own, with
#   TOP      the source tree          TMP      that folder
#   MNT      an empty mount point     UNSHARD  the command, also in $PATH
#   HELPERS  programs from tests/mount/*.c
#   PYTHON   a Python with NumPy, or empty
# What it leaves mounted or running fails it, and is cleaned up.

die() {
	echo "FAILED: $*" >&2
	exit 1
}

# Counted, and printed with the reason.
skip() {
	echo "$*"
	exit 77
}

requires() { # PROGRAM...
	local p
	for p; do
		command -v "$p" >/dev/null || skip "needs $p"
	done
}

requires_python() {
	[ -n "$PYTHON" ] || skip "needs Python with NumPy"
}

requires_root() {
	[ "$(id -u)" = 0 ] || skip "needs root"
}

# mount_at SRC [ARGS...]: on $MNT, unmounted at the end of the script.
mount_at() {
	local src=$1
	shift
	at_end unmount
	"$UNSHARD" mount "$@" "$src" "$MNT"
	mountpoint -q "$MNT" || die "mount returned before there was one"
}

unmount() {
	! mountpoint -q "$MNT" || "$UNSHARD" umount "$MNT" ||
		umount -l "$MNT" 2>/dev/null || fusermount3 -uz "$MNT"
}

# at_end COMMAND...: run when the script ends, last given first.
at_end_list=
at_end() {
	at_end_list="$* ; $at_end_list"
	trap 'eval "$at_end_list"' EXIT
}

# expect CODE COMMAND...: it ends with that exit code; its output in
# $TMP/out and $TMP/err, and one line of stderr where CODE is not 0.
expect() {
	local want=$1 got=0
	shift
	"$@" >"$TMP/out" 2>"$TMP/err" || got=$?
	[ $got = "$want" ] || {
		head -n 20 "$TMP/out" "$TMP/err" >&2
		die "exit $got, not $want: $*"
	}
	[ "$want" = 0 ] || [ "$(wc -l <"$TMP/err")" = 1 ] || {
		cat "$TMP/err" >&2
		die "not one line on stderr: $*"
	}
}

# has PATTERN FILE: an extended regular expression that some line matches.
has() {
	grep -Eq -e "$1" "$2" || {
		head -n 20 "$2" >&2
		die "no line of $2 matches $1"
	}
}

same() { # FILE FILE
	cmp "$1" "$2" || die "$1 and $2 differ"
}

# slice FILE OFF LEN: those bytes to stdout.
slice() {
	tail -c +$(($2 + 1)) "$1" | head -c "$3"
}

# as_user COMMAND...: as an ordinary user (nobody), with a copy of the command
# that nobody can reach as $UNSHARD, and $TMP theirs.  Where /dev/fuse is for
# root only, all of it in a mount namespace with a node for everybody.
as_user() {
	requires_root
	requires setpriv unshare
	local drop="setpriv --reuid 65534 --regid 65534 --clear-groups"
	local own=0
	[ -z "${SAN-}" ] || skip "the sanitizers' build is not for other users"
	[ "$(stat -c %a /dev/fuse)" = 666 ] || own=1
	mkdir -p "$TMP/bin" "$TMP/dev"
	[ -e "$TMP/bin/unshard" ] || cp "$UNSHARD" "$TMP/bin/unshard"
	chown 65534:65534 "$TMP" "$MNT"
	UNSHARD=$TMP/bin/unshard PATH=$TMP/bin:$PATH HOME=$TMP \
		unshare -m sh -c '
		[ "$1" = 0 ] || {
			mount -t tmpfs -o mode=755 none "$TMP/dev" &&
			mknod -m 666 "$TMP/dev/fuse" c 10 229 &&
			mount --bind "$TMP/dev/fuse" /dev/fuse
		} || exit 99
		shift; exec "$@"' sh "$own" $drop "$@"
}
