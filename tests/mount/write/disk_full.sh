# SPDX-License-Identifier: Apache-2.0
# An ext4 that is full, in each way of writing: who writes is told, what was there
# is as it was or what was written, nothing that is not whole is published, and
# once there is room the same works.
LIMIT=180
. "$(dirname "$0")/../lib/common.sh"
requires python3 cmp losetup mkfs.ext4
[ "$(id -u)" = 0 ] || skip "loop devices are root's"
[ -n "${COMMON_PRIVATE-}" ] || skip "needs mounts of its own"
losetup -f >/dev/null 2>&1 || skip "no loop device here"

truncate -s 24M "$WORK/disk"
mkfs.ext4 -q -F -m 0 -J size=4 "$WORK/disk" || fail mkfs
mkdir "$WORK/d"
mount -o loop "$WORK/disk" "$WORK/d" 2>"$WORK/err" ||
	skip "no loop mount here: $(head -n 1 "$WORK/err")"
d=$WORK/d c=$WORK/d/ckpt
python3 "$here/tests/mount/lib/copies.py" "$WORK/keep" 2 1000 2000 2 || fail copies
"$UNSHARD" cat "$WORK/keep" w >"$WORK/old" || fail cat
size=$(stat -c %s "$WORK/old")
head -c "$size" /dev/urandom >"$WORK/new"
# By one large file, and by small ones until one finds no room after a sync either:
# what is set aside for files that are not written yet is free again then.
fill() {
	local n=0 last=-1
	cat /dev/zero >"$d/fill" 2>/dev/null
	mkdir -p "$d/fills"
	while [ $n != $last ] && [ $n -lt 400 ]; do
		last=$n
		sync -f "$d"
		while head -c 1 /dev/zero 2>/dev/null >"$d/fills/$n"; do
			n=$((n + 1))
		done
	done
}
room() { rm -rf "$d/fill" "$d/fills" && sync -f "$d"; }
fresh() {
	room
	rm -rf "$c" && cp -r "$WORK/keep" "$c" && sync -f "$d" || fail fresh
	[ "${1-}" != sealed ] || "$UNSHARD" seal "$c" >"$WORK/out" || fail seal
}
told() { # WHAT COMMAND...
	local what=$1
	shift
	"$@" 2>"$WORK/err" && fail "$what: a full disk is not told"
	grep -qi 'no space left\|input/output error' "$WORK/err" ||
		fail "$what: $(cat "$WORK/err")"
}
sealed() {
	"$UNSHARD" verify -r "$c" >"$WORK/out" 2>&1 || fail "$1: $(cat "$WORK/out")"
	grep -q 'as they were sealed' "$WORK/out" || fail "$1: $(cat "$WORK/out")"
}

# ---- write-through allocates nothing for the bytes; the manifest follows later
fresh sealed
mount_ckpt "$c" rw
fill
dd if="$WORK/new" of="$MNT/tensors/w" bs=1M conv=notrunc,fsync status=none \
	2>"$WORK/err" || grep -q 'No space' "$WORK/err" ||
	fail "write-through: $(cat "$WORK/err")"
room
dd if="$WORK/new" of="$MNT/tensors/w" bs=1M conv=notrunc,fsync status=none ||
	fail "write-through, with room"
umount_ckpt
sealed write-through
"$UNSHARD" cat "$c" w | cmp - "$WORK/new" || fail "write-through"

# ---- a file written anew: the old one stays
fresh sealed
mount_ckpt "$c" replace
fill
told replace cp "$WORK/new" "$MNT/tensors/w"
same "$MNT/tensors/w" "$WORK/old"
[ -z "$(find "$c" -name '.unshard-new-*' -o -name '.unshard-redo-*')" ] ||
	fail "replace leaves $(ls -A "$c")"
room
cp "$WORK/new" "$MNT/tensors/w" || fail "replace, with room"
same "$MNT/tensors/w" "$WORK/new"
umount_ckpt
sealed replace

# ---- an overlay: what it took is there, what it did not is as it was
fresh
mkdir -p "$d/over"
mount_ckpt "$c" "rw,overlay=$d/over"
head -c 4096 "$WORK/new" | dd of="$MNT/tensors/w" conv=notrunc,fsync status=none ||
	fail "overlay: a first write"
fill
told overlay dd if="$WORK/new" of="$MNT/tensors/w" bs=64k conv=notrunc,fsync
cmp -n 4096 "$MNT/tensors/w" "$WORK/new" || fail "overlay: the first write is gone"
python3 - "$MNT/tensors/w" "$WORK/old" "$WORK/new" <<'P' || fail "overlay: torn"
import sys
now, old, new = (open(p, "rb").read() for p in sys.argv[1:])
assert all(n in (a, b) for n, a, b in zip(now, old, new))
P
room
dd if="$WORK/new" of="$MNT/tensors/w" bs=64k conv=notrunc,fsync status=none ||
	fail "overlay, with room"
umount_ckpt
mount_ckpt "$c" "rw,overlay=$d/over"
same "$MNT/tensors/w" "$WORK/new"
umount_ckpt
# applied to a new checkpoint that has no room: none is there
fill
expect 3 'o space left' "$UNSHARD" overlay apply "$c" "$d/over" "$d/applied"
[ ! -e "$d/applied" ] || fail "apply left half of one"
room
rm -rf "$d/over"

# ---- sealing: no manifest, or none of half its size
fresh
fill
told seal "$UNSHARD" seal "$c"
[ -z "$(find "$c" -name '.unshard*')" ] || fail "seal leaves $(ls -A "$c")"
room
"$UNSHARD" seal "$c" >/dev/null || fail "seal, with room"
sealed seal

# ---- shards/ of a new step, and its manifest
rm -rf "$c"
mkdir "$d/runs"
mount_ckpt "$d/runs" rw,publish=manual
mkdir "$MNT/s1" || fail mkdir
fill
told shards cp "$WORK/keep"/* "$MNT/s1/shards/"
"$UNSHARD" publish "$MNT/s1" >/dev/null 2>&1 && fail "half of it is published"
[ ! -e "$d/runs/s1" ] || fail "half of it is there"
room
cp "$WORK/keep"/* "$MNT/s1/shards/" || fail "shards, with room"
fill
rc=0
"$UNSHARD" publish "$MNT/s1" >"$WORK/out" 2>"$WORK/err" || rc=$?
if [ $rc != 0 ]; then
	grep -q 'No space' "$WORK/err" || fail "publish: $(cat "$WORK/err")"
	[ ! -e "$d/runs/s1" ] || fail "published all the same"
fi
room
"$UNSHARD" publish "$MNT/s1" >"$WORK/out" 2>"$WORK/err" ||
	fail "publish, with room: $(cat "$WORK/err")"
same "$MNT/s1/tensors/w" "$WORK/old"
"$UNSHARD" verify "$d/runs/s1" >/dev/null || fail "verify s1"

# ---- slices: into place, and by a temporary name
cat >"$WORK/layout.json" <<J
{"unshard_layout": 1, "mesh": {"axes": [{"name": "tp", "size": 1}]},
 "tensors": [{"name": "w", "dtype": "uint8", "shape": [$size]}], "write": {}}
J
mkdir "$MNT/s2" && cp "$WORK/layout.json" "$MNT/s2/unshard-layout.json" ||
	fail "layout"
f=$MNT/s2/ranks/0/w
fill
told ranks cp "$WORK/old" "$f"
told "ranks, a temporary file" cp "$WORK/old" "$f.tmp"
expect 1 'not complete' "$UNSHARD" publish "$MNT/s2"
room
cp "$WORK/old" "$f.tmp" || fail "ranks, with room"
mv "$f.tmp" "$f" || fail "rename, with room: $(tail -n 3 "$LOG")"
fill
rc=0
"$UNSHARD" publish "$MNT/s2" >"$WORK/out" 2>"$WORK/err" || rc=$?
[ $rc = 0 ] || grep -q 'No space' "$WORK/err" || fail "publish: $(cat "$WORK/err")"
room
"$UNSHARD" publish "$MNT/s2" >"$WORK/out" 2>"$WORK/err" ||
	fail "publish s2, with room: $(cat "$WORK/err")"
same "$MNT/s2/tensors/w" "$WORK/old"
"$UNSHARD" verify "$d/runs/s2" >/dev/null || fail "verify s2"
umount_ckpt
umount "$WORK/d" || fail umount
done_ok
