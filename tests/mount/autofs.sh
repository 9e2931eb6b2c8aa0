# SPDX-License-Identifier: Apache-2.0
# A mount on demand: who makes it may look at its place, its supervisor too; and
# then it has a session of its own.
. "$(dirname "$0")/lib/common.sh"
[ "$(id -u)" = 0 ] || skip "needs root"
[ -n "${COMMON_PRIVATE-}" ] || skip "needs mounts of its own"
requires "${PYTHON:=python3}"
make_safetensors "$WORK/ckpt/model.safetensors"

"$PYTHON" "$here/tests/mount/lib/autofs.py" "$MNT" \
	"$UNSHARD" mount "$WORK/ckpt" "$MNT" -o "log=$LOG$SAN_OPTS" >"$WORK/out"
rc=$?
[ $rc != 77 ] || skip "$(cat "$WORK/out")"
[ $rc = 0 ] || fail "exit $rc: $(cat "$LOG")"
grep -qx tensors "$WORK/out" || fail "the visitor saw: $(cat "$WORK/out")"
same "$MNT/tensors/a" "$WORK/a.bin"

super=$(supervisor_pid)
for pid in $super $(worker_pid); do
	session=$(ps -o sid= -p "$pid")
	[ "$session" -eq "$super" ] || fail "$pid is of session $session"
done
"$UNSHARD" umount "$MNT" || fail "umount"
wait_for 10 gone "$super" || fail "the supervisor is still there"
umount "$MNT" || fail "the automounter's own mount"
done_ok
