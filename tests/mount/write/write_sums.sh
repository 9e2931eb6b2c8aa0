# SPDX-License-Identifier: Apache-2.0
# The checksums that zips and MindSpore keep are right again after a close, and
# after a crash between the bytes and the sum the next mount says so, and one
# for writing makes them right.
. "$(dirname "$0")/../lib/common.sh"
requires python3 getfattr
PS4="+ \$SECONDS "; set -x
sums() { python3 "$here/tests/mount/lib/sums.py" "$@"; }

# poke FILE [BYTES]: some bytes in the middle, without a sync
poke() {
	local size
	size=$(stat -c %s "$1")
	noise "${2:-5}" "$RANDOM" | dd of="$1" bs=1 seek=$((size / 3)) \
		conv=notrunc status=none || fail "writing to $1"
}

each_format() {
	local from=$1 pattern=$2 n
	rm -rf "$WORK/ckpt"
	cp -r "$here/tests/formats/$from/in" "$WORK/ckpt"
	chmod -R u+w "$WORK/ckpt"
	sums "$WORK/ckpt" || fail "$from: wrong before anything was written"
	find "$WORK/ckpt" -name "$pattern" -exec sha256sum {} + >"$WORK/before"
	mount_ckpt "$WORK/ckpt" rw
	for t in "$MNT"/tensors/*; do
		[ "$(stat -c %s "$t")" -gt 20 ] && poke "$t"
	done
	sums "$WORK/ckpt" || fail "$from: after some bytes of each tensor"
	for t in "$MNT"/tensors/*; do
		noise "$(stat -c %s "$t")" "$RANDOM" >"$WORK/new"
		dd if="$WORK/new" of="$t" conv=notrunc status=none bs=1M ||
			fail "$t"
	done
	same "$t" "$WORK/new"
	sums "$WORK/ckpt" || fail "$from: after all bytes of each tensor"
	umount_ckpt
	sums "$WORK/ckpt" || fail "$from: after the mount"
	sha256sum --status -c "$WORK/before" && fail "$from: nothing was written"
	mount_ckpt "$WORK/ckpt"
	grep -v '^note' "$MNT/.unshard/problems" | grep -q checksum &&
		fail "$from: $(cat "$MNT/.unshard/problems")"
	umount_ckpt
}
each_format torch/strided-2.15 '*.pt*'
each_format dcp/2.14-layouts '*.distcp'
each_format mindspore/2.10-crc '*.ckpt'

# --- a larger one, of more blocks than one, in a zip with local sums too
mkdir "$WORK/big"
python3 - "$WORK/big/model.pt" <<'END' || fail "making a larger file"
import pickle, random, sys, zipfile, io

# What torch.save leaves for {"x": a uint8 tensor of 3 MB}, zipped by Python.
n = 3000000
class Ref:
    pass
class P(pickle.Pickler):
    def persistent_id(self, o):
        return o.args if isinstance(o, Ref) else None
out = io.BytesIO()
out.write(
    b"\x80\x02}q\x00X\x01\x00\x00\x00xq\x01ctorch._utils\n_rebuild_tensor_v2\n"
    b"q\x02((X\x07\x00\x00\x00storageq\x03ctorch\nByteStorage\nq\x04X\x01\x00"
    b"\x00\x000q\x05X\x03\x00\x00\x00cpuq\x06J" + n.to_bytes(4, "little") +
    b"tq\x07QK\x00J" + n.to_bytes(4, "little") +
    b"\x85q\x08K\x01\x85q\x09\x89ccollections\nOrderedDict\nq\x0a)Rq\x0btq\x0cR"
    b"q\x0ds."
)
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr("model/data.pkl", out.getvalue())
    z.writestr("model/data/0", random.Random(1).randbytes(n))
    z.writestr("model/version", b"3\n")
END
sums "$WORK/big" || fail "made wrongly"
mount_ckpt "$WORK/big" rw
cp "$MNT/tensors/x" "$WORK/model.x"
python3 "$here/tests/mount/lib/random_writes.py" "$MNT/tensors/x" \
	"$WORK/model.x" 60 || fail "random writes into a zip"
sums "$WORK/big" || fail "after random writes"
umount_ckpt

# --- a crash: bytes written, the file still open, the worker gone
mount_ckpt "$WORK/big" rw
noise 700000 9 >"$WORK/new"
# a close would settle it: the worker goes first
python3 - "$MNT/tensors/x" "$WORK/new" "$(worker_pid)" <<'END' || fail "write"
import os, signal, sys

data = open(sys.argv[2], "rb").read()
fd = os.open(sys.argv[1], os.O_WRONLY)
assert os.write(fd, data) == len(data)
os.kill(int(sys.argv[3]), signal.SIGKILL)
END
wait_for 10 not mounted || fail "a dead mount stays"
sums -v "$WORK/big" | grep -q . || fail "the sum is right: nothing is tested"
mount_ckpt "$WORK/big"
grep -q '^warning: file model.pt: .*checksums' "$MNT/.unshard/problems" ||
	fail "not named: $(cat "$MNT/.unshard/problems")"
cmp -n 700000 "$MNT/tensors/x" "$WORK/new" || fail "acknowledged bytes"
umount_ckpt
mount_ckpt "$WORK/big" rw
wait_for 10 grep -q 'made right' "$MNT/.unshard/problems" ||
	fail "not repaired: $(cat "$MNT/.unshard/problems")"
umount_ckpt
sums "$WORK/big" || fail "after the repair"
settled() {
	! getfattr --only-values -n user.unshard.writing "$WORK/big" \
		>/dev/null 2>&1
}
wait_for 5 settled || fail "the mark stays"

damage() { # FILE AT
	python3 - "$1" "$2" <<'END' || fail "damage"
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(int(sys.argv[2]))
    was = f.read(1)
    f.seek(int(sys.argv[2]))
    f.write(bytes([was[0] ^ 1]))
END
}

# --- a sum that is wrong tells of damage: whole blocks written elsewhere do not
# make it right, all bytes do
cp "$WORK/big/model.pt" "$WORK/kept"
damage "$WORK/big/model.pt" 2900000
noise 3000000 10 >"$WORK/new"
for how in writes nothing; do
	mount_ckpt "$WORK/big" rw
	for i in 0 1; do
		[ $how = nothing ] || dd if="$WORK/new" of="$MNT/tensors/x" bs=1M \
			skip=$i seek=$i count=1 conv=notrunc status=none ||
			fail "a block"
	done
	sums -v "$WORK/big" | grep -q . || fail "$how: damage has a right sum"
	umount_ckpt
	sums -v "$WORK/big" | grep -q . || fail "$how: it has one when unmounted"
done
mount_ckpt "$WORK/big" rw
dd if="$WORK/new" of="$MNT/tensors/x" bs=1M conv=notrunc status=none ||
	fail "all bytes"
sums "$WORK/big" || fail "all bytes are new, of what was damaged"
umount_ckpt
cp "$WORK/kept" "$WORK/big/model.pt"

# --- a crash over bytes that were damaged before: their sum stays wrong, also
# after the next mount and a few bytes more, until all of them are new
"$UNSHARD" seal "$WORK/big" >/dev/null || fail "seal"
damage "$WORK/big/model.pt" 2000000
mount_ckpt "$WORK/big" rw
python3 - "$MNT/tensors/x" "$(worker_pid)" <<'END' || fail "write"
import os, signal, sys

fd = os.open(sys.argv[1], os.O_WRONLY)
os.pwrite(fd, b"abc", 100)
os.kill(int(sys.argv[2]), signal.SIGKILL)
END
wait_for 10 not mounted || fail "a dead mount stays"
rotten() { # WHEN
	sums -v "$WORK/big" | grep -q . || fail "$1: damage has a right sum"
	"$UNSHARD" verify "$WORK/big" >"$WORK/v" 2>&1
	grep -q 'model.pt: block 0' "$WORK/v" || fail "$1: $(cat "$WORK/v")"
}
for i in 1 2; do
	mount_ckpt "$WORK/big" rw
	poke "$MNT/tensors/x" 3
	wait_for 10 grep -q '; 1 stay wrong' "$MNT/.unshard/problems" ||
		fail "$i: not said: $(cat "$MNT/.unshard/problems")"
	rotten "$i, mounted"
	umount_ckpt
	rotten "$i"
	settled && fail "$i: a wrong sum without a mark"
done
mount_ckpt "$WORK/big" rw
noise 3000000 11 >"$WORK/new"
poke "$MNT/tensors/x" 3
dd if="$WORK/new" of="$MNT/tensors/x" bs=1M conv=notrunc,fsync status=none ||
	fail "all bytes anew"
sums "$WORK/big" || fail "all bytes are new, and their sum is not"
umount_ckpt
sums "$WORK/big" || fail "all bytes are new, after the mount"
wait_for 5 settled || fail "the mark stays"

# --- the same of MindSpore's trailer, which is of the whole file
M=$WORK/ms
python3 "$here/tests/mount/lib/containers.py" make ckpt "$M" "$WORK/w" ||
	fail "making a MindSpore file"
# crash AT [OPTION]: some bytes there, and the worker gone before they were settled
crash() {
	mount_ckpt "$M" "rw${2:+,$2}"
	python3 - "$MNT/tensors/w" "$(worker_pid)" "$1" <<'END' || fail "write"
import os, signal, sys

fd = os.open(sys.argv[1], os.O_WRONLY)
assert os.pwrite(fd, b"crashed", int(sys.argv[3])) == 7
os.kill(int(sys.argv[2]), signal.SIGKILL)
END
	wait_for 10 not mounted || fail "a dead mount stays"
	sums -v "$M" | grep -q . || fail "the trailer is right: nothing is tested"
}
ms_settled() {
	! getfattr --only-values -n user.unshard.writing "$M" >/dev/null 2>&1
}
crash 300000
mount_ckpt "$M"
grep -q '^warning: file model.ckpt: .*checksums' "$MNT/.unshard/problems" ||
	fail "not named: $(cat "$MNT/.unshard/problems")"
tail -c +300001 "$MNT/tensors/w" | cmp -n 7 - <(printf crashed) ||
	fail "acknowledged bytes"
umount_ckpt
mount_ckpt "$M" rw
wait_for 10 grep -q '1 of them made right' "$MNT/.unshard/problems" ||
	fail "not repaired: $(cat "$MNT/.unshard/problems")"
umount_ckpt
sums "$M" || fail "the trailer after the repair"
wait_for 5 ms_settled || fail "the mark stays"

# damaged: nothing of it is read or written, for its trailer says so; whoever
# writes with -o crc=ignore and dies does not make it right either
"$UNSHARD" seal "$M" >/dev/null || fail "seal"
damage "$M/model.ckpt" 700000
refused() { # WHEN
	mount_ckpt "$M" rw
	cat "$MNT/tensors/w" >/dev/null 2>&1 && fail "$1: damage is read"
	(poke "$MNT/tensors/w" 3) >/dev/null 2>&1 && fail "$1: written to"
	grep -q 'model.ckpt: its CRC-32 is' "$MNT/.unshard/problems" ||
		fail "$1: not said: $(cat "$MNT/.unshard/problems")"
	umount_ckpt
	sums -v "$M" | grep -q . || fail "$1: damage has a right trailer"
	"$UNSHARD" verify "$M" >"$WORK/v" 2>&1 && fail "$1: damage is sealed"
	grep -q 'model.ckpt: block 0' "$WORK/v" || fail "$1: $(cat "$WORK/v")"
}
refused "at first"
crash 100 crc=ignore
refused "after a crash"

# a file of items begins with an archive, an object's, and is none as a whole
cp -r "$here/tests/formats/dcp/2.14-safetensors-form/in" "$WORK/items"
mount_ckpt "$WORK/items" rw
noise 288 5 >"$WORK/layer"
dd if="$WORK/layer" of="$MNT/tensors/layers.1.w" conv=notrunc status=none ||
	fail "behind an object: not written to"
umount_ckpt
"$UNSHARD" cat "$WORK/items" layers.1.w | cmp - "$WORK/layer" ||
	fail "behind an object: other bytes"
done_ok
