# SPDX-License-Identifier: Apache-2.0
# reshard/ front to back against model.safetensors: tensors of 4 MiB in four
# shards, warm, blocks of 1 MiB, cut by rows, by columns into runs of 8 KiB, and
# into runs of 1 KiB.  Columns have no limit: each run is a read of its own, or a
# copy of what lies between.  All sides take turns; the medians count.  The same of
# what was saved on a mesh of 4 x 4: to 2 x 2, rows, columns.  Then plans of 1,024
# ranks from 1,024 shards, whose time is to follow the pairs that meet, and the
# memory of a thousand files.

. "$TOP/tests/bench/lib/measure.sh"
: "${BENCH_MIB:=512}" "${BENCH_ROUNDS:=5}"
[ -n "$PYTHON" ] || { echo "needs Python with NumPy"; exit 77; }
block=1048576
read_file=$BENCH_DIR/readfile

"$PYTHON" "$TOP/tests/bench/shards.py" ckpt "$BENCH_MIB" 128
sync
"$UNSHARD" mount "$PWD/ckpt" "$PWD/mnt"
trap '"$UNSHARD" umount mnt' EXIT

# Right before fast.
"$PYTHON" - mnt <<'END'
import json, struct, sys
import numpy

for mesh, axis in ("dim0=4", 0), ("dim1=4", 1):
    for rank in range(4):
        f = open(f"{sys.argv[1]}/reshard/{mesh}/rank-0000{rank}.safetensors", "rb")
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        for name, t in list(head.items())[1::37]:
            f.seek(8 + n + t["data_offsets"][0])
            got = numpy.frombuffer(f.read(1 << 20), "<f4").reshape(t["shape"])
            whole = (numpy.arange(1 << 20) + int(name.split(".")[1])).astype("<f4")
            want = numpy.split(whole.reshape(128, 8192), 4, axis)[rank]
            assert (got == want).all(), (mesh, rank, name)
END

echo "load $(cut -d' ' -f1-3 /proc/loadavg)"
cat ckpt/*.safetensors >/dev/null
for _ in $(seq "$BENCH_ROUNDS"); do
	"$read_file" $block mnt/model.safetensors >>all
	"$read_file" $block mnt/reshard/dim0=4/* >>rows
	"$read_file" $block mnt/reshard/dim1=4/* >>columns
	"$read_file" $block mnt/reshard/dim1=32/* >>narrow
done
measured model_safetensors GB/s all
for f in rows columns narrow; do
	measured $f GB/s $f
	limit=
	[ $f = rows ] && limit='>=0.9'
	compared ${f}_to_merged $f all "$limit"
done

# A thousand ranks of a thousand tensors: what their files keep.
worker() {
	local p
	for p in /proc/[0-9]*; do
		[ "$(cat "$p/comm" 2>/dev/null)" = unshard-worker ] || continue
		tr '\0' ' ' <"$p/cmdline" | grep -qF "$PWD/mnt" && echo "${p#/proc/}"
	done | head -n 1
}
resident() { awk '$1 == "VmRSS:" { print $2 / 1024 }' "/proc/$(worker)/status"; }
before=$(resident)
ls -l mnt/reshard/dim0=1024 >/dev/null
for f in mnt/reshard/dim0=1024/*00.safetensors; do cat "$f"; done >/dev/null
echo "result thousand_ranks_memory $(awk -v a="$(resident)" -v b="$before" \
	'BEGIN { printf "%.1f", a - b }') MiB <=40"

"$UNSHARD" umount mnt
rm -r ckpt

# Tensors of 4,096 x 4,096, saved on a mesh.
mkdir mesh
"$PYTHON" - mesh "$BENCH_MIB" <<'END'
import json, pathlib, sys
import numpy

folder, tensors = pathlib.Path(sys.argv[1]), max(1, int(sys.argv[2]) // 256)
boxes = [[] for _ in range(tensors)]
for i in range(16):
    with open(folder / f"s{i}.bin", "wb") as f:
        for t in range(tensors):
            boxes[t].append({"file": f"s{i}.bin", "offset": f.tell(), "size": [1024, 1024],
                             "start": [i // 4 * 1024, i % 4 * 1024]})
            f.write((numpy.arange(1 << 20) + i + t).astype("<f4").tobytes())
json.dump({"unshard_layout": 1, "tensors": [
    {"name": f"w{t}", "dtype": "float32", "shape": [4096, 4096], "boxes": boxes[t]}
    for t in range(tensors)]}, open(folder / "unshard-layout.json", "w"))
END
"$UNSHARD" mount "$PWD/mesh" "$PWD/mnt"
cat mesh/* >/dev/null
meshes='dim0=2,dim1=2 dim0=4 dim1=2 dim1=4'
for _ in $(seq "$BENCH_ROUNDS"); do
	"$read_file" $block mnt/model.safetensors >>whole
	for mesh in $meshes; do
		"$read_file" $block mnt/reshard/$mesh/* >>"of-$mesh"
	done
done
measured saved_4x4 GB/s whole
for mesh in $meshes; do
	compared "4x4_to_$(echo $mesh | tr '=,' '__')" "of-$mesh" whole '>=0.9'
done

# One tensor of 4,096 rows in 1,024 shards, for 1,024 ranks and for 64.
mkdir many
"$PYTHON" - many <<'END'
import json, pathlib, struct, sys

folder = pathlib.Path(sys.argv[1])
boxes = []
for i in range(1024):
    with open(folder / f"s{i}.bin", "wb") as f:
        f.write(bytes(64))
    boxes.append({"file": f"s{i}.bin", "offset": 0, "start": [i * 4, 0], "size": [4, 4]})
json.dump({"unshard_layout": 1, "tensors": [
    {"name": "w", "dtype": "float32", "shape": [4096, 4], "boxes": boxes}]},
    open(folder / "unshard-layout.json", "w"))
END
for mesh in dim0=1024 dim0=64 dim0=64,dim1=4; do
	start=$(date +%s.%N)
	"$UNSHARD" plan many --reshard $mesh --json >plan || exit 1
	seconds=$(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "%.3f", b - a }')
	echo "plan of $mesh: $(grep -c dest_shard plan) reads"
	echo "result plan_$(echo "$mesh" | tr '=,' '__') $seconds s <=2"
done
