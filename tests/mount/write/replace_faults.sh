# SPDX-License-Identifier: Apache-2.0
# -o replace: the worker is killed before each step of a replacement, and
# whoever comes next finds the old bytes or the new ones, never some of each.
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
. "$(dirname "$0")/../lib/replace.sh"
requires python3 cp

make_split "$WORK/keep" 700 4097 5
"$UNSHARD" seal "$WORK/keep" >/dev/null || fail seal
size=$(stat -c %s "$WORK/whole.w")
noise "$size" 21 >"$WORK/new"
fresh() { rm -rf "$ckpt" && cp -r "$WORK/keep" "$ckpt"; }
# after a kill: readers are told, or find one of both
look() {
	if left; then
		"$UNSHARD" cat "$ckpt" w >/dev/null 2>"$WORK/err" &&
			fail "$1: read half-way"
		grep -q 'broke off half-way' "$WORK/err" || fail "$1: no line"
	else
		[ "$(which_bytes)" != mixed ] || fail "$1: torn"
	fi
}
whole() {
	[ "$(which_bytes)" = "$2" ] || fail "$1: $(which_bytes), not $2"
	[ -z "$(ls -A "$ckpt" | grep -E '^\.unshard-(redo|new|edited)')" ] ||
		fail "$1: left over: $(ls -A "$ckpt")"
	"$UNSHARD" verify "$ckpt" >"$WORK/out" 2>&1 ||
		fail "$1: $(cat "$WORK/out")"
}

# --- the worker is killed before step 1, 2, ...
step=1 half=0
while :; do
	fresh
	UNSHARD_PUBLISH_FAULT=$step mount_ckpt "$ckpt" replace
	if cp "$WORK/new" "$MNT/tensors/w" 2>/dev/null; then
		umount_ckpt
		whole "no kill" new
		break
	fi
	wait_for 10 not mounted || fail "step $step: the mount stays"
	look "killed at step $step"
	expect=old
	left && expect=new && half=$((half + 1))
	if [ $((step % 2)) = 0 ]; then
		"$UNSHARD" recover "$ckpt" >"$WORK/out" || fail recover
		left && fail "step $step: recover did nothing"
		[ $expect = old ] || grep -q 'written to its end' "$WORK/out" ||
			fail "step $step: recover says nothing"
		# also what was never whole is swept by who writes
		mount_ckpt "$ckpt" rw
		umount_ckpt
	else
		mount_ckpt "$ckpt" rw
		[ $expect = old ] || same "$MNT/tensors/w" "$WORK/new"
		umount_ckpt
	fi
	[ $expect = new ] || [ "$(which_bytes)" = old ] || expect=new
	whole "after step $step" $expect
	step=$((step + 1))
	[ $step -lt 60 ] || fail "a replacement has no end"
done
[ $half -ge 4 ] || fail "only $half kills left something to be done again"
say "$((step - 1)) kills in a replacement, $half of them half-way"

# --- who does it again is killed too
fresh
UNSHARD_PUBLISH_FAULT=6 mount_ckpt "$ckpt" replace
cp "$WORK/new" "$MNT/tensors/w" 2>/dev/null && fail "not killed"
wait_for 10 not mounted || fail "the mount stays"
left || fail "nothing is left of step 6"
for step in 1 2 3 4 5 6 7 8 9; do
	left || break
	UNSHARD_PUBLISH_FAULT=$step "$UNSHARD" recover "$ckpt" \
		>/dev/null 2>&1 && break
	look "recover killed at step $step"
done
whole "recovered at last" new
[ "$step" -ge 4 ] || fail "recover took $step steps"

# --- a step that fails: the writer is told, and nothing comes between
fresh
UNSHARD_PUBLISH_FAULT=6:28 mount_ckpt "$ckpt" replace
cp "$WORK/new" "$MNT/tensors/w" 2>/dev/null && fail "cp saw no error"
printf x | dd of="$MNT/tensors/w" conv=notrunc status=none 2>/dev/null &&
	fail "a write came between"
umount_ckpt
left || fail "the failed one is forgotten"
mount_ckpt "$ckpt" rw
same "$MNT/tensors/w" "$WORK/new"
grep -q '^warning: file .*written to its end' "$MNT/.unshard/problems" || fail "no problem noted"
umount_ckpt
whole "after a failure" new

# --- one of another checkpoint is not taken, and says which file it is
fresh
UNSHARD_PUBLISH_FAULT=6 mount_ckpt "$ckpt" replace
cp "$WORK/new" "$MNT/tensors/w" 2>/dev/null && fail "not killed"
wait_for 10 not mounted || fail "the mount stays"
mkdir "$WORK/other"
make_split "$WORK/other" 10 4097 5
cp "$ckpt"/.unshard-redo-* "$WORK/other"
"$UNSHARD" recover "$WORK/other" >"$WORK/out" 2>&1 && fail "another's was taken"
grep -q 'unshard-redo-.*expected this tensor' "$WORK/out" ||
	fail "no line: $(cat "$WORK/out")"

# ---- what a mount has in use stays, and what it leaves when it is killed goes
fresh
ours() { ls -A "$ckpt" | grep -c '^\.unshard-new-\|^\.unshard-writer$'; }
mount_ckpt "$ckpt" replace
pids="$(supervisor_pid) $(worker_pid)"
python3 -c 'import os, signal, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
os.write(fd, b"a part of it")
signal.pause()' "$MNT/tensors/w" &
writer=$!
both_there() { [ "$(ours)" = 2 ]; }
wait_for 20 both_there || fail "$(ls -A "$ckpt")"
expect 0 '' "$UNSHARD" recover "$ckpt"
[ "$(ours)" = 2 ] || fail "recover took what is in use: $(ls -A "$ckpt")"
kill -9 $pids
kill $writer
wait $writer
"$UNSHARD" umount "$MNT" 2>/dev/null
[ "$(ours)" = 2 ] || fail "the mount's end removed them: $(ls -A "$ckpt")"
expect 0 '' "$UNSHARD" recover "$ckpt"
grep -q 'what a mount left that died was removed' "$WORK/out" || fail "$(cat "$WORK/out")"
[ "$(ours)" = 0 ] || fail "left: $(ls -A "$ckpt")"
expect 0 '' "$UNSHARD" recover "$ckpt"
grep -q removed "$WORK/out" && fail "twice: $(cat "$WORK/out")"
done_ok
