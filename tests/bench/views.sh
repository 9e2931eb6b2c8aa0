# SPDX-License-Identifier: Apache-2.0
# model.safetensors front to back against its tensors one by one: tensors of
# 4 MiB in four shards, warm, blocks of 1 MiB.  Both sides take turns; the
# medians count.  A view cast to bfloat16 is half as many bytes: its rate is that
# of what it shows, against model.safetensors.

. "$TOP/tests/bench/lib/measure.sh"
: "${BENCH_MIB:=512}" "${BENCH_ROUNDS:=5}"
[ -n "$PYTHON" ] || { echo "needs Python with NumPy"; exit 77; }
block=1048576
read_file=$BENCH_DIR/readfile

"$PYTHON" "$TOP/tests/bench/shards.py" ckpt "$BENCH_MIB" 1024
sync
echo '{"views": {"bf16": {"dtype": "bfloat16"}}}' >views.json
"$UNSHARD" mount "$PWD/ckpt" "$PWD/mnt" -o views=views.json
trap '"$UNSHARD" umount mnt' EXIT

# Right before fast.
"$PYTHON" - mnt/model.safetensors <<'END'
import json, struct, sys
import numpy

f = open(sys.argv[1], "rb")
n = struct.unpack("<Q", f.read(8))[0]
head = json.loads(f.read(n))
for name, t in head.items():
    if name != "__metadata__":
        f.seek(8 + n + t["data_offsets"][0])
        got = numpy.frombuffer(f.read(1 << 22), "<f4")
        assert (got == numpy.arange(1 << 20) + int(name.split(".")[1])).all(), name
END

echo "load $(cut -d' ' -f1-3 /proc/loadavg)"
cat ckpt/*.safetensors >/dev/null
for _ in $(seq "$BENCH_ROUNDS"); do
	"$read_file" $block mnt/tensors/* >>one
	"$read_file" $block mnt/model.safetensors >>all
	"$read_file" $block mnt/hf/model.safetensors >>hf
	"$read_file" $block mnt/model.pt >>pt
	"$read_file" $block mnt/views/bf16/model.safetensors >>bf16
done
measured tensors GB/s one
for f in all hf pt; do
	case $f in
	all) name=model_safetensors ;;
	hf) name=hf ;;
	pt) name=model_pt ;;
	esac
	measured $name GB/s $f
	compared ${name}_to_tensors $f one ">=0.9"
done
measured bf16 GB/s bf16
compared bf16_to_model_safetensors bf16 all ">=0.5"
