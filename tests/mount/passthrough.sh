#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# -o cache where the kernel reads what is kept by itself: no read comes to the
# worker; a file that somebody has open otherwise waits with it, and can still be
# mapped; what the files allow counts as before; without the right to it, or once
# the supervisor is gone, the worker answers.
LIMIT=120
. "$(dirname "$0")/lib/common.sh"
requires cmp dd "${PYTHON:=python3}"
[ "$(id -u)" = 0 ] || skip "needs root"
KEPT=$WORK/kept CKPT=$WORK/ckpt
mkdir "$KEPT" "$CKPT"
SIZE=$(((5 << 20) + 1234))
head='{"w":{"dtype":"U8","shape":['$SIZE'],"data_offsets":[0,'$SIZE']}}'
head -c "$SIZE" /dev/urandom >"$WORK/w.bin"
{ le64 ${#head}; printf '%s' "$head"; cat "$WORK/w.bin"; } >"$CKPT/model.safetensors"
w=$MNT/tensors/w

stat_of() { awk -v k="$1" '$1 == k { print $2 }' "$MNT/.unshard/stats"; }
whole() { [ "$(stat_of cache_whole_files)" = "$1" ]; }
start() { mount_ckpt "$CKPT" "cache=$1${2:+,$2}"; }
keep() {
	same "$w" "$WORK/w.bin"
	wait_for 10 whole 1 || fail "not kept: $(cat "$LOG")"
}
# passed [YES]: reads it, and whether the worker had no part in it
passed() {
	local before opens
	before=$(stat_of cache_bytes) opens=$(stat_of cache_opens)
	same "$w" "$WORK/w.bin"
	[ "$(stat_of cache_opens)" -gt "$opens" ] &&
		[ "$(stat_of cache_bytes)" = "$before" ]
}
map() { # FILE: of both kinds, by a descriptor that is open since before "$2"
	"$PYTHON" -c 'import mmap, os, sys
with open(sys.argv[1], "rb") as f:
    os.system(sys.argv[3])
    for access in mmap.ACCESS_READ, mmap.ACCESS_COPY:
        assert mmap.mmap(f.fileno(), 0, access=access)[:] == open(sys.argv[2], "rb").read()
' "$w" "$WORK/w.bin" "$1" || fail "a map"
}

start "$KEPT"
keep
same "$w" "$WORK/w.bin"
[ "$(stat_of cache_passthrough)" = 1 ] || {
	[ "$(uname -r | cut -d. -f1)" -lt 7 ] && skip "no passthrough in this kernel"
	fail "no passthrough"
}
umount_ckpt

for where in "$KEPT" memory:64M; do
	start "$where"
	keep
	passed || fail "$where: the worker was asked"
	for bs in 100000 1M 3M; do
		dd if="$w" bs=$bs status=none | cmp - "$WORK/w.bin" || fail "bs=$bs"
	done
	map true
	# two at once, of whom one comes while the other reads
	exec 5<"$w"
	passed || fail "$where: the second one is not passed"
	cmp - "$WORK/w.bin" <&5 || fail "the first one"
	exec 5<&-
	umount_ckpt

	# who opened it before it was kept goes on as it began
	start "$where"
	exec 5<"$w"
	same "$w" "$WORK/w.bin"
	same "$w" "$WORK/w.bin"
	map "cmp $w $WORK/w.bin"
	"$PYTHON" -c 'import mmap, sys
assert mmap.mmap(5, 0, access=mmap.ACCESS_READ)[:] == open(sys.argv[1], "rb").read()' \
		"$WORK/w.bin" || fail "$where: a map of one that was open before"
	cmp - "$WORK/w.bin" <&5 || fail "$where: one that was open before"
	exec 5<&-
	wait_for 10 whole 1 || fail "$where: not kept"
	wait_for 10 passed || fail "$where: not passed once nobody has it open"
	umount_ckpt
done

# --- room for one of two
start memory:6M
keep
passed || fail "not passed"
exec 5<"$w" # it is open: it stays
cat "$MNT/model.safetensors" >/dev/null
[ "$(stat_of cache_held)" = "$SIZE" ] || fail "held $(stat_of cache_held)"
passed || fail "pushed out though it is open"
exec 5<&-
first=$(stat_of cache_opens)
cat "$MNT/model.safetensors" >/dev/null
more() { cat "$MNT/model.safetensors" >/dev/null; [ "$(stat_of cache_opens)" -gt "$first" ]; }
wait_for 10 more || fail "the first one is still there"
[ "$(stat_of cache_held)" -le $((6 << 20)) ] || fail "held $(stat_of cache_held)"
umount_ckpt

# --- a shard that changes
start "$KEPT"
keep
exec 5<"$w"
head -c 1000 <&5 | cmp -n 1000 - "$WORK/w.bin" || fail "its first bytes"
cp "$CKPT/model.safetensors" "$WORK/old"
tr '\0-\377' '\1-\377\0' <"$WORK/old" >"$CKPT/model.safetensors"
cat "$w" >/dev/null 2>&1 && fail "opened though the shard is another"
"$PYTHON" -c 'import mmap, sys
assert mmap.mmap(5, 0, access=mmap.ACCESS_READ)[:] == open(sys.argv[1], "rb").read()' \
	"$WORK/w.bin" || fail "a map of the old content"
cmp - <(tail -c +1001 "$WORK/w.bin") <&5 || fail "the old content"
exec 5<&-
cmp -s "$w" "$WORK/w.bin" && fail "the old content was served anew"
cat "$WORK/old" >"$CKPT/model.safetensors"
umount_ckpt

# --- what the files allow
chmod 755 "$KEPT" "$CKPT"
chmod 600 "$CKPT/model.safetensors"
start "$KEPT" allow_other
keep
passed || fail "not passed"
as_user cat "$w" >/dev/null 2>&1 && fail "a user read what he may not"
exec 5<"$w"
as_user cat "$w" >/dev/null 2>&1 && fail "a user read what he may not, beside root"
exec 5<&-
chmod 644 "$CKPT/model.safetensors"
may() { as_user cmp -s "$w" "$WORK/w.bin"; } # modes are kept for a second
wait_for 10 may || fail "a user may read it"
umount_ckpt

# --- the worker is killed while it is read: the mount ends
start "$KEPT"
keep
exec 5<"$w"
head -c 1000 <&5 >/dev/null
kill -9 "$(worker_pid)"
gone() { ! mounted; }
wait_for 10 gone || fail "the mount outlived its worker"
cat <&5 >/dev/null 2>&1
exec 5<&-

# --- the supervisor is killed: what is passed stays so, the rest is answered
start "$KEPT"
keep
exec 5<"$w"
kill -9 "$(supervisor_pid)"
cmp - "$WORK/w.bin" <&5 || fail "without the supervisor"
passed || fail "one more of a file that is passed"
exec 5<&-
for i in 1 2; do
	cat "$MNT/model.safetensors" >"$WORK/got" || fail "another file"
	tail -c "$SIZE" "$WORK/got" | cmp - "$WORK/w.bin" || fail "another file's bytes"
done
umount "$MNT" || fail "umount"
none() { [ -z "$(pids_of unshard)" ]; }
wait_for 10 none || fail "left: $(pids_of unshard)"

# --- one switch: a namespace's root has not the right
unshare -rm true 2>/dev/null || { done_ok; exit; }
export -f stat_of same wait_for fail say
export KEPT CKPT w WORK MNT LOG SAN_OPTS
unshare -rm bash -c '
for where in "$KEPT" memory:64M; do
	"$UNSHARD" mount "$CKPT" "$MNT" -o "cache=$where,log=$LOG$SAN_OPTS" || exit
	for i in 1 2 3; do same "$w" "$WORK/w.bin"; done
	[ "$(stat_of cache_passthrough)" = 0 ] || fail "passed without the right to"
	"$UNSHARD" umount "$MNT" || exit
done' || fail "in a namespace"
done_ok
