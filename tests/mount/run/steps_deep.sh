# SPDX-License-Identifier: Apache-2.0
# Checkpoints that lie folders below their step: what is not finished there is
# noticed when it is, be it a file more or one that grows.
LIMIT=90
. "$(dirname "$0")/../lib/common.sh"

CKPT=$here/tests/demo/checkpoint
T=tensors/model.lm_head.weight
RUN=$WORK/run
mkdir "$RUN"
at() { echo "$RUN/step_$1/policy/weights"; }
for i in 1 2 3 4; do
	mkdir -p "$RUN/step_$i/policy"
	cp -r "$CKPT" "$(at $i)"
done
chmod -R u+w "$RUN"
rm "$(at 2)/.metadata" "$(at 3)/__1_0.distcp"
truncate -s 3000 "$(at 4)/__1_0.distcp"
mount_ckpt "$RUN"

latest() { [ "$(readlink "$MNT/latest")" = "$1" ]; }
said() { grep "step_$1" "$MNT/.unshard/problems"; }
# Nothing of a step changes but what is done to it below.
becomes() { # STEP
	wait_for 10 latest "step_$1" ||
		fail "latest is not step_$1: $(readlink "$MNT/latest"), $(said "$1")"
	same "$MNT/step_$1/$T" "$MNT/step_1/$T"
	wait_for 5 not said "$1" >/dev/null || fail "still said: $(said "$1")"
}
ls "$MNT"/step_*/tensors >/dev/null
latest step_1 || fail "latest is $(readlink "$MNT/latest")"
for i in 2 3 4; do
	wait_for 5 said $i >/dev/null || fail "step_$i is not said to be unfinished"
done
said 2 | grep -q 'did not finish' || fail "$(said 2)"
cp "$CKPT/.metadata" "$(at 2)/.new" && mv "$(at 2)/.new" "$(at 2)/.metadata"
becomes 2
cp "$CKPT/__1_0.distcp" "$(at 3)/.new" && mv "$(at 3)/.new" "$(at 3)/__1_0.distcp"
becomes 3
# No folder changes here.
cat "$CKPT/__1_0.distcp" >"$(at 4)/__1_0.distcp"
becomes 4
umount_ckpt
done_ok
