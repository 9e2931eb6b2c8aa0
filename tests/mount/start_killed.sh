# SPDX-License-Identifier: Apache-2.0
# The supervisor is killed at each place of its start: the command says so, and
# leaves no mount, dead or alive, and no process; what lies in the spool then the
# next start removes, and nothing that is used.
. "$(dirname "$0")/lib/common.sh"
CKPT=$WORK/ckpt
make_safetensors "$CKPT/model.safetensors"
mkdir "$WORK/spool"
chmod 777 "$WORK/spool"

lying() { find "$WORK/spool" -mindepth 1 | wc -l; }
nobody() { [ -z "$(pids_of "")" ]; }
# killed OPTIONS COMMAND...: at each place; the last is one where it answers
killed() {
	local n opts=$1
	shift
	for ((n = 1; n < 20; n++)); do
		"$@" env UNSHARD_START_FAULT=$n "$UNSHARD" mount "$CKPT" "$MNT" \
			-o "log=$LOG,spool=$WORK/spool$opts$SAN_OPTS" 2>"$WORK/err" &&
			break
		grep -q 'supervisor died before the mount answered' "$WORK/err" ||
			fail "$n: $(cat "$WORK/err")"
		mounted && fail "$n: a mount is left"
		ls "$MNT" >/dev/null || fail "$n: the place cannot be used"
		wait_for 10 nobody || fail "$n: processes are left: $(pids_of "")"
		[ "$(lying)" -le 1 ] || fail "$n: $(ls "$WORK/spool")"
	done
	[ $n -gt 6 ] || fail "killed at $((n - 1)) places only"
	[ "$(lying)" = 1 ] || fail "in the spool: $(ls "$WORK/spool")"
	"$@" cmp "$MNT/tensors/a" "$WORK/a.bin" || fail "it does not answer"
	"$@" "$UNSHARD" umount "$MNT" || fail "umount"
	[ "$(lying)" = 0 ] || fail "left in the spool: $(ls "$WORK/spool")"
}
killed ""
[ "$(id -u)" != 0 ] || killed ,allow_other

# A mount whose processes are all killed is dead; the next takes its place.
mount_ckpt "$CKPT" "spool=$WORK/spool"
super=$(supervisor_pid) worker=$(worker_pid)
kill -9 "$super"
wait_for 10 gone "$super" || fail "the supervisor cannot be killed"
mkdir "$WORK/other"
"$UNSHARD" mount "$CKPT" "$WORK/other" -o "spool=$WORK/spool$SAN_OPTS" ||
	fail "a second mount"
[ "$(lying)" = 2 ] || fail "what is used was removed: $(ls "$WORK/spool")"
kill -9 "$worker"
wait_for 10 gone "$worker" || fail "the worker cannot be killed"
# the kernel lets go of the mount with the last thread of it, a moment later
dead() { ! ls "$MNT" 2>"$WORK/err" && grep -q 'not connected' "$WORK/err"; }
wait_for 10 dead || fail "not dead: $(cat "$WORK/err")"
mount_ckpt "$CKPT" "spool=$WORK/spool"
same "$MNT/tensors/a" "$WORK/a.bin"
[ "$(lying)" = 2 ] || fail "what nobody uses stays: $(ls "$WORK/spool")"
[ "$(grep -c " $MNT " /proc/self/mountinfo)" = 1 ] || fail "two mounts"
umount_ckpt
"$UNSHARD" umount "$WORK/other" || fail "umount of the other"
[ "$(lying)" = 0 ] || fail "at the end: $(ls "$WORK/spool")"

# The same of an ordinary user, by fusermount3.
[ "$(id -u)" = 0 ] || done_ok
user_setup
killed "" as_user
done_ok
