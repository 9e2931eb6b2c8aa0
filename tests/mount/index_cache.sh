#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# -o index-cache: what is kept is taken only where the checkpoint would be read
# the same again; whatever is wrong with the folder costs time alone.
LIMIT=120
. "$(dirname "$0")/lib/common.sh"
requires cmp dd
CKPT=$WORK/ckpt KEPT=$WORK/kept
make_safetensors "$CKPT/model.safetensors"

# through OPTIONS: mounts, compares what is there with what must be, and leaves
# the inode of the one file that is kept in $inode, its name in $file.
through() {
	mount_ckpt "$CKPT" "index-cache=$KEPT${1:+,$1}"
	same "$MNT/tensors/a" "$WORK/a.bin"
	same "$MNT/tensors/${b:-b.c}" "$WORK/b.bin"
	umount_ckpt
	file=$(ls -t "$KEPT" | head -n 1)
	inode=$(stat -c %i "$KEPT/$file")
}
# A file that is taken stays; one that is made anew replaces it.
taken() { was=$inode; through; [ "$inode" = "$was" ] || fail "$1: read again"; }
anew() { was=$inode; through; [ "$inode" != "$was" ] || fail "$1: taken"; }

through
[ "$(stat -c %a "$KEPT") $(stat -c %a "$KEPT/$file")" = "700 600" ] ||
	fail "modes $(stat -c %a "$KEPT" "$KEPT/$file")"
taken "nothing changed"

# --- the checkpoint
sed -i 's/"b\.c"/"b.d"/' "$CKPT/model.safetensors"
b=b.d anew "another name in the header"
b=b.d taken "nothing changed since"
cp -p "$CKPT/model.safetensors" "$WORK/copy"
sed -i 's/"b\.d"/"b.c"/' "$CKPT/model.safetensors"
touch -r "$WORK/copy" "$CKPT/model.safetensors"
anew "the same size and time"
mv "$CKPT" "$WORK/moved" && cp -a "$WORK/moved" "$CKPT"
anew "another inode"
chmod 600 "$CKPT/model.safetensors"
anew "another ctime"
mkdir "$CKPT/more" && rmdir "$CKPT/more"
taken "the folder's own time"

# --- the file
for at in 0 20 60 200 -1; do
	size=$(stat -c %s "$KEPT/$file")
	[ $at -ge 0 ] || at=$((size + at))
	byte=$(od -An -tu1 -j $at -N1 "$KEPT/$file")
	printf "\\$(printf %o $(((byte + 1) % 256)))" |
		dd of="$KEPT/$file" bs=1 seek=$at conv=notrunc status=none
	anew "byte $at of it was changed"
done
truncate -s -100 "$KEPT/$file"
anew "it was cut"
truncate -s 0 "$KEPT/$file"
anew "it is empty"
echo more >>"$KEPT/$file"
anew "it was grown"
chmod 620 "$KEPT/$file"
anew "others may write it"

# --- another checkpoint's, under this name
mkdir "$WORK/other" && sed 's/"b\.c"/"e.f"/' "$CKPT/model.safetensors" \
	>"$WORK/other/model.safetensors"
mount_ckpt "$WORK/other" "index-cache=$KEPT" && umount_ckpt
[ "$(ls "$KEPT" | wc -l)" = 2 ] || fail "expected two: $(ls "$KEPT")"
mv "$KEPT/$(ls -t "$KEPT" | head -n 1)" "$KEPT/$file"
inode=$(stat -c %i "$KEPT/$file")
anew "another checkpoint's"
through threads=3
[ "$(ls "$KEPT" | wc -l)" = 2 ] || fail "another option has no file of its own"

# --- what is not the cache's stays; of its own the least used go
rm -r "$KEPT"
through
(cd "$KEPT" && touch -d 2000-01-01 notes.txt .hidden deadbeef "${file}x" \
	"$file.bak" {1..80}.txt && ln -s notes.txt "${file:1}0" && mkdir "${file:1}1" &&
	for i in {100..180}; do touch -d 2001-01-01 "${file:3}$i"; done &&
	touch -d 2000-06-01 "$file.77")
others() { (cd "$KEPT" && ls -Ad * .hidden | grep -vxE '[0-9a-f]{32}(\.[0-9]+)?'
	find . ! -type f | sort); }
others >"$WORK/others"
rm "$KEPT/$file"
half=$KEPT/$file.77
through
others | cmp - "$WORK/others" || fail "removed what is not its own"
[ "$(find "$KEPT" -type f | grep -cE '/[0-9a-f]{32}$')" = 64 ] ||
	fail "kept $(find "$KEPT" -type f | grep -cE '/[0-9a-f]{32}$') files"
[ ! -e "$half" ] || fail "half a file stays"

# --- folders that cannot be used
rm -r "$KEPT"
mkdir -m 770 "$WORK/shared" && chmod 770 "$WORK/shared"
: >"$WORK/file"
for dir in "$WORK/shared" "$WORK/file" "$WORK/absent/below"; do
	"$UNSHARD" mount "$CKPT" "$MNT" -o "index-cache=$dir,log=$LOG$SAN_OPTS" \
		2>"$WORK/err" || fail "$dir: exit $?"
	grep -q "warning: -o index-cache=$dir: " "$WORK/err" ||
		fail "$dir: $(cat "$WORK/err")"
	same "$MNT/tensors/a" "$WORK/a.bin"
	umount_ckpt
done
[ -z "$(ls "$WORK/shared")" ] || fail "others may write there"
if [ "$(id -u)" = 0 ]; then
	mkdir -m 700 "$KEPT"
	mount -t tmpfs -o size=4k,mode=700 none "$KEPT"
	noise 4096 1 >"$KEPT/full" # nothing more fits
	mount_ckpt "$CKPT" "index-cache=$KEPT"
	same "$MNT/tensors/a" "$WORK/a.bin"
	umount_ckpt
	[ "$(ls "$KEPT")" = full ] || fail "left on a full disk: $(ls "$KEPT")"
	umount "$KEPT"
fi

# --- not asked for: nothing of a small checkpoint is kept
export XDG_CACHE_HOME=$WORK/cache
mkdir "$XDG_CACHE_HOME"
mount_ckpt "$CKPT" && umount_ckpt
[ -z "$(find "$XDG_CACHE_HOME" -type f)" ] ||
	fail "kept: $(find "$XDG_CACHE_HOME" -type f)"
done_ok
