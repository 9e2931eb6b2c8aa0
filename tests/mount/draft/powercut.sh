# SPDX-License-Identifier: Apache-2.0
# The power goes: everything that a disk was given while checkpoints were
# published is replayed up to each point, ext4 recovers what there is, and what
# can be seen there must be whole, and be there once the publish has returned.
LIMIT=600
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/powercut.sh"
CKPT=$here/tests/demo/checkpoint
points=32
[ -z "${UNSHARD_NIGHTLY-}" ] || points=100000

fill() { # STEP
	mkdir "$MNT/$1" && cp "$CKPT"/__*.distcp "$MNT/$1/shards" &&
		cp "$CKPT/.metadata" "$MNT/$1/shards/m"
}

# cuts FROM EXISTED DONE NAME: replays prefixes that end after byte FROM of the
# tape; EXISTED: from which on some NAME was there, DONE: from which on the
# new one (with a file "new") is.
cuts() {
	plan "$1" "$2" "$3"
	local end existed done
	cut=0 torn=0 lost=0
	while read -r end existed done; do
		replay "$end"
		cut=$((cut + 1))
		d=$WORK/cut/src/$4
		if [ -d "$d" ]; then
			"$UNSHARD" verify "$d" >"$WORK/out" 2>&1 &&
				grep -q sealed "$WORK/out" || {
				torn=$((torn + 1))
				say "torn at byte $end: $(head -n 2 "$WORK/out")"
			}
			[ "$done" = 0 ] || [ -e "$d/new" ] || lost=$((lost + 1))
		elif [ "$existed" = 1 ]; then
			lost=$((lost + 1))
			say "lost at byte $end"
		fi
		umount "$WORK/cut" || fail "umount of a cut"
	done <"$WORK/plan"
	say "$4: $cut cuts, $torn torn, $lost lost"
	all=$((all + cut))
}
right() { [ $torn = 0 ] && [ $lost = 0 ] || fail "$torn torn, $lost lost"; }
all=0

# ---- a new checkpoint
disk
mount_ckpt "$WORK/ext/src" rw
from=$(at)
fill step-1 && touch "$MNT/step-1/shards/new"
mv "$MNT/step-1/shards/m" "$MNT/step-1/shards/.metadata" || fail "publish"
done=$(at)
[ -d "$WORK/ext/src/step-1" ] || fail "not published"
umount_ckpt
undisk
cuts "$from" "$done" "$done" step-1
right

# ---- one that replaces another
disk
mount_ckpt "$WORK/ext/src" rw
fill step-1
mv "$MNT/step-1/shards/m" "$MNT/step-1/shards/.metadata" || fail "publish"
fill other && touch "$MNT/other/shards/new"
rm "$MNT/other/shards/m"
cp "$CKPT/.metadata" "$MNT/other/shards/.metadata"
from=$(at)
"$UNSHARD" publish --replace --as step-1 "$MNT/other" >/dev/null || fail --replace
done=$(at)
umount_ckpt
undisk
cuts "$from" "$from" "$done" step-1
right
[ $all -ge 60 ] || fail "only $all cuts"

# ---- the rig itself: a publish whose fsyncs do nothing is found out
if [ -n "${UNSHARD_NIGHTLY-}" ] && command -v strace >/dev/null; then
	points=60
	disk
	mkdir -p "$WORK/ext/src/.staging-bad/files"
	cp "$CKPT"/__*.distcp "$CKPT/.metadata" "$WORK/ext/src/.staging-bad/files"
	from=$(at)
	strace -f -o /dev/null -e trace=fsync -e inject=fsync:retval=0 \
		"$UNSHARD" publish "$WORK/ext/src/bad" >/dev/null || fail "strace"
	done=$(at)
	undisk
	cuts "$from" "$done" "$done" bad
	[ $((torn + lost)) -gt 0 ] || fail "nothing is noticed without fsync"
fi
done_ok
