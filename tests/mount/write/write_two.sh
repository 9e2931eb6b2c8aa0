# SPDX-License-Identifier: Apache-2.0
# One mount at a time edits a checkpoint, however another got there: the second
# is told who has it, until that one ends, in whatever way.  Then it knows what
# the first has written.
LIMIT=120
. "$(dirname "$0")/../lib/common.sh"
requires python3 cmp

B=$WORK/b
mkdir "$B"
second() { # SRC [OPTION,...]
	"$UNSHARD" mount "$1" "$B" -o "log=$WORK/log.b${2:+,$2}$SAN_OPTS" ||
		fail "mount of $1 gave exit $?"
}
unsecond() { "$UNSHARD" umount "$B" || fail "umount of the second"; }
poke() { # FILE [AT]: ten bytes
	noise 10 $RANDOM | dd of="$1" conv=notrunc bs=1 seek="${2:-0}" \
		status=none 2>"$WORK/err"
}
# denied COMMAND...: by who is at $MNT, and it says so
denied() {
	: >"$WORK/log.b"
	"$@" && fail "$*: nobody was in the way"
	grep -q 'Device or resource busy' "$WORK/err" ||
		fail "$*: $(cat "$WORK/err")"
	# the line may come after the answer
	wait_for 5 grep -q "edited by process $(pid_at "$MNT") on $(uname -n)" \
		"$WORK/log.b" || fail "not named: $(cat "$WORK/log.b")"
}
# the worker that serves a mount
pid_at() {
	local p
	for p in $(workers); do
		tr '\0' '\n' <"/proc/$p/cmdline" | grep -qx "$1" && echo "$p"
	done
}
true_manifest() {
	"$UNSHARD" verify "$1" >"$WORK/out" 2>&1 || fail "$2: $(cat "$WORK/out")"
}
clean() {
	[ -z "$(find "$1" -name '.unshard-writer' -o -name .unshard-edited)" ] ||
		fail "$2: $(ls -A "$1")"
}
# publish --replace of one that somebody edits, by whatever root he came
stage_new() {
	mkdir -p "$WORK/.staging-new/files"
	cp "$here"/tests/demo/checkpoint/{.metadata,__*} "$WORK/.staging-new/files"
}
not_replaced() { # NAME
	stage_new
	expect 3 "edited by process $(pid_at "$MNT") on $(uname -n)" \
		"$UNSHARD" publish --replace --as "$1" "$WORK/new"
	[ -e "$WORK/.staging-new/files/.metadata" ] || fail "its stage is gone"
	rm -r "$WORK/.staging-new"
}
fresh() {
	rm -rf "$WORK/ckpt"
	cp -r "$here/tests/demo/checkpoint" "$WORK/ckpt"
	chmod -R u+w "$WORK/ckpt"
	"$UNSHARD" seal "$WORK/ckpt" >"$WORK/out" || fail "seal"
}
one=tensors/model.lm_head.weight two=tensors/model.model.norm.weight

# --- one sealed checkpoint, twice; also with a pause in between
fresh
mount_ckpt "$WORK/ckpt" rw
second "$WORK/ckpt" rw
poke "$MNT/$one" || fail "the first: $(cat "$WORK/err")"
denied poke "$B/$two"
denied poke "$B/model.safetensors" 0
grep -q 'note: -o rw: .*being edited by' "$B/.unshard/problems" ||
	fail "problems: $(cat "$B/.unshard/problems")"
same "$MNT/$two" "$B/$two"
poke "$MNT/$two" 30 || fail "the first again"
expect 3 'edited by process' "$UNSHARD" seal --force "$WORK/ckpt"
not_replaced ckpt
umount_ckpt
true_manifest "$WORK/ckpt" "after the first"
# What the first wrote is a change underneath for the second; the rest is not.
poke "$B/$one" && fail "over what another mount wrote"
grep -q 'Stale file handle' "$WORK/err" || fail "$(cat "$WORK/err")"
unsecond
true_manifest "$WORK/ckpt" "after both"
clean "$WORK/ckpt" "after both"

# --- one ends, the other has had an old manifest in memory
fresh
second "$WORK/ckpt" rw
mount_ckpt "$WORK/ckpt" rw
for t in "$MNT"/tensors/*; do
	poke "$t" || fail "$t"
	break
done
umount_ckpt
wrote=0
for t in "$B"/tensors/*; do
	poke "$t" && wrote=$((wrote + 1))
done
[ $wrote -gt 1 ] || fail "only $wrote tensors could be written"
true_manifest "$WORK/ckpt" "while the second still has it"
unsecond
true_manifest "$WORK/ckpt" "after one and then the other"

# --- what killed writers of the manifest left goes with the next edit; what
# is called otherwise stays
fresh
touch "$WORK/ckpt/.unshard-temp-12-345" "$WORK/ckpt/.unshard-temp-99999-1" \
	"$WORK/ckpt/.unshard-temp-x-1" "$WORK/ckpt/.unshard-temp-1-"
mkdir "$WORK/ckpt/.unshard-temp-1-1"
mount_ckpt "$WORK/ckpt" rw
[ -e "$WORK/ckpt/.unshard-temp-12-345" ] || fail "removed without a lock"
poke "$MNT/$one" || fail "$(cat "$WORK/err")"
[ "$(cd "$WORK/ckpt" && echo .unshard-temp-*)" = \
	".unshard-temp-1- .unshard-temp-1-1 .unshard-temp-x-1" ] ||
	fail "temporary files: $(ls -A "$WORK/ckpt")"
umount_ckpt
true_manifest "$WORK/ckpt" "after temporary files"

# --- the file that keeps others out: of one that was killed the next mount for
# writing removes it, though it writes nothing; of one that lives it stays
fresh
mount_ckpt "$WORK/ckpt" rw
poke "$MNT/$one" || fail "$(cat "$WORK/err")"
second "$WORK/ckpt" rw
[ -e "$WORK/ckpt/.unshard-writer" ] || fail "that of another mount was removed"
unsecond
kill -9 "$(pid_at "$MNT")"
wait_for 10 not mounted || fail "the mount stays"
"$UNSHARD" recover "$WORK/ckpt" >/dev/null || fail recover
clean_writer() {
	[ ! -e "$WORK/ckpt/.unshard-writer" ] || fail "$1: $(ls -A "$WORK/ckpt")"
}
clean_writer "after recover"
touch "$WORK/ckpt/.unshard-writer"
second "$WORK/ckpt"
[ -e "$WORK/ckpt/.unshard-writer" ] || fail "a mount for reading removed it"
unsecond
second "$WORK/ckpt" rw
unsecond
clean "$WORK/ckpt" "after the next mount"
touch "$WORK/ckpt/.unshard-writer"
second "$WORK/ckpt" rw
clean_writer "after a mount that writes nothing"
unsecond

# --- sealed after the mount, before its first write
fresh
rm "$WORK/ckpt/.unshard-manifest"
mount_ckpt "$WORK/ckpt" rw
"$UNSHARD" seal "$WORK/ckpt" >/dev/null || fail "seal below an idle mount"
poke "$MNT/$one" || fail "$(cat "$WORK/err")"
umount_ckpt
true_manifest "$WORK/ckpt" "sealed below"

# --- by other ways: a link, a bind mount, a joined directory, one file alone
mkdir "$WORK/bound" "$WORK/part"
ln -s ckpt "$WORK/link"
mount_ckpt "$WORK/ckpt" rw
poke "$MNT/$one" || fail "$(cat "$WORK/err")"
ways=("$WORK/link" "$WORK/ckpt:$WORK/part")
mount --bind "$WORK/ckpt" "$WORK/bound" 2>/dev/null && ways+=("$WORK/bound")
for way in "${ways[@]}"; do
	second "$way" rw
	denied poke "$B/$two"
	unsecond
done
umount_ckpt
umount "$WORK/bound" 2>/dev/null
cp -r "$here/tests/formats/torch/misc/in" "$WORK/zips"
chmod -R u+w "$WORK/zips"
zip=$WORK/zips/misc.pt
mount_ckpt "$zip" rw
poke "$MNT/tensors/rng" || fail "$(cat "$WORK/err")"
not_replaced zips
for way in "$zip" "$WORK/zips"; do
	second "$way" rw
	denied poke "$B/tensors/rng"
	unsecond
done
umount_ckpt
mount_ckpt "$WORK/zips" rw
poke "$MNT/tensors/rng" 700 || fail "$(cat "$WORK/err")"
second "$zip" rw
denied poke "$B/tensors/rng"
unsecond
umount_ckpt
python3 "$here/tests/mount/lib/sums.py" "$WORK/zips" || fail "sums"
getfattr -d "$zip" 2>/dev/null | grep -q unshard && fail "attributes are left"

# --- a folder above: other roots, the same files
mkdir "$WORK/ds"
cp -r "$here/tests/formats/deepspeed/autotp/in" "$WORK/ds/global_step1"
echo global_step1 >"$WORK/ds/latest"
chmod -R u+w "$WORK/ds"
mount_ckpt "$WORK/ds/global_step1" rw,master=also
t=$(ls "$MNT/tensors" | grep weight | head -n 1)
poke "$MNT/tensors/$t" || fail "$(cat "$WORK/err") $(tail -n 1 "$LOG")"
second "$WORK/ds" rw,master=also
d=$B
[ -e "$d/tensors" ] || d=$B/global_step1
denied poke "$d/tensors/$t"
unsecond
umount_ckpt

# --- kill -9: the lock is free at once, and what was begun is put right
fresh
mount_ckpt "$WORK/ckpt" rw
second "$WORK/ckpt" rw
python3 - "$MNT/$one" "$(pid_at "$MNT")" <<'END' || fail "write and kill"
import os, signal, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
assert os.write(fd, b"x" * 500) == 500
os.kill(int(sys.argv[2]), signal.SIGKILL)
END
wait_for 10 not mounted || fail "a dead mount stays"
[ -e "$WORK/ckpt/.unshard-edited" ] || fail "nothing was left: no test"
n=0
for t in "$B"/tensors/*; do poke "$t" && n=$((n + 1)); done
[ $n -gt 0 ] || fail "the lock of a dead worker stays: $(tail -n 1 "$WORK/log.b")"
unsecond
true_manifest "$WORK/ckpt" "after kill -9"
head -c 500 "$WORK/ckpt/../ckpt/__0_0.distcp" >/dev/null
clean "$WORK/ckpt" "after kill -9"

# --- -o replace, and an overlay that is to be applied
mount_ckpt "$WORK/ckpt" rw
poke "$MNT/$one" || fail "$(cat "$WORK/err")"
second "$WORK/ckpt" replace
denied dd if="$MNT/$two" of="$B/$two" status=none 2>"$WORK/err"
unsecond
second "$WORK/ckpt" "overlay=$WORK/over"
umount_ckpt
unsecond
rm -rf "$WORK/over"
second "$WORK/ckpt" "overlay=$WORK/over"
poke "$B/$two" || fail "an overlay needs no lock: $(cat "$WORK/err")"
unsecond
mount_ckpt "$WORK/ckpt" rw
exec 9<>"$MNT/$one" || fail "open"
expect 3 'edited by process' \
	"$UNSHARD" overlay apply "$WORK/ckpt" "$WORK/over" "$WORK/new"
exec 9>&-
umount_ckpt
"$UNSHARD" overlay apply "$WORK/ckpt" "$WORK/over" "$WORK/new" >/dev/null ||
	fail "apply"

# --- a directory of steps: a lock for each
mkdir "$WORK/runs"
cp -r "$WORK/ckpt" "$WORK/runs/step-1"
cp -r "$WORK/ckpt" "$WORK/runs/step-2"
mount_ckpt "$WORK/runs" rw
second "$WORK/runs" rw
poke "$MNT/step-1/$one" || fail "$(cat "$WORK/err")"
denied poke "$B/step-1/$two"
poke "$B/step-2/$two" || fail "another step: $(cat "$WORK/err")"
mkdir "$MNT/step-3" || fail "a new step"
cp "$WORK"/ckpt/__[01]*.distcp "$MNT/step-3/shards" || fail "its first files"
cp "$WORK"/ckpt/__[23]*.distcp "$B/step-3/shards" || fail "its other files"
cp "$WORK/ckpt/.metadata" "$B/step-3/shards/m"
mv "$B/step-3/shards/m" "$B/step-3/shards/.metadata" || fail "publish"
wait_for 10 test -e "$WORK/runs/step-3/.unshard-manifest" || fail "not published"
unsecond
umount_ckpt
for s in 1 2 3; do
	true_manifest "$WORK/runs/step-$s" "step-$s"
	clean "$WORK/runs/step-$s" "step-$s"
done
done_ok
