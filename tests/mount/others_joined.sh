# SPDX-License-Identifier: Apache-2.0
# Joined folders, for other users: what several of them are shown as is listed, and
# searched, by who may in each.
. "$(dirname "$0")/lib/common.sh"
requires setpriv
[ "$(id -u)" = 0 ] || skip "needs root"
export UNSHARD_KEEP=0

A=$WORK/a B=$WORK/b
make_safetensors "$A/model.safetensors"
mkdir -p "$A/sub" "$A/only-a" "$B/sub" "$B/only-b"
echo a >"$A/sub/plain"
echo a >"$A/only-a/plain"
echo secret >"$B/secret-top"
echo secret >"$B/sub/secret-name"
echo b >"$B/only-b/plain"
chmod -R a+rX "$A" "$B"
as_user ls "$A" >/dev/null || skip "$WORK is not open to others"
mount_ckpt "$A:$B" allow-other

may() { as_user "$@" >"$WORK/out" 2>&1 || fail "$*: $(cat "$WORK/out")"; }
may_not() {
	as_user "$@" >"$WORK/out" 2>&1 && fail "$*: $(cat "$WORK/out")"
	grep -q 'Permission denied' "$WORK/out" || fail "$*: $(cat "$WORK/out")"
	grep -q secret- "$WORK/out" && [ "$1" = ls ] && fail "$*: $(cat "$WORK/out")"
	true
}
# all are open
may ls "$MNT/shards" "$MNT/shards/sub"
grep -qx secret-top "$WORK/out" && grep -qx secret-name "$WORK/out" ||
	fail "not joined: $(cat "$WORK/out")"
may cat "$MNT/shards/sub/secret-name"

# the second may be searched, and not be listed
chmod 711 "$B"
may_not ls "$MNT/shards"
may_not ls "$MNT"
may_not ls "$MNT/tensors"
may cat "$MNT/shards/secret-top" # of which the name is known
may cmp "$MNT/tensors/a" "$WORK/a.bin"
# a folder of both, of which one is closed; others are not
chmod 755 "$B"
chmod 711 "$B/sub"
may_not ls -l "$MNT/shards/sub"
may stat "$MNT/shards/sub/secret-name"
chmod 700 "$B/sub"
may ls "$MNT/shards" "$MNT/shards/only-a" "$MNT/shards/only-b"
may_not ls "$MNT/shards/sub"
may_not stat "$MNT/shards/sub/secret-name"
chmod 700 "$B/only-b"
may_not ls "$MNT/shards/only-b"
may ls "$MNT/shards/only-a"
# the first counts as the second does
chmod 755 "$B/sub"
chmod 700 "$A/sub"
may_not ls "$MNT/shards/sub"
chmod 755 "$A/sub"
may ls "$MNT/shards/sub"
umount_ckpt

# ---- steps that lie in two folders
make_safetensors "$WORK/runs1/step-1/model-00001-of-00002.safetensors"
mkdir -p "$WORK/runs2/step-1" "$WORK/runs2/secret-2"
mv "$WORK/runs1/step-1/model-00001-of-00002.safetensors" "$WORK/runs1/step-1/model.safetensors"
cp "$WORK/runs1/step-1/model.safetensors" "$WORK/runs2/secret-2/"
echo x >"$WORK/runs2/step-1/secret-file"
chmod -R a+rX "$WORK/runs1" "$WORK/runs2"
mount_ckpt "$WORK/runs1:$WORK/runs2" allow-other
may ls "$MNT" "$MNT/step-1" "$MNT/step-1/shards"
grep -qx secret-2 "$WORK/out" && grep -qx secret-file "$WORK/out" ||
	fail "steps are not joined: $(cat "$WORK/out")"
chmod 711 "$WORK/runs2"
may_not ls "$MNT"
may ls "$MNT/step-1/shards"
chmod 755 "$WORK/runs2"
chmod 711 "$WORK/runs2/step-1"
may ls "$MNT"
may_not ls "$MNT/step-1/shards"
umount_ckpt
[ ! -s "$LOG" ] || fail "logged: $(cat "$LOG")"
done_ok
