# SPDX-License-Identifier: Apache-2.0
# All views of the same bytes show what was written to one of them, at once,
# mapped or not; several writers to several views do not wait for each other
# for ever, also where few workers serve.
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/split.sh"
requires python3

make_split "$WORK/ckpt" 200 4097 5
for o in direct=auto direct=off threads=2,direct=off threads=2; do
	mount_ckpt "$WORK/ckpt" "rw,$o"
	python3 "$here/tests/mount/lib/coherent.py" "$MNT" 1.5 \
		>"$WORK/said" 2>&1 || fail "with -o $o: $(tail -n 5 "$WORK/said")"
	umount_ckpt
done

# tensors that are stored in the same bytes
cp -r "$here/tests/formats/torch/views/in" "$WORK/tied"
chmod -R u+w "$WORK/tied"
for o in direct=auto direct=off; do
	mount_ckpt "$WORK/tied" "rw,$o"
	python3 - "$MNT/tensors" <<'END' || fail "tied tensors with -o $o"
import mmap, os, sys

full, tied = (os.path.join(sys.argv[1], n) for n in ("full", "tied"))
before = open(full, "rb").read()
assert open(tied, "rb").read() == before
f = open(tied, "rb")
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
assert m[:] == before
fd = os.open(full, os.O_RDWR)
new = bytes(b ^ 0x21 for b in before)
os.pwrite(fd, new, 0)
assert m[:] == new, "a map of the other is old"
assert open(tied, "rb").read() == new
os.pwrite(fd, before, 0)
assert m[:] == before
END
	umount_ckpt
done
done_ok
