# SPDX-License-Identifier: Apache-2.0
# hf/ of names that are not Hugging Face's: not there, and one line says why.
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"

write() {
	mkdir -p "$1"
	"$PYTHON" - "$1/model.safetensors" "$2" <<-'PY'
	import json, struct, sys
	head = json.dumps({n: {"dtype": "F32", "shape": [2], "data_offsets": [8 * i, 8 * i + 8]}
	                   for i, n in enumerate(sys.argv[2].split())}).encode()
	open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + bytes(8 * len(sys.argv[2].split())))
	PY
}
why="warning: hf: not shown: names of its tensors are Megatron's"
write "$WORK/run/iter_0000010" decoder.layers.0.self_attention.linear_qkv.weight
echo '{}' >"$WORK/run/iter_0000010/config.json"

for what in run run/iter_0000010; do
	"$UNSHARD" mount "$WORK/$what" "$MNT" 2>"$WORK/err" || fail "mount"
	[ "$(grep -c "warning: hf/: not shown: .* Megatron's" "$WORK/err")" = 1 ] ||
		fail "$what: $(cat "$WORK/err")"
	"$UNSHARD" umount "$MNT"
done
mount_ckpt "$WORK/run/iter_0000010"
[ ! -e "$MNT/hf" ] || fail "hf/ is there"
[ "$(grep -c "$why" "$MNT/.unshard/problems")" = 1 ] ||
	fail "problems: $(cat "$MNT/.unshard/problems")"
"$UNSHARD" umount "$MNT"
"$UNSHARD" inspect "$WORK/run/iter_0000010" >"$WORK/out"
[ "$(grep -c "^hf  *warning: not shown: .* Megatron's" "$WORK/out")" = 1 ] ||
	fail "inspect: $(cat "$WORK/out")"
expect 1 "has no view hf: not shown: .* Megatron's" \
	"$UNSHARD" export "$WORK/run/iter_0000010/hf" "$WORK/out-hf"

# as they are, where that is asked for
mount_ckpt "$WORK/run/iter_0000010" names=asis
[ "$(ls "$MNT/hf" | tr '\n' ' ')" = "config.json model.safetensors " ] ||
	fail "names=asis: $(ls "$MNT/hf")"
if grep hf: "$MNT/.unshard/problems"; then fail "a problem"; fi
done_ok
