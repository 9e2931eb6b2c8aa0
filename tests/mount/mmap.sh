# SPDX-License-Identifier: Apache-2.0
# Shared and private maps, from 32 threads at once, in each way of delivery,
# also with one worker only: a fault must never wait for another fault.
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/split.sh"
[ -x "${HELPERS:-$here/build/helper}/mmap32" ] || fail "no helper mmap32"
mmap32=${HELPERS:-$here/build/helper}/mmap32

make_split "$WORK/ckpt" 2000 8192 5
for o in direct=auto direct=off threads=1 threads=1,direct=off; do
	mount_ckpt "$WORK/ckpt" "$o"
	"$mmap32" "$MNT/tensors/w" "$WORK/whole.w" || fail "with -o $o"
	umount_ckpt
done

if [ -n "${PYTHON:-}" ]; then
	mount_ckpt "$WORK/ckpt"
	"$PYTHON" - "$MNT/tensors" "$WORK/whole" <<'END' || fail "numpy"
import sys
import numpy as np

t, whole = sys.argv[1:]
want = np.fromfile(whole + ".rows", "<i2").reshape(2000, 3, 2)
have = np.memmap(t + "/cut.rows", "<i2", "r", shape=(2000, 3, 2))
assert np.array_equal(have, want)
assert np.array_equal(have[5:700:3, 1:, 0], want[5:700:3, 1:, 0])
assert np.array_equal(np.fromfile(t + "/w", "u1"), np.fromfile(whole + ".w", "u1"))
part = np.fromfile(t + "/w", "u1", count=100, offset=12345)
assert np.array_equal(part, np.fromfile(whole + ".w", "u1")[12345:12445])
END
	umount_ckpt
fi
done_ok
