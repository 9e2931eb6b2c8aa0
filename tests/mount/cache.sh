#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# -o cache: what was read whole is read from the shards no more, until one of
# them changes; who has it open goes on; whatever is wrong with the folder costs
# speed and nothing else.
LIMIT=120
. "$(dirname "$0")/lib/common.sh"
requires cmp dd "${PYTHON:=python3}"
KEPT=$WORK/kept CKPT=$WORK/ckpt
mkdir "$KEPT"

SIZE=$(((5 << 20) + 1234))
# fill DIR SEED: a checkpoint of one tensor "w" there; what it holds is in DIR.bin
fill() {
	local head='{"w":{"dtype":"U8","shape":['$SIZE'],"data_offsets":[0,'$SIZE']}}'
	mkdir -p "$1"
	head -c "$SIZE" /dev/urandom >"$1.bin"
	{ le64 ${#head}; printf '%s' "$head"; cat "$1.bin"; } >"$1/model.safetensors"
}
fill "$CKPT"
w=$MNT/tensors/w

stat_of() { awk -v k="$1" '$1 == k { print $2 }' "$MNT/.unshard/stats"; }
whole() { [ "$(stat_of cache_whole_files)" = "$1" ]; }
# keep FILE BIN: reads it whole, and waits until it is kept
keep() {
	same "$1" "$2"
	wait_for 10 whole "${3:-1}" || fail "$1 is not kept: $(cat "$LOG")"
}
# from_shards: bytes that were read of them since it was called last
seen=0
from_shards() {
	local now
	now=$(stat_of source_bytes)
	echo $((now - seen))
	seen=$now
}
start() { mount_ckpt "$CKPT" "cache=$1${2:+,$2}"; }

mount_ckpt "$CKPT"
cp "$MNT/model.safetensors" "$WORK/model.bin"
umount_ckpt

# --- kept, and read no more
start "$KEPT"
[ "$(stat_of cache)" = folder ] || fail "stats: $(stat_of cache)"
keep "$w" "$CKPT.bin"
[ "$(stat_of source_bytes)" -le $((SIZE * 105 / 100)) ] ||
	fail "read more than once: $(stat_of source_bytes)"
from_shards >/dev/null; seen=$(stat_of source_bytes)
for bs in 4k 128k 200000 1M 3M; do
	dd if="$w" bs=$bs status=none | cmp - "$CKPT.bin" || fail "bs=$bs"
done
"$PYTHON" -c 'import mmap, sys
with open(sys.argv[1], "rb") as f:
    for access in mmap.ACCESS_READ, mmap.ACCESS_COPY:
        assert mmap.mmap(f.fileno(), 0, access=access)[:] == open(sys.argv[2], "rb").read()' \
	"$w" "$CKPT.bin" || fail "a map"
[ "$(stat_of source_bytes)" = "$seen" ] || fail "the shards were read again"
[ "$(stat_of cache_opens)" -ge 6 ] || fail "opens: $(stat_of cache_opens)"
[ "$(stat_of cache_held)" = "$SIZE" ] || fail "held: $(stat_of cache_held)"
grep -q '^unshard_cache_opens_total{' "$MNT/.unshard/metrics" || fail "metrics"
[ "$(find "$KEPT" -type f | wc -l)" = 0 ] || fail "files with names"
# another file of the same bytes is one more
keep "$MNT/model.safetensors" "$WORK/model.bin" 2
umount_ckpt
[ -z "$(ls "$KEPT")" ] || fail "left behind: $(ls "$KEPT")"

# --- pieces, and no more than what is asked for
start "$KEPT"
dd if="$w" bs=100 skip=30000 count=1 status=none >/dev/null
[ "$(stat_of source_bytes)" -le 10000 ] || fail "a few bytes cost $(stat_of source_bytes)"
for skip in 5 3 4 0 1 2; do # from the end
	dd if="$w" bs=1M skip=$skip count=1 status=none
done >/dev/null
wait_for 10 whole 1 || fail "not kept by pieces"
same "$w" "$CKPT.bin"

# --- many at once read each byte of the shards once
umount_ckpt
start "$KEPT"
for i in 1 2 3 4 5 6 7 8; do
	dd if="$w" bs=$((i % 2 ? 1048576 : 300000)) status=none | cmp - "$CKPT.bin" &
	pids[i]=$!
done
for i in 1 2 3 4 5 6 7 8; do wait "${pids[i]}" || fail "reader $i"; done
[ "$(stat_of source_bytes)" -le $((SIZE * 105 / 100)) ] ||
	fail "eight readers read $(stat_of source_bytes)"

# --- a shard that changes: nobody is served the old copy, who is open goes on
wait_for 10 whole 1 || fail "not kept"
exec 5<"$w"
head -c 100 <&5 >/dev/null
cp "$CKPT/model.safetensors" "$WORK/old"
printf x | dd of="$CKPT/model.safetensors" bs=1 seek=2000000 conv=notrunc status=none
cmp -s "$w" "$CKPT.bin" && fail "the old copy was served"
cat "$w" >/dev/null 2>&1 && fail "a changed shard was read"
cmp - <(tail -c +101 "$CKPT.bin") <&5 || fail "who had it open lost it"
exec 5<&-
cat "$w" >/dev/null 2>&1 && fail "a changed shard was read"
umount_ckpt
cp "$WORK/old" "$CKPT/model.safetensors"
# written to, and its time set back (docs/errors.md): shown as it is to who opens it,
# or, while the kernel reads the copy for somebody, not at all; and kept anew
start "$KEPT"
keep "$w" "$CKPT.bin"
exec 5<"$w"
head -c 100 <&5 >/dev/null
touch -r "$CKPT/model.safetensors" "$WORK/then"
cp "$CKPT.bin" "$WORK/was.bin"
at=$(($(stat -c %s "$CKPT/model.safetensors") - 1000))
printf x | dd of="$CKPT/model.safetensors" bs=1 seek=$at conv=notrunc status=none
touch -r "$WORK/then" "$CKPT/model.safetensors"
printf x | dd of="$CKPT.bin" bs=1 seek=$((SIZE - 1000)) conv=notrunc status=none
for i in 1 2; do
	cmp -s "$w" "$CKPT.bin" || [ $? = 2 ] || fail "touched, $i: the old copy was served"
done
exec 5<&-
keep "$w" "$CKPT.bin"
mv "$WORK/was.bin" "$CKPT.bin"
cp "$WORK/old" "$CKPT/model.safetensors"
umount_ckpt
# replaced, and gone
start "$KEPT"
keep "$w" "$CKPT.bin"
fill "$WORK/other"
mv "$WORK/other/model.safetensors" "$CKPT/model.safetensors"
cmp -s "$w" "$CKPT.bin" && fail "the old copy of a file that was replaced"
umount_ckpt
mv "$WORK/other.bin" "$CKPT.bin"
start "$KEPT"
keep "$w" "$CKPT.bin"
mv "$CKPT/model.safetensors" "$WORK/gone"
from_shards >/dev/null
[ "$(stat_of cache_opens)" = 0 ] || fail "opens"
cat "$w" >/dev/null 2>&1
[ "$(stat_of cache_opens)" = 0 ] || fail "served though the shard is gone"
mv "$WORK/gone" "$CKPT/model.safetensors"
umount_ckpt

# --- steps: the copy of one is not another's
mkdir "$WORK/run"
fill "$WORK/run/step-1"; fill "$WORK/run/step-2"
mount_ckpt "$WORK/run" "cache=$KEPT"
for i in 1 2 1 2; do same "$MNT/step-$i/tensors/w" "$WORK/run/step-$i.bin"; done
fill "$WORK/run/step-1"
next() { cmp -s "$MNT/step-1/tensors/w" "$WORK/run/step-1.bin"; }
wait_for 10 next || fail "a step that was saved anew"
umount_ckpt

# --- a bound
start "$KEPT:6M"
keep "$w" "$CKPT.bin"
cat "$MNT/model.safetensors" >/dev/null # pushes it out
kept_other() { [ "$(stat_of cache_held)" -le 6291456 ] && whole 1; }
wait_for 10 kept_other || fail "held $(stat_of cache_held)"
same "$w" "$CKPT.bin"
umount_ckpt
start "$KEPT:3M" # too large for it
same "$w" "$CKPT.bin"
[ "$(stat_of cache_held)" = 0 ] || fail "held $(stat_of cache_held) of 3 MiB"
same "$w" "$CKPT.bin"
umount_ckpt

# --- memory
start memory:64M
for i in 1 2 3; do same "$w" "$CKPT.bin"; done
umount_ckpt

# --- two mounts of one folder
start "$KEPT"
mkdir "$WORK/mnt2"
"$UNSHARD" mount "$WORK/run/step-2" "$WORK/mnt2" -o "cache=$KEPT$SAN_OPTS" || fail "mount 2"
keep "$w" "$CKPT.bin"
for i in 1 2; do same "$WORK/mnt2/tensors/w" "$WORK/run/step-2.bin"; done
"$UNSHARD" umount "$WORK/mnt2" || fail "umount 2"
same "$w" "$CKPT.bin"
# --- what lies there is nobody's business
mkdir "$KEPT/sub" && cp "$WORK/old" "$KEPT/model.safetensors"
# --- the worker killed
exec 5<"$w"
kill -9 "$(worker_pid)"
gone() { ! mounted; }
wait_for 10 gone || fail "the mount outlived its worker"
exec 5<&-
start "$KEPT"
keep "$w" "$CKPT.bin"
same "$w" "$CKPT.bin"
umount_ckpt
[ "$(ls "$KEPT" | tr '\n' ' ')" = "model.safetensors sub " ] || fail "left: $(ls "$KEPT")"

# --- limits of the process
(
	ulimit -f 2048 # of a file: 2 MiB
	"$UNSHARD" mount "$CKPT" "$MNT" -o "cache=$KEPT,log=$LOG$SAN_OPTS"
) || fail "mount with RLIMIT_FSIZE"
for i in 1 2; do same "$w" "$CKPT.bin"; done
grep -q 'cache: File too large' "$LOG" || fail "no line of it: $(cat "$LOG")"
umount_ckpt
(
	ulimit -n 64
	"$UNSHARD" mount "$CKPT" "$MNT" -o "cache=$KEPT,log=$LOG$SAN_OPTS"
) || fail "mount with RLIMIT_NOFILE"
for i in 1 2; do same "$w" "$CKPT.bin"; done
umount_ckpt

# --- bytes that are lost are not kept as anything
mkdir "$WORK/cut" "$WORK/cut/d"
"$PYTHON" - "$WORK/cut" <<'END' || skip "needs NumPy"
import json, struct, sys
n = 3 << 20
for i in 0, 1:
    h = json.dumps({"%c" % (97 + i): {"dtype": "U8", "shape": [n], "data_offsets": [0, n]}}).encode()
    with open("%s/model-0000%d-of-00002.safetensors" % (sys.argv[1], i + 1), "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + bytes([i + 1]) * (n if i == 0 else n // 2))
END
rmdir "$WORK/cut/d"
mount_ckpt "$WORK/cut" "cache=$KEPT"
lost=$MNT/tensors/b
if [ -e "$lost" ]; then
	for i in 1 2; do
		dd if="$lost" bs=1M status=none >"$WORK/got" 2>/dev/null && fail "lost bytes were read"
		cmp -s <(tr -d '\2' <"$WORK/got") /dev/null || fail "zeros for lost bytes"
	done
fi
[ "$(stat_of cache_whole_files)" = 0 ] || fail "a file with lost bytes is kept"
umount_ckpt

# --- a write may still be going on into what was written a moment ago
stored=$CKPT/model.safetensors
touch "$stored"
for o in "cache=$KEPT" cache=memory:64M direct=off; do
	UNSHARD_SETTLE=3600 mount_ckpt "$CKPT" "$o"
	for i in 1 2 3; do same "$w" "$CKPT.bin"; done
	[ "$(stat_of source_bytes)" -ge $((3 * SIZE)) ] &&
		[ "$(stat_of cache_held)$(stat_of cache_whole_files)" = 00 ] ||
		fail "$o: kept: $(grep -E '^(cache|source_bytes)' "$MNT/.unshard/stats")"
	umount_ckpt
done
touch -d '2 hours ago' "$stored"
for o in "cache=$KEPT" cache=memory:64M direct=off; do
	UNSHARD_SETTLE=3600 mount_ckpt "$CKPT" "$o"
	[ $o = direct=off ] || keep "$w" "$CKPT.bin"
	for i in 1 2 3; do same "$w" "$CKPT.bin"; done
	[ "$(stat_of source_bytes)" -lt $((2 * SIZE)) ] || fail "$o: not kept"
	umount_ckpt
done

# --- refused
expect 2 'cache: is for mounts that are only read' "$UNSHARD" mount "$CKPT" "$MNT" -o "rw,cache=$KEPT"
expect 2 'expected memory:SIZE' "$UNSHARD" mount "$CKPT" "$MNT" -o cache=memory
expect 3 'no such directory' "$UNSHARD" mount "$CKPT" "$MNT" -o "cache=$WORK/none"
expect 2 'expected a directory' "$UNSHARD" mount "$CKPT" "$MNT" -o "cache=$CKPT/model.safetensors"

# --- folders that cannot be used
[ "$(id -u)" = 0 ] || { done_ok; exit; }
mount -t tmpfs -o size=3m none "$KEPT"
start "$KEPT:64M"
for i in 1 2; do same "$w" "$CKPT.bin"; done
grep -q 'cache: No space left on device' "$LOG" || fail "full: $(cat "$LOG")"
umount_ckpt
read_only() { mount -o remount,ro "$KEPT" 2>/dev/null; } # once the worker has ended
wait_for 10 read_only || fail "the folder is still written to"
start "$KEPT"
for i in 1 2; do same "$w" "$CKPT.bin"; done
grep -q "cache=$KEPT: Read-only file system: nothing is kept" "$LOG" ||
	fail "read-only: $(cat "$LOG")"
[ "$(stat_of cache)" = off ] || fail "stats: $(stat_of cache)"
umount_ckpt
umount "$KEPT"
done_ok
