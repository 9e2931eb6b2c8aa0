# SPDX-License-Identifier: Apache-2.0
# Who asks for other users hangs, or dies: who waits can be killed, others go on.
. "$(dirname "$0")/lib/common.sh"
requires setpriv
[ "$(id -u)" = 0 ] || skip "needs root"
export UNSHARD_KEEP=0

make_safetensors "$WORK/ckpt/model.safetensors"
chmod 755 "$WORK/ckpt" "$MNT"
chmod 644 "$WORK/ckpt/model.safetensors"
as_user cat "$WORK/ckpt/model.safetensors" >/dev/null ||
	skip "$WORK is not open to others"

reads() { as_user cmp "$MNT/tensors/a" "$WORK/a.bin"; }
waits() { [ "$(cat "/proc/$1/wchan" 2>/dev/null)" = request_wait_answer ]; }
# blocked NR: so many readers, whose numbers are in $readers
blocked() {
	readers=()
	for ((k = 0; k < $1; k++)); do
		setpriv --reuid=65534 --regid=65534 --clear-groups \
			cat "$MNT/tensors/a" >/dev/null 2>&1 &
		readers+=($!)
	done
	for k in "${readers[@]}"; do
		wait_for 20 waits "$k" || fail "process $k does not wait: $(cat /proc/$k/wchan)"
	done
}
ends() {
	for k in "${readers[@]}"; do
		kill -9 "$k"
		wait_for 10 gone "$k" || fail "a reader that waits cannot be killed"
	done
	wait 2>/dev/null "${readers[@]}"
}

# One that is stopped holds up who asked it, and he can be killed.
UNSHARD_ASK=100 mount_ckpt "$WORK/ckpt" allow-other
reads || fail "not read"
stopped=$(pids_of unshard-asker)
stop "$stopped"
blocked 1
reads || fail "others wait too"
cmp "$MNT/tensors/a" "$WORK/a.bin" || fail "and so does the mount's owner"
ends
wait_for 10 gone "$stopped" || fail "the one that is stuck stays"
reads || fail "not read afterwards"

# Nobody starts others: readers wait, more than there are threads, for what is
# asked, and what is open is read.
exec 5<"$MNT/tensors/a"
super=$(supervisor_pid)
stop "$super" $(pids_of unshard-asker)
blocked 20
cmp - "$WORK/a.bin" <&5 || fail "what is open is not read"
ends
exec 5<&-
kill -CONT "$super"
wait_for 20 reads 2>/dev/null || fail "not read when it goes on"

# Killed ones are replaced.
kill -9 $(pids_of unshard-asker)
reads || fail "not read when it was killed"
wait_for 10 grep -q 'asks for other users ended by signal 9' "$LOG" ||
	fail "said: $(cat "$LOG")"
umount_ckpt

# In the end the answer is no.
UNSHARD_ASK=1 mount_ckpt "$WORK/ckpt" allow-other
stop "$(supervisor_pid)" $(pids_of unshard-asker)
reads 2>"$WORK/err" && fail "read although nobody was asked"
grep -q 'Input/output error' "$WORK/err" || fail "said: $(cat "$WORK/err")"
kill -CONT "$(supervisor_pid)"
wait_for 20 reads 2>/dev/null || fail "not read when it goes on"
grep -q 'no answer in time to what user 65534 may do' "$LOG" ||
	fail "said: $(cat "$LOG")"
umount_ckpt
[ -z "$(pids_of unshard-asker)" ] || fail "an asker stays"
done_ok
