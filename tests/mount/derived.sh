#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# views/ in a mount: as exported, at any offset, in many sizes, not written to
. "$(dirname "$0")/lib/common.sh"
requires cmp "${PYTHON:=python3}"
CKPT=$TOP/tests/demo/checkpoint
cat >"$WORK/v.json" <<'EOS'
{"views": {"half": {"part": "model", "dtype": "float16"},
           "wide": {"dtype": "float64"},
           "bad": {"rename": [{"from": ".*", "to": "x"}]}}}
EOS
mount_ckpt "$CKPT" "views=$WORK/v.json"
[ "$(ls "$MNT/views" | xargs)" = "half wide" ] || fail "there is $(ls "$MNT/views")"
grep -q 'views.bad: .* would both be called x' "$MNT/.unshard/problems" ||
	fail "problems: $(cat "$MNT/.unshard/problems")"
for v in half wide; do
	f=$MNT/views/$v/model.safetensors
	"$UNSHARD" export -o "views=$WORK/v.json" "$CKPT/views/$v" "$WORK/$v" \
		>/dev/null || fail "export $v"
	same "$f" "$WORK/$v/model.safetensors"
	"$PYTHON" - "$f" "$WORK/$v/model.safetensors" <<-'EOS' || fail "$v: parts"
		import os, random, sys
		want = open(sys.argv[2], "rb").read()
		fd, r = os.open(sys.argv[1], os.O_RDONLY), random.Random(7)
		for _ in range(300):
		    at = r.randrange(len(want))
		    n = r.choice((1, 2, 3, 7, 8, 100, 5000))
		    assert os.pread(fd, n, at) == want[at:at + n], (at, n)
	EOS
done
(: >>"$MNT/views/half/model.safetensors") 2>/dev/null && fail "opened for writing"
umount_ckpt
done_ok
