# SPDX-License-Identifier: Apache-2.0
# A tensor that torch saved by itself, in no dict: every view of it.
. "$(dirname "$0")/lib/common.sh"
requires find

mount_ckpt "$here/tests/formats/torch/bare/in"
ls -lR "$MNT" >/dev/null || fail "ls -lR"
find "$MNT" -type f -exec cat {} + >/dev/null || fail "reading it all"
[ "$(od -An -v -tu8 "$MNT"/tensors/* | tr -s ' \n' ' ')" = " 0 1 2 3 4 " ] ||
	fail "$(od -An -tu8 "$MNT"/tensors/*)"
[ "$(head -c 2 "$MNT/model.pt")" = PK ] || fail model.pt
umount_ckpt
done_ok
