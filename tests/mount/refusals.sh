#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What cannot be mounted gives one line that says what was expected.
. "$(dirname "$0")/lib/common.sh"
requires mkfifo

CKPT=$WORK/ckpt
make_safetensors "$CKPT/model.safetensors"
m() { "$UNSHARD" mount "$@"; }

# --- usage
expect 2 'expected CKPT MNT, found 0' m
expect 2 'expected CKPT MNT, found 1' m "$CKPT"
expect 2 'expected CKPT MNT, found 3' m "$CKPT" "$MNT" "$MNT"
expect 2 'unknown option --colour' m --colour "$CKPT" "$MNT"
expect 2 'unknown option -x' m -x "$CKPT" "$MNT"
expect 2 'unknown option "colour"' m "$CKPT" "$MNT" -o colour=blue
expect 2 'engine: expected auto' m "$CKPT" "$MNT" -o engine=fast
expect 2 'NAME' m "$CKPT" "$MNT" -o
expect 2 'cannot be changed' m "$CKPT" "$MNT" -o remount
expect 2 'expected MNT' "$UNSHARD" umount
expect 2 'no command "munt"' "$UNSHARD" munt

# --- the mount point
expect 3 'no such directory, and none can be made' m "$CKPT" "$WORK/none/deeper/"
expect 3 'lies in the checkpoint' m "$CKPT" "$CKPT/new"
[ ! -e "$CKPT/new" ] || fail "the checkpoint was written to"
# one that is not there is made, stays, and goes where nothing was mounted
expect 1 'none: ' m "$WORK/none" "$WORK/new"
expect 1 'expected' m /dev/null "$WORK/new/"
[ ! -e "$WORK/new" ] || fail "a mount point is left of a mount that failed"
expect 0 '' m "$CKPT" "$WORK/new/"
[ -d "$WORK/new/tensors" ] || fail "nothing is mounted at what was made"
"$UNSHARD" umount "$WORK/new" || fail "umount"
rmdir "$WORK/new" || fail "what was made is gone"
ln -s nowhere "$WORK/dangling"
expect 3 'none can be made' m "$CKPT" "$WORK/dangling"
touch "$WORK/file"
expect 3 'expected a directory' m "$CKPT" "$WORK/file"
mkdir "$WORK/full" && touch "$WORK/full/x"
expect 3 'expected an empty directory' m "$CKPT" "$WORK/full"
expect 3 'checkpoint itself' m "$CKPT" "$CKPT"
ln -s ckpt "$WORK/link"
expect 3 'checkpoint itself' m "$WORK/link" "$CKPT/."
mkdir "$CKPT/in"
expect 3 'lies in the checkpoint' m "$CKPT" "$CKPT/in"
expect 3 'no such directory|No such file' m "$CKPT" "$WORK/none/deeper"

# --- the source
expect 1 'none: ' m "$WORK/none" "$MNT"
mkfifo "$WORK/fifo"
expect 1 'expected' m "$WORK/fifo" "$MNT"
expect 1 'expected' m /dev/null "$MNT"
mkdir "$WORK/empty"
expect 1 "$WORK/empty|empty" m "$WORK/empty" "$MNT"
echo text >"$WORK/text"
expect 1 'text' m "$WORK/text" "$MNT"
mkdir "$WORK/other"
head -c 20 "$CKPT/model.safetensors" >"$WORK/other/model.safetensors"
expect 1 'model.safetensors' m "$WORK/other" "$MNT"

# --- options that name files
expect 2 'spool=.*none' m "$CKPT" "$MNT" -o "spool=$WORK/none"
expect 3 'log=.*none' m "$CKPT" "$MNT" -o "log=$WORK/none/log"
expect 1 'follow=.*none' m "$CKPT" "$MNT" -o "follow=$WORK/none"

# --- folders that a mount for writing makes go where nothing was mounted
mkdir "$WORK/runs"
cp -r "$CKPT" "$WORK/runs/step-1"
cp -r "$CKPT" "$WORK/runs/step-2"
expect 2 'overlay: is for one checkpoint' m "$WORK/runs" "$MNT" -o "overlay=$WORK/ov"
expect 2 'lies in the checkpoint itself' m "$CKPT" "$MNT" -o "overlay=$CKPT/ov"
expect 1 'text' m "$WORK/text" "$MNT" -o "overlay=$WORK/ov"
[ ! -e "$WORK/ov" ] && [ ! -e "$CKPT/ov" ] || fail "an overlay's folder is left"
expect 3 'expected an empty directory' m "$WORK/newruns" "$WORK/full" -o rw
[ ! -e "$WORK/newruns" ] || fail "a folder for checkpoints is left"
mkdir "$WORK/ov"
expect 1 'text' m "$WORK/text" "$MNT" -o "overlay=$WORK/ov"
[ -d "$WORK/ov" ] || fail "a folder that was there is gone"

mounted && fail "something was mounted after all"
[ -z "$(pids_of '')" ] || fail "processes are left: $(pids_of '')"

# --- umount
expect 3 'nothing is mounted' "$UNSHARD" umount "$MNT"
expect 3 'none' "$UNSHARD" umount "$WORK/none"
if [ "$(id -u)" = 0 ]; then
	mount -t tmpfs none "$WORK/full"
	expect 3 'type tmpfs' "$UNSHARD" umount "$WORK/full"
	umount "$WORK/full"
fi

# --- mounted over twice: the place is not empty any more
mount_ckpt "$CKPT"
expect 3 'expected an empty directory' m "$CKPT" "$MNT"
umount_ckpt

# --- a path may hold what options are made of
mkdir "$WORK/a,b:c d"
mount_ckpt "$CKPT" "spool=$WORK/a,b:c d"
umount_ckpt
make_safetensors "$WORK/x,y \\z/model.safetensors"
mkdir "$WORK/m,n o"
"$UNSHARD" mount "$WORK/x,y \\z" "$WORK/m,n o" -o "log=$LOG" ||
	fail "names with commas and spaces"
same "$WORK/m,n o/tensors/a" "$WORK/a.bin"
"$UNSHARD" umount "$WORK/m,n o" || fail "umount of such a name"

# --- an option of another format's is told where it is given
make_safetensors "$WORK/other/model.safetensors"
"$UNSHARD" mount "$WORK/other" "$MNT" -o "log=$LOG,fused=3$SAN_OPTS" \
	2>"$WORK/said" || fail "an option in vain"
grep -q 'warning: -o fused=3: .*is for colossalai$' "$WORK/said" ||
	fail "given in vain: $(cat "$WORK/said")"
grep -q '^warning: -o fused=3: ' "$MNT/.unshard/problems" ||
	fail "problems: $(cat "$MNT/.unshard/problems")"
umount_ckpt

# --- no device; last, for it hides /dev
if [ "$(id -u)" = 0 ] && [ -n "${COMMON_PRIVATE:-}" ]; then
	mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3
	expect 3 '/dev/fuse: No such file.*expected' m "$CKPT" "$MNT"
fi
done_ok
