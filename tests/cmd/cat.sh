#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cat: tensors and slices byte for byte, names with brackets, closed pipes
. "$(dirname "$0")/lib/common.sh"
requires sha256sum xxd "${PYTHON:=python3}"
CKPT=$TOP/tests/demo/checkpoint

while read -r sum name; do
	expect 0 '' "$UNSHARD" cat "$CKPT" "$name"
	[ "$(sha256sum <"$WORK/out")" = "$sum  -" ] || fail "$name: other bytes"
done <"$TOP/tests/demo/expected.sha256"

# [18, 26] float32 from two by two pieces, against the whole.
name=model.model.layers.0.mlp.down_proj.weight
expect 0 '' "$UNSHARD" cat "$CKPT" "$name"
cp "$WORK/out" "$WORK/whole"
rows() { tail -c +$(($1 * 104 + 1)) "$WORK/whole" | head -c $(($2 * 104)); }
slice() { # SLICE: what it must be is on standard input
	cat >"$WORK/want"
	expect 0 '' "$UNSHARD" cat "$CKPT" "$name[$1]"
	same "$WORK/want" "$WORK/out"
}
rows 0 18 | slice ...
rows 7 5 | slice 7:12
rows 17 1 | slice -1
rows 0 3 | slice ':3, :'
printf '' | slice 5:5
for r in 8 9 10; do rows $r 1 | tail -c +$((11 * 4 + 1)) | head -c 16; done |
	slice '8:11, 11:15'
for r in $(seq 0 17); do rows "$r" 1 | tail -c 4; done | slice '..., -1'

# A name that exists wins over a slice of a shorter one.
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" "$WORK/m.safetensors" \
	a U8 4 'a[0]' U8 3 'a[0][1]' U8 2 'deep[x]' U8 2,3 scalar F32 ''
st() { expect 0 '' "$UNSHARD" cat "$WORK/m.safetensors" "$1"; }
bytes() { [ "$(xxd -p "$WORK/out")" = "$1" ] || fail "found $(xxd -p "$WORK/out"), expected $1"; }
st a; bytes 00010203
st 'a[0]'; bytes 040506
st 'a[1]'; bytes 01
st 'a[0:1]'; bytes 00
st 'a[0][1]'; bytes 0708
st 'a[0][2]'; bytes 06
st 'a[0][1][1]'; bytes 08
st 'deep[x][1]'; bytes 0c0d0e
st 'scalar[...]'; bytes 0f101112

no() { expect 2 "$2" "$UNSHARD" cat "$WORK/m.safetensors" "$1"; }
no b 'no tensor or object is called "b"'
no 'b[1]' 'is called "b"'
no 'a[4]' 'axis 0 has 4'
no 'a[::2]' 'steps'
no 'a[]' 'nothing between'
no 'deep[x][0,0,0]' '3 axes of a tensor that has 2'
expect 2 'expected CKPT NAME' "$UNSHARD" cat "$CKPT"
expect 1 '.' "$UNSHARD" cat "$WORK/none" a

# --json: elements of every dtype as numpy reads them
"$PYTHON" "$TOP/tests/cmd/lib/values.py" write "$WORK/v.safetensors"
for t in bool u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64 c64 f8_e4m3 \
	f8_e5m2 empty scalar; do
	expect 0 '' "$UNSHARD" cat --json "$WORK/v.safetensors" "$t"
	"$PYTHON" "$TOP/tests/cmd/lib/values.py" check "$t" <"$WORK/out" ||
		fail "--json $t: $(cat "$WORK/out")"
done
expect 0 '' "$UNSHARD" cat --json "$WORK/m.safetensors" 'deep[x][1, 1:]'
[ "$(cat "$WORK/out")" = '{"name": "deep[x]", "dtype": "uint8", "shape": [2], "values": [13, 14]}' ] ||
	fail "--json of a slice: $(cat "$WORK/out")"

# Whoever has had enough is no error, a full disk is one.
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" "$WORK/big.safetensors" \
	big U8 3000,3000
"$UNSHARD" cat "$WORK/big.safetensors" big 2>"$WORK/err" | head -c 1 >/dev/null
[ "${PIPESTATUS[0]}" = 0 ] || fail "closed pipe: not quiet"
[ ! -s "$WORK/err" ] || fail "closed pipe: $(cat "$WORK/err")"
"$UNSHARD" cat "$WORK/big.safetensors" big 2>"$WORK/err" >/dev/full
[ $? = 3 ] || fail "full disk: another exit code"
grep -q 'standard output' "$WORK/err" || fail "full disk: $(cat "$WORK/err")"

# A torn file: what lies before the tear comes, then a line, never zeros.
head -c -1000 "$WORK/big.safetensors" >"$WORK/torn.safetensors"
expect 1 'torn.safetensors' "$UNSHARD" cat "$WORK/torn.safetensors" big
cmp -n "$(stat -c %s "$WORK/out")" "$WORK/out" \
	<("$UNSHARD" cat "$WORK/big.safetensors" big) || fail "torn: other bytes"
expect 0 '' "$UNSHARD" cat "$WORK/torn.safetensors" 'big[:2000]'
[ "$(stat -c %s "$WORK/out")" = 6000000 ] || fail "torn: rows that are there"

# A shard of other bytes: what is wrong with its item is said.
cp -r "$TOP/tests/demo/checkpoint" "$WORK/zeros"
for f in "$WORK"/zeros/*.distcp; do
	n=$(stat -c %s "$f")
	truncate -s 0 "$f" && truncate -s "$n" "$f"
done
expect 1 'item at byte [0-9]*: zip: no end record' "$UNSHARD" cat \
	"$WORK/zeros" model.model.layers.0.mlp.down_proj.weight

# Memory does not grow with the tensor: 512 MiB through 128 MiB of address space.
# What a compressed item unpacks to is named by the file that it is in.
cp -r "$TOP/tests/formats/dcp/2.14-zstd/in" "$WORK/zstd"
"$PYTHON" - "$WORK/zstd" <<'EOS' >"$WORK/at" || fail "no item"
import glob, struct, sys
magic = b"\x28\xb5\x2f\xfd"
for path in sorted(glob.glob(sys.argv[1] + "/*.distcp")):
    data = open(path, "rb").read()
    at = data.find(magic)
    if at < 0:
        continue
    end = data.find(magic, at + 4)
    n = (end if end > 0 else len(data)) - at - 9  # one block, as it is
    data = data[:at] + magic + b"\0\x38" + struct.pack("<I", n << 3 | 1)[:3] + bytes(n) + data[at + 9 + n:]
    open(path, "wb").write(data)
    print(path.rpartition("/")[2], at)
    break
else:
    sys.exit(1)
EOS
read -r file at <"$WORK/at"
unpacks="$file: what the compressed item at byte $at unpacks to: item at byte 0: zip: no end record"
for name in $("$UNSHARD" ls "$WORK/zstd" | awk '$1 != "object" { print $NF }'); do
	"$UNSHARD" cat "$WORK/zstd" "$name" 2>&1 >/dev/null
done >"$WORK/said"
[ "$(cat "$WORK/said")" = "unshard cat: $unpacks" ] || fail "said: $(cat "$WORK/said")"
expect 1 "$file: the compressed item at byte $at is bad|$unpacks" \
	"$UNSHARD" export "$WORK/zstd/hf" "$WORK/zstd-hf"

if [ "${SAN-}" != 1 ]; then
	"$PYTHON" - "$WORK/sparse.safetensors" <<-'EOS'
		import json, sys
		h = json.dumps({"z": {"dtype": "U8", "shape": [16384, 32768],
		                      "data_offsets": [0, 1 << 29]}}).encode()
		h += b" " * (-len(h) % 8)
		with open(sys.argv[1], "wb") as f:
		    f.write(len(h).to_bytes(8, "little") + h)
		    f.truncate(8 + len(h) + (1 << 29))
	EOS
	for name in z 'z[:, 5:]'; do
		n=$( (ulimit -v 131072; "$UNSHARD" cat "$WORK/sparse.safetensors" \
			"$name") | wc -c)
		case $name:$n in
		z:536870912 | z?*:536788992) ;;
		*) fail "$name: $n bytes" ;;
		esac
	done
fi
done_ok
