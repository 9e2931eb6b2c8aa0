#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# -o verify compares each block that an index is read from, wherever it lies
LIMIT=240
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
big() { "$PYTHON" "$TOP/tests/cmd/lib/big_index.py" "$@"; }

big make "$WORK" || fail "make"
for d in zip safetensors mindspore oneblock; do
	"$UNSHARD" seal "$WORK/$d" >/dev/null || fail "seal $d"
	"$UNSHARD" ls "$WORK/$d" >"$WORK/$d.want" || fail "ls $d"
	"$UNSHARD" ls -o verify "$WORK/$d" | cmp - "$WORK/$d.want" || fail "$d"
done

# What is damaged so is an index all the same, and without -o verify is shown.
damaged() { # DIR/FILE FROM OLD NEW BLOCK
	local dir=${1%/*} block
	cp "$WORK/$1" "$WORK/good"
	block=$(big swap "$WORK/$1" "$2" "$3" "$4") || fail "$1: $3 is not there"
	[ "$block" = "$5" ] || fail "$1: block $block, and $5 was wanted"
	"$UNSHARD" ls "$WORK/$dir" >"$WORK/shown" || fail "$1: $4: no test"
	cmp -s "$WORK/shown" "$WORK/$dir.want" && [ "$6" != same ] &&
		fail "$1: $4 changes nothing"
	refused "${1##*/}" "$block" inspect -o verify "$WORK/$dir"
	cp "$WORK/good" "$WORK/$1"
}
refused() { # FILE BLOCK COMMAND...
	expect 1 "$1: block $2, bytes .*: not what was sealed; " \
		"$UNSHARD" "${@:3}"
}
damaged zip/model.pt 4194304 '\x03\x00\x00\x00100' '\x03\x00\x00\x00101' 1 same
damaged safetensors/model.safetensors 5000000 '"F32"' '"I32"' 1
damaged mindspore/model.ckpt 1 'l1.w' 'l5.w' 1
damaged mindspore/model.ckpt 1 'l2.w' 'm2.w' 2
damaged mindspore/model.ckpt 8388608 '\x08\xdc\x0b\x08\xbc\x05' \
	'\x08\xbc\x05\x08\xdc\x0b' 2
damaged oneblock/model.pt 0 't003.x' 't00z.x' 0

big swap "$WORK/oneblock/model.pt" 0 t003.x t00z.x >/dev/null
refused model.pt 0 cat -o verify "$WORK/oneblock" t001.x
refused model.pt 0 ls -o verify "$WORK/oneblock"
refused model.pt 0 export -o verify --to tensors "$WORK/oneblock" "$WORK/out.d"
[ ! -e "$WORK/out.d" ] || fail "something was exported"
big swap "$WORK/oneblock/model.pt" 0 t00z.x t003.x >/dev/null
"$UNSHARD" ls -o verify "$WORK/oneblock" | cmp - "$WORK/oneblock.want" ||
	fail "good again"

# a block of elements alone: the rest is exported, and what goes on compares too
D=$WORK/data/m.safetensors
mkdir "$WORK/data"
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" "$D" \
	a F32 1000,1000 b F32 1000,1000 c F32 1000,1000
"$UNSHARD" seal "$WORK/data" >/dev/null || fail "seal data"
cp "$D" "$WORK/good"
printf '\377\376\375' | dd of="$D" bs=1 seek=6000000 conv=notrunc status=none
expect 1 'block 1, .*not what was sealed.* goes on' \
	"$UNSHARD" export -o verify --to tensors "$WORK/data" "$WORK/out.e"
expect 2 'remove it to begin anew' \
	"$UNSHARD" export --to tensors "$WORK/data" "$WORK/out.e"
cp --preserve=timestamps "$WORK/good" "$WORK/put"
cat "$WORK/put" >"$D" && touch -r "$WORK/put" "$D"
rm -rf "$WORK"/.out.e*
expect 0 '' "$UNSHARD" export -o verify --to tensors "$WORK/data" "$WORK/out.e"

# one that is cut short, or longer; a file alone, with a manifest of its own
printf x >>"$WORK/zip/model.pt"
expect 1 'model.pt: not what was sealed, which was [0-9]* bytes long' \
	"$UNSHARD" ls -o verify "$WORK/zip"
cp "$WORK/oneblock/model.pt" "$WORK/alone.pt"
expect 1 'alone.pt: is not sealed' "$UNSHARD" ls -o verify "$WORK/alone.pt"
"$UNSHARD" seal "$WORK/alone.pt" >/dev/null || fail "seal alone.pt"
"$UNSHARD" ls -o verify "$WORK/alone.pt" >/dev/null || fail "alone.pt"
big swap "$WORK/alone.pt" 0 t003.x t00z.x >/dev/null
expect 1 'alone.pt: block 0, bytes 0 to [0-9]*: not what was sealed; ' \
	"$UNSHARD" ls -o verify "$WORK/alone.pt"

# what came since is no damage of what was sealed
echo '{}' >"$WORK/safetensors/config.json"
"$UNSHARD" ls -o verify "$WORK/safetensors" |
	cmp - "$WORK/safetensors.want" || fail "with one file more"
done_ok
