# SPDX-License-Identifier: Apache-2.0
# A program that waits until a large item is unpacked can be killed soon,
# though what it waits for takes minutes.
. "$(dirname "$0")/lib/common.sh"
requires python3

mkdir "$WORK/ckpt" "$WORK/spool"
# a zstd frame of blocks that are one zero each, repeated 128 Ki times
python3 - "$WORK/ckpt" <<'P' || fail make
import json, sys
size, block = 64 << 30, 128 << 10
def head(last):
    return (block << 3 | 1 << 1 | last).to_bytes(3, "little") + b"\0"
frame = b"\x28\xb5\x2f\xfd\0\x38" + head(0) * (size // block - 1) + head(1)
open(sys.argv[1] + "/big", "wb").write(frame)
json.dump({"unshard_layout": 1, "tensors": [{"name": "t", "dtype": "uint8", "shape": [size],
    "boxes": [{"file": "big", "offset": 0, "start": [0], "size": [size],
               "zstd": [0, len(frame)]}]}]},
    open(sys.argv[1] + "/unshard-layout.json", "w"))
P
mount_ckpt "$WORK/ckpt" "spool=$WORK/spool"
spooled() { sed -n 's/^spooled_bytes *//p' "$MNT/.unshard/stats"; }
some() { [ "$(spooled)" -gt 0 ]; }
head -c 1 "$MNT/tensors/t" >/dev/null 2>&1 &
reader=$!
wait_for 20 some || fail "nothing is unpacked: $(cat "$MNT/.unshard/stats" "$LOG")"
kill -9 $reader
wait_for 20 gone $reader || fail "it cannot be killed"
umount_ckpt
done_ok
