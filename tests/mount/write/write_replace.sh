# SPDX-License-Identifier: Apache-2.0
# -o replace: what programs write after O_TRUNC takes the place of a file when
# all of it is there; otherwise the old bytes stay and the program is told.
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
requires python3 cp dd tee

make_split "$WORK/ckpt" 700 4097 5
size=$(stat -c %s "$WORK/whole.w")
noise "$size" 11 >"$WORK/b"
noise "$size" 12 >"$WORK/c"
head -c $((size - 1)) "$WORK/c" >"$WORK/short"
{ cat "$WORK/c"; echo; } >"$WORK/long"
: >"$WORK/empty"
mkdir "$WORK/spool"
no_spool() { [ -z "$(ls -A "$WORK/spool")" ]; }

for o in direct=auto direct=off; do
	cp "$WORK/whole.w" "$WORK/is"
	mount_ckpt "$WORK/ckpt" "replace,spool=$WORK/spool,$o"
	t=$MNT/tensors/w
	same_views() {
		same "$t" "$1"
		tail -c "$size" "$MNT/npy/w.npy" | cmp - "$1" || fail "npy"
	}
	# fails COMMAND...: it says so, and nothing has changed
	fails() {
		"$@" 2>"$WORK/err" && fail "$*: succeeded"
		same_views "$WORK/is"
	}
	works() {
		"${@:2}" || fail "${*:2}"
		cp "$1" "$WORK/is"
		same_views "$1"
	}
	same_views "$WORK/is"
	works "$WORK/b" cp "$WORK/b" "$t"
	fails cp "$WORK/short" "$t"
	fails cp "$WORK/long" "$t"
	works "$WORK/c" dd if="$WORK/c" of="$t" bs=64k status=none
	fails dd if="$WORK/b" of="$t" bs=64k count=5 status=none
	works "$WORK/b" bash -c "cat '$WORK/b' >'$t'"
	fails bash -c "tee '$t' <'$WORK/short' >/dev/null"
	# bash does not look at what close says; the old bytes stay
	echo hi >"$t"
	same_views "$WORK/is"
	cp "$WORK/empty" "$t" || fail "cp of nothing"
	same_views "$WORK/is"
	# once it is committed nothing is staged for a descriptor that stays
	works "$WORK/b" python3 - "$t" "$WORK/b" "$WORK/ckpt" <<'END'
import os, sys
data = open(sys.argv[2], "rb").read()
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
for _ in 1, 2:
    assert os.pwrite(fd, data, 0) == len(data)
    os.close(os.dup(fd))
    left = [n for n in os.listdir(sys.argv[3]) if n.startswith(".unshard-new")]
    assert not left, left
END
	# without O_TRUNC it is an ordinary write
	works "$WORK/c" dd if="$WORK/c" of="$t" bs=1M conv=notrunc status=none
	works "$WORK/b" python3 - "$t" "$WORK/b" <<'END'
# in pieces, the last first, some twice, by two descriptors of one file
import os, sys
data = open(sys.argv[2], "rb").read()
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
other = os.dup(fd)
os.close(os.dup(fd))  # nothing was written yet
step = 100003
starts = list(range(0, len(data), step))[::-1]
for a in starts:
    os.pwrite(fd, data[a : a + step], a)
os.pwrite(fd, data[:5000], 0)
os.close(other)
os.close(fd)
END
	fails python3 - "$t" "$WORK/c" <<'END'
# a hole of one byte; the close says EIO, and so does an fsync before it
import errno, os, sys
data = open(sys.argv[2], "rb").read()
fd = os.open(sys.argv[1], os.O_RDWR | os.O_TRUNC)
os.pwrite(fd, data[:70000], 0)
os.pwrite(fd, data[70001:], 70001)
try:
    os.fsync(fd)
    sys.exit(0)
except OSError as e:
    if e.errno != errno.EIO:
        sys.exit(0)
os.close(fd)
END
	if command -v rsync >/dev/null; then
		# -I: both may be of the same second
		works "$WORK/c" rsync -I --inplace -W "$WORK/c" "$t"
	fi
	if [ -n "${PYTHON:-}" ]; then
		works "$WORK/b" "$PYTHON" -c "import numpy, sys
numpy.fromfile(sys.argv[2], 'u1').tofile(sys.argv[1])" "$t" "$WORK/b"
		fails "$PYTHON" -c "import numpy, sys
numpy.fromfile(sys.argv[2], 'u1')[5:].tofile(sys.argv[1])" "$t" "$WORK/c"
	fi
	# a truncation of a path has nobody who would write afterwards
	fails python3 -c "import os, sys; os.truncate(sys.argv[1], 0)" "$t"
	# a header as it is, and another
	cp "$MNT/npy/w.npy" "$WORK/npy"
	cp "$WORK/npy" "$MNT/npy/w.npy" || fail "cp of the same .npy"
	sed '1s/NUMPY/NUMPZ/' "$WORK/npy" >"$WORK/npz"
	fails cp "$WORK/npz" "$MNT/npy/w.npy"
	cp "$WORK/is" "$WORK/whole.w"
	umount_ckpt
	# the worker ends a moment after its mount
	wait_for 5 no_spool || fail "the spool keeps a file"
done
wait_for 5 grep -q 'bytes were written anew; it stays as it was' "$LOG" ||
	fail "no line in the log"
same "$WORK/whole.rows" <("$UNSHARD" cat "$WORK/ckpt" cut.rows)
done_ok
