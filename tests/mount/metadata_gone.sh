#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A safetensors file that is gone before anybody asked for model.safetensors costs its
# own tensors and what its __metadata__ said: the others are there in every view.
. "$(dirname "$0")/lib/common.sh"
requires cmp "${PYTHON:=python3}"

"$PYTHON" - "$WORK" <<'P'
import json, os, struct, sys
os.mkdir(f"{sys.argv[1]}/whole")
for i in 1, 2:
    head = json.dumps({"__metadata__": {"format": "pt", f"key{i}": "said"},
                       f"w{i}": {"dtype": "U8", "shape": [4096], "data_offsets": [0, 4096]}}).encode()
    with open(f"{sys.argv[1]}/whole/model-0000{i}-of-00002.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + bytes([i]) * 4096)
P
tail -c 4096 "$WORK/whole/model-00002-of-00002.safetensors" >"$WORK/w2"
first=model-00001-of-00002.safetensors

# ends FILE N: with N bytes of the second tensor, and nothing before them is read
ends() {
	dd if="$1" bs="$2" iflag=skip_bytes skip=$(($(stat -c %s "$1") - $2)) \
		status=none >"$WORK/last" || return 1
	head -c "$2" "$WORK/w2" | cmp - "$WORK/last"
}
look() { # WHAT
	local f
	for f in model.safetensors hf/model.safetensors; do
		[ -f "$MNT/$f" ] || fail "$1: no $f"
		ends "$MNT/$f" 4096 || fail "$1: $f: other bytes"
		head -c 80 "$MNT/$f" >"$WORK/head" || fail "$1: $f: no header"
		grep -q key2 "$WORK/head" || fail "$1: $f: no key2"
		grep -q key1 "$WORK/head" && fail "$1: $f: key1 of what is gone"
		cat "$MNT/$f" >/dev/null 2>&1 && fail "$1: $f was read as a whole"
	done
	f=reshard/dim0=2/rank-00001.safetensors
	ends "$MNT/$f" 2048 || fail "$1: $f: other bytes"
	grep -q "^warning: model.safetensors: $first/__metadata__ is left out of its __metadata__: .*$first: " \
		"$MNT/.unshard/problems" || fail "$1: said: $(cat "$MNT/.unshard/problems")"
}

for how in removed cut; do
	rm -rf "$WORK/ckpt"
	cp -r "$WORK/whole" "$WORK/ckpt"
	mount_ckpt "$WORK/ckpt"
	if [ $how = removed ]; then
		rm "$WORK/ckpt/$first"
	else
		: >"$WORK/ckpt/$first"
	fi
	look $how
	umount_ckpt
done
done_ok
