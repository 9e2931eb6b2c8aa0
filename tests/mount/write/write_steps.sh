# SPDX-License-Identifier: Apache-2.0
# Writes to checkpoints of a directory are changes of ours: a step stays the
# one that it was, be it a file, a folder with a manifest, or incomplete.  What
# another process changes is found all the same.
LIMIT=90
. "$(dirname "$0")/../lib/common.sh"
requires cmp

SRC=$WORK/src
mkdir -p "$SRC"
for i in 1 2 3; do
	cp "$here"/tests/formats/torch/skipdata/in/*.pt "$SRC/step-$i.pt"
done
cp -r "$here/tests/demo/checkpoint" "$SRC/sealed"
cp -r "$here/tests/demo/checkpoint" "$SRC/partial"
mkdir -p "$SRC/deep-1/policy"
cp -r "$here/tests/demo/checkpoint" "$SRC/deep-1/policy/weights"
chmod -R u+w "$SRC"
rm "$SRC/partial/__3_0.distcp"
"$UNSHARD" seal "$SRC/sealed" >/dev/null || fail seal
T=tensors/model.lm_head.weight
# The kernel asks again each time, as it does of what it was told long ago.
UNSHARD_KEEP=0 mount_ckpt "$SRC" rw

parsed() { awk '$1 == "parsed" { print $2 }' "$MNT/.unshard/stats"; }
put() { printf "$2" | dd of="$1" bs=1 seek=3 conv=notrunc status=none; }
start() { head -c 6 "$1" | tail -c 3; }
ls -lR "$MNT" >/dev/null
before=$(parsed)
stat -c '%n %i' "$MNT"/*/tensors/* >"$WORK/inodes"
for f in "$MNT/step-1.pt/tensors/a" "$MNT/sealed/$T" "$MNT/partial/$T" \
	"$MNT/deep-1/$T"; do
	dir=${f%/tensors/*}
	exec 7<"$f"
	cd "$dir/tensors" || fail "cd $dir"
	put "$f" xyz || fail "$f: write"
	ls -l "$MNT" "$dir" >/dev/null || fail "$f: ls -l"
	put "${f##*/}" uvw || fail "$f: write again"
	ls "$dir" . >/dev/null || fail "$f: ls"
	[ "$(start "$f")" = uvw ] || fail "$f: $(start "$f")"
	[ "$(start /proc/self/fd/7)" = uvw ] || fail "$f: what was open before"
	exec 7<&-
	cd "$WORK"
done
ls -lR "$MNT" >/dev/null
[ "$(parsed)" = "$before" ] || fail "parsed again: $before, $(parsed)"
stat -c '%n %i' "$MNT"/*/tensors/* | cmp - "$WORK/inodes" || fail "other inodes"
[ "$(sed -n 's/^warning.*changed.*/&/p' "$MNT/.unshard/problems")" = "" ] ||
	fail "$(cat "$MNT/.unshard/problems")"

# A program in a step that we wrote to, which slept meanwhile.
for i in $(seq 100 140); do
	cp "$SRC/step-2.pt" "$SRC/step-$i.pt"
done
cp -r "$SRC/sealed" "$SRC/sealed2"
for i in sealed deep-1; do
	cd "$MNT/$i/tensors" || fail cd
	ls -lR "$MNT" >/dev/null
	ls -lR "$MNT" >/dev/null
	ls . >/dev/null && [ "$(start "$MNT/$i/$T")" = uvw ] ||
		fail "$i: a step that slept"
	ls . >/dev/null || fail "$i: the folder of a step that slept"
	cd "$WORK"
done

# The same, and somebody else wrote to it while it slept, and set the time back.
put "$MNT/deep-1/$T" xyz || fail "deep-1: write"
was=$(stat -c %i "$MNT/deep-1/$T")
ls -lR "$MNT" >/dev/null
[ "$(stat -c %i "$MNT/deep-1/$T")" = "$was" ] || fail "deep-1: another inode"
put "$MNT/deep-1/$T" uvw || fail "deep-1: write"
ls -lR "$MNT" >/dev/null
for f in "$SRC"/deep-1/policy/weights/*.distcp; do
	touch -r "$f" "$WORK/time"
	sed 's/uvw/bar/' "$f" >"$WORK/bar"
	dd if="$WORK/bar" of="$f" conv=notrunc status=none
	touch -r "$WORK/time" "$f"
done
[ "$(start "$MNT/deep-1/$T")" = bar ] || fail "deep-1: $(start "$MNT/deep-1/$T")"
[ "$(stat -c %i "$MNT/deep-1/$T")" != "$was" ] || fail "deep-1: the same inode"

# Somebody else's writes, also to a step that we wrote to.
a=$MNT/step-1.pt/tensors/a
exec 7<"$a"
cp "$SRC/step-1.pt" "$WORK/step-1.pt"
sed 's/uvw/bar/' "$WORK/step-1.pt" | dd of="$SRC/step-1.pt" conv=notrunc status=none
cat <&7 >/dev/null 2>"$WORK/err" && fail "read what somebody else changed"
exec 7<&-
[ "$(start "$a")" = bar ] || fail "not made anew: $(xxd "$a")"
sed -i 's/uvw/bar/' "$SRC/sealed"/*.distcp # replaced
[ "$(start "$MNT/sealed/$T")" = bar ] || fail "not made anew"
umount_ckpt
done_ok
