# SPDX-License-Identifier: Apache-2.0
# A file whose own CRC-32 says that it is damaged is not published, by itself
# or by command, and not sealed.
LIMIT=90
. "$(dirname "$0")/../lib/common.sh"
requires cp

python=${PYTHON:-python3}
CKPT=$here/tests/demo/checkpoint
SRC=$WORK/src
mkdir "$SRC"

# zip FILE [FLIP|none]: a torch.save of one tensor of 9 MiB, three blocks of the
# manifest; a byte of it flipped, or no CRC kept.
zip() {
	"$python" - "$@" <<'EOS' || fail "the zip"
import binascii, struct, sys
n = 9 << 20
pkl = (b"\x80\x02}q\x00X\x01\x00\x00\x00wq\x01ctorch._utils\n_rebuild_tensor_v2"
       b"\nq\x02((X\x07\x00\x00\x00storageq\x03ctorch\nByteStorage\nq\x04X\x01"
       b"\x00\x00\x000q\x05X\x03\x00\x00\x00cpuq\x06J" + struct.pack("<I", n) +
       b"tq\x07QK\x00J" + struct.pack("<I", n) + b"\x85q\x08K\x01\x85q\tccollec"
       b"tions\nOrderedDict\nq\n)Rq\x0b\x89tq\x0cRq\rs.")
how = sys.argv[2] if len(sys.argv) > 2 else ""
out, cd = bytearray(), bytearray()
for name, data in (("m/data.pkl", pkl), ("m/data/0", bytes(range(256)) * (n >> 8)),
                   ("m/version", b"3\n")):
    name = name.encode()
    crc = 0 if how == "none" else binascii.crc32(data)
    at = len(out)
    out += struct.pack("<IHHHHHIIIHH", 0x04034b50, 0, 0, 0, 0, 0, crc,
                       len(data), len(data), len(name), 0) + name + data
    cd += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 0, 0, 0, 0, 0, 0, crc,
                      len(data), len(data), len(name), 0, 0, 0, 0, 0, at) + name
if how.isdigit():
    out[int(how)] ^= 1
end = struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, 3, 3, len(cd), len(out), 0)
open(sys.argv[1], "wb").write(out + cd + end)
EOS
}

mount_ckpt "$SRC" rw,publish-after=1
for at in 1000 5000000 9437000; do
	mkdir "$MNT/z$at"
	zip "$MNT/z$at/shards/model.pt" $at
	line='model.pt: bytes [0-9]+ to [0-9]+: their CRC-32 is .*, the file says'
	said() { grep -qE "z$at: stays a draft: .*$line" "$LOG"; }
	wait_for 20 said || fail "$at: $(cat "$LOG")"
	[ ! -e "$SRC/z$at" ] || fail "$at: a damaged file was published"
	"$UNSHARD" status "$SRC" "z$at" >"$WORK/out"
	grep -qE "not complete: $line" "$WORK/out" || fail "$(cat "$WORK/out")"
	expect 1 "not complete: $line" "$UNSHARD" publish "$MNT/z$at"
done
# written again, it is another file
zip "$MNT/z1000/shards/model.pt"
"$UNSHARD" publish "$MNT/z1000" >/dev/null || fail "written again"
# a writer that keeps no sums
mkdir "$MNT/none"
zip "$MNT/none/shards/model.pt" none
"$UNSHARD" publish "$MNT/none" >/dev/null || fail "without sums"

# ---- items of DCP
mkdir "$MNT/d"
cp "$CKPT"/__*.distcp "$MNT/d/shards/"
"$python" - "$MNT/d/shards/__1_0.distcp" <<'EOS'
import sys
f = open(sys.argv[1], "r+b")
data = f.read()
at = data.index(b"/data/0") + 300  # some element of its first item
f.seek(at)
f.write(bytes([data[at] ^ 1]))
EOS
cp "$CKPT/.metadata" "$MNT/d/shards/m"
mv "$MNT/d/shards/m" "$MNT/d/shards/.metadata"
[ ! -e "$SRC/d" ] || fail "a damaged item was published"
expect 1 'not complete: __1_0.distcp: bytes .* CRC-32' "$UNSHARD" publish "$MNT/d"
cp "$CKPT/__1_0.distcp" "$MNT/d/shards/"
"$UNSHARD" publish "$MNT/d" >/dev/null || fail "with the item made right"
umount_ckpt

# ---- seal
mkdir "$WORK/s"
zip "$WORK/s/model.pt" 5000000
expect 1 'model.pt: bytes .* CRC-32' "$UNSHARD" seal "$WORK/s"
[ ! -e "$WORK/s/.unshard-manifest" ] || fail "a damaged file was sealed"
"$UNSHARD" seal --force "$WORK/s" >/dev/null || fail "--force"
done_ok
