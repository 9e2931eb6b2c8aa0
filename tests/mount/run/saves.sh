# SPDX-License-Identifier: Apache-2.0
# Several saves of MindSpore in the folders of ranks: a tree for each.
LIMIT=60
. "$(dirname "$0")/../lib/common.sh"
requires cmp

IN=$here/tests/formats/mindspore/2.10-two-steps/in
ALL=$WORK/all
OLD=CKP_1-4_32.ckpt NEW=CKP_1-10_32.ckpt NEXT=CKP_1-11_32.ckpt
names() { ls "$1" | tr '\n' ' '; }
cp -r "$IN" "$ALL"
chmod -R u+w "$ALL"
# the byte of the weight that says which save it is of
for f in "$ALL"/node*/$NEW; do
	printf '\101' | dd of="$f" bs=1 seek=27 conv=notrunc status=none
done
"$UNSHARD" ls "$ALL" >"$WORK/ls" || fail "ls: $(cat "$WORK/ls")"
[ "$(awk '{ print $1, $4, $5 }' "$WORK/ls" | tr '\n' ' ')" = \
	"complete $OLD  complete $NEW (latest) " ] || fail "$(cat "$WORK/ls")"
"$UNSHARD" cat "$ALL" weight >"$WORK/out" 2>"$WORK/err" && fail "one of two"
grep -q "holds 2 saves ($OLD, $NEW).*-o file=$NEW" "$WORK/err" ||
	fail "$(cat "$WORK/err")"
"$UNSHARD" cat "$ALL" weight -o file=$OLD >"$WORK/old" || fail "-o file="
"$UNSHARD" cat "$ALL" weight -o file=$NEW >"$WORK/new" || fail "-o file="
cmp -s "$WORK/old" "$WORK/new" && fail "the two are the same"

mount_ckpt "$ALL"
[ "$(names "$MNT")" = "$NEW $OLD hf latest " ] || fail "$(names "$MNT")"
[ "$(readlink "$MNT/latest")" = $NEW ] || fail "$(readlink "$MNT/latest")"
same "$MNT/latest/tensors/weight" "$WORK/new"
same "$MNT/$OLD/tensors/weight" "$WORK/old"
[ "$(names "$MNT/$OLD/shards")" = \
	"node0 node1 node2 node3 strategy_train.ckpt " ] ||
	fail "$(names "$MNT/$OLD/shards")"
[ "$(names "$MNT/$OLD/shards/node2")" = "$OLD " ] ||
	fail "shards of others: $(names "$MNT/$OLD/shards/node2")"
[ ! -e "$MNT/$OLD/shards/node2/$NEW" ] || fail "a shard of another"
[ ! -s "$MNT/.unshard/problems" ] || fail "$(cat "$MNT/.unshard/problems")"

# One that appears, rank by rank; one that is replaced; one that goes.
for r in 0 1 3; do cp "$ALL/node$r/$OLD" "$ALL/node$r/$NEXT"; done
wait_for 5 test -d "$MNT/$NEXT" || fail "a new one does not show"
[ "$(readlink "$MNT/latest")" = $NEW ] || fail "latest lacks a rank"
grep -q '^error: the strategy is for 4 ranks.*: 2$' \
	"$MNT/$NEXT/.unshard/problems" || fail "$(cat "$MNT/$NEXT/.unshard/problems")"
cp "$ALL/node2/$OLD" "$ALL/node2/$NEXT"
is_latest() { [ "$(readlink "$MNT/latest")" = "$1" ]; }
wait_for 10 is_latest $NEXT || fail "$(cat "$MNT/.unshard/problems")"
same "$MNT/latest/tensors/weight" "$WORK/old"
exec 7<"$MNT/$NEXT/tensors/weight"
rm "$ALL"/node*/$NEXT
wait_for 5 test ! -e "$MNT/$NEXT" || fail "a save that is gone shows"
is_latest $NEW || fail "latest is gone"
cat <&7 >"$WORK/rest" 2>"$WORK/err" && cmp "$WORK/rest" "$WORK/old" ||
	grep -q Stale "$WORK/err" || fail "open when it went: $(cat "$WORK/err")"
exec 7<&-
ls -lR "$MNT" >/dev/null || fail "ls -lR"
umount_ckpt

# Ranks on two disks; a run among others.
mkdir "$WORK/a" "$WORK/b" "$WORK/runs"
cp -r "$ALL"/node[01] "$ALL"/strategy* "$WORK/a"
cp -r "$ALL"/node[23] "$WORK/b"
mount_ckpt "$WORK/a:$WORK/b"
[ "$(names "$MNT")" = "$NEW $OLD hf latest " ] || fail "joined: $(names "$MNT")"
same "$MNT/latest/tensors/weight" "$WORK/new"
umount_ckpt
cp -r "$ALL" "$WORK/runs/run1"
mkdir "$WORK/runs/run2"
cp -r "$ALL"/node0/$OLD "$WORK/runs/run2"
mount_ckpt "$WORK/runs"
[ "$(names "$MNT/run1")" = "$NEW $OLD shards " ] || fail "$(names "$MNT/run1")"
same "$MNT/run1/$OLD/tensors/weight" "$WORK/old"
umount_ckpt

# One at a time, as before.
mount_ckpt "$ALL" "file=$OLD"
same "$MNT/tensors/weight" "$WORK/old"
umount_ckpt
done_ok
