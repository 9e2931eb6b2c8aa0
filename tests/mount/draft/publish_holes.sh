# SPDX-License-Identifier: Apache-2.0
# A writer makes its file as long as it will be, writes half of it and is
# killed: what nobody wrote is not published as zeros, unless they are meant.
LIMIT=90
. "$(dirname "$0")/../lib/common.sh"
requires cp truncate

python=${PYTHON:-python3}
SRC=$WORK/src
mkdir "$SRC"
truncate -s 64k "$SRC/probe"
[ "$(stat -c %b "$SRC/probe")" = 0 ] || skip "no sparse files here"
rm "$SRC/probe"

# killed STEP HOW: what a writer that was killed leaves in it.
killed() {
	local f=$MNT/$1/shards/model.safetensors pid
	mkdir "$MNT/$1"
	"$python" "$here/tests/mount/lib/half.py" "$f" "$2" >"$WORK/said" &
	pid=$!
	wait_for 20 grep -q half "$WORK/said" || fail "no writer"
	{ kill -9 $pid && wait $pid; } 2>/dev/null
}

# ---- not after quiet, and status says why
mount_ckpt "$SRC" rw,publish-after=1
for how in mmap pwrite; do
	killed "$how" $how
	line="model.safetensors: bytes [0-9]+ to 1052672, of w, are a hole"
	said() { grep -qE "$how: stays a draft: .*$line" "$LOG"; }
	wait_for 20 said || fail "$how: published, or not said: $(cat "$LOG")"
	[ ! -e "$SRC/$how" ] || fail "$how: zeros were published"
	"$UNSHARD" status "$SRC" >"$WORK/out"
	grep -qE "not complete: $line" "$WORK/out" || fail "$(cat "$WORK/out")"
	grep -qE "$line" "$MNT/$how/.unshard/status" ||
		fail "$how: $(cat "$MNT/$how/.unshard/status")"
	expect 1 "$line.*--allow-holes" "$UNSHARD" publish "$MNT/$how"
done
# blocks that were only reserved are as good as none
killed fallocate fallocate
"$UNSHARD" publish "$MNT/fallocate" >"$WORK/out" 2>&1 &&
	fail "fallocate: zeros were published"
grep -q 'are a hole' "$WORK/out" || say "no holes in reserved blocks here"

# ---- zeros that were written are no hole; the rest can be written later
killed w pwrite
"$python" "$here/tests/mount/lib/half.py" "$MNT/w/shards/model.safetensors" all ||
	fail "the writer"
shown() { [ -d "$SRC/w" ]; }
wait_for 20 shown || fail "w: not published: $(cat "$LOG")"

# ---- they are meant
"$UNSHARD" publish --allow-holes "$MNT/mmap" >/dev/null || fail "--allow-holes"
"$UNSHARD" verify "$SRC/mmap" >/dev/null || fail "verify"
umount_ckpt
mount_ckpt "$SRC" rw,publish-after=1,allow-holes
mkdir "$MNT/s"
cp --sparse=always "$SRC/mmap/model.safetensors" "$MNT/s/shards/"
shown() { [ -d "$SRC/s" ]; }
wait_for 20 shown || fail "-o allow-holes: $(cat "$LOG")"
umount_ckpt

# ---- holes where no tensor is, and in a file of which nothing is known
mount_ckpt "$SRC" rw
mkdir "$MNT/p" "$MNT/q"
cp "$SRC/w/model.safetensors" "$MNT/q/shards/"
truncate -s 64k "$MNT/q/shards/other"
expect 1 'other: bytes 0 to 65536 are a hole' "$UNSHARD" publish "$MNT/q"
# the middle of a record of 32 KiB, after 1 MiB of padding of the zip
"$python" - "$MNT/p/shards/model.pt" <<'EOS' || fail "the zip"
import binascii, struct, sys
pkl = (b"\x80\x02}q\x00X\x01\x00\x00\x00wq\x01ctorch._utils\n_rebuild_tensor_v2"
       b"\nq\x02((X\x07\x00\x00\x00storageq\x03ctorch\nByteStorage\nq\x04X\x01"
       b"\x00\x00\x000q\x05X\x03\x00\x00\x00cpuq\x06J\x00\x80\x00\x00tq\x07QK"
       b"\x00J\x00\x80\x00\x00\x85q\x08K\x01\x85q\tccollections\nOrderedDict\n"
       b"q\n)Rq\x0b\x89tq\x0cRq\rs.")
out, cd = bytearray(), bytearray()
for name, data, pad in (("m/data.pkl", pkl, 0),
                        ("m/data/0", bytes(range(256)) * 128, 60000),
                        ("m/version", b"3\n", 0)):
    name = name.encode()
    extra = struct.pack("<HH", 0x4246, pad) + bytes(pad) if pad else b""
    crc = binascii.crc32(data)
    at = len(out)
    out += struct.pack("<IHHHHHIIIHH", 0x04034b50, 0, 0, 0, 0, 0, crc,
                       len(data), len(data), len(name), len(extra))
    out += name + extra + data
    cd += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 0, 0, 0, 0, 0, 0, crc,
                      len(data), len(data), len(name), 0, 0, 0, 0, 0, at) + name
end = struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, 3, 3, len(cd), len(out), 0)
open(sys.argv[1] + ".full", "wb").write(out + cd + end)
EOS
cp --sparse=always "$MNT/p/shards/model.pt.full" "$MNT/p/shards/model.pt" &&
	rm "$MNT/p/shards/model.pt.full"
"$UNSHARD" publish "$MNT/p" >/dev/null || fail "a hole that is padding"
umount_ckpt
done_ok
