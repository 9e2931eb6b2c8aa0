#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two places of a checkpoint say other things of one tensor: nobody can know which is
# right, and it is said.
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
F=$TOP/tests/formats
cd "$WORK" || exit 1

# turn FILE: of the first shape of two sizes in its data.pkl, or in its param_shapes,
# the sizes change places
turn() {
	"$PYTHON" - "$1" <<-'P' || fail "$1: nothing to turn round"
		import re, sys, zipfile
		path = sys.argv[1]
		with zipfile.ZipFile(path) as z:
		    members = [(i.filename, z.read(i)) for i in z.infolist()]
		with zipfile.ZipFile(path, "w") as z:
		    for name, data in members:
		        if name.endswith("/data.pkl"):
		            at = max(0, data.find(b"param_shapes"))
		            m = next(m for m in re.finditer(rb"K(.)K(.)\x86", data[at:], re.S) if m[1] != m[2])
		            at += m.start()
		            data = data[:at] + b"K" + m[2] + b"K" + m[1] + data[at + 4:]
		        z.writestr(zipfile.ZipInfo(name), data)
	P
}
# says CASE FILE PATTERN: what inspect says of it once FILE was turned
says() {
	rm -rf ckpt
	cp -r "$F/$1/in" ckpt
	turn "ckpt/$2"
	"$UNSHARD" inspect ckpt >out 2>&1
	[ $? = 1 ] && grep -qE "^  error: .*$3" out || fail "$1: $(cat out)"
}

# DeepSpeed: a layer's file and the model file of its stage
says deepspeed/pipeline layer_01-model_states.pt \
	'tensor module.1.up.weight: file layer_01-model_states.pt: it is \[6, 10\] in its layer.s file, and \[10, 6\] in param_shapes'
# the same, the model file being the wrong one
says deepspeed/pipeline mp_rank_00_model_states.pt \
	'tensor module\..*: file layer_0[0-9]-model_states.pt: it is .* in its layer.s file, and .* in param_shapes'
# two ranks' files of stage 3, each of which has all shapes
for rank in 0 1; do
	says deepspeed/zero3-five-ranks zero_pp_rank_${rank}_mp_rank_00_model_states.pt \
		'file zero_pp_rank_1_.*: .* in param_shapes, where zero_pp_rank_0_.* has .*: one of the two is wrong'
done
done_ok
