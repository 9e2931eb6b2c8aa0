# SPDX-License-Identifier: Apache-2.0
# reshard/: rank by rank what torch_xla loaded, MindSpore transformed, OneFlow
# and ColossalAI cut; names that are looked up; what is refused.
LIMIT=120
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}" stat

DATA=$here/tests/mount/data/reshard
alone() { [ "$(pids_of unshard-worker | wc -l)" = 1 ]; }
compare() { "$PYTHON" "$here/tests/mount/lib/reshard.py" "$@" || fail "$*"; }

# The plan that torch_xla's loader made, and what then stood on its devices.
for reads in "$DATA"/torch_xla/*.reads.json; do
	case=$(basename "$reads" .reads.json)
	compare mesh "$reads" "$WORK/$case.json"
	"$UNSHARD" plan "$DATA/torch_xla/${case%%.*}" --json \
		--reshard "$WORK/$case.json" >"$WORK/plan" || fail "plan $case"
	mount_ckpt "$DATA/torch_xla/${case%%.*}" "reshard=$WORK/$case.json"
	[ "$(ls "$MNT/reshard")" = "$case" ] || fail "$(ls "$MNT/reshard")"
	compare xla "$MNT/reshard/$case" "$reads" "${reads%.reads.json}.shards.bin" \
		"$WORK/plan"
	umount_ckpt
done

# What MindSpore's transform_checkpoints wrote, by both forms of the strategy.
for to in "$DATA"/mindspore/30_reshard.to*; do
	cp "$to/strategy.ckpt" "$WORK/proto.ckpt"
	cp "$to/strategy.json" "$WORK/text.json"
	mkdir -p "$WORK/rank"
	mount_ckpt "$DATA/mindspore/30_reshard" \
		"reshard=$WORK/proto.ckpt:$WORK/text.json"
	for rank in "$to"/rank_*; do
		"$UNSHARD" mount "$rank"/*.ckpt "$WORK/rank" ||
			fail "mount of $rank"
		for form in proto text; do
			compare mindspore "$MNT/reshard/$form" \
				"${rank##*_}" "$WORK/rank/tensors"
		done
		"$UNSHARD" umount "$WORK/rank" || fail "umount of $rank"
	done
	umount_ckpt
done

# OneFlow's seven destinations, one of them a partial sum.
mkdir "$WORK/sbp"
compare sbp "$WORK/sbp" "$DATA/oneflow/60_reshard.reshard.json"
opts=sbp=$DATA/oneflow/60_reshard.sbp.json
for file in "$WORK"/sbp/*.json; do
	opts+=,reshard=$file
done
mount_ckpt "$DATA/oneflow/60_reshard" "$opts"
compare oneflow "$MNT/reshard" "$DATA"/oneflow/60_reshard.reshard.{json,bin}
umount_ckpt

# ColossalAI's ranks of pipeline stages, along what the source was split.
mount_ckpt "$DATA/colossalai/12_llama_tp4_safetensors"
compare stages "$MNT/reshard/pp=2,tp=2" 2 \
	"$DATA"/colossalai/12_llama_tp4_safetensors.reshard_tp2_pp2.expected.{json,bin}

compare stages "$MNT/reshard/pp=2,tp=2,rules=hf" 2 \
	"$DATA"/colossalai/12_llama_tp4_safetensors.reshard_tp2_pp2.expected.{json,bin}

umount_ckpt

# Megatron's stages cut anew, unevenly, one without layers: from uneven stages, from
# two chunks a stage, and from experts apart.
uneven() { # EXAMPLE SPEC...: as "1+3 TP [WORDS]"
	mount_ckpt "$here/tests/formats/megatron/$1/in"
	for spec in "${@:2}"; do
		compare layers "$MNT" $spec
	done
	umount_ckpt
}
uneven virtual-stages '1+3 1' '3+1 2' '0+3+1 4' '2+1+1 1 dim0=1'
uneven uneven-stages '2+1 1' '1+0+2 1' '1+2 2 rules=megatron if=no'
uneven experts-tp2-pp2-ep2 '2+0 2' '0+2 1'
mount_ckpt "$DATA/colossalai/12_llama_tp4_safetensors"

# Names are made by looking; nothing lists them, and they last.
compare words "$MNT"
[ -z "$(ls "$MNT/reshard")" ] || fail "listed: $(ls "$MNT/reshard")"
[ "$(ls "$MNT/reshard/dim0=7" | wc -l)" = 7 ] || fail "7 ranks"
one=$MNT/reshard/tp=2/rank-00001.safetensors
[ "$(stat -c %i "$one")" = "$(stat -c %i "$one")" ] || fail "inode"
for none in x dim0 'dim0=0' 'dim0=2x' .dim0=2 'tp=2/rank-00002.safetensors' \
	'tp=2/rank-0.safetensors' rank-00000.safetensors; do
	[ ! -e "$MNT/reshard/$none" ] || fail "$none is there"
done

# What does not divide is refused, and named.
ls "$MNT/reshard/tp=7" 2>"$WORK/err" && fail "tp=7"
grep -q 'Invalid argument' "$WORK/err" || fail "$(cat "$WORK/err")"
grep -q 'tp=7\|no multiple of 7' "$MNT/.unshard/problems" ||
	fail "$(cat "$MNT/.unshard/problems")"

# So is what is no mesh, though it is not there.
grep -q 'reshard: dim0=2x: expected numbers' "$MNT/.unshard/problems" ||
	fail "$(cat "$MNT/.unshard/problems")"

# A rank's file is a checkpoint, and so is the folder of all ranks.
again() { # SOURCE
	"$UNSHARD" mount "$1" "$WORK/again" || fail "mount of $1"
	for t in "$MNT"/tensors/*; do
		same "$t" "$WORK/again/tensors/${t##*/}"
	done
	[ "$(cat "$WORK/again/.unshard/problems.json" | tr -d ' \n')" = '[]' ] ||
		fail "$1: $(cat "$WORK/again/.unshard/problems")"
	"$UNSHARD" umount "$WORK/again" || fail umount
	wait_for 10 alone || fail "the worker of $WORK/again stays"
}
mkdir "$WORK/again"
again "$MNT/reshard/dim0=1/rank-00000.safetensors"
again "$MNT/reshard/dim0=3"
again "$MNT/reshard/pp=2,tp=2,dim0=2"
umount_ckpt

# Parts in pieces, one behind the other in the file.
"$PYTHON" "$here/tests/cmd/lib/safetensors.py" "$WORK/gated.safetensors" \
	layers.0.mlp.gate_up_proj.weight BF16 8,6 layers.0.norm.weight F32 3
mount_ckpt "$WORK/gated.safetensors"
again "$MNT/reshard/tp=2"
umount_ckpt

# The same as .ckpt, which MindSpore loads; a part may be several records.
mount_ckpt "$DATA/colossalai/12_llama_tp4_safetensors" reshard-container=ckpt
[ "$(ls "$MNT/reshard/tp=2" | xargs)" = "rank-00000.ckpt rank-00001.ckpt" ] ||
	fail "$(ls "$MNT/reshard/tp=2")"
again "$MNT/reshard/dim0=1/rank-00000.ckpt"
again "$MNT/model.ckpt"
again "$MNT/reshard/pp=2,tp=2,dim0=2"
umount_ckpt
mount_ckpt "$WORK/gated.safetensors" reshard-container=ckpt
again "$MNT/reshard/tp=2"
umount_ckpt
"$PYTHON" - "$WORK/large.safetensors" <<'EOS' || fail "a large file"
import json, struct, sys
n = (5 << 28) + 12 # 2.5 records, 1.25 GiB, of which little is written
head = json.dumps({"w": {"dtype": "F32", "shape": [n // 4], "data_offsets": [0, n]}}).encode()
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head)
    for at in range(0, n, 1 << 19):
        f.seek(8 + len(head) + at)
        f.write(struct.pack("<Q", at + 1))
    f.truncate(8 + len(head) + n)
EOS
mount_ckpt "$WORK/large.safetensors" reshard-container=ckpt
for one in model.ckpt reshard/dim0=2; do
	"$UNSHARD" mount "$MNT/$one" "$WORK/again" || fail "mount of $one"
	"$PYTHON" - "$MNT/tensors/w" "$WORK/again/tensors/w" <<'EOS' || fail "$one"
import os, sys
a, b = (os.open(p, os.O_RDONLY) for p in sys.argv[1:])
n = os.fstat(a).st_size
assert n == os.fstat(b).st_size == (5 << 28) + 12
for edge in 0, n // 2, 1 << 29, 1 << 30, (1 << 29) + n // 2, n:
    at = max(edge - (1 << 20), 0)
    want = os.pread(a, 3 << 20, at)
    assert any(want) and want == os.pread(b, 3 << 20, at), edge
EOS
	"$UNSHARD" umount "$WORK/again" || fail umount
	wait_for 10 alone || fail "the worker of $WORK/again stays"
done
umount_ckpt
rm "$WORK/large.safetensors"

# Written through the tensors, and shown at once; not written to itself.
cp -r "$DATA/torch_xla/10_seed_4x1" "$WORK/rw"
chmod -R u+w "$WORK/rw"
mount_ckpt "$WORK/rw" rw
one=$MNT/reshard/dim1=2/rank-00001.safetensors
"$PYTHON" - "$MNT/tensors/fc.weight" "$one" <<'EOS' || fail "written"
import os, struct, sys
tensor, part = (os.open(p, os.O_RDWR if i == 0 else os.O_RDONLY) for i, p in enumerate(sys.argv[1:]))
end = os.fstat(part).st_size
before = os.pread(part, 12, end - 12)
os.pwrite(tensor, struct.pack("<3f", 7, 8, 9), 47 * 4 - 8)
assert before != struct.pack("<3f", 7, 8, 9)
assert os.pread(part, 12, end - 12) == struct.pack("<3f", 7, 8, 9)
try:
    os.open(sys.argv[2], os.O_WRONLY)
    sys.exit("opened for writing")
except OSError as e:
    assert e.strerror == "Read-only file system", e
EOS
umount_ckpt

# What a view cannot show is a problem before anybody has listed the view.
echo '{"mesh": {"shape": [2]}, "partition_spec": {"fc.*": [0, 0, 0]}}' \
	>"$WORK/long.json"
echo '{"views": {"none": {"include": ["no*"]}}}' >"$WORK/v.json"
for list in problems problems.json; do
	mount_ckpt "$DATA/torch_xla/10_seed_4x1" \
		"reshard=$WORK/long.json,views=$WORK/v.json"
	"$PYTHON" - "$MNT/.unshard/$list" <<'EOS' || fail "$list"
import json, os, sys
path = sys.argv[1]
text = open(path).read()
assert "3 entries, for 2 dimensions" in text, text
assert "views.none: no tensor is left" in text, text
assert os.stat(path).st_size == len(text.encode())
if path.endswith("json"):
    assert len(json.loads(text)) == 2, text
EOS
	umount_ckpt
done

# Of one of which nothing fits the mount says that it cuts nothing.
echo '{"mesh": {"shape": [2]}, "partition_spec": {"cf*": [0]}}' >"$WORK/none.json"
mkdir -p "$WORK/vain"
"$UNSHARD" mount "$DATA/torch_xla/10_seed_4x1" "$WORK/vain" \
	-o "reshard=$WORK/none.json" 2>"$WORK/err" || fail "mount with none.json"
"$UNSHARD" umount "$WORK/vain" || fail "umount with none.json"
grep -q 'warning: -o reshard=.*none.json: fits no tensor: partition_spec "cf\*": every rank has all of every tensor$' \
	"$WORK/err" || fail "none.json: $(cat "$WORK/err")"

# A file that says no mesh refuses the mount, with its line.
echo '{"mesh": {"shape": [0]}}' >"$WORK/bad.json"
expect 1 'mesh.shape' "$UNSHARD" mount "$DATA/torch_xla/10_seed_4x1" "$MNT" \
	-o "reshard=$WORK/bad.json"
mounted && fail "mounted all the same"
done_ok
