# SPDX-License-Identifier: Apache-2.0
# What was stored through a map, written by msync: a plain file; a tensor that is
# cut over 8 shards; and the same through a file of several tensors, of whose pages
# only what differs is written.  All take turns.

. "$TOP/tests/bench/lib/measure.sh"
: "${BENCH_ROWS:=8192}" "${BENCH_ROUNDS:=5}"
python3 "$TOP/tests/mount/lib/split.py" ckpt whole "$BENCH_ROWS" 32768 8
mv whole.w plain
sync
"$UNSHARD" mount "$PWD/ckpt" "$PWD/mnt" -o "rw${BENCH_OPTS:+,$BENCH_OPTS}"
trap '"$UNSHARD" umount mnt' EXIT
len=$(stat -c %s plain)
at=$(python3 - <<'END'
import json, struct

f = open("mnt/model.safetensors", "rb")
n = struct.unpack("<Q", f.read(8))[0]
print(8 + n + json.loads(f.read(n))["w"]["data_offsets"][0])
END
)

try() { # NAME FILE OFFSET
	"$BENCH_DIR/msyncfile" "$2" "$3" "$len" >>"$1.turns"
}

echo "kernel $(uname -r), $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg)"
for _ in $(seq "$BENCH_ROUNDS"); do
	try plain plain 0
	try tensor mnt/tensors/w 0
	try several mnt/model.safetensors "$at"
done
for what in plain tensor several; do
	measured msync_$what GB/s $what.turns
done
cmp <(tail -c +$((at + 1)) mnt/model.safetensors | head -c "$len") mnt/tensors/w
