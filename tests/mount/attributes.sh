# SPDX-License-Identifier: Apache-2.0
# What stat, statfs and the names say, and what a read-only mount refuses.
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/split.sh"

make_split "$WORK/ckpt" 100 50 2
first=$WORK/ckpt/shard-00001-model-00001-of-00001.safetensors
second=$WORK/ckpt/shard-00002-model-00001-of-00001.safetensors
touch -d '2020-02-03 04:05:06.123456789 UTC' "$first"
touch -d '2021-02-03 04:05:06.123456789 UTC' "$second"
chmod 755 "$first" "$second"
mount_ckpt "$WORK/ckpt"
t=$MNT/tensors/w

is() { # WANT FORMAT FILE
	[ "$(stat -c "$2" "$3")" = "$1" ] ||
		fail "stat $2 of $3: $(stat -c "$2" "$3"), expected $1"
}
is 5000 %s "$t"
is 10 %b "$t"
is "regular file" %F "$t"
is "-r--r--r--" %A "$t"
is "$(stat -c %u:%g "$second")" %u:%g "$t"
is "$(stat -c %y "$second")" %y "$t"
is 1 %h "$t"
is "directory" %F "$MNT/tensors"
is "dr-xr-xr-x" %A "$MNT/tensors"

# Inode numbers: distinct, the same again, and those that readdir gives.
ls -iRA "$MNT" | awk '/^ *[0-9]/ { print $1, $2 }' | sort >"$WORK/a"
find "$MNT" -mindepth 1 -printf '%i %f\n' | sort >"$WORK/b"
[ "$(awk '{ print $1 }' "$WORK/a" | sort -u | wc -l)" = \
	"$(wc -l <"$WORK/a")" ] || fail "inode numbers repeat"
diff "$WORK/a" "$WORK/b" ||
	fail "inode numbers of ls and find differ"
echo 2 >/proc/sys/vm/drop_caches 2>/dev/null
find "$MNT" -mindepth 1 -printf '%i %f\n' | sort | diff - "$WORK/b" ||
	fail "inode numbers changed"

df -B 1 --output=size,avail,fstype "$MNT" | tail -n 1 >"$WORK/df"
read -r size avail type <"$WORK/df"
[ "$size" -ge 6200 ] && [ "$size" -lt 20000 ] && [ "$avail" = 0 ] ||
	fail "df: $(cat "$WORK/df")"
[ "$type" = fuse.unshardfs ] || fail "type $type"

# Names.
long=$(printf '%0300d' 0)
for bad in none "$(printf '%0255d' 0)" ..w; do
	[ ! -e "$MNT/tensors/$bad" ] || fail "$bad exists"
done
ls "$MNT/tensors/$long" 2>&1 | grep -q "too long" || fail "a name of 300 bytes"

# Read-only, as the kernel says it.
refuses() { # WORD COMMAND...
	local word=$1
	shift
	"$@" 2>"$WORK/err" && fail "$* succeeded"
	grep -q "$word" "$WORK/err" || fail "$*: $(cat "$WORK/err")"
}
ro="Read-only file system"
refuses "$ro" dd if=/dev/zero of="$t" bs=1 count=1 conv=notrunc
refuses "$ro" touch "$MNT/tensors/new"
refuses "$ro" touch "$t"
refuses "$ro" rm -f "$t"
refuses "$ro" mv "$t" "$MNT/tensors/x"
refuses "$ro" mkdir "$MNT/new"
refuses "$ro" chmod 600 "$t"
refuses "$ro" truncate -s 0 "$t"
refuses "$ro" ln -s a "$MNT/link"
refuses "$ro" cp "$WORK/whole.w" "$MNT/shards/new"
# A shell's redirection, which bash itself reports.
refuses "$ro" bash -c ': >"$1"' sh "$t"
same "$t" "$WORK/whole.w"
umount_ckpt

# A path with a space, a source with a comma, and the mount table's line.
mkdir "$WORK/m t" && mv "$WORK/ckpt" "$WORK/c,k pt"
MNT="$WORK/m t"
"$UNSHARD" mount "$WORK/c,k pt" "$MNT" -o "log=$LOG$SAN_OPTS" ||
	fail "mount on a path with a space"
same "$MNT/tensors/w" "$WORK/whole.w"
df --output=source "$MNT" | grep -qF "c,k pt" || fail "df shows another source"
"$UNSHARD" umount "$MNT" || fail "umount of a path with a space"
done_ok
