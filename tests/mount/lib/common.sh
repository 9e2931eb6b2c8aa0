# SPDX-License-Identifier: Apache-2.0
# common.sh - what the tests against real mounts share; source it first
#
#	. "$(dirname "$0")/lib/common.sh"
#	requires cmp
#	make_safetensors "$WORK/ckpt/model.safetensors"
#	mount_ckpt "$WORK/ckpt"
#	same "$MNT/tensors/a" "$WORK/a.bin"
#	done_ok
#
# Every test has its own $WORK and $MNT, which are gone afterwards, and at
# most $LIMIT seconds (60; times $UNSHARD_SLOW, which run-scripts sets).  Exit
# 0: passed, 77: skipped, else failed.  It runs in a private mount namespace
# where that is allowed, so that a left-over mount ends with it.  $UNSHARD is
# the command under test.

set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
UNSHARD=${UNSHARD:-$here/build/unshard}
case $UNSHARD in /*) ;; *) UNSHARD=$PWD/$UNSHARD ;; esac
export UNSHARD

say() { echo "$(basename "$0"): $*" >&2; }
fail() { say "FAILED: $*"; exit 1; }
skip() { say "skipped: $*"; exit 77; }

# requires COMMAND...
requires() {
	local c
	for c; do
		command -v "$c" >/dev/null || skip "needs $c"
	done
}

[ -x "$UNSHARD" ] || fail "no command at $UNSHARD"
if [ ! -c /dev/fuse ]; then
	[ "${MOUNT:-}" = skip ] && skip "no /dev/fuse"
	fail "no /dev/fuse (MOUNT=skip leaves the mount tests out)"
fi
[ "${MOUNT:-}" = skip ] && skip "MOUNT=skip"

# The test itself runs below a time limit and, as root, in its own mounts.
if [ -z "${COMMON_INSIDE:-}" ]; then
	limit=$(( ${LIMIT:-60} * ${UNSHARD_SLOW:-1} ))
	wrap=(timeout -k 5 "$limit")
	if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
		wrap+=(env COMMON_PRIVATE=1 unshare -m --propagation private)
	fi
	COMMON_INSIDE=1 "${wrap[@]}" bash "$0" "$@"
	rc=$?
	[ $rc = 124 ] || [ $rc = 137 ] && say "FAILED: took over $limit s"
	exit $rc
fi

WORK=$(mktemp -d "${TMPDIR:-/tmp}/unshard-test.XXXXXX") || exit 1
MNT=$WORK/mnt
LOG=$WORK/log
mkdir "$MNT"
chmod 755 "$WORK"
export UNSHARD_TEST_WORK=$WORK
# Nothing is kept for the next mount but where a test says so.
export XDG_CACHE_HOME=$WORK/no-cache
# Tests read what was made a moment ago, and by nobody else.
export UNSHARD_SETTLE=${UNSHARD_SETTLE-0}
SAN_OPTS=
# Sanitizers need what the sandbox forbids.
[ -n "${SAN:-}" ] && SAN_OPTS=,sandbox=off

mounted() { grep -qs " ${1:-$MNT} " /proc/self/mountinfo; }

cleanup() {
	local m pid
	awk -v w="$WORK/" 'index($5, w) == 1 { print $5 }' \
		/proc/self/mountinfo | sort -r | while read -r m; do
		umount -l "$m" 2>/dev/null || fusermount3 -uz "$m" 2>/dev/null
	done
	for pid in $(pids_of ""); do kill -9 "$pid" 2>/dev/null; done
	chmod -R u+rwx "$WORK" 2>/dev/null
	rm -rf --one-file-system "$WORK"
}

# pids_of COMM: processes of this test whose name begins so ("": all of
# ours); the environment tells which test started them.
pids_of() {
	local p comm env
	for p in /proc/[0-9]*; do
		read -r comm 2>/dev/null <"$p/comm" || continue
		[[ $comm = "${1:-unshard}"* ]] || continue
		mapfile -d '' -t env 2>/dev/null <"$p/environ"
		[[ " ${env[*]} " = *" UNSHARD_TEST_WORK=$WORK "* ]] &&
			echo "${p#/proc/}"
	done
}
supervisor_pid() { pids_of unshard-super | head -n 1; }
# workers: those that answer for mounts, in the order in which they were started;
# a parser is a fork of one, and has its name until it takes its own.
workers() {
	local p supers
	supers=$(pids_of unshard-super)
	for p in $(pids_of unshard-worker | sort -n); do
		grep -qxF "$(awk '$1 == "PPid:" { print $2 }' "/proc/$p/status")" \
			<<<"$supers" && echo "$p"
	done 2>/dev/null
}
worker_pid() { workers | head -n 1; }
trap cleanup EXIT

# mount_ckpt SRC [OPTION,...]: mounts at $MNT or fails the test.
mount_ckpt() {
	"$UNSHARD" mount "$1" "$MNT" -o "log=$LOG${2:+,$2}$SAN_OPTS" ||
		fail "mount of $1 gave exit $?"
	mounted || fail "mount of $1 said 0 and is not there"
}
# answers N: so many of the mount, each of which takes a while
answers() {
	local k
	for ((k = 0; k < $1; k++)); do stat "$MNT" >/dev/null 2>&1; done
}
umount_ckpt() {
	"$UNSHARD" umount "$MNT" || fail "umount gave exit $?"
	mounted && fail "umount said 0 and the mount is there"
	return 0
}

. "$here/tests/lib/wait.sh"

same() {
	cmp "$1" "$2" && return
	wait_for 1 cmp -s "$1" "$2" &&
		fail "$1 differed from $2, and does not any more"
	fail "$1 differs from $2"
}

# expect CODE PATTERN COMMAND...: that exit code, and one line on stderr that
# matches the pattern of grep -E.
expect() {
	local want=$1 pattern=$2 rc lines
	shift 2
	"$@" >"$WORK/out" 2>"$WORK/err"
	rc=$?
	[ $rc = "$want" ] || fail "$*: exit $rc, expected $want:" \
		"$(head -n 3 "$WORK/err")"
	lines=$(wc -l <"$WORK/err")
	if [ "$want" != 0 ]; then
		[ "$lines" = 1 ] || fail "$*: $lines lines on stderr:" \
			"$(head -n 5 "$WORK/err")"
		grep -qE "$pattern" "$WORK/err" || fail "$*: expected" \
			"/$pattern/, found: $(cat "$WORK/err")"
	fi
}

# User tests: ordinary user 65534 (or the caller, where it is not root).
# as_user COMMAND...; /dev/fuse is made usable for all, in our own mounts.
as_user() {
	if [ "$(id -u)" = 0 ]; then
		setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"
	else
		"$@"
	fi
}
user_setup() {
	requires fusermount3 setpriv
	if [ "$(id -u)" = 0 ]; then
		chown -R 65534:65534 "$WORK"
		mknod "$WORK/fuse" c 10 229 && chmod 666 "$WORK/fuse" &&
			mount --bind "$WORK/fuse" /dev/fuse ||
			skip "cannot make a /dev/fuse of mode 0666"
		# setpriv itself may still go where the user may not.
		as_user sh -c '"$UNSHARD" --version' >/dev/null 2>&1 ||
			copy_for_user
	fi
}
# The build may lie where an ordinary user cannot go.
copy_for_user() {
	cp "$UNSHARD" "$WORK/unshard" && chmod 755 "$WORK/unshard"
	UNSHARD=$WORK/unshard
	as_user "$UNSHARD" --version >/dev/null ||
		fail "the user cannot run the command"
}

# le64 N: eight bytes, little endian.
le64() {
	local n=$1 i hex=
	for i in 0 1 2 3 4 5 6 7; do
		hex+=$(printf '\\x%02x' $((n >> (8 * i) & 255)))
	done
	printf "$hex"
}
# noise BYTES SEED: the same bytes each time.
noise() {
	awk -v n="$1" -v s="$2" 'BEGIN { srand(s); for (i = 0; i < n; i += 6)
		printf "%06d", int(rand() * 1000000) }' | head -c "$1"
}
# make_safetensors FILE: a [64, 32] float32 "a", a [1000] uint8 "b.c"; what
# they hold is in a.bin and b.bin beside $MNT.
make_safetensors() {
	local head
	mkdir -p "$(dirname "$1")"
	noise 8192 1 >"$WORK/a.bin"
	noise 1000 2 >"$WORK/b.bin"
	head='{"a":{"dtype":"F32","shape":[64,32],"data_offsets":[0,8192]},'
	head+='"b.c":{"dtype":"U8","shape":[1000],"data_offsets":[8192,9192]}}'
	{ le64 ${#head}; printf '%s' "$head"; cat "$WORK/a.bin" "$WORK/b.bin"; } >"$1"
}

. "$here/tests/lib/ended.sh"
