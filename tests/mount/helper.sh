#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mount -t unshardfs, and fstab.
. "$(dirname "$0")/lib/common.sh"
requires mount umount cmp
[ "$(id -u)" = 0 ] && [ -n "${COMMON_PRIVATE:-}" ] ||
	skip "needs root and a mount namespace of its own"

CKPT=$WORK/ckpt
make_safetensors "$CKPT/model.safetensors"

# --- as mount(8) calls it
mkdir "$WORK/sbin"
ln -s "$UNSHARD" "$WORK/sbin/mount.unshardfs"
helper=$WORK/sbin/mount.unshardfs
if [ -n "${SAN:-}" ]; then # a wrapper would hide the name
	rm "$helper"
	ln -s "$(dirname "$(dirname "$UNSHARD")")/unshard" "$helper"
	[ -x "$helper" ] || ln -sf "$UNSHARD" "$helper"
fi
"$helper" "$CKPT" "$MNT" -o "rw,nosuid,nodev,noauto,user=joe,log=$LOG$SAN_OPTS" ||
	fail "the helper gave $?"
same "$MNT/tensors/a" "$WORK/a.bin"
umount "$MNT" || fail "umount"
"$helper" -f "$CKPT" "$MNT" || fail "-f"
mounted && fail "-f mounts"
expect 1 'expected SRC MNT' "$helper" "$CKPT"
expect 1 'unknown option "colour"' "$helper" "$CKPT" "$MNT" -o colour
expect 32 'none' "$helper" "$WORK/none" "$MNT"

# --- by mount(8), which looks in /sbin
mount --bind "$WORK/sbin" /usr/sbin || skip "cannot bind over /usr/sbin"
mount -t unshardfs -o "log=$LOG$SAN_OPTS" "$CKPT" "$MNT" ||
	fail "mount -t unshardfs gave $?"
same "$MNT/tensors/b.c" "$WORK/b.bin"
umount "$MNT" || fail "umount"
mount -t unshardfs "$WORK/none" "$MNT" 2>"$WORK/err"
[ $? = 32 ] || fail "mount of nothing: expected 32"
grep -q none "$WORK/err" || fail "mount: $(cat "$WORK/err")"

# --- by fstab
echo "$CKPT $MNT unshardfs noauto,nofail,_netdev,x-systemd.automount,log=$LOG$SAN_OPTS 0 0" \
	>"$WORK/fstab"
mount -T "$WORK/fstab" "$MNT" || fail "mount by fstab gave $?"
same "$MNT/tensors/a" "$WORK/a.bin"
[ "$(findmnt -n -o FSTYPE "$MNT")" = fuse.unshardfs ] || fail "wrong type"
umount "$MNT" || fail "umount"
done_ok
