# SPDX-License-Identifier: Apache-2.0
# A large direct read of which a later part is lost is short, however it is asked.
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"

# 6 MiB of a tensor, the last 2 of which are not there
head='{"w":{"dtype":"U8","shape":[6291456],"data_offsets":[0,6291456]}}'
mkdir "$WORK/ckpt"
{ le64 ${#head}; printf '%s' "$head"; head -c 4194304 /dev/zero; } \
	>"$WORK/ckpt/model.safetensors"
for how in on off; do
	mount_ckpt "$WORK/ckpt" direct=$how
	"$PYTHON" "$here/tests/mount/lib/lost_direct.py" "$MNT/tensors/w" 8388608 \
		>"$WORK/got" || [ $? = 77 ] || fail "no answer"
	[ "$(sort -u "$WORK/got")" = 4194304 ] ||
		fail "direct=$how: read $(cat "$WORK/got")"
	umount_ckpt
done
done_ok
