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
umount_ckpt
done_ok
