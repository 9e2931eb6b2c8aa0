#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# seal and verify: every block's damage, what it spoils, replicas, lost files
LIMIT=180
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}" truncate
C=$WORK/ckpt
M=$C/.unshard-manifest
damage() { "$PYTHON" "$TOP/tests/cmd/lib/damage.py" "$@"; }
flip() { # FILE OFFSET
	"$PYTHON" - "$1" "$2" <<-'EOS'
		import sys
		with open(sys.argv[1], "r+b") as f:
		    f.seek(int(sys.argv[2]))
		    b = f.read(1)
		    f.seek(int(sys.argv[2]))
		    f.write(bytes([b[0] ^ 1]))
	EOS
}
said() { grep -qE -e "$1" "$WORK/out" || fail "expected /$1/:" "$(cat "$WORK/out")"; }

# ---- not sealed: sizes are checked, and replicas can be ----
damage make "$C" || fail "make"
expect 0 '' "$UNSHARD" verify "$C"
said 'is not sealed'
expect 0 '' "$UNSHARD" verify --replicas "$C"
said '^1 tensor has replicas, all alike$'
flip "$C/twice.1.bin" 4000000
for case in layout/bad-copies-differ torch/sparse; do
	expect 1 'incomplete: [14] tensors? left out' "$UNSHARD" verify --replicas \
		"$TOP/tests/formats/$case/in"
	said 'replicas.*; (1 left out was|4 left out were) not compared$'
done
expect 1 'replicas differ in 1 place' "$UNSHARD" verify --replicas "$C"
said '^twice: replicas differ: twice.0.bin, twice.1.bin: 1 of 1100000 elements, in \[1000000:1000001\]'
expect 1 'replicas differ' "$UNSHARD" verify --replicas --json "$C"
"$PYTHON" - "$WORK/out" <<-'EOS' || fail "JSON: $(cat "$WORK/out")"
	import json, sys
	d = json.load(open(sys.argv[1]))
	assert not d["sealed"] and len(d["replicas"]) == 1, d
	r = d["replicas"][0]
	assert r["ranges"] == [[1000000, 1000001]], r
EOS
flip "$C/twice.1.bin" 4000000

# ---- seal ----
expect 0 '' "$UNSHARD" seal "$C"
said ': 7 files, 28\.[0-9] MiB, 3 tensors sealed in .unshard-manifest'
[ -z "$(find "$C" -name '.unshard-temp*')" ] || fail "a temporary file is left"
expect 2 'is sealed already' "$UNSHARD" seal "$C"
cp "$M" "$WORK/m"
expect 0 '' "$UNSHARD" seal --force --json "$C"
"$PYTHON" - "$WORK/out" <<-'EOS' || fail "JSON: $(cat "$WORK/out")"
	import json, sys
	d = json.load(open(sys.argv[1]))
	assert d["files"] == 7 and d["blocks"] == 13, d
	assert d["tensors"] == 3 and d["unknown"] == 0, d
EOS

# ---- each block ----
damage blocks "$C" "$UNSHARD" || fail "blocks"

# ---- -o verify: a damaged replica is passed over; two of them are not ----
"$UNSHARD" cat "$C" twice >"$WORK/twice"
flip "$C/twice.0.bin" 100
"$UNSHARD" cat -o verify "$C" twice | cmp - "$WORK/twice" || fail "failover"
"$UNSHARD" cat "$C" twice | cmp -s - "$WORK/twice" && fail "no damage"
flip "$C/twice.1.bin" 100
expect 1 'twice.0.bin: block 0, .*not what was sealed' \
	"$UNSHARD" cat -o verify "$C" twice
flip "$C/twice.0.bin" 100
flip "$C/twice.1.bin" 100

# ---- files ----
touch "$C/notes.txt"
expect 0 '' "$UNSHARD" verify "$C"
said '^notes.txt: was not there'
rm "$C/notes.txt"
cp "$C/rows.1.bin" "$WORK/rows"
truncate -s -3 "$C/rows.1.bin"
expect 1 'damaged in 1 place' "$UNSHARD" verify "$C"
said 'rows.1.bin: block 1, .*the file is shorter'
cp "$WORK/rows" "$C/rows.1.bin"
echo more >>"$C/rows.1.bin"
expect 1 'damaged in 1 place' "$UNSHARD" verify "$C"
said 'rows.1.bin: .*the file is longer'
rm "$C/rows.1.bin"
expect 1 'damaged in 1 place' "$UNSHARD" verify "$C"
said '^rows.1.bin: the file does not exist'
rm "$M"
expect 1 'incomplete' "$UNSHARD" seal "$C"
[ ! -e "$M" ] || fail "an incomplete checkpoint was sealed"
expect 0 '' "$UNSHARD" seal --force "$C"
said '^without a digest: 1 tensor that cannot be read$'
expect 1 'incomplete' "$UNSHARD" verify "$C"
cp "$WORK/rows" "$C/rows.1.bin"
cp "$WORK/m" "$M"

# ---- the manifest itself, and an index that nobody can read ----
flip "$M" 100
expect 1 'its own sum is wrong' "$UNSHARD" verify "$C"
truncate -s 50 "$M"
expect 1 'not a manifest' "$UNSHARD" verify "$C"
cp "$WORK/m" "$M"
echo '{' >"$C/unshard-layout.json"
expect 1 'damaged in .*and no index' "$UNSHARD" verify "$C"
said '^unshard-layout.json: block 0'

# ---- one checkpoint of every format: each file is missed and found ----
for f in "$TOP"/tests/formats/*/; do
	for c in "$f"*/; do
		[ -e "$c/want-error" ] || [ -e "$c/opts" ] || [ -e "$c/only" ] ||
			[[ $c = */bad* || $c = */tie-* || $c = *missing* || $c = */cut/ ]] || break
	done
	rm -rf "$WORK/one"
	cp -r "$c/in" "$WORK/one"
	"$UNSHARD" seal "$WORK/one" >/dev/null 2>"$WORK/err" || {
		say "not sealed: ${c#"$TOP/"}: $(cat "$WORK/err")"
		continue
	}
	expect 0 '' "$UNSHARD" verify "$WORK/one"
	nr=$((${nr:-0} + 1))
	while read -r file; do
		size=$(stat -c %s "$WORK/one/$file")
		[ "$size" -gt 0 ] || continue
		flip "$WORK/one/$file" $((size / 2))
		expect 1 'damaged in 1 place' "$UNSHARD" verify "$WORK/one"
		grep -qF "$file: block 0" "$WORK/out" ||
			fail "$c$file: $(cat "$WORK/out")"
		flip "$WORK/one/$file" $((size / 2))
	done < <(cd "$WORK/one" && find . -type f -printf '%P\n' |
		grep -v '^.unshard' | sort | head -n 2)
done
[ "${nr:-0}" -ge 7 ] || fail "only $nr formats"

# ---- other formats, and a file alone ----
cp -r "$TOP/tests/demo/checkpoint" "$WORK/demo"
expect 0 '' "$UNSHARD" seal "$WORK/demo"
expect 0 '' "$UNSHARD" verify --replicas "$WORK/demo"
flip "$WORK/demo/__2_0.distcp" 1500
expect 1 'damaged in 1 place' "$UNSHARD" verify "$WORK/demo"
said '^__2_0.distcp: block 0'
said '^  model'
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" "$WORK/m.safetensors" \
	a F32 40,30 b BF16 7
expect 0 '' "$UNSHARD" seal "$WORK/m.safetensors"
expect 0 '' "$UNSHARD" verify "$WORK/m.safetensors"
[ -e "$WORK/.unshard-m.safetensors.manifest" ] || fail "not beside the file"
flip "$WORK/m.safetensors" 1000
expect 1 'damaged' "$UNSHARD" verify "$WORK/m.safetensors"
said '^  a: 1200 of 1200 elements, in \[0:40, 0:30\]'

# ---- holes of what nobody sealed ----
rm "$WORK/.unshard-m.safetensors.manifest"
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" "$WORK/h.safetensors" \
	a F32 1000,1000
"$PYTHON" - "$WORK/h.safetensors" <<-'EOS'
	import sys
	with open(sys.argv[1], "r+b") as f:
	    size = f.seek(0, 2)
	    f.truncate(100000)
	    f.truncate(size)
EOS
expect 0 '' "$UNSHARD" verify "$WORK/h.safetensors"
said 'h.safetensors: bytes 1[0-9]* to 4[0-9]*, of a, are a hole'
"$UNSHARD" verify --json "$WORK/h.safetensors" | "$PYTHON" -c '
import json, sys
(h,) = json.load(sys.stdin)["holes"]
assert h["of"] == "a" and h["offset"] >= 100000, h' || fail "holes as JSON"
# what is between members is of none
cp "$TOP/tests/formats/torch/misc/in/misc.pt" "$WORK/gap.pt"
chmod u+w "$WORK/gap.pt"
"$PYTHON" - "$WORK/gap.pt" <<-'EOS'
	import sys, zipfile
	with zipfile.ZipFile(sys.argv[1], "a") as z:
	    z.start_dir += 1 << 20
	    z._didModify = True
EOS
[ "$(($(stat -c %b "$WORK/gap.pt") * 512))" -lt 500000 ] || fail "no hole: no test"
expect 0 '' "$UNSHARD" verify "$WORK/gap.pt"
! grep 'hole' "$WORK/out" || fail "padding is a hole"

# ---- a directory that cannot be written, usage ----
expect 2 'expected CKPT' "$UNSHARD" seal
expect 2 'expected CKPT' "$UNSHARD" verify
if [ "$(id -u)" != 0 ]; then
	chmod 555 "$WORK/demo"
	expect 3 'cannot write' "$UNSHARD" seal --force "$WORK/demo"
	chmod 755 "$WORK/demo"
fi
done_ok
