# SPDX-License-Identifier: Apache-2.0
# user.unshard.* of tensors; nothing elsewhere.
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/split.sh"
requires python3

make_split "$WORK/ckpt" 100 50 5
make_safetensors "$WORK/one/model.safetensors"
mount_ckpt "$WORK/ckpt"
python3 - "$MNT" <<'END' || fail "extended attributes"
import errno, os, sys

mnt = sys.argv[1]
w, rows = mnt + "/tensors/w", mnt + "/tensors/cut.rows"

def all_of(path):
    return {n: os.getxattr(path, n).decode() for n in os.listxattr(path)}

def expect(have, want):
    assert have == want, (have, want)

expect(all_of(w), {
    "user.unshard.dtype": "uint8", "user.unshard.shape": "[100, 50]",
    "user.unshard.sharding": "dim1=5", "user.unshard.nr_sources": "5",
    "user.unshard.state": "ok", "user.unshard.name": "w"})
expect(all_of(rows)["user.unshard.dtype"], "int16")
expect(all_of(rows)["user.unshard.shape"], "[100, 3, 2]")
expect(all_of(rows)["user.unshard.sharding"], "dim0=5")
expect(os.listxattr(mnt), [])
expect(os.listxattr(mnt + "/tensors"), [])
expect(os.listxattr(mnt + "/.unshard/stats"), [])
for path, name, code in ((w, "user.unshard.digest", errno.ENODATA),
                         (w, "user.other", errno.ENODATA),
                         (mnt, "user.unshard.dtype", errno.ENODATA),
                         (w, "security.selinux", errno.EOPNOTSUPP),
                         (w, "system.posix_acl_access", errno.EOPNOTSUPP)):
    try:
        os.getxattr(path, name)
        assert False, name
    except OSError as e:
        expect(e.errno, code)
try:
    os.setxattr(w, "user.unshard.dtype", b"x")
    assert False
except OSError as e:
    expect(e.errno, errno.EROFS)
END
umount_ckpt

mount_ckpt "$WORK/one"
[ "$(python3 -c 'import os, sys; print(os.getxattr(sys.argv[1],
	"user.unshard.sharding").decode())' "$MNT/tensors/a")" = whole ] ||
	fail "sharding of a tensor in one file"
umount_ckpt
done_ok
