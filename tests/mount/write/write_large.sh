# SPDX-License-Identifier: Apache-2.0
# A write of many requests, which the kernel could send at the same time, gets
# through where each of them waits for pages that maps have stored into, and
# which the kernel sends only when there is room for one more request.
LIMIT=240
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
requires python3

cat >"$WORK/large.py" <<'END'
import mmap, os, struct, sys

mapped, written, base = sys.argv[1], sys.argv[2], int(sys.argv[3])
size = 4096 * 4096
rounds = mmap.mmap(-1, 8)  # of the child's
child = os.fork()
if not child:
    m = mmap.mmap(os.open(mapped, os.O_RDWR), 0)
    for k in range(1 << 30):
        for at in range(100, size, 4096 * 16):
            m[at] = k % 256
        rounds[:] = struct.pack("Q", k + 1)
# What another file maps for writing is opened for writing alone.
fd = os.open(written, (os.O_RDWR if written == mapped else os.O_WRONLY) | os.O_DIRECT)
new = mmap.mmap(-1, size)
for k in range(4):
    new[:] = os.urandom(1 << 20) * 16
    assert os.pwrite(fd, new, base) == size
    before = rounds[:]
    while rounds[:] == before:
        os.sched_yield()
os.kill(child, 9)
os.waitpid(child, 0)
END
make_split "$WORK/large" 4096 4096 2
for o in direct=auto direct=off; do
	mount_ckpt "$WORK/large" "rw,$o"
	w=$MNT/tensors/w
	npy=$MNT/npy/w.npy
	base=$(($(stat -c %s "$npy") - 4096 * 4096))
	timeout 60 python3 "$WORK/large.py" "$w" "$w" 0 ||
		fail "a large write beside a map, -o $o"
	timeout 60 python3 "$WORK/large.py" "$w" "$npy" "$base" ||
		fail "a large write beside another view's map, -o $o"
	umount_ckpt
done
done_ok
