#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Weights that are kept twice: hf/ and model.safetensors show one copy, and
# -o weights= says which.
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
CKPT=$here/tests/formats/deepspeed/zero1-bf16optimizer/in

cat >"$WORK/check.py" <<'EOF'
import json, os, struct, sys
mnt, copy, dtype = sys.argv[1:]
for view in ("model.safetensors", "hf/model.safetensors"):
    with open(f"{mnt}/{view}", "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
        header.pop("__metadata__", None)
        want = {t[len(copy) + 1:] for t in os.listdir(f"{mnt}/tensors") if t.startswith(copy + ".")}
        assert set(header) == want, (view, set(header) ^ want)
        assert header["fc1.weight"]["dtype"] == dtype, header["fc1.weight"]
        for name, t in header.items():
            lo, hi = t["data_offsets"]
            f.seek(8 + n + lo)
            assert f.read(hi - lo) == open(f"{mnt}/tensors/{copy}.{name}", "rb").read(), name
    assert len(header) > 5
EOF
for which in module:BF16 fp32:F32; do
	mount_ckpt "$CKPT" "weights=${which%:*}"
# What is left out of the merged file, and why, is said; once it is looked at.
ls -l "$MNT/model.safetensors" >/dev/null
for t in exp_avg fp32; do
	grep -q "\"tensor\": \"$t\..*\"view\": \"model.safetensors\"" \
		"$MNT/.unshard/problems.json" ||
		fail "$t is not said: $(cat "$MNT/.unshard/problems")"
done
	"$PYTHON" "$WORK/check.py" "$MNT" "${which%:*}" "${which#*:}" ||
		fail "weights=$which"
	umount_ckpt
done
mount_ckpt "$CKPT"
"$PYTHON" "$WORK/check.py" "$MNT" module BF16 || fail "without weights="
umount_ckpt
done_ok
