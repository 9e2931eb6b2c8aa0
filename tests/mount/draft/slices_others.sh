# SPDX-License-Identifier: Apache-2.0
# What other users may of a step that is written as slices: no bytes by one name
# that another name of the same tensor does not give them.
LIMIT=90
. "$(dirname "$0")/../lib/common.sh"
requires setpriv cmp
[ "$(id -u)" = 0 ] || skip "needs root"

SRC=$WORK/src
mkdir -m 755 "$SRC"
as_user ls "$SRC" >/dev/null || skip "$WORK is not open to others"
noise 4096 1 >"$WORK/a.bin"
mount_ckpt "$SRC" rw,allow-other,publish=manual
umask 022
start() {
	mkdir "$MNT/$1"
	cat >"$MNT/$1/unshard-layout.json" <<'J' || fail "start $1"
{"unshard_layout": 1,
 "mesh": {"axes": [{"name": "dp", "size": 2}, {"name": "tp", "size": 2}]},
 "tensors": [
  {"name": "a", "dtype": "uint8", "shape": [4096]},
  {"name": "b", "dtype": "uint8", "shape": [64, 64],
   "placement": {"tp": {"shard": 0}, "dp": "replicate"}}],
 "write": {}}
J
	cp "$WORK/a.bin" "$MNT/$1/tensors/a" && cp "$WORK/a.bin" "$MNT/$1/tensors/b" ||
		fail "tensors of $1"
}
as() { setpriv --reuid="$1" --regid="$2" --clear-groups "${@:3}"; }
A="tensors/a ranks/0/a ranks/1/a ranks/2/a ranks/3/a"
# gets USER GROUP NAME...; gets_not
gets() {
	local f
	for f in ${*:3}; do
		as "$1" "$2" cat "$f" >/dev/null || fail "$1:$2 does not get $f"
	done
}
gets_not() {
	local f
	for f in ${*:3}; do
		as "$1" "$2" cat "$f" >/dev/null 2>"$WORK/err" && fail "$1:$2 gets $f"
		grep -q 'Permission denied' "$WORK/err" || fail "$f: $(cat "$WORK/err")"
	done
}
modes() { stat -c %a $A | xargs; }

# ---- at once, whatever the kernel keeps
start s1
cd "$MNT/s1" || fail cd
gets 1000 1000 $A
cmp tensors/a "$WORK/a.bin" || fail "other bytes"
chmod 600 tensors/a
gets_not 1000 1000 $A
gets 1000 1000 tensors/b ranks/0/b ranks/1/b ranks/2/b ranks/3/b
[ "$(modes)" = "600 600 600 600 600" ] || fail "modes: $(modes)"
# each name that was closed is to be opened
chmod 600 ranks/2/a
chmod 644 tensors/a
gets_not 1000 1000 $A
chmod -R go+r .
gets 1000 1000 $A
[ "$(modes)" = "644 644 644 644 644" ] || fail "modes: $(modes)"
# of a part too
chmod 640 ranks/1/b
gets_not 1000 1000 tensors/b ranks/0/b ranks/1/b
chmod 644 ranks/1/b
gets 1000 1000 tensors/b ranks/0/b ranks/1/b

# ---- a file that becomes a slice has a mode, and opens nothing
cp "$WORK/a.bin" ranks/0/a.tmp && chmod 600 ranks/0/a.tmp
mv ranks/0/a.tmp ranks/0/a || fail "mv"
gets_not 1000 1000 $A
cp "$WORK/a.bin" ranks/1/a.tmp && mv ranks/1/a.tmp ranks/1/a || fail "mv of rank 1"
gets_not 1000 1000 $A
chmod 644 ranks/0/a
gets 1000 1000 $A

# ---- owners and groups of their own
chown 1000:2000 ranks/0/a && chmod 640 ranks/0/a
gets 1000 1000 ranks/0/a
gets 1001 2000 ranks/0/a
gets_not 1001 1001 $A
gets_not 1000 1000 tensors/a # as others, who may not
chown 1001:2000 ranks/1/a && chmod 640 ranks/1/a
gets_not 1000 1000 $A
gets_not 1001 1001 $A
gets 1002 2000 ranks/0/a ranks/1/a # theirs is the same
gets_not 1002 2000 tensors/a
chown 0:0 ranks/0/a ranks/1/a && chmod 644 ranks/0/a ranks/1/a
gets 1000 1000 $A
chmod 604 ranks/0/a # not the group
gets_not 1000 0 $A
# to write, each name has its own
chmod 644 ranks/0/a
chmod 444 tensors/a
[ "$(modes)" = "444 644 644 644 644" ] || fail "modes: $(modes)"
cd / || fail cd

# ---- of a step, who asked does not find that it was said of another
start s2
gets 1000 1000 "$MNT/s2/tensors/a" "$MNT/s2/ranks/3/a"
umount_ckpt
done_ok
