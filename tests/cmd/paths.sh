#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# CKPT/VIEW where a checkpoint is wanted: what a view shows is what an export of it
# is, for ls, diff, cat and inspect; and an export may go into a pipe.
LIMIT=180
. "$(dirname "$0")/lib/common.sh"
requires tar cmp sha256sum "${PYTHON:=python3}"
cd "$WORK" || exit 1
F=$TOP/tests/formats

# is_export CKPT VIEW OPTIONS: listed and compared like its own copy
is_export() {
	local path=$1/$2 out=out.$((++nr))

	case $2 in *.*) # one file, under its own name
		mkdir $out
		out=$out/$2 ;;
	esac
	expect 0 '' "$UNSHARD" export ${3+"$3"} "$path" "$out"
	for c in ls 'ls --json' inspect\ --json; do
		"$UNSHARD" $c ${3+"$3"} "$path" >a 2>err || fail "$c $path: $(cat err)"
		"$UNSHARD" $c "$out" >b 2>err || fail "$c $out: $(cat err)"
		if [ "$c" = 'inspect --json' ]; then # times of files are others
			for f in a b; do
				"$PYTHON" -c 'import json, sys
d = json.load(sys.stdin)
print([(t["name"], t["dtype"], t["shape"], t["state"]) for t in d["tensors"]])' \
					<$f >$f.new || fail "$c $path"
				mv $f.new $f
			done
		fi
		cmp -s a b || fail "$c $path: $(diff a b | head -n 5)"
	done
	expect 0 '' "$UNSHARD" diff ${3+"$3"} "$path" "$out"
	grep -qE '^[1-9][0-9]* equal, 0 differ, 0 only in A, 0 only in B' \
		"$WORK/out" || fail "diff $path: $(tail -n 1 "$WORK/out")"
}
nr=0
D=$TOP/tests/demo/checkpoint
for v in hf dcp model.safetensors model.pt; do is_export "$D" $v; done
is_export "$D" hf -ohf-shard-size=8K
ls out.$nr | grep -q 00002-of || fail "hf/ is one file: $(ls out.$nr)"
is_export "$F/dcp/2.14-dtypes/in" model.pt
is_export "$D" reshard/dim0=2
echo '{"views": {"half": {"dtype": "bfloat16"}}}' >views.json
is_export "$D" views/half -oviews=views.json
is_export "$D" views/half/dcp -oviews=views.json
is_export "$D" views/half/hf -oviews=views.json,hf-shard-size=4K

# names and bytes are those of the view
expect 0 '' "$UNSHARD" cat "$D/hf" lm_head.weight
[ "$(sha256sum <"$WORK/out")" = "$("$UNSHARD" cat "$D" model.lm_head.weight |
	sha256sum)" ] || fail "other bytes below hf/"
expect 0 '' "$UNSHARD" plan "$D/hf" lm_head.weight
expect 2 'called "model.lm_head.weight" .did you mean lm_head.weight' \
	"$UNSHARD" cat "$D/hf" model.lm_head.weight

# one file of a view
for f in model.safetensors model.pt hf/model.safetensors dcp/.metadata \
	tensors/model.lm_head.weight npy/model.lm_head.weight.npy; do
	"$UNSHARD" cat "$D/$f" >a || fail "cat $f"
	"$UNSHARD" export "$D/$f" - >b || fail "export $f -"
	cmp a b || fail "$f: other bytes by export"
done
expect 2 'hf: has no file "none"' "$UNSHARD" cat "$D/hf/none"
for path in hf npy "hf/"; do
	expect 2 'is a folder; expected a file of it' "$UNSHARD" cat "$D/$path"
done
expect 2 'expected CKPT NAME' "$UNSHARD" cat "$D"
expect 2 'expected CKPT NAME, found a file' "$UNSHARD" cat --json "$D/model.pt"
expect 1 'no checkpoint found in npy' "$UNSHARD" ls "$D/npy"
expect 1 'hg: No such file' "$UNSHARD" ls "$D/hg"
expect 1 'none: No such file' "$UNSHARD" diff "$D" "$WORK/none"

# a folder is a tar, which any tar reads
expect 0 '' "$UNSHARD" export "$D/hf" -ohf-shard-size=8K hf
mkdir tarred
"$UNSHARD" export "$D/hf" -ohf-shard-size=8K - | tar -x -C tarred ||
	fail "tar: ${PIPESTATUS[*]}"
diff -r hf tarred || fail "the tar has other files"
"$UNSHARD" export --to tensors "$D" - | "$PYTHON" -c '
import hashlib, sys, tarfile
t = tarfile.open(fileobj=sys.stdin.buffer, mode="r|")
for m in t:
    print(m.name, hashlib.sha256(t.extractfile(m).read()).hexdigest())' >members ||
	fail "tarfile"
[ "$(wc -l <members)" = 12 ] || fail "$(wc -l <members) members"
read -r name sum <members
[ "$("$UNSHARD" cat "$D" "$name" | sha256sum)" = "$sum  -" ] || fail "$name"

# a long name has a pax record; a large file too, of which a pipe takes the head
long=$(printf 'layer%.0s' {1..40}).weight
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" long.safetensors "$long" F32 4
"$UNSHARD" export --to tensors long.safetensors - | tar -t >members || fail "tar"
[ "$(cat members)" = "$long" ] || fail "a long name: $(cat members)"
"$PYTHON" -c '
import json, struct
n = 9 << 30
h = json.dumps({"big": {"dtype": "U8", "shape": [n], "data_offsets": [0, n]}}).encode()
f = open("big.safetensors", "wb")
f.write(struct.pack("<Q", len(h)) + h)
f.truncate(8 + len(h) + n)'
"$UNSHARD" export --to tensors big.safetensors - 2>err | head -c 1536 |
	tar -tv 2>/dev/null >members
grep -q " $((9 << 30)) .* big$" members || fail "9 GiB: $(cat members)"

# what is not whole is refused before the first byte, and a closed pipe ends it
cp -r "$D" torn && chmod -R u+w torn && truncate -s -2000 torn/__3_0.distcp
"$UNSHARD" export torn/hf - >a 2>err && fail "a torn one was exported"
[ ! -s a ] || fail "bytes of what is torn"
grep -q 'incomplete: tensor' err || fail "$(cat err)"
if [ -c /dev/full ]; then
	"$UNSHARD" export "$D" - >/dev/full 2>err
	[ $? = 3 ] || fail "/dev/full: expected 3"
fi
"$UNSHARD" export "$D" - >&- 2>err
[ $? = 3 ] || fail "standard output is closed: expected 3"
grep -q 'standard output: Bad file descriptor' err || fail "closed: $(cat err)"
expect 2 'standard output is the files' "$UNSHARD" export --json "$D" -
done_ok
