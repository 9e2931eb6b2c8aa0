# SPDX-License-Identifier: Apache-2.0
# MNT/shards/ is SRC as it is stored.
. "$(dirname "$0")/lib/common.sh"
requires cmp diff

make_safetensors "$WORK/ckpt/model.safetensors"
mkdir -p "$WORK/ckpt/sub/deeper"
noise 5000000 3 >"$WORK/ckpt/sub/big.bin"
echo '{}' >"$WORK/ckpt/config.json"
echo x >"$WORK/ckpt/sub/deeper/x y"
mkfifo "$WORK/ckpt/fifo"
ln -s /etc/passwd "$WORK/ckpt/sub/out"
ln -s ../../ckpt/config.json "$WORK/ckpt/sub/out2"
ln -s deeper/../../config.json "$WORK/ckpt/sub/out3"
ln -s ../config.json "$WORK/ckpt/sub/up"
ln -s sub/deeper "$WORK/ckpt/best"
ln -s model.safetensors "$WORK/ckpt/last.safetensors"
ln -s nowhere "$WORK/ckpt/sub/nowhere"
truncate -s 1M "$WORK/ckpt/sub/sparse"
printf end >>"$WORK/ckpt/sub/sparse"
mount_ckpt "$WORK/ckpt"

(cd "$WORK/ckpt" && find . -type f | sort) >"$WORK/want"
(cd "$MNT/shards" && find . -type f | sort) | diff "$WORK/want" - ||
	fail "other files"
[ ! -e "$MNT/shards/fifo" ] && [ ! -e "$MNT/shards/sub/out" ] ||
	fail "shows what is no file of SRC"
for f in out2 out3; do
	[ ! -e "$MNT/shards/sub/$f" ] && [ ! -L "$MNT/shards/sub/$f" ] ||
		fail "shows a link that may lead outside"
done
# Links inside are links; one beside its file is no second checkpoint.
(cd "$WORK/ckpt" && find . -type l ! -name 'out*' -printf '%p %l\n' | sort) \
	>"$WORK/links"
[ "$(wc -l <"$WORK/links")" = 4 ] || fail "$(cat "$WORK/links")"
(cd "$MNT/shards" && find . -type l -printf '%p %l\n' | sort) |
	diff "$WORK/links" - || fail "other links"
while read -r f to; do
	[ "$(readlink "$MNT/shards/$f")" = "$to" ] || fail "readlink $f"
done <"$WORK/links"
same "$MNT/shards/best/x y" "$WORK/ckpt/sub/deeper/x y"
same "$MNT/shards/sub/up" "$WORK/ckpt/config.json"
[ "$(stat -c %F "$MNT/shards/sub/nowhere")" = "symbolic link" ] || fail nowhere
same "$MNT/tensors/a" "$WORK/a.bin"
while read -r f; do
	same "$MNT/shards/$f" "$WORK/ckpt/$f"
	[ "$(stat -c '%s %y' "$MNT/shards/$f")" = \
		"$(stat -c '%s %y' "$WORK/ckpt/$f")" ] || fail "stat of $f"
done <"$WORK/want"
dd if="$MNT/shards/sub/big.bin" bs=12345 skip=3 2>/dev/null |
	cmp - <(tail -c +37036 "$WORK/ckpt/sub/big.bin") || fail "dd"
cp --sparse=auto "$MNT/shards/sub/sparse" "$WORK/copy"
same "$WORK/copy" "$WORK/ckpt/sub/sparse"

# It follows SRC: new, longer and shorter files.
echo new >"$WORK/ckpt/sub/new"
wait_for 10 test -e "$MNT/shards/sub/new" || fail "a new file does not show"
same "$MNT/shards/sub/new" "$WORK/ckpt/sub/new"
echo more >>"$WORK/ckpt/sub/new"
wait_for 10 cmp -s "$MNT/shards/sub/new" "$WORK/ckpt/sub/new"
same "$MNT/shards/sub/new" "$WORK/ckpt/sub/new"
rm "$WORK/ckpt/sub/new"
wait_for 10 not test -e "$MNT/shards/sub/new" || fail "a removed file still shows"

# A file that loses bytes while it is open: an error, not an early end.
exec 7<"$MNT/shards/sub/big.bin"
head -c 100 <&7 >/dev/null
truncate -s 3000 "$WORK/ckpt/sub/big.bin"
cat <&7 >/dev/null 2>"$WORK/err" && fail "a short file reads well"
grep -q "Input/output error" "$WORK/err" || fail "$(cat "$WORK/err")"
exec 7<&-
umount_ckpt

# One file alone.
mount_ckpt "$WORK/ckpt/model.safetensors"
[ "$(ls "$MNT/shards")" = model.safetensors ] || fail "$(ls "$MNT/shards")"
same "$MNT/shards/model.safetensors" "$WORK/ckpt/model.safetensors"
same "$MNT/tensors/a" "$WORK/a.bin"
umount_ckpt

# A hub cache: links are the files that they lead to.
hub=$WORK/hub/models--org--name
mkdir -p "$hub/blobs" "$hub/snapshots/rev"
cp "$WORK/ckpt/model.safetensors" "$hub/blobs/123abc"
ln -s ../../blobs/123abc "$hub/snapshots/rev/model.safetensors"
mount_ckpt "$hub/snapshots/rev"
[ ! -L "$MNT/shards/model.safetensors" ] && [ -f "$MNT/shards/model.safetensors" ] ||
	fail "a link in a hub cache is no file"
same "$MNT/shards/model.safetensors" "$hub/blobs/123abc"
same "$MNT/tensors/b.c" "$WORK/b.bin"
umount_ckpt
done_ok
