# SPDX-License-Identifier: Apache-2.0
# A quota that is used up: the writer is told, nothing is published, and what
# was there stays; with room again, the same step goes on.  A subvolume of btrfs
# has one that holds for root, too.
LIMIT=60
. "$(dirname "$0")/../lib/common.sh"
requires mkfs.btrfs btrfs losetup cmp
[ -n "${COMMON_PRIVATE-}" ] || skip "needs root and its own mounts"

CKPT=$here/tests/demo/checkpoint
truncate -s 128M "$WORK/disk" && mkfs.btrfs -q "$WORK/disk" || skip "no btrfs"
mkdir "$WORK/m"
mount -o loop "$WORK/disk" "$WORK/m" 2>"$WORK/err" ||
	skip "no loop device, or no btrfs"
SRC=$WORK/m/src
btrfs quota enable "$WORK/m" && btrfs -q subvolume create "$SRC" ||
	skip "no quota"
limit() { btrfs qgroup limit "$1" "$SRC" || fail "qgroup limit"; }
whole() {
	(cd "$MNT/$1/tensors" && sha256sum --quiet -c \
		"$here/tests/demo/expected.sha256") || fail "$1 is not whole"
}

mount_ckpt "$SRC" rw
mkdir "$MNT/step-1"
cp "$CKPT"/__*.distcp "$CKPT/.metadata" "$MNT/step-1/shards" || fail cp
"$UNSHARD" publish "$MNT/step-1" >/dev/null || fail publish
whole step-1

sync -f "$WORK/m"
limit 512k
mkdir "$MNT/step-2"
cp "$CKPT"/__*.distcp "$MNT/step-2/shards" || fail "cp within the quota"
head -c 2000000 /dev/urandom >"$MNT/step-2/shards/big" 2>"$WORK/err" &&
	fail "a quota that is used up is not told"
grep -qi 'quota' "$WORK/err" || fail "$(cat "$WORK/err")"
wait_for 5 grep -q 'write: Disk quota exceeded' "$LOG" || fail "no line: $(cat "$LOG")"
cp "$CKPT/.metadata" "$MNT/step-2/shards/.tmp" 2>/dev/null &&
	mv "$MNT/step-2/shards/.tmp" "$MNT/step-2/shards/.metadata" 2>/dev/null &&
	[ -e "$SRC/step-2" ] && whole step-2
whole step-1

# Write-through needs no new blocks but those that btrfs copies.
limit none
if [ ! -e "$SRC/step-2" ]; then
	rm -f "$MNT/step-2/shards/big" "$MNT/step-2/shards/.tmp"
	cp "$CKPT"/__*.distcp "$CKPT/.metadata" "$MNT/step-2/shards" ||
		fail "with room again"
	"$UNSHARD" publish "$MNT/step-2" >/dev/null || fail "publish"
fi
whole step-2
umount_ckpt
umount "$WORK/m"
done_ok
