# SPDX-License-Identifier: Apache-2.0
# -o overlay=DIR: edits are seen in every view, the files are never touched;
# what was synced is there after kill -9, and all of it or nothing.
LIMIT=120
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
requires python3 cmp sha256sum

C=$WORK/ckpt O=$WORK/over
export C O MNT
make_split "$C" 1000 300 4 # columns in 4 files
sums() { (cd "$C" && find . -type f -exec sha256sum {} + | sort); }
sums >"$WORK/sums"
untouched() {
	sums | cmp - "$WORK/sums" || fail "$1: a file of the checkpoint changed"
}
mount_ckpt "$C"
cp "$MNT/tensors/w" "$WORK/w"
umount_ckpt

expect 2 'lies in the checkpoint' "$UNSHARD" mount "$C" "$MNT" -o "overlay=$C/o"
rm -rf "$C/o"

# Edits of all sizes, against a plain file that gets the same ones.
mount_ckpt "$C" "overlay=$O"
[ "$(stat -f -c %a "$MNT")" -gt 0 ] || fail "no room: $(stat -f "$MNT")"
python3 - "$WORK/w" <<'END' || fail "edits"
import mmap, os, random, sys
rnd = random.Random(7)
fd = os.open(os.environ["MNT"] + "/tensors/w", os.O_RDWR)
ref = os.open(sys.argv[1], os.O_RDWR)
size = os.fstat(ref).st_size
for i in range(300):
    at = rnd.randrange(size)
    n = min(size - at, rnd.choice([1, 3, 299, 4096, 5000, 40000]))
    data = rnd.randbytes(n)
    assert os.pwrite(fd, data, at) == n
    os.pwrite(ref, data, at)
    if i % 50 == 0:
        os.fsync(fd)
    lo = max(0, at - 700)
    assert os.pread(fd, n + 1400, lo) == os.pread(ref, n + 1400, lo), (i, at)
m = mmap.mmap(fd, size)
m[1000:1010] = b"0123456789"
m.flush()
os.pwrite(ref, b"0123456789", 1000)
os.fsync(fd)
END
same "$MNT/tensors/w" "$WORK/w"
tail -c +129 "$MNT/npy/w.npy" | cmp - "$WORK/w" || fail "npy/ shows other bytes"
untouched "mounted"
mkdir "$WORK/second"
expect 3 'somebody else writes to it' "$UNSHARD" mount "$C" "$WORK/second" \
	-o "overlay=$O"
umount_ckpt
untouched "after umount"

# Found again; read without a mount too; and without it as it was.
mount_ckpt "$C" "overlay=$O"
same "$MNT/tensors/w" "$WORK/w"
umount_ckpt
"$UNSHARD" cat -o "overlay=$O" "$C" w | cmp - "$WORK/w" || fail "cat"
"$UNSHARD" cat "$C" w | cmp -s - "$WORK/w" && fail "the checkpoint has it"

# What it changes, element by element.
expect 0 '' "$UNSHARD" overlay status "$C" "$O"
grep -qE '^rank.* in edited blocks|in edited blocks$' "$WORK/out" ||
	fail "status: $(cat "$WORK/out")"
expect 0 '' "$UNSHARD" overlay diff --json "$C" "$O"
python3 - "$WORK/out" "$WORK/w" "$WORK/whole.w" <<'END' || fail "diff"
import json, sys
said = json.load(open(sys.argv[1]))["tensors"]
is_, was = (open(f, "rb").read() for f in sys.argv[2:4])
want, at = [], 0
while at < len(was):
    if is_[at] == was[at]:
        at += 1
        continue
    start = at
    while at < len(was) and is_[at] != was[at]:
        at += 1
    want.append([start, at])
[t] = [t for t in said if t["name"] == "w"]
assert t["elements"] == sum(b - a for a, b in want), t["elements"]
assert "ranges" not in t or t["ranges"] == want
assert len(said) == 1, said
END
expect 0 '' "$UNSHARD" overlay diff "$C" "$O"
grep -qE '^w: [0-9]+ of 300000 elements, in \[0:' "$WORK/out" ||
	fail "diff: $(cat "$WORK/out")"

# Published: a checkpoint of its own, sealed; the old one is as it was.
expect 0 '' "$UNSHARD" overlay apply "$C" "$O" "$WORK/fixed"
"$UNSHARD" cat "$WORK/fixed" w | cmp - "$WORK/w" || fail "applied"
expect 0 '' "$UNSHARD" verify "$WORK/fixed"
grep -q 'as they were sealed' "$WORK/out" || fail "it is not sealed"
expect 2 'exists|fixed' "$UNSHARD" overlay apply "$C" "$O" "$WORK/fixed"
[ -z "$(find "$WORK" -maxdepth 1 -name '.staging-*')" ] || fail "a stage is left"
untouched "applied"

# Of a sealed one damage is not published as data; -o verify is for the source.
rot=$WORK/fixed/shard-00004-model-00001-of-00001.safetensors
[ -e "$rot" ] || fail "no $rot: $(ls "$WORK/fixed")"
mount_ckpt "$WORK/fixed" "overlay=$WORK/rot.over"
printf edit | dd of="$MNT/tensors/w" conv=notrunc status=none || fail "dd"
umount_ckpt
cp "$rot" "$WORK/good"
printf '\377\376\375' | dd of="$rot" bs=1 seek=70000 conv=notrunc status=none
expect 1 'shard-00004.*: block 0, bytes 0 to [0-9]*, of .*w.*: not what was sealed; nothing is published' \
	"$UNSHARD" overlay apply "$WORK/fixed" "$WORK/rot.over" "$WORK/rotten"
[ ! -e "$WORK/rotten" ] || fail "damage was published"
truncate -s +1 "$rot"
expect 1 'shard-00004' \
	"$UNSHARD" overlay apply "$WORK/fixed" "$WORK/rot.over" "$WORK/rotten"
cp "$WORK/good" "$rot"
expect 0 '' "$UNSHARD" overlay apply -o verify "$WORK/fixed" \
	"$WORK/rot.over" "$WORK/rotten"
expect 0 '' "$UNSHARD" verify "$WORK/rotten"
[ "$("$UNSHARD" cat "$WORK/rotten" w | head -c 4)" = edit ] || fail "no edit"

"$UNSHARD" cat -o "overlay=$O" "$C" w | cmp - "$WORK/w" || fail "overlay lost"

# kill -9: what was synced is there, what was not is there as a whole or not.
for round in 1 2 3 4 5 6; do
	mount_ckpt "$C" "overlay=$O"
	python3 - "$(worker_pid)" "$WORK/w" $round <<'END' || fail "round $round"
import os, sys, threading
fd = os.open(os.environ["MNT"] + "/tensors/w", os.O_RDWR)
ref = open(sys.argv[2], "r+b")
size, n = 300000, int(sys.argv[3])
synced = None
begun = threading.Event()
def kill():
    begun.wait()
    os.kill(int(sys.argv[1]), 9)
t = threading.Thread(target=kill)
t.start()
try:
    for i in range(100000):
        if i == n:
            begun.set()
        data = bytes([n * 16 + i % 16]) * size
        os.pwrite(fd, data, 0)
        os.fsync(fd)
        synced = data
except OSError:
    pass
t.join()
if synced is None:
    synced = ref.read()
open(os.environ["C"] + "/../synced", "wb").write(synced)
open(os.environ["C"] + "/../next", "wb").write(data)
END
	wait_for 10 not mounted || fail "still mounted"
	mount_ckpt "$C" "overlay=$O"
	cp "$MNT/tensors/w" "$WORK/w"
	umount_ckpt
	cmp -s "$WORK/w" "$WORK/synced" || cmp -s "$WORK/w" "$WORK/next" ||
		fail "round $round: neither what was synced nor what was next"
done
untouched "after kill -9"
"$UNSHARD" overlay status "$C" "$O" >"$WORK/out"
grep -q damaged "$WORK/out" && fail "a crash passes for damage: $(cat "$WORK/out")"

# A log that is no file takes no edits.
mkdir "$WORK/pipe" && mkfifo "$WORK/pipe/overlay.log"
expect 3 'overlay.log: expected a file' "$UNSHARD" mount "$WORK/ckpt" "$MNT" \
	-o "overlay=$WORK/pipe$SAN_OPTS"

# The last commit damaged: said, by status and by each mount, and kept.
cp -r "$O" "$WORK/flipped"
size=$(stat -c %s "$WORK/flipped/overlay.log")
printf '\377' | dd of="$WORK/flipped/overlay.log" bs=1 seek=$((size - 1)) \
	conv=notrunc status=none
"$UNSHARD" overlay status "$C" "$WORK/flipped" >"$WORK/out" || fail status
grep -q "are damaged at byte $((size - 40)) of the log: an edit" "$WORK/out" ||
	fail "status of a damaged log: $(cat "$WORK/out")"
mount_ckpt "$C" "rw,overlay=$WORK/flipped"
grep -q "^warning: overlay: byte $((size - 40)) of overlay.log is damaged" \
	"$MNT/.unshard/problems" ||
	fail "a mount of a damaged log: $(cat "$MNT/.unshard/problems")"
umount_ckpt
[ -s "$WORK/flipped/overlay.log.lost" ] || fail "what was cut off is not kept"
"$UNSHARD" overlay status "$C" "$WORK/flipped" >"$WORK/out" || fail status
grep -q 'overlay.log.lost' "$WORK/out" || fail "$(cat "$WORK/out")"
"$UNSHARD" overlay discard "$WORK/flipped" || fail "discard"
[ ! -e "$WORK/flipped" ] || fail "left: $(ls "$WORK/flipped")"

# Somebody writes; dropped; usage.
mount_ckpt "$C" "overlay=$O"
expect 3 'somebody else writes' "$UNSHARD" overlay discard "$O"
expect 0 '' "$UNSHARD" overlay status --json "$C" "$O"
umount_ckpt
expect 2 'expected status' "$UNSHARD" overlay frob "$C" "$O"
expect 2 'expected status' "$UNSHARD" overlay apply "$C" "$O"
mkdir "$WORK/none"
expect 1 'overlay.head' "$UNSHARD" overlay status "$C" "$WORK/none"

# Another checkpoint below it, or a shard that changed.
make_split "$WORK/other" 1000 300 3
expect 3 'another checkpoint|is not the file' \
	"$UNSHARD" mount "$WORK/other" "$MNT" -o "overlay=$O"
touch "$C/$(ls "$C" | head -n 1)"
expect 3 'is not the file that it was' "$UNSHARD" mount "$C" "$MNT" \
	-o "overlay=$O"
cp -r "$O" "$WORK/copy"
mkdir "$WORK/none"
expect 1 "none/overlay.head: No such file" "$UNSHARD" overlay discard "$WORK/none"
rmdir "$WORK/none"
expect 0 '' "$UNSHARD" overlay discard "$WORK/copy"
[ ! -e "$WORK/copy" ] || fail "not discarded"

# Two elements of a DCP tensor: not the checksums that the edit put right.
cp -r "$here/tests/formats/dcp/2.14-layouts/in" "$WORK/dcp"
mount_ckpt "$WORK/dcp" "overlay=$WORK/dcp.over"
t=$(ls -S "$MNT/tensors" | head -n 1)
w=$("$UNSHARD" ls --json "$WORK/dcp" | python3 -c '
import json, sys
[t] = [t for t in json.load(sys.stdin)["tensors"] if t["name"] == sys.argv[1]]
n = 1
for d in t["shape"]:
    n *= d
print(t["nbytes"] // n, n)' "$t") || fail "no $t"
read -r size nr <<<"$w"
for at in 3 $((nr - 1)); do
	tr '\0-\377' '\1-\377\0' <"$MNT/tensors/$t" |
		tail -c +$((at * size + 1)) | head -c "$size" |
		dd of="$MNT/tensors/$t" bs="$size" seek=$at conv=notrunc \
			status=none || fail "edit of $t"
done
umount_ckpt
expect 0 '' "$UNSHARD" overlay diff "$WORK/dcp" "$WORK/dcp.over"
[ "$(grep -c "^$t: 2 of $nr elements, in " "$WORK/out")" = 1 ] &&
	[ "$(wc -l <"$WORK/out")" = 1 ] || fail "dcp: $(cat "$WORK/out")"
expect 0 '' "$UNSHARD" overlay apply "$WORK/dcp" "$WORK/dcp.over" "$WORK/dcp.new"
expect 0 '' "$UNSHARD" verify "$WORK/dcp.new"

# The same megabyte a hundred times: the log is made short, and stays right.
. "$(dirname "$0")/../lib/split.sh"
make_split "$WORK/again" 600 4097 4
mkdir "$WORK/again.over"
mount_ckpt "$WORK/again" "rw,overlay=$WORK/again.over"
python3 - "$MNT/tensors/w" "$WORK/again.over/overlay.log" "$WORK/again.want" <<'END' || fail "again"
import os, random, sys

fd, log, r = os.open(sys.argv[1], os.O_RDWR), sys.argv[2], random.Random(3)
size = os.fstat(fd).st_size
want, longest, shorter, last = bytearray(os.pread(fd, size, 0)), 0, 0, 0
for i in range(100):
    data = r.randbytes(1 << 20)
    os.pwrite(fd, data, 12345)
    want[12345 : 12345 + len(data)] = data
    os.fsync(fd)
    now = os.path.getsize(log)
    longest, shorter, last = max(longest, now), shorter + (now < last), now
assert shorter and longest < 75 << 20, (shorter, longest)
assert os.pread(fd, size, 0) == want
open(sys.argv[3], "wb").write(want)
END
umount_ckpt
mount_ckpt "$WORK/again" "rw,overlay=$WORK/again.over"
same "$MNT/tensors/w" "$WORK/again.want"
umount_ckpt
mount_ckpt "$WORK/again"
same "$MNT/tensors/w" "$WORK/whole.w"
umount_ckpt
done_ok
