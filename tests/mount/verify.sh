# SPDX-License-Identifier: Apache-2.0
# -o verify: damage is EIO and a line, never data; digests; a manifest that
# stays true while the checkpoint is written, and after a mount that died.
LIMIT=120
. "$(dirname "$0")/lib/common.sh"
requires python3 cmp

C=$WORK/ckpt
export C MNT
python3 - <<'END' || fail "no checkpoint"
import json, os
os.mkdir(os.environ["C"])
for r in range(2):
    head, off = {}, 0
    for name, rows in (("a", 3000), ("b", 10)):
        head[f"{name}{r}"] = {"dtype": "F32", "shape": [rows, 1000],
                              "data_offsets": [off, off + rows * 4000]}
        off += rows * 4000
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{os.environ['C']}/rank{r}.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.write(bytes((i * 7 + r) % 251 for i in range(1 << 16))
                * (off // (1 << 16) + 1))
        f.truncate(8 + len(text) + off)
END
put() { # FILE OFFSET TEXT
	printf %s "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
verified() { "$UNSHARD" verify "$C" >"$WORK/v" 2>&1; }

expect 1 'is not sealed' "$UNSHARD" mount "$C" "$MNT" -o verify
mkdir "$WORK/want"
mount_ckpt "$C"
cp "$MNT"/tensors/* "$WORK/want"
umount_ckpt
"$UNSHARD" seal "$C" >/dev/null || fail "seal"

# All of it is what it was, with its digests.
mount_ckpt "$C" verify
for t in a0 a1 b0 b1; do same "$MNT/tensors/$t" "$WORK/want/$t"; done
python3 - <<'END' || fail "digests"
import os
mnt = os.environ["MNT"]
for t in ("a0", "b1"):
    d = os.getxattr(f"{mnt}/tensors/{t}", "user.unshard.digest").decode()
    assert d.startswith("xxh3:") and len(d) == 37, d
    assert "user.unshard.digest" in os.listxattr(f"{mnt}/tensors/{t}")
END
if command -v xxh128sum >/dev/null; then
	d=$(xxh128sum "$WORK/want/a0" | cut -d' ' -f1)
	[ "$(python3 -c 'import os, sys; print(os.getxattr(sys.argv[1],
		"user.unshard.digest").decode())' "$MNT/tensors/a0")" = \
		"xxh3:$d" ] || fail "digest is not xxh128sum's"
fi
umount_ckpt

# A byte of block 1 of the first file: its block is EIO, the rest is not.
cp "$C/rank0.safetensors" "$WORK/good"
put "$C/rank0.safetensors" 6000000 X
mount_ckpt "$C" verify
python3 - <<'END' || fail "a damaged block was read"
import errno, os
fd = os.open(os.environ["MNT"] + "/tensors/a0", os.O_RDONLY)
want = open(os.environ["C"] + "/../want/a0", "rb").read()
assert os.pread(fd, 4096, 0) == want[:4096]
for at in (6000000, 4194304, 8388000):
    try:
        os.pread(fd, 16, at)
        raise SystemExit(f"byte {at} was read")
    except OSError as e:
        assert e.errno == errno.EIO, e
assert os.pread(fd, 4096, 9000000) == want[9000000:9004096]
END
cat "$MNT/tensors/a0" >/dev/null 2>&1 && fail "all of it was read"
grep -q 'block 1, bytes 4194304 to 8388608: not what was sealed' \
	"$MNT/.unshard/problems" ||
	fail "no problem: $(cat "$MNT/.unshard/problems")"
same "$MNT/tensors/a1" "$WORK/want/a1"
umount_ckpt

# Damage in the block with the header: nothing of the file is given out.
cp "$WORK/good" "$C/rank0.safetensors"
put "$C/rank0.safetensors" 4000 X
mount_ckpt "$C" verify
cat "$MNT/tensors/b0" >/dev/null 2>&1 && fail "read past a bad first block"
same "$MNT/tensors/b1" "$WORK/want/b1"
umount_ckpt
cp "$WORK/good" "$C/rank0.safetensors"

# Written through: the manifest follows each fsync, and the end of the mount.
verified || fail "before: $(cat "$WORK/v")"
mount_ckpt "$C" rw
python3 - <<'END' || fail "write"
import os
fd = os.open(os.environ["MNT"] + "/tensors/a0", os.O_RDWR)
os.pwrite(fd, b"0123456789", 4194300)
os.fsync(fd)
END
verified || fail "after fsync: $(cat "$WORK/v")"
[ ! -e "$C/.unshard-edited" ] || fail "still being edited after fsync"
python3 - <<'END' || fail "write"
import os
fd = os.open(os.environ["MNT"] + "/tensors/b1", os.O_RDWR)
os.pwrite(fd, b"abc", 5)
assert os.path.exists(os.environ["C"] + "/.unshard-edited")
END
umount_ckpt
verified || fail "after umount: $(cat "$WORK/v")"
wait_for 10 [ ! -e "$C/.unshard-edited" ] ||
	fail "still being edited after umount"
cp "$WORK/want/b1" "$WORK/b1"
put "$WORK/b1" 5 abc
mount_ckpt "$C" verify
same "$MNT/tensors/b1" "$WORK/b1"
umount_ckpt
if command -v xxh128sum >/dev/null; then
	mount_ckpt "$C"
	[ "xxh3:$(xxh128sum "$WORK/b1" | cut -d' ' -f1)" = "$(python3 -c '
import os, sys
print(os.getxattr(sys.argv[1], "user.unshard.digest").decode())' \
		"$MNT/tensors/b1")" ] || fail "digest after an edit"
	umount_ckpt
fi

# Beside a mount that writes: what is not settled is EIO and says why, and no
# digest is told of it; once it is, both are right; damage stays damage.
B=$WORK/b
mkdir "$B"
export B
second() {
	"$UNSHARD" mount "$C" "$B" -o "log=$WORK/log.b,$1$SAN_OPTS" ||
		fail "mount -o $1"
}
cp "$C/rank0.safetensors" "$WORK/good"
put "$C/rank0.safetensors" 9000000 X
mount_ckpt "$C" rw
mkfifo "$WORK/go"
# in a process that nobody is forked from: a close would settle what it wrote
python3 - "$WORK" <<'END' &
import os, sys
fd = os.open(os.environ["MNT"] + "/tensors/a1", os.O_RDWR)
os.pwrite(fd, b"beside", 6000000)
open(sys.argv[1] + "/written", "w").close()
open(sys.argv[1] + "/go").read()
os.fsync(fd)
open(sys.argv[1] + "/synced", "w").close()
open(sys.argv[1] + "/go").read()
END
writer=$!
wait_for 20 [ -e "$WORK/written" ] || fail "no writer"
cat >"$WORK/look.py" <<'END'
import os, sys
b = os.environ["B"]
def digest(at, t):
    try:
        return os.getxattr(f"{at}/tensors/{t}", "user.unshard.digest")
    except OSError:
        return None
def read(t, at):
    fd = os.open(f"{b}/tensors/{t}", os.O_RDONLY)
    try:
        return os.pread(fd, 6, at)
    except OSError as e:
        return e.errno
    finally:
        os.close(fd)
exec(sys.argv[1])
END
look() { python3 "$WORK/look.py" "$1" || fail "beside a mount that writes: $1"; }
second "direct=auto"
look 'assert digest(b, "a1") is None and digest(b, "b1") is None'
look 'assert digest(b, "b0") is not None'
"$UNSHARD" umount "$B" || fail "umount"
second verify
look 'assert (read("a1", 6000000), read("a0", 9000000)) == (5, 5)'
grep -q 'rank1.*being edited' "$B/.unshard/problems" || fail "does not say why"
echo >"$WORK/go"
wait_for 20 [ -e "$WORK/synced" ] || fail "no fsync"
look 'assert (read("a1", 6000000), read("a0", 9000000)) == (b"beside", 5)'
look 'assert digest(b, "a1") == digest(os.environ["MNT"], "a1") is not None'
echo >"$WORK/go"
wait $writer
"$UNSHARD" umount "$B" || fail "umount"
umount_ckpt
cp "$WORK/good" "$C/rank0.safetensors"
put "$WORK/want/a1" 6000000 beside
verified || fail "after that: $(cat "$WORK/v")"

# A mount that dies over an edit: said, and made good by the next.
mount_ckpt "$C" rw
python3 - "$(worker_pid)" <<'END' || fail "write"
import os, sys
fd = os.open(os.environ["MNT"] + "/tensors/b1", os.O_RDWR)
os.pwrite(fd, b"xyz", 50)
os.kill(int(sys.argv[1]), 9)
END
wait_for 10 not mounted || fail "still mounted"
verified && fail "an edit that was lost from sight is not seen"
grep -q 'rank1.safetensors: block 2, .*is being edited, or was when its mount died' \
	"$WORK/v" || fail "$(cat "$WORK/v")"
mount_ckpt "$C" rw
umount_ckpt
wait_for 10 [ ! -e "$C/.unshard-edited" ] || fail "not taken over"
verified || fail "not made good: $(cat "$WORK/v")"

# Beside a mount that writes and syncs, right bytes are never called damaged.
mount_ckpt "$C" rw
python3 - <<'END' &
import os, random, time
fd = os.open(os.environ["MNT"] + "/tensors/a0", os.O_RDWR)
end = time.monotonic() + 3
while time.monotonic() < end:
    os.pwrite(fd, os.urandom(100), random.randrange(4000000))
    os.fsync(fd)
END
writer=$! runs=0
while kill -0 $writer 2>/dev/null; do
	! verified && grep -q 'not what was sealed' "$WORK/v" &&
		fail "run $runs beside fsyncs: $(cat "$WORK/v")"
	runs=$((runs + 1))
done
wait $writer || fail "the writer beside verify"
umount_ckpt
verified || fail "after $runs runs beside fsyncs: $(cat "$WORK/v")"

# With both, the rest of a block that is written must be good.
put "$C/rank0.safetensors" 6000000 Y
mount_ckpt "$C" rw,verify
python3 - <<'END' || fail "a damaged block was written"
import errno, os
fd = os.open(os.environ["MNT"] + "/tensors/a0", os.O_RDWR)
os.pwrite(fd, b"good", 100)
os.fsync(fd)
try:
    os.pwrite(fd, b"bad", 5000000)
    raise SystemExit("written")
except OSError as e:
    assert e.errno == errno.EIO, e
END
umount_ckpt
verified && fail "damage was sealed"
grep -q 'rank0.safetensors: block 1, .*not what was sealed' "$WORK/v" ||
	fail "$(cat "$WORK/v")"
[ "$(grep -c 'block' "$WORK/v")" = 1 ] || fail "$(cat "$WORK/v")"

# Without -o verify it is written, but what was damaged stays so: after a write
# to a part of the block, and after a mount that died over it; until all of it
# was written.
poke() { # OFFSET [kill]
	python3 - "$1" "${2:+$(worker_pid)}" <<'END'
import os, sys
fd = os.open(os.environ["MNT"] + "/tensors/a0", os.O_RDWR)
os.pwrite(fd, b"new", int(sys.argv[1]))
if sys.argv[2]:
    os.kill(int(sys.argv[2]), 9)
else:
    os.fsync(fd)
END
}
damaged() { # WHEN
	verified && fail "$1: damage passes for data"
	grep -q 'rank0.safetensors: block 1, .*not what was sealed' "$WORK/v" ||
		grep -q 'rank0.safetensors: block 1, .*being edited' "$WORK/v" ||
		fail "$1: $(cat "$WORK/v")"
	[ "$(grep -c block "$WORK/v")" = 1 ] || fail "$1: $(cat "$WORK/v")"
}
mount_ckpt "$C" rw
poke 5000000 || fail "a write to a damaged block"
damaged "after an fsync"
grep -q 'rank0.safetensors: bytes 4194304 to 8388608 were not what was sealed' \
	"$MNT/.unshard/problems" ||
	fail "not said: $(cat "$MNT/.unshard/problems")"
poke 100 && poke 9000000 || fail "a write beside a damaged block"
umount_ckpt
damaged "after the mount"
mount_ckpt "$C" rw
poke 5000001 kill
wait_for 10 not mounted || fail "still mounted"
damaged "after a mount that died"
# an fsync takes away the list of bad blocks: the next write begins it anew
mount_ckpt "$C" rw
poke 5000000 || fail "write before one that is not synced"
[ ! -e "$C/.unshard-edited" ] || fail "still being edited after fsync"
poke 5000100 kill
wait_for 10 not mounted || fail "still mounted"
tr '\0' '\n' <"$C/.unshard-edited" | grep -qx 'rank0.safetensors//1' ||
	fail "not written down again: $(tr '\0' '\n' <"$C/.unshard-edited")"
damaged "after a mount that died after an fsync"
mount_ckpt "$C" rw
poke 7000000 || fail "write after a mount that died"
damaged "after one that took over"
for i in 0 2 1 3; do # 4 MiB that hold the block, but for what is before it
	dd if="$WORK/want/a0" of="$MNT/tensors/a0" conv=notrunc status=none \
		bs=1M skip=$((i + 3)) seek=$((i + 3)) count=1 || fail "dd"
done
damaged "while some of it is not written"
dd if="$WORK/want/a0" of="$MNT/tensors/a0" conv=notrunc status=none \
	bs=1M skip=7 seek=7 count=1 || fail "dd"
verified || fail "all of the block was written: $(cat "$WORK/v")"
umount_ckpt
verified || fail "at the end: $(cat "$WORK/v")"

# A manifest that is none: nothing is written, it stays, and it is said.
for how in cut flipped version garbage; do
	cp "$C/.unshard-manifest" "$WORK/m"
	case $how in
	cut) truncate -s -9 "$C/.unshard-manifest" ;;
	flipped) put "$C/.unshard-manifest" 100 '~' ;;
	version) printf '\002' | dd of="$C/.unshard-manifest" bs=1 seek=8 \
		conv=notrunc status=none ;;
	garbage) head -c 4096 /dev/urandom >"$C/.unshard-manifest" ;;
	esac
	cp "$C/.unshard-manifest" "$WORK/bad"
	mount_ckpt "$C" rw
	grep -q 'warning: .*: nothing can be written, for the manifest cannot.*seal --force' \
		"$MNT/.unshard/problems" ||
		fail "$how: $(cat "$MNT/.unshard/problems")"
	cmp -n 4096 "$MNT/tensors/b0" "$WORK/want/b0" || fail "$how: reading"
	poke 100 2>"$WORK/err" && fail "$how: written"
	grep -q 'Errno 30' "$WORK/err" || fail "$how: $(cat "$WORK/err")"
	umount_ckpt
	same "$C/.unshard-manifest" "$WORK/bad"
	mkdir -p "$WORK/over"
	expect 3 'overlay: .*unshard-manifest' \
		"$UNSHARD" mount "$C" "$MNT" -o "overlay=$WORK/over"
	cp "$WORK/m" "$C/.unshard-manifest"
done
verified || fail "with its manifest back: $(cat "$WORK/v")"
done_ok
