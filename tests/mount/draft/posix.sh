# SPDX-License-Identifier: Apache-2.0
# shards/ of a new checkpoint answers as the file system below it does, but for
# what is refused on purpose; and no call answers worse than libfuse's own
# passthrough_ll, where its source is installed.
LIMIT=120
. "$(dirname "$0")/../lib/common.sh"
python=${PYTHON:-python3}
ops=$(dirname "$0")/posix_ops.py
example=/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c

run() { # NAME DIR [USER...]
	local name=$1 dir=$2
	shift 2
	mkdir -p "$dir" && "$@" "$python" "$ops" "$dir" >"$WORK/$name" 2>"$WORK/err" ||
		fail "$name: $(tail -n 1 "$WORK/err")"
}
# differences A B: lines of the two that differ, by their first words
differences() {
	paste -d '\n' "$WORK/$1" "$WORK/$2" | "$python" -c '
import sys
lines = sys.stdin.read().splitlines()
for a, b in zip(lines[::2], lines[1::2]):
    if a != b: print(a, "|", b)'
}
# Links are relative, and lead inside: all of the script are.  mknod of plain
# files is the same as creating them.
allowed='^$'

mkdir "$WORK/src"
run below "$WORK/below.d"
mount_ckpt "$WORK/src" rw
mkdir "$MNT/posix"
run ours "$MNT/posix/shards/run"
[ "$(wc -l <"$WORK/ours")" -gt 700 ] || fail "few answers"
differences below ours | grep -vE "$allowed" >"$WORK/differ"
say "$(wc -l <"$WORK/ours") answers, $(wc -l <"$WORK/differ") differ from the file system below"
head -n 20 "$WORK/differ"
[ ! -s "$WORK/differ" ] || fail "differences"

# Four at a time answer the same.
for i in 1 2 3 4; do
	mkdir "$MNT/posix/shards/d$i"
	"$python" "$ops" "$MNT/posix/shards/d$i" >"$WORK/at.$i" 2>&1 &
done
wait
for i in 1 2 3 4; do same "$WORK/at.$i" "$WORK/below"; done

if [ -e "$example" ] && command -v gcc >/dev/null &&
	gcc -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I"$(dirname "$example")" \
		$(pkg-config --cflags fuse3) -w "$example" -o "$WORK/passthrough" \
		$(pkg-config --libs fuse3) 2>/dev/null; then
	mkdir "$WORK/theirs.src" "$WORK/theirs.mnt"
	"$WORK/passthrough" -o "source=$WORK/theirs.src,default_permissions" \
		"$WORK/theirs.mnt" || fail "passthrough_ll"
	run theirs "$WORK/theirs.mnt/run"
	umount "$WORK/theirs.mnt"
	differences below theirs >"$WORK/worse"
	say "passthrough_ll: $(wc -l <"$WORK/worse") differ"
	[ "$(wc -l <"$WORK/differ")" -le "$(wc -l <"$WORK/worse")" ] ||
		fail "more differences than passthrough_ll"
else
	say "passthrough_ll cannot be built here"
fi
umount_ckpt
done_ok
