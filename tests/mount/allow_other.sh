# SPDX-License-Identifier: Apache-2.0
# Other users: kept out, or let in where they may read the files themselves.
# What of it holds for every view and mode: others.sh.
. "$(dirname "$0")/lib/common.sh"
requires setpriv
[ "$(id -u)" = 0 ] || skip "needs root"
export UNSHARD_KEEP=0

make_safetensors "$WORK/ckpt/model.safetensors"
mkdir "$WORK/ckpt/sub"
echo secret >"$WORK/ckpt/secret"
chmod 755 "$WORK/ckpt" "$WORK/ckpt/sub" "$MNT"
chmod 644 "$WORK/ckpt/model.safetensors"
chmod 600 "$WORK/ckpt/secret"
as_user cat "$WORK/ckpt/model.safetensors" >/dev/null ||
	skip "$WORK is not open to others"

# Without the option nobody else gets in, and nobody is asked.
mount_ckpt "$WORK/ckpt"
as_user cat "$MNT/tensors/a" 2>/dev/null && fail "another user reads"
[ -z "$(pids_of unshard-asker)" ] || fail "an asker that nobody needs"
umount_ckpt

mount_ckpt "$WORK/ckpt" allow-other
as_user cmp "$MNT/tensors/a" "$WORK/a.bin" || fail "another user cannot read"
as_user cat "$MNT/.unshard/stats" >/dev/null || fail "nor the stats"
as_user cat "$MNT/shards/secret" 2>/dev/null && fail "a file of mode 0600 leaks"
as_user "$UNSHARD" ls "$MNT/model.safetensors" >/dev/null ||
	fail "a command of another user cannot read"
grep "$MNT" /proc/self/mountinfo | grep -q default_permissions ||
	fail "no default_permissions"

# Modes and folders count as they are now; what is open stays so.
denied() {
	as_user cat "$MNT/tensors/a" >/dev/null 2>"$WORK/err" &&
		fail "read although $1"
	grep -q 'Permission denied' "$WORK/err" || fail "$1: $(cat "$WORK/err")"
	as_user "$UNSHARD" ls "$MNT/model.safetensors" >/dev/null 2>&1 &&
		fail "a command reads although $1"
	true
}
coproc as_user sh -c "exec 5<'$MNT/tensors/a'; echo open
	read x; cmp - '$WORK/a.bin' <&5"
open=$COPROC_PID
read -r said <&"${COPROC[0]}"
[ "$said" = open ] || fail "not opened: $said"
chmod 640 "$WORK/ckpt/model.safetensors"
denied "the file is 0640"
[ "$(stat -c %a "$MNT/tensors/a")" = 440 ] || fail "shown: $(stat -c %A "$MNT/tensors/a")"
echo >&"${COPROC[1]}"
wait "$open" || fail "an open descriptor does not stay"
chmod 644 "$WORK/ckpt/model.safetensors"
total() { "$@" stat -f -c '%b %c' "$MNT"; }
[ "$(total as_user)" = "$(total)" ] || fail "another size than root is shown"
chmod 711 "$WORK/ckpt"
[ "$(total as_user)" = "0 0" ] || fail "who may not list knows sizes: $(total as_user)"
[ "$(total)" != "0 0" ] || fail "root knows no sizes"
chmod 750 "$WORK/ckpt"
denied "the folder is 0750"
chmod 755 "$WORK/ckpt"
umount_ckpt
mkdir -m 700 "$WORK/in" && mv "$WORK/ckpt" "$WORK/in"
mount_ckpt "$WORK/in/ckpt" allow_other
denied "a folder above is 0700"
chmod 755 "$WORK/in"
as_user cmp "$MNT/tensors/a" "$WORK/a.bin" || fail "not let in again"

# Another folder at the same place is not what was mounted.
chmod 600 "$WORK/in/ckpt/model.safetensors"
mv "$WORK/in/ckpt" "$WORK/in/old"
make_safetensors "$WORK/in/ckpt/model.safetensors"
as_user cat "$MNT/tensors/a" >/dev/null 2>"$WORK/err" &&
	fail "read although another file lies there"
grep -q 'Stale file handle' "$WORK/err" || fail "another: $(cat "$WORK/err")"
rm -r "$WORK/in/ckpt" && mv "$WORK/in/old" "$WORK/in/ckpt"
chmod 644 "$WORK/in/ckpt/model.safetensors"

# Who cannot be known, is not let in: here a process of another namespace.
as_user cmp "$MNT/tensors/a" "$WORK/a.bin" || fail "not as before"
if unshare -p -f true 2>/dev/null; then
	unshare -p -f --kill-child setpriv --reuid=65534 --regid=65534 \
		--clear-groups cmp "$MNT/tensors/a" "$WORK/a.bin" ||
		fail "a namespace below ours is known"
fi
# ... and nobody by a /proc that has other numbers than the mount.
if unshare -p -f --mount-proc true 2>/dev/null; then
	mkdir "$WORK/ns"
	expect 3 '/proc does not show this process' unshare -p -f --kill-child \
		"$UNSHARD" mount "$WORK/in/ckpt" "$WORK/ns" -o "allow_other$SAN_OPTS"
	unshare -p -f --kill-child --mount-proc sh -c '
		"$1" mount "$2" "$3" -o "allow_other$4" &&
			setpriv --reuid=65534 --regid=65534 --clear-groups \
				cmp "$3/tensors/a" "$5" && "$1" umount "$3"' \
		sh "$UNSHARD" "$WORK/in/ckpt" "$WORK/ns" "$SAN_OPTS" "$WORK/a.bin" ||
		fail "not in a pid namespace with its own /proc"
fi
# ... nor when nobody asks, and nobody is there to start who would.
kill -9 "$(supervisor_pid)" $(pids_of unshard-asker)
denied "nobody asks"
umount_ckpt
nobody() { [ -z "$(pids_of "")" ]; }
wait_for 10 nobody || fail "left: $(pids_of "")"

# Supplementary groups count, and rights in another user namespace do not.
mount_ckpt "$WORK/in/ckpt" allow-other
chgrp 2000 "$WORK/in/ckpt/model.safetensors"
chmod 640 "$WORK/in/ckpt/model.safetensors"
denied "the file is 0640"
setpriv --reuid=65534 --regid=65534 --groups=7,2000 \
	cmp "$MNT/tensors/a" "$WORK/a.bin" || fail "a group is not known"
if as_user unshare -Ur true 2>/dev/null; then
	as_user unshare -Ur cat "$MNT/tensors/a" >/dev/null 2>&1 &&
		fail "root of a namespace of its own reads"
fi
umount_ckpt
# What the kernel keeps of a name that one may see is for those who may, too.
mkdir -m 755 "$WORK/in/ckpt/deep" && echo x >"$WORK/in/ckpt/deep/f"
chmod 644 "$WORK/in/ckpt/model.safetensors"
chmod 700 "$WORK/in"
UNSHARD_KEEP=60 mount_ckpt "$WORK/in/ckpt" allow-other
for name in tensors/a tensors/no-such shards/model.safetensors shards/deep/f; do
	stat "$MNT/$name" >/dev/null 2>&1
	ls -l "$MNT" "$MNT/${name%/*}" >/dev/null
	as_user stat "$MNT/$name" >/dev/null 2>"$WORK/err" && fail "$name is told"
	grep -q 'Permission denied' "$WORK/err" || fail "$name: $(cat "$WORK/err")"
done
umount_ckpt
chmod 755 "$WORK/in"
lists='import os, struct, sys
v = [(1, 7, -1), (2, 0, 65534), (4, 5, -1), (16, 5, -1), (32, 5, -1)]
os.setxattr(sys.argv[1], "system.posix_acl_access", struct.pack("<I", 2) +
    b"".join(struct.pack("<HHi", *r) for r in v))'
for folder in deep .; do
	"${PYTHON:-python3}" -c "$lists" "$WORK/in/ckpt/$folder" 2>/dev/null || break
	UNSHARD_KEEP=60 mount_ckpt "$WORK/in/ckpt" allow-other
	ls -l "$MNT/shards/deep" "$MNT/tensors" >/dev/null
	as_user stat "$MNT/shards/deep/f" >/dev/null 2>&1 && fail "a list of $folder"
	[ $folder = deep ] || ! as_user stat "$MNT/tensors/a" >/dev/null 2>&1 ||
		fail "a list of $folder"
	umount_ckpt
done
[ ! -s "$LOG" ] || fail "a good mount logged: $(cat "$LOG")"
[ "$(stat -c %a "$LOG")" = 600 ] || fail "a log is for its user: $(stat -c %A "$LOG")"
done_ok
