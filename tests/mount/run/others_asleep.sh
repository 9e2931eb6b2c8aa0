# SPDX-License-Identifier: Apache-2.0
# Of many checkpoints few stay parsed: to others one that sleeps has the mode, the
# owner and the time of its own folder, as before.
. "$(dirname "$0")/../lib/common.sh"
[ "$(id -u)" = 0 ] || skip "needs root"
export UNSHARD_KEEP=0

ALL=$WORK/all
mkdir "$ALL"
for i in $(seq 100 140); do cp -r "$here/tests/demo/checkpoint" "$ALL/step-$i"; done
touch -d 2001-02-03 "$ALL/step-100"
chown 1234:1235 "$ALL/step-100" && chmod 700 "$ALL/step-100"
mount_ckpt "$ALL" allow_other

shown() { stat -c '%a %u %g %Y' "$MNT/step-100"; }
own="500 1234 1235 $(stat -c %Y "$ALL/step-100")"
ls "$MNT/step-100/tensors" >/dev/null || fail step-100
[ "$(shown)" = "$own" ] || fail "awake: $(shown), expected $own"
for i in $(seq 101 140); do ls "$MNT/step-$i/tensors" >/dev/null || fail "step-$i"; done
grep -qx 'parsed *32' "$MNT/.unshard/stats" || fail "$(cat "$MNT/.unshard/stats")"
[ "$(shown)" = "$own" ] || fail "asleep: $(shown), expected $own"
# As it is now, not as it was when it was parsed.
chmod 750 "$ALL/step-100"
[ "$(shown)" = "550${own#500}" ] || fail "asleep: $(shown), after a chmod to 750"
done_ok
