#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A step that lacks a shard: latest passes over it, and the root's problems name
# it once somebody looked into it.
. "$(dirname "$0")/../lib/common.sh"
mkdir "$WORK/all"
cp -r "$here/tests/demo/checkpoint" "$WORK/all/step-1"
cp -r "$here/tests/demo/checkpoint" "$WORK/all/step-2"
rm "$WORK/all/step-2/__1_0.distcp"
mount_ckpt "$WORK/all"
ls "$MNT/step-1" "$MNT/step-2" >/dev/null || fail ls
[ "$(readlink "$MNT/latest")" = step-1 ] || fail "latest is $(readlink "$MNT/latest")"
wait_for 5 grep -q '^error: step-2: incomplete; ' "$MNT/.unshard/problems" ||
	fail "not said: $(cat "$MNT/.unshard/problems")"
grep -q '"file": "step-2"' "$MNT/.unshard/problems.json" || fail json
grep -q step-1 "$MNT/.unshard/problems" && fail "step-1 is said to be incomplete"
umount_ckpt
done_ok
