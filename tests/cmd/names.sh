#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# names with control characters and with NUL: whole and escaped alike wherever
# they are said, and in JSON that can be parsed
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
cd "$WORK" || exit 1

cat >make.py <<'E1'
import json, struct, sys
head, at = {}, 0
for name in sys.argv[2:]:
    name = name.encode().decode("unicode_escape")
    head[name] = {"dtype": "F32", "shape": [2], "data_offsets": [at, at + 8]}
    at += 8
text = json.dumps(head).encode()
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + bytes(at))
E1
shown=('n\x1b[31m' 'n\x0al' 't\x09b' 'd\x7f')
"$PYTHON" make.py shown.safetensors "${shown[@]}"
"$PYTHON" make.py nul.safetensors 'a\0b' 'a\0c' fine
"$PYTHON" make.py other.safetensors 'a\0b' fine

for what in 'ls shown.safetensors' 'inspect shown.safetensors -v' \
	'verify shown.safetensors -v' 'plan shown.safetensors --reshard dim0=2' \
	'diff shown.safetensors other.safetensors'; do
	"$UNSHARD" $what >out 2>err
	if LC_ALL=C grep -q $'[\001-\010\013-\037\177]' out err; then
		fail "$what: $(cat -v out err)"
	fi
	case $what in verify* | inspect*) continue ;; esac
	for name in "${shown[@]}"; do
		grep -qF "$name" out || fail "$what: no $name: $(cat -v out)"
	done
done

for what in 'ls nul.safetensors' 'inspect nul.safetensors' \
	'diff nul.safetensors shown.safetensors'; do
	"$UNSHARD" $what >out 2>err && fail "$what: nothing was wrong"
	for name in 'a\x00b' 'a\x00c'; do
		cat out err | grep -qF "$name" ||
			fail "$what: no $name: $(cat -v out err)"
	done
done
expect 1 'incomplete: 2 tensors left out, 2 errors' \
	"$UNSHARD" verify nul.safetensors
expect 1 'left out is tensor a\\x00b: .*NUL byte \(dtype F32\), and 1 more' \
	"$UNSHARD" export nul.safetensors/npy out.d
# what differs behind the NUL is another tensor
"$UNSHARD" diff --json nul.safetensors other.safetensors >out 2>err
"$PYTHON" - <<'E2' || fail "diff --json: $(cat out)"
import json
got = {t["name"]: t["status"] for t in json.load(open("out"))["tensors"]}
assert got == {"a\0b": "unreadable", "a\0c": "unreadable"} or \
    got == {"a\0b": "unreadable", "a\0c": "unreadable", "fine": "equal"}, got
E2
for what in 'ls --json' 'inspect --json' 'verify --json' 'layout show' \
	'plan --json --reshard dim0=2'; do
	for f in shown nul; do
		"$UNSHARD" $what $f.safetensors >out 2>err
		"$PYTHON" -m json.tool <out >t ||
			fail "$what $f: no JSON: $(cat -v out err)"
	done
done
done_ok
