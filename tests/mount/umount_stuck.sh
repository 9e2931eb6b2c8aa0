#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# unshard umount of a mount whose worker has taken a request and never answers
# it: who asks is in the kernel then, and cannot be killed; and of one that is
# unmounted by somebody else meanwhile, or not his who asks.
LIMIT=90
. "$(dirname "$0")/lib/common.sh"
[ "${COMMON_PRIVATE-}" = 1 ] || skip "needs root"

python3 "$here/tests/mount/lib/never.py" "$MNT" "$WORK/took" &
never=$!
wait_for 10 mounted || fail "not mounted"
expect 3 'does not answer, and is busy' timeout 20 "$UNSHARD" umount "$MNT"
[ -s "$WORK/took" ] || fail "it was not asked"
expect 0 '' timeout 20 "$UNSHARD" umount -l "$MNT"
mounted && fail "still mounted"
kill "$never"
wait "$never"

# --- somebody else unmounts it while unshard umount still asks who serves it
rm "$WORK/took"
python3 "$here/tests/mount/lib/never.py" "$MNT" "$WORK/took" &
never=$!
wait_for 10 mounted || fail "not mounted"
timeout 20 "$UNSHARD" umount "$MNT" 2>"$WORK/err" &
ours=$!
wait_for 10 test -s "$WORK/took" || fail "it was not asked"
umount -l "$MNT" || fail "umount -l"
wait "$ours"
rc=$?
[ $rc = 0 ] || fail "exit $rc of what is unmounted: $(cat "$WORK/err")"
[ ! -s "$WORK/err" ] || fail "said: $(cat "$WORK/err")"
kill "$never"
wait "$never"

# --- another user's
make_safetensors "$WORK/ckpt/model.safetensors"
mount_ckpt "$WORK/ckpt"
if command -v fusermount3 >/dev/null && as_user "$UNSHARD" --version >/dev/null 2>&1; then
	expect 3 'user 0 mounted it, and he and root alone' as_user "$UNSHARD" umount "$MNT"
fi
umount_ckpt
done_ok
