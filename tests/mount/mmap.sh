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

# A shard that is removed while a tensor is mapped: what was read stays, the rest of that
# shard's bytes is no zero and nobody else's, and other shards' bytes are served.
if [ -n "${PYTHON:-}" ]; then
	for o in direct=auto direct=off; do
		rm -rf "$WORK/gone"
		make_split "$WORK/gone" 2000 8192 5
		mount_ckpt "$WORK/gone" "$o"
		"$PYTHON" - "$MNT" "$WORK/gone" "$WORK/whole.w" <<'END' || fail "removed, with -o $o"
import errno, mmap, os, signal, sys

mnt, ckpt, whole = sys.argv[1:]
want = open(whole, "rb").read()
fd = os.open(mnt + "/tensors/w", os.O_RDONLY)
m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
assert m[:100] == want[:100]
shards = sorted(n for n in os.listdir(ckpt) if n.startswith("shard-"))
assert len(shards) == 5, shards
shard = os.open(mnt + "/shards/" + shards[-1], os.O_RDONLY)
first = os.pread(shard, 100, 0)
os.unlink(ckpt + "/" + shards[-1])

pid = os.fork()
if not pid:  # each row has bytes of each shard
    m[len(want) - 4096:]
    os._exit(0)
assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGBUS
assert m[:100] == want[:100]
row = 8192 * 1999  # whose first bytes are of a shard that is there
assert os.pread(fd, 100, row) == want[row:row + 100]
try:
    os.pread(fd, 100, len(want) - 100)
    sys.exit("bytes of a shard that was removed")
except OSError as e:
    assert e.errno == errno.EIO, e
assert os.pread(shard, 100, 0) == first
END
		# deleted: what the kernel read ahead had opened it before
		grep -qE "error: tensor w: file shard-.*(No such file|was deleted)" "$MNT/.unshard/problems" ||
			fail "$(cat "$MNT/.unshard/problems")"
		umount_ckpt
	done
fi
done_ok
