# SPDX-License-Identifier: Apache-2.0
# A step whose file somebody else writes in place: its folder stays as it was.
# Who had it open hears that it is stale, and once; who comes next reads it.
LIMIT=60
. "$(dirname "$0")/../lib/common.sh"
requires cmp

ALL=$WORK/all
FILE=$ALL/step-2/model.safetensors
mkdir "$ALL"
make_safetensors "$ALL/step-1/model.safetensors"
make_safetensors "$FILE"
chmod -R u+w "$ALL"
mount_ckpt "$ALL"

inode() { stat -c %i "$MNT/$1/tensors/a"; }
same "$MNT/step-1/tensors/a" "$WORK/a.bin"
[ -e "$MNT/step-2/tensors/a" ] || fail "step-2"
before=$(inode step-1)
was=$(inode step-2)
exec 7<"$MNT/step-2/tensors/a"

# All of tensor data becomes 0x55, the size and the folder's time stay.
head=$(($(od -An -tu8 -N8 "$FILE") + 8))
len=$(($(stat -c %s "$FILE") - head))
head -c "$len" /dev/zero | tr '\0' '\125' |
	dd of="$FILE" bs="$head" seek=1 conv=notrunc status=none || fail dd
cat <&7 >"$WORK/got" 2>"$WORK/err" && fail "read what was overwritten"
grep -q Stale "$WORK/err" || fail "not stale: $(cat "$WORK/err")"

size=$(stat -c %s "$WORK/a.bin")
head -c "$size" /dev/zero | tr '\0' '\125' >"$WORK/new.bin"
wait_for 5 cmp -s "$MNT/step-2/tensors/a" "$WORK/new.bin" ||
	fail "not made anew: $(cmp "$MNT/step-2/tensors/a" "$WORK/new.bin" 2>&1)"
cmp "$MNT/latest/tensors/a" "$WORK/new.bin" || fail latest
cat <&7 >/dev/null 2>&1 && fail "what was open before reads the new one"
exec 7<&-
[ "$(inode step-2)" != "$was" ] || fail "the same inode for other bytes"
[ "$(inode step-1)" = "$before" ] || fail "step-1 was made anew, too"

# Of a shorter one the bytes are missing, and then it is read as what it is.
head='{"a":{"dtype":"F32","shape":[8,32],"data_offsets":[0,1024]}}'
head -c 1024 "$WORK/new.bin" >"$WORK/short.bin"
exec 7<"$MNT/step-1/tensors/b.c"
{ le64 ${#head}; printf '%s' "$head"; cat "$WORK/short.bin"; } >"$ALL/step-1/model.safetensors"
cat <&7 >"$WORK/got" 2>"$WORK/err" && fail "read what is not there any more"
[ ! -s "$WORK/got" ] || fail "got bytes"
wait_for 5 cmp -s "$MNT/step-1/tensors/a" "$WORK/short.bin" ||
	fail "not made anew: $(cmp "$MNT/step-1/tensors/a" "$WORK/short.bin" 2>&1)"
[ "$(ls "$MNT/step-1/tensors")" = a ] || fail "$(ls "$MNT/step-1/tensors")"
exec 7<&-
umount_ckpt
done_ok
