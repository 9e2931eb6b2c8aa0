# SPDX-License-Identifier: Apache-2.0
# A repository in Hugging Face's cache: which path of it is mounted.
. "$(dirname "$0")/lib/common.sh"

HUB=$WORK/models--org--name
make_safetensors "$HUB/blobs/model.safetensors"
mv "$HUB/blobs/model.safetensors" "$HUB/blobs/0123"
mkdir -p "$HUB/snapshots/abcd" "$HUB/refs"
ln -s ../../blobs/0123 "$HUB/snapshots/abcd/model.safetensors"
printf abcd >"$HUB/refs/main"
"$UNSHARD" mount "$HUB" "$MNT" 2>"$WORK/err" && fail "mounts a repository"
grep -qF "give a snapshot of it, $HUB/snapshots/abcd" "$WORK/err" ||
	fail "$(cat "$WORK/err")"
rm "$HUB/refs/main"
"$UNSHARD" ls "$HUB" 2>"$WORK/err" && fail "lists a repository"
grep -qF "/snapshots/abcd" "$WORK/err" || fail "$(cat "$WORK/err")"
mount_ckpt "$HUB/snapshots/abcd"
same "$MNT/tensors/a" "$WORK/a.bin"
umount_ckpt
done_ok
