# SPDX-License-Identifier: Apache-2.0
# Other users: kept out, or let in where they could read the files themselves.
. "$(dirname "$0")/lib/common.sh"
requires setpriv
[ "$(id -u)" = 0 ] || skip "needs root"

make_safetensors "$WORK/ckpt/model.safetensors"
mkdir "$WORK/ckpt/sub"
echo secret >"$WORK/ckpt/secret"
chmod 755 "$WORK/ckpt" "$WORK/ckpt/sub" "$MNT"
chmod 644 "$WORK/ckpt/model.safetensors"
chmod 600 "$WORK/ckpt/secret"
as_user cat "$WORK/ckpt/model.safetensors" >/dev/null ||
	skip "$WORK is not open to others"

# Without the option nobody else gets in.
mount_ckpt "$WORK/ckpt"
as_user cat "$MNT/tensors/a" 2>/dev/null && fail "another user reads"
umount_ckpt

mount_ckpt "$WORK/ckpt" allow-other
as_user cmp "$MNT/tensors/a" "$WORK/a.bin" || fail "another user cannot read"
as_user cat "$MNT/.unshard/stats" >/dev/null || fail "nor the stats"
as_user cat "$MNT/shards/secret" 2>/dev/null && fail "a file of mode 0600 leaks"
grep "$MNT" /proc/self/mountinfo | grep -q default_permissions ||
	fail "no default_permissions"
umount_ckpt

# It is refused where that would show what they cannot read.
refused() {
	"$UNSHARD" mount "$WORK/ckpt" "$MNT" \
		-o "allow-other,log=$LOG$SAN_OPTS" 2>"$WORK/err" &&
		fail "mounted although $1"
	grep -q "$2" "$WORK/err" || fail "$1: $(cat "$WORK/err")"
	[ "$(wc -l <"$WORK/err")" = 1 ] || fail "$1: $(cat "$WORK/err")"
	mounted && fail "a mount is left although $1"
	true
}
chmod 640 "$WORK/ckpt/model.safetensors"
refused "the file is 0640" "model.safetensors has mode 0640"
chmod 644 "$WORK/ckpt/model.safetensors"
chmod 750 "$WORK/ckpt"
refused "the folder is 0750" "ckpt has mode 0750"
chmod 755 "$WORK/ckpt"
chmod 700 "$WORK"
refused "a folder above is 0700" "has mode 0700"
chmod 755 "$WORK"
mount_ckpt "$WORK/ckpt" allow_other
umount_ckpt
done_ok
