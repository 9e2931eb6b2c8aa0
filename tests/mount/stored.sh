#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# -o cache: files that are stored ones, byte for byte (shards/, an uncut hf/, a tensor that has
# a file), are read by the kernel itself, without a copy.  A reader goes on while
# the worker is stopped, which shows it.
LIMIT=120
. "$(dirname "$0")/lib/common.sh"
requires cmp dd "${PYTHON:=python3}"
[ "$(id -u)" = 0 ] || skip "needs root"
KEPT=$WORK/kept CKPT=$WORK/ckpt
mkdir "$KEPT" "$CKPT"
SIZE=$((3 << 20))
# make FILE: as safetensors writes it
make() {
	"$PYTHON" - "$1" "$SIZE" <<'END'
import json, os, struct, sys
n = int(sys.argv[2])
h = json.dumps({"__metadata__": {"format": "pt"}, "w": {"dtype": "U8", "shape": [n], "data_offsets": [0, n]}},
               separators=(",", ":")).encode()
h += b" " * (-len(h) % 8)
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(h)) + h + os.urandom(n))
END
}
make "$CKPT/model.safetensors"
src=$CKPT/model.safetensors shard=$MNT/shards/model.safetensors hf=$MNT/hf/model.safetensors
tail -c "$SIZE" "$src" >"$WORK/w.bin"
stat_of() { awk -v k="$1" '$1 == k { print $2 }' "$MNT/.unshard/stats"; }
start() { mount_ckpt "$CKPT" "cache=$1${2:+,$2}"; }
# passed FILE BIN: whether the kernel reads it alone, all of it and in a map; what asks
# for the size, as mmap of Python does, would ask the worker
passed() {
	local ok=1
	exec 6<"$1"
	kill -STOP "$(worker_pid)"
	timeout 10 "$PYTHON" -c 'import ctypes, os, sys
want = open(sys.argv[1], "rb").read()
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
for flags in 1, 2:
    at = libc.mmap(None, len(want), 1, flags, 6, 0)
    assert at != ctypes.c_void_p(-1).value and ctypes.string_at(at, len(want)) == want
got, at = b"", 0
while len(got) < len(want):
    got += os.pread(6, 300000, len(got)) or b"?" * len(want)
assert got == want' "$2" && ok=0
	kill -CONT "$(worker_pid)"
	exec 6<&-
	return $ok
}

start "$KEPT"
same "$shard" "$src"
[ "$(stat_of cache_passthrough)" = 1 ] || {
	[ "$(uname -r | cut -d. -f1)" -lt 7 ] && skip "no passthrough in this kernel"
	fail "no passthrough"
}
for f in "$shard" "$hf" "$MNT/model.safetensors"; do
	passed "$f" "$src" || fail "$f: the worker was asked"
	for bs in 5000 1M; do
		dd if="$f" bs=$bs status=none | cmp - "$src" || fail "$f: bs=$bs"
	done
done
[ "$(stat_of cache_held)" = 0 ] || fail "copies of what is stored"
[ "$(stat_of source_bytes)" -lt 1000 ] || fail "the worker read $(stat_of source_bytes)"
same "$MNT/tensors/w" "$WORK/w.bin"
umount_ckpt

# --- cut and longer: as a plain file
start "$KEPT"
cp "$src" "$WORK/old"
exec 5<"$shard"
head -c 100 <&5 | cmp -n 100 - "$src" || fail "its first bytes"
truncate -s 1000000 "$src"
cmp - <(head -c 1000000 "$WORK/old" | tail -c +101) <&5 || fail "a file that was cut"
exec 5<&-
cat "$hf" >/dev/null 2>&1 && fail "a cut file is shown as it was"
cat "$WORK/old" "$WORK/w.bin" >"$src"
longer() { cmp -s "$shard" "$src"; }
wait_for 10 longer || fail "a longer file"
umount_ckpt
cp "$WORK/old" "$src"

# --- replaced while it is read: who has it open reads on, who opens it gets the new
# one, by shards/ as it is, by a view not at all
start "$KEPT"
exec 5<"$shard" 7<"$hf"
head -c 100 <&5 >/dev/null
head -c 100 <&7 >/dev/null
for i in 1 2 3; do
	make "$CKPT/new"
	mv "$CKPT/new" "$src"
	same "$shard" "$src"
	passed "$shard" "$src" || fail "replaced, $i: not passed"
	cmp -s "$hf" "$WORK/old" && fail "replaced, $i: the old content of hf/"
done
[ "$(stat -c %i "$shard")" = "$(stat -Lc %i /proc/self/fd/5)" ] || fail "numbers of one name"
cmp - <(tail -c +101 "$WORK/old") <&5 || fail "shards/: the old content"
cmp - <(tail -c +101 "$WORK/old") <&7 || fail "hf/: the old content"
exec 5<&- 7<&-
same "$shard" "$src"
umount_ckpt
# more often than there are numbers: a clear answer, and right again once they are closed
start "$KEPT"
fds=
for i in $(seq 20); do
	make "$CKPT/new"
	mv "$CKPT/new" "$src"
	cp "$src" "$WORK/now.$i"
	if exec {fd}<"$shard"; then
		fds="$fds $fd:$i"
	fi 2>"$WORK/err"
done
[ "$(echo $fds | wc -w)" -ge 16 ] || fail "opened: $fds"
for f in $fds; do
	cmp - "$WORK/now.${f#*:}" <&"${f%:*}" || fail "content ${f#*:}"
	fd=${f%:*}
	exec {fd}<&-
done
right() { cmp -s "$shard" "$src"; }
wait_for 10 right || fail "once all are closed"
umount_ckpt
rm "$WORK"/now.*
cp "$WORK/old" "$src"

# --- a kept copy that the kernel reads, and a shard that is touched: the new bytes
start "$KEPT"
w=$MNT/tensors/w
whole() { [ "$(stat_of cache_whole_files)" = 1 ]; }
same "$w" "$WORK/w.bin"
wait_for 10 whole || fail "not kept"
passed "$w" "$WORK/w.bin" || fail "a copy is not passed"
exec 5<"$w"
head -c 100 <&5 >/dev/null
touch -r "$src" "$WORK/then"
printf x | dd of="$src" bs=1 seek=2000000 conv=notrunc status=none
touch -r "$WORK/then" "$src"
tail -c "$SIZE" "$src" >"$WORK/new.bin"
for i in 1 2 3; do same "$w" "$WORK/new.bin"; done
cmp - <(tail -c +101 "$WORK/w.bin") <&5 || fail "who had it open"
wait_for 10 passed "$w" "$WORK/new.bin" || fail "the new bytes are not kept"
exec 5<&-
same "$w" "$WORK/new.bin"
umount_ckpt
cp "$WORK/old" "$src"

# --- what the file allows
chmod 755 "$KEPT" "$CKPT"
chmod 600 "$src"
start "$KEPT" allow_other
exec 5<"$shard" 7<"$hf"
for f in "$shard" "$hf"; do
	as_user cat "$f" >/dev/null 2>&1 && fail "$f: a user read what he may not"
done
exec 5<&- 7<&-
chmod 644 "$src"
may() { as_user cmp -s "$1" "$src"; } # modes are kept for a second
wait_for 10 may "$shard" && wait_for 10 may "$hf" || fail "a user may read it"
umount_ckpt

# --- with -o verify bytes are compared first
"$UNSHARD" seal "$CKPT" >/dev/null || fail seal
start "$KEPT" verify
exec 5<"$shard" 7<"$hf"
[ "$(stat_of cache_passthrough)" = 0 ] || fail "passed with -o verify"
exec 5<&- 7<&-
same "$hf" "$src"
umount_ckpt
rm "$CKPT"/.unshard*

# --- a stacked file system cannot be passed: the worker reads
mkdir "$WORK/up" "$WORK/work" "$WORK/over"
if mount -t overlay -o "lowerdir=$CKPT,upperdir=$WORK/up,workdir=$WORK/work" none "$WORK/over" 2>/dev/null; then
	mount_ckpt "$WORK/over" "cache=$KEPT"
	same "$shard" "$src"
	same "$hf" "$src"
	wait_for 10 whole || fail "overlay: not kept"
	passed "$hf" "$src" || fail "overlay: its copy is not passed"
	umount_ckpt
	umount "$WORK/over"
fi
done_ok
