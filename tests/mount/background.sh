#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What stays in the background has nothing of the caller's, and few rights.
. "$(dirname "$0")/lib/common.sh"
CKPT=$WORK/ckpt
make_safetensors "$CKPT/model.safetensors"

# --- no descriptor: a pipe to the command ends with it
mkfifo "$WORK/pipe"
timeout 10 cat "$WORK/pipe" >"$WORK/piped" &
reader=$!
exec 9>"$WORK/pipe" 8<"$WORK/a.bin"
cd "$CKPT" || exit 1
"$UNSHARD" mount . ../mnt -o "log=../log,spool=..$SAN_OPTS" >&9 2>&9 ||
	fail "mount by relative paths"
cd "$WORK" || exit 1
exec 9>&- 8<&-
wait $reader || fail "the caller's standard output is kept open"
[ ! -s "$WORK/piped" ] || fail "mount said something: $(cat "$WORK/piped")"
same "$MNT/tensors/a" "$WORK/a.bin"

super=$(supervisor_pid) worker=$(worker_pid)
for pid in $super $worker; do
	for fd in 0 1; do
		[ "$(readlink "/proc/$pid/fd/$fd")" = /dev/null ] ||
			fail "$pid has $(readlink "/proc/$pid/fd/$fd") as $fd"
	done
	ls -l "/proc/$pid/fd" | grep -qE 'a\.bin|/piped|/dev/(pts|tty)' &&
		fail "$pid keeps: $(ls -l "/proc/$pid/fd")"
	[ "$(readlink "/proc/$pid/cwd")" = / ] ||
		fail "$pid stands in $(readlink "/proc/$pid/cwd")"
	sid=$(awk '{ print $6 }' "/proc/$pid/stat")
	[ "$sid" = "$super" ] || fail "$pid is in the caller's session"
done
ls -l "/proc/$super/fd" | grep -q 'dev/fuse' &&
	fail "the supervisor keeps the device, so a dead worker would hang all"

# --- rights of the worker
if [ -z "${SAN:-}" ]; then
	status() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$worker/status"; }
	[ "$(status NoNewPrivs)" = 1 ] || fail "no_new_privs is not set"
	caps=$(status CapPrm)
	[ $((0x$caps & ~4)) = 0 ] || fail "the worker has capabilities $caps"
	if grep -q ^Seccomp: /proc/self/status; then
		[ "$(status Seccomp)" = 2 ] || fail "no seccomp filter"
	fi
	grep -q '^Max core file size *0 *0' "/proc/$worker/limits" ||
		fail "the worker may leave a core"
fi

# --- the log, by a relative path, has the worker's end
kill -9 "$worker"
wait_for 10 gone "$super" || fail "the supervisor stays"
grep -q "unshard\[[0-9]*\] $MNT: the worker died" "$LOG" ||
	fail "the log has: $(cat "$LOG")"

# --- a caller without standard files: nothing else is taken for one
for closed in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
	eval '"$UNSHARD" mount "$CKPT" "$MNT" '"$closed" ||
		fail "mount $closed gave $?"
	same "$MNT/tensors/a" "$WORK/a.bin"
	umount_ckpt
done
done_ok
