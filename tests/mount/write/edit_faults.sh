# SPDX-License-Identifier: Apache-2.0
# Disks that are full or fail below an overlay and below a file that is written
# anew, and writers that are killed: what was acknowledged stays, what was not
# is old or new, and who wrote is told.
LIMIT=120
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
requires python3 cmp
[ -n "${COMMON_PRIVATE-}" ] && mkdir "$WORK/small" &&
	mount -t tmpfs -o size=1500k tmpfs "$WORK/small" 2>/dev/null ||
	skip "no tmpfs here"

C=$WORK/ckpt
make_split "$C" 200 4097 4
t=$MNT/tensors/w
say_log() { tail -n 3 "$LOG"; }

# ---- the overlay's disk is full: that write is refused, all others are there
mount_ckpt "$C" "overlay=$WORK/small/o"
python3 - "$t" "$WORK/small/fill" "$WORK/model" <<'END' || fail "overlay: $(say_log)"
import errno, os, random, sys

fd = os.open(sys.argv[1], os.O_RDWR)
size = os.fstat(fd).st_size
model = bytearray(os.pread(fd, size, 0))
r = random.Random(5)
with open(sys.argv[2], "wb") as f:
    f.write(bytes(1000 << 10))


def edit():
    at = r.randrange(size - 9000)
    data = r.randbytes(r.randrange(1, 9000))
    was = bytes(model)
    model[at:at + len(data)] = data
    try:
        os.pwrite(fd, data, at)
    except OSError as e:  # then each of its bytes is old or new
        assert e.errno == errno.ENOSPC, e
        got = os.pread(fd, size, 0)
        to = at + len(data)
        assert got[:at] == was[:at] and got[to:] == was[to:]
        assert all(g in (a, b) for g, a, b in zip(got[at:to], was[at:to], data))
        model[:] = got
        return False
    return True


failed = i = 0
while failed < 8 and i < 400:
    failed += not edit()
    i += 1
    assert os.pread(fd, size, 0) == model, f"edit {i}: another's bytes"
assert failed == 8, failed
os.unlink(sys.argv[2])
assert edit()
os.fsync(fd)
assert os.pread(fd, size, 0) == model
open(sys.argv[3], "wb").write(model)
END
same "$t" "$WORK/model"
umount_ckpt
mount_ckpt "$C" "overlay=$WORK/small/o"
same "$t" "$WORK/model"
umount_ckpt
rm -r "$WORK/small/o"

# ---- its fsync fails: so do all later ones; the overlay is of some commit
mount_ckpt "$C" "overlay=$WORK/o"
printf before | dd of="$t" conv=notrunc,fsync status=none || fail "dd"
umount_ckpt
UNSHARD_FAULT=sync:1:1:5 mount_ckpt "$C" "overlay=$WORK/o"
python3 - "$t" <<'END' || fail "fsync: $(say_log)"
import errno, os, sys

fd = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(fd, b"after!", 0)
for i in range(2):
    try:
        os.fsync(fd)
        sys.exit("no error of the fsync")
    except OSError as e:
        assert e.errno == errno.EIO, e
END
umount_ckpt
wait_for 5 grep -q 'could not be written to storage' "$LOG" || fail "log: $(say_log)"
mount_ckpt "$C" "overlay=$WORK/o"
case $(head -c 6 "$t") in before | after!) ;; *) fail "$(head -c 6 "$t" | xxd)" ;; esac
umount_ckpt

# ---- a file written anew, beside which there is no room for it
make_split "$WORK/small/ckpt" 100 4097 2
cp -r "$WORK/small/ckpt" "$WORK/keep"
mount_ckpt "$WORK/small/ckpt" replace
size=$(stat -c %s "$t")
head -c "$size" /dev/urandom >"$WORK/new"
cp "$t" "$WORK/was"
dd if=/dev/zero of="$WORK/small/fill" bs=4k 2>/dev/null
cp "$WORK/new" "$t" 2>"$WORK/err" && fail "a full disk is not told"
grep -qi 'no space\|input/output' "$WORK/err" || fail "$(cat "$WORK/err")"
same "$t" "$WORK/was"
diff -r -x '.unshard*' "$WORK/small/ckpt" "$WORK/keep" || fail "not as it was"
rm "$WORK/small/fill"
cp "$WORK/new" "$t" || fail "no space after rm: $(say_log)"
same "$t" "$WORK/new"

# ---- the writer is killed half-way: the bytes stay
head -c "$size" /dev/zero >"$WORK/zero"
for n in 1 2 3; do
	python3 - "$t" "$WORK/zero" <<'END' &
import os, signal, sys
data = open(sys.argv[2], "rb").read()
f = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
os.write(f, data[:len(data) // 2])
print("half", file=open(sys.argv[2] + ".half", "w"))
signal.pause()
END
	pid=$!
	wait_for 10 test -s "$WORK/zero.half" || fail "no half"
	kill -9 $pid
	wait $pid 2>/dev/null
	rm "$WORK/zero.half"
	same "$t" "$WORK/new"
done
# and a shard that somebody replaces meanwhile is not written over
f=$(ls "$WORK/small/ckpt"/*.safetensors | head -n 1)
cp "$f" "$WORK/small/other" && mv "$WORK/small/other" "$f"
sha=$(sha256sum <"$f")
cp "$WORK/zero" "$t" 2>"$WORK/err" && fail "written over another's file"
grep -qi 'stale\|input/output' "$WORK/err" || fail "$(cat "$WORK/err")"
[ "$(sha256sum <"$f")" = "$sha" ] || fail "another's file was changed"
umount_ckpt
umount "$WORK/small"
done_ok
