#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# unshard umount of a mount whose worker has taken a request and never answers
# it: who asks is in the kernel then, and cannot be killed.
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
done_ok
