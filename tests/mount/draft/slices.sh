# SPDX-License-Identifier: Apache-2.0
# A new checkpoint, written as slices by plain writes: by several processes,
# several mounts, workers and writers that are killed, on disks that fail.
LIMIT=200
. "$(dirname "$0")/../lib/common.sh"
requires cmp cp dd python3

SRC=$WORK/src
A=$WORK/a B=$WORK/b
D=$WORK/data
mkdir "$SRC" "$A" "$B" "$D"
# Each of some forty steps waits for the disk, which others may keep busy.
if [ -z "${UNSHARD_NIGHTLY-}" ] && [ "${COMMON_PRIVATE-}" = 1 ]; then
	mount -t tmpfs -o size=100m tmpfs "$SRC" 2>/dev/null ||
		say "no tmpfs here: on the disk, which takes longer"
fi
here_is() { [ -d "$SRC/$1" ]; }

# The slices of four ranks, and the whole tensors, as files.
cat >"$WORK/make.py" <<'P'
import json, os, random, sys
top = sys.argv[1]
random.seed(7)
tensors = {  # name: rows, bytes a row, which axis cuts what
    "embed.weight": (512, 1000, "rows"),
    "head.weight": (250, 1024, "columns"),
    "norm": (1, 6000, "copies"),
}
for name, (rows, width, how) in tensors.items():
    data = bytearray(random.randbytes(rows * width))
    data[1::2] = bytes(b & 0x3f for b in data[1::2])  # as 16 bits: no NaN
    os.makedirs(f"{top}/whole", exist_ok=True)
    open(f"{top}/whole/{name}", "wb").write(data)
    for rank in range(4):
        tp = rank % 2
        os.makedirs(f"{top}/{rank}", exist_ok=True)
        if how == "rows":
            n = len(data) // 2
            part = data[tp * n:][:n]
        elif how == "columns":
            w = width // 2
            part = b"".join(data[r * width + tp * w:][:w] for r in range(rows))
        else:
            part = data
        open(f"{top}/{rank}/{name}", "wb").write(part)
P
python3 "$WORK/make.py" "$D" || fail "make"
cat >"$WORK/layout.json" <<'J'
{"unshard_layout": 1,
 "mesh": {"axes": [{"name": "dp", "size": 2}, {"name": "tp", "size": 2}]},
 "tensors": [
  {"name": "embed.weight", "dtype": "float32", "shape": [512, 250],
   "placement": {"tp": {"shard": 0}, "dp": "replicate"}},
  {"name": "head.weight", "dtype": "bfloat16", "shape": [250, 512],
   "placement": {"tp": {"shard": 1}, "dp": "replicate"}},
  {"name": "norm", "dtype": "uint8", "shape": [6000]}],
 "write": {}}
J
# start MNT STEP
start() {
	mkdir "$1/$2" && cp "$WORK/layout.json" "$1/$2/unshard-layout.json" ||
		fail "start $2"
}
# put MNT STEP RANK
put() { cp "$D/$3"/* "$1/$2/ranks/$3/"; }
# whole STEP: what was published is what was written
whole() {
	local f
	wait_for 10 here_is "$1" || fail "$1 is not published: $(cat "$LOG")"
	for f in "$D"/whole/*; do same "$MNT/$1/tensors/${f##*/}" "$f"; done
	"$UNSHARD" verify "$SRC/$1" >"$WORK/out" 2>&1 ||
		fail "$1 is torn: $(cat "$WORK/out")"
}
status() { "$UNSHARD" status "$MNT"; }
mount_ckpt "$SRC" rw

# ---- four processes, each a rank, pieces in any order, some of them twice
mkdir "$MNT/s1"
[ ! -e "$MNT/s1/ranks" ] || fail "ranks/ without a layout"
cp "$WORK/layout.json" "$MNT/s1/unshard-layout.json" || fail "layout"
cp "$WORK/layout.json" "$MNT/s1/unshard-layout.json" || fail "the same again"
same "$MNT/s1/unshard-layout.json" "$WORK/layout.json"
[ "$(ls "$MNT/s1/ranks" | xargs)" = "0 1 2 3" ] || fail "ranks: $(ls "$MNT/s1/ranks")"
[ "$(stat -c '%s %b' "$MNT/s1/ranks/3/head.weight")" = "128000 0" ] ||
	fail "before: $(stat "$MNT/s1/ranks/3/head.weight")"
[ "$(stat -c %s "$MNT/s1/tensors/embed.weight")" = 512000 ] || fail "whole size"
head -c 1 "$MNT/s1/ranks/0/norm" 2>/dev/null && fail "read what nobody wrote"
cat >"$WORK/rank.py" <<'P'
import os, random, sys
src, dst = sys.argv[1:]
for name in os.listdir(src):
    data = open(f"{src}/{name}", "rb").read()
    fd = os.open(f"{dst}/{name}", os.O_RDWR)
    at = list(range(0, len(data), 777)) * 2
    random.shuffle(at)
    for i in at:
        part = data[i:i + random.choice((777, 1500))]
        assert os.pwrite(fd, part, i) == len(part)
    assert os.pread(fd, len(data), 0) == data
    os.close(fd)
P
for r in 0 1 2 3; do
	python3 "$WORK/rank.py" "$D/$r" "$MNT/s1/ranks/$r" &
done
wait %1 && wait %2 && wait %3 && wait %4 || fail "a writer"
whole s1
[ "$(ls "$SRC/s1" | xargs)" = "rank-00000.safetensors rank-00001.safetensors\
 rank-00002.safetensors rank-00003.safetensors unshard-layout.json" ] ||
	fail "published: $(ls "$SRC/s1")"
# copies once: what ranks hold together is four times the tensors of dp
[ "$(cat "$SRC"/s1/*.safetensors | wc -c)" -lt 820000 ] || fail "copies are kept"
here_is .staging-s1 && fail "the stage stays"

# ---- what is missing is said, and a double publish does no harm
start "$MNT" s2
for r in 0 1; do put "$MNT" s2 $r; done
status >"$WORK/out"
grep -q 'complete: unshard publish' "$WORK/out" || fail "complete by copies: $(cat "$WORK/out")"
whole s2
start "$MNT" s3
put "$MNT" s3 0
printf x | dd of="$MNT/s3/ranks/3/embed.weight" bs=1 seek=5 conv=notrunc status=none
expect 1 'embed.weight: bytes 0 to 5 of 256000 were not written \(slice of ranks 1, 3\)' \
	"$UNSHARD" publish "$MNT/s3"
status >"$WORK/out"
grep -q 'rank 1: 1 of 3 slices are whole, 375.0 KiB missing, the first in embed.weight: bytes 0 to 5' \
	"$WORK/out" || fail "status: $(cat "$WORK/out")"
grep -q '^rank 3: 383999 bytes missing' "$MNT/s3/.unshard/status" ||
	fail "status: $(cat "$MNT/s3/.unshard/status")"
"$UNSHARD" status --json "$MNT" | python3 -c '
import json, sys
s = json.load(sys.stdin)[0]
assert [r["rank"] for r in s["ranks"]] == [1, 3], s
assert s["ranks"][0]["first"] == {"tensor": "embed.weight", "from": 0, "to": 5}
' || fail "status --json"
put "$MNT" s3 3
"$UNSHARD" publish "$MNT/s3" >/dev/null || fail publish
"$UNSHARD" publish "$MNT/s3" | grep -q before || fail "a double publish"
whole s3

# ---- out of an archive
# who has a file open keeps the publish away that half of the copies make possible
start "$MNT" tar
exec 8<>"$MNT/tar/tensors/norm"
for r in 0 1 2 3; do
	(cd "$D/$r" && tar -cf - *) | timeout 20 tar --overwrite \
		-C "$MNT/tar/ranks/$r" -xf - ||
		fail "tar x, rank $r"
done
exec 8>&-
whole tar
# they remove what they find, and make it anew
for how in tar cp; do
	start "$MNT" "anew_$how"
	exec 8<>"$MNT/anew_$how/tensors/norm"
	for r in 0 1 2 3; do
		to=$MNT/anew_$how/ranks/$r
		case $how in
		tar) (cd "$D/$r" && tar -cf - *) | timeout 20 tar -C "$to" -xf - ;;
		cp) cp --remove-destination "$D/$r"/* "$to" ;;
		esac || fail "$how, rank $r"
	done
	exec 8>&-
	whole "anew_$how"
done
# what is removed is missing, and not to be seen
start "$MNT" removed
exec 8<>"$MNT/removed/tensors/embed.weight"
for r in 0 1 2 3; do put "$MNT" removed $r; rm "$MNT/removed/ranks/$r/norm" || fail rm; done
to=$MNT/removed/ranks/0
[ ! -e "$to/norm" ] && ! ls "$to" | grep -qx norm || fail "norm is there"
rm "$to/norm" 2>"$WORK/err" && fail "removed twice"
grep -q 'No such file' "$WORK/err" || fail "$(cat "$WORK/err")"
exec 8>&-
expect 1 'norm: bytes 0 to .* were not written' "$UNSHARD" publish "$MNT/removed"
: >"$to/norm"
[ "$(stat -c %s "$to/norm")" = "$(stat -c %s "$D/0/norm")" ] || fail "its size"
expect 1 'norm: bytes 0 to .* were not written' "$UNSHARD" publish "$MNT/removed"
# all ranks have the same of it
cp "$D/0/norm" "$to/norm" || fail again
whole removed
# with owner and mode
start "$MNT" kept_as
exec 8<>"$MNT/kept_as/tensors/norm"
for r in 0 1 2 3; do
	cp -a "$D/$r/." "$MNT/kept_as/ranks/$r/" || fail "cp -a, rank $r"
done
exec 8>&-
whole kept_as

# ---- what cannot be
start "$MNT" s4
f=$MNT/s4/ranks/0/norm
tail -c 1 "$D/0/norm" | dd of="$f" bs=1 seek=6000 conv=notrunc 2>/dev/null &&
	fail "written past the end"
truncate -s 5 "$f" 2>/dev/null && fail "made shorter"
truncate -s 6000 "$f" || fail "the same size"
touch "$MNT/s4/other" 2>/dev/null && fail "made a file"
rm "$f" || fail "rm of a slice"
[ ! -e "$f" ] || fail "a removed slice is there"
mkdir "$MNT/s4/ranks/9" 2>/dev/null && fail "made a rank"
[ ! -e "$MNT/s4/ranks/00" ] || fail "00 is no rank"
sed 's/6000/6001/' "$WORK/layout.json" >"$WORK/other.json"
cp "$WORK/other.json" "$MNT/s4/unshard-layout.json" 2>/dev/null && fail "another layout"
mkdir "$MNT/s5"
sed 's/"shard": 0/"shard": 7/' "$WORK/layout.json" >"$WORK/bad.json"
cp "$WORK/bad.json" "$MNT/s5/unshard-layout.json" 2>/dev/null && fail "a bad layout"
wait_for 5 grep -q 'dim 7 is cut by tp, of 2 dims' "$LOG" || fail "why: $(cat "$LOG")"
[ ! -e "$MNT/s5/ranks" ] || fail "ranks/ of a bad layout"
grep -q '^refused: .*dim 7 is cut by tp' "$MNT/s5/.unshard/status" ||
	fail "status: $(cat "$MNT/s5/.unshard/status")"
status | grep -q 'not complete: nothing was written, for: .*dim 7 is cut' ||
	fail "status: $(status)"
expect 1 'nothing was written, for: .*dim 7 is cut by tp' \
	"$UNSHARD" publish "$MNT/s5"
cp "$WORK/layout.json" "$MNT/s5/unshard-layout.json" || fail "a good one later"

# ---- a step that was only begun goes by rmdir; one that holds bytes does not
start "$MNT" gone
rmdir "$MNT/gone" || fail "rmdir of a step that was only begun"
start "$MNT" kept
put "$MNT" kept 0
rmdir "$MNT/kept" 2>/dev/null && fail "rmdir of what was written"

# ---- begun anew is not written; what was cut off is missing
put "$MNT" s4 0
: >"$f"
head -c 1 "$f" 2>/dev/null && fail "still there after O_TRUNC"
head -c 4000 "$D/0/norm" >"$f"
cp "$D/1/embed.weight" "$D/1/head.weight" "$MNT/s4/ranks/1" || fail "rank 1"
expect 1 'norm: bytes 4000 to 6000 of 6000 .*ranks 0, 1, 2, 3' \
	"$UNSHARD" publish "$MNT/s4"
cp "$D/1/norm" "$MNT/s4/ranks/2" || fail "rank 2"
whole s4

# ---- rm: of one, it is unwritten; of the step, all goes
start "$MNT" r1
exec 8<>"$MNT/r1/tensors/norm"
put "$MNT" r1 0 && put "$MNT" r1 1 || fail "put"
rmdir "$MNT/r1/ranks/0" 2>/dev/null && fail "rmdir of what is written"
rm "$MNT/r1/unshard-layout.json" 2>/dev/null && fail "rm of the layout"
rm "$MNT/r1/ranks/2/embed.weight" || fail "rm of a slice"
exec 8>&-
expect 1 'embed.weight: bytes 0 to 256000 of 256000 .*ranks 0, 2' \
	"$UNSHARD" publish "$MNT/r1"
rm -r "$MNT/r1" || fail "rm -r"
[ ! -e "$MNT/r1" ] && ! here_is .staging-r1 || fail "after rm -r it is there"
start "$MNT" r1
python3 -c 'import shutil, sys; shutil.rmtree(sys.argv[1])' "$MNT/r1" ||
	fail "rmtree"
here_is .staging-r1 && fail "after rmtree it is there"
[ ! -s "$LOG" ] || ! grep -q r1: "$LOG" || fail "log: $(grep r1: "$LOG")"

# ---- whole tensors, and through a map
cat >"$WORK/map.py" <<'P'
import mmap, os, sys
src, dst = sys.argv[1:]
for name in os.listdir(src):
    data = open(f"{src}/{name}", "rb").read()
    with open(f"{dst}/{name}", "r+b") as f:
        m = mmap.mmap(f.fileno(), 0)
        m[:] = data
        m.flush()
        m.close()
P
cp "$D/whole/norm" "$MNT/s5/tensors" || fail "norm" # bytes: not by a map first
if grep -qE '^mmap +shared' "$MNT/s1/.unshard/stats"; then
	python3 "$WORK/map.py" "$D/whole" "$MNT/s5/tensors" || fail "maps"
else
	say "no writing through maps on this kernel"
	cp "$D"/whole/* "$MNT/s5/tensors/" || fail "whole tensors"
fi
whole s5

# ---- a page of a map holds what others write, and what nobody does
cat >"$WORK/part.py" <<'P'
import mmap, os, struct, sys

src, dst = sys.argv[1:]
want = open(f"{src}/whole/embed.weight", "rb").read()
half = len(want) // 2  # where rank 1 begins, within a page
assert half % 4096
f = os.open(f"{dst}/tensors/embed.weight", os.O_RDWR)
m = mmap.mmap(f, 0)
assert m[:4] == m[half:half + 4] != bytes(4)  # both are unwritten: no data
m[half - 8:half] = want[half - 8:half]  # the page is read, and dirty now
with open(f"{dst}/ranks/1/embed.weight", "r+b", buffering=0) as g:
    g.write(want[half:half + 1000])  # and these are of another's view
m[half + 2000:half + 2004] = want[half + 2000:half + 2004]
m.flush()
m.close()
for at, n in ((half - 8, 8), (half, 1000), (half + 2000, 4)):
    assert os.pread(f, n, at) == want[at:at + n], (at, n)
for at in (half - 9, half + 1000, half + 1999, half + 2004):
    try:
        sys.exit(f"byte {at} was never written: {os.pread(f, 1, at)}")
    except OSError:
        pass
P
if grep -qE '^mmap +shared' "$MNT/s1/.unshard/stats"; then
	start "$MNT" s6
	cp "$D"/whole/[hn]* "$MNT/s6/tensors/" || fail "the others"
	python3 "$WORK/part.py" "$D" "$MNT/s6" || fail "a part of a page"
	expect 1 'embed.weight: bytes 0 to 255992 of 256000 were not written .*ranks 0, 2' \
		"$UNSHARD" publish "$MNT/s6"
	head -c 255992 "$D/0/embed.weight" |
		dd of="$MNT/s6/ranks/0/embed.weight" conv=notrunc status=none
	expect 1 'embed.weight: bytes 1000 to 2000 of 256000 were not written .*ranks 1, 3' \
		"$UNSHARD" publish "$MNT/s6"
	# bytes of other types: the map is refused until all are written
	python3 - "$MNT/s6/tensors" "$MNT/s6/ranks/1" <<'P' && fail "SIGBUS"
import mmap, sys
with open(sys.argv[1] + "/norm", "r+b") as f:
    m = mmap.mmap(f.fileno(), 0)
    m[0] = m[0]
with open(sys.argv[1] + "/norm", "r+b") as f:
    f.truncate(0)
    m = mmap.mmap(f.fileno(), 0)
    m[0] = 1
P
	wait_for 5 grep -q 'not written yet, and cannot be through a map' "$LOG" ||
		fail "no word of it: $(cat "$LOG")"
	cp "$D/whole/norm" "$MNT/s6/tensors"
	cp "$D/1/embed.weight" "$MNT/s6/ranks/1/" || fail "rank 1"
	whole s6
fi
umount_ckpt

# ---- two mounts of one directory
"$UNSHARD" mount "$SRC" "$A" -o "rw,log=$WORK/la$SAN_OPTS" || fail "mount a"
"$UNSHARD" mount "$SRC" "$B" -o "rw,log=$WORK/lb$SAN_OPTS" || fail "mount b"
start "$A" t1
start2() { cp "$WORK/layout.json" "$B/t1/unshard-layout.json"; }
start2 || fail "the other mount gives the same layout"
put "$A" t1 0 & put "$B" t1 3 &
wait %1 && wait %2 || fail "two mounts"
MNT=$A whole t1
MNT=$B whole t1
start "$A" t2
put "$A" t2 2
same "$B/t2/ranks/0/embed.weight" "$D/0/embed.weight"
head -c 1 "$B/t2/ranks/1/embed.weight" 2>/dev/null && fail "b reads what nobody wrote"
put "$B" t2 1
MNT=$B whole t2
"$UNSHARD" umount "$A" && "$UNSHARD" umount "$B" || fail umount

# ---- kill -9 of the worker beside any write, and the rest is written later
cat >"$WORK/rest.py" <<'P'
import atexit, os, sys
src, dst, *beside = sys.argv[1:]  # a FIFO, which is opened before that write
left = int(beside.pop()) if beside else 0
def tell():
    if beside:
        open(beside.pop(), "w").close()
atexit.register(tell)
for name in sorted(os.listdir(src)):
    data = open(f"{src}/{name}", "rb").read()
    fd = os.open(f"{dst}/{name}", os.O_RDWR)
    for at in range(0, len(data), 1000):
        part = data[at:at + 1000]
        try:
            if os.pread(fd, len(part), at) == part:
                continue
            sys.exit("read something else")
        except OSError:
            left -= 1
            if left < 0:
                tell()
            os.pwrite(fd, part, at)
    os.close(fd)
P
mkfifo "$WORK/begins"
[ -n "${UNSHARD_NIGHTLY-}" ] && times=30 || times=5
for i in $(seq $times); do
	mount_ckpt "$SRC" rw
	[ -d "$MNT/k" ] || start "$MNT" k
	worker=$(worker_pid)
	beside=("$WORK/begins" $((i * 17 % 50)))
	for r in 0 1 2 3; do
		python3 "$WORK/rest.py" "$D/$r" "$MNT/k/ranks/$r" "${beside[@]}" \
			2>/dev/null &
		beside=()
	done
	read -r _ <"$WORK/begins"
	kill -9 "$worker"
	wait
	wait_for 10 not mounted || fail "the mount stays"
	[ -d "$SRC/k" ] && break
done
mount_ckpt "$SRC" rw
if [ ! -d "$SRC/k" ]; then
	for r in 0 1; do
		python3 "$WORK/rest.py" "$D/$r" "$MNT/k/ranks/$r" ||
			here_is k || fail "the rest of rank $r"
	done
fi
whole k

# ---- a writer that is killed leaves bytes that are named
start "$MNT" w
put "$MNT" w 1
cp "$D/0/head.weight" "$D/0/norm" "$MNT/w/ranks/0"
python3 -c '
import signal, sys
f = open(sys.argv[2], "r+b", buffering=0)
f.write(open(sys.argv[1], "rb").read(100000))
open(sys.argv[3], "w")
signal.pause()' "$D/0/embed.weight" "$MNT/w/ranks/0/embed.weight" "$WORK/half" &
wait_for 10 test -e "$WORK/half" || fail "half a slice"
expect 3 'open for writing' "$UNSHARD" publish "$MNT/w"
{ kill -9 $! && wait $!; } 2>/dev/null
expect 1 'embed.weight: bytes 100000 to 256000 of 256000 were not written \(slice of ranks 0, 2\)' \
	"$UNSHARD" publish "$MNT/w"
put "$MNT" w 2
whole w
umount_ckpt

# ---- a layout that the mount is given begins every step; so does a disk that
# has no room for it
mount_ckpt "$SRC" "rw,layout=$WORK/layout.json"
mkdir "$MNT/given" || fail "mkdir with -o layout"
put "$MNT" given 2 && put "$MNT" given 1 || fail "ranks of -o layout"
whole given
same "$MNT/s1/tensors/norm" "$D/whole/norm"
umount_ckpt
mkdir "$WORK/small"
if [ "${COMMON_PRIVATE-}" = 1 ] &&
	mount -t tmpfs -o size=600k tmpfs "$WORK/small" 2>/dev/null; then
	mount_ckpt "$WORK/small" rw
	start "$MNT" full
	put "$MNT" full 0 || fail "it fits"
	put "$MNT" full 1 2>/dev/null && put "$MNT" full 3 2>/dev/null &&
		fail "a full disk is not told"
	expect 1 'were not written' "$UNSHARD" publish "$MNT/full"
	umount_ckpt
	# there is no room to say of it what is written, so nothing is
	mount_ckpt "$WORK/small" rw
	cat /dev/zero >"$WORK/small/fill" 2>/dev/null
	dd if="$D/whole/norm" of="$MNT/full/ranks/0/embed.weight" bs=1k count=2 \
		conv=notrunc status=none 2>/dev/null && fail "no room for a journal"
	cmp "$MNT/full/ranks/0/embed.weight" "$D/0/embed.weight" ||
		fail "written, and ENOSPC was said"
	rm "$WORK/small/fill"
	umount_ckpt
	umount "$WORK/small"
else
	say "no tmpfs here: a full disk is not tried"
fi

# ---- published by quiet alone
mount_ckpt "$SRC" rw,publish=manual,publish-after=1
start "$MNT" quiet
put "$MNT" quiet 0 && put "$MNT" quiet 1 || fail "quiet"
whole quiet
umount_ckpt

# ---- a write that fails is not counted; an fsync that fails dooms
UNSHARD_FAULT=write:3:1:28 mount_ckpt "$SRC" rw
start "$MNT" e
put "$MNT" e 0 2>/dev/null && fail "ENOSPC is not told"
put "$MNT" e 1 || fail "after ENOSPC"
expect 1 'were not written' "$UNSHARD" publish "$MNT/e"
put "$MNT" e 0 || fail "again"
whole e
umount_ckpt
UNSHARD_FAULT=sync:1:1:5 mount_ckpt "$SRC" rw
start "$MNT" f
for r in 0 1; do put "$MNT" f $r; done
wait_for 10 grep -q doomed "$MNT/f/.unshard/status" || fail "not doomed"
expect 1 'may be lost' "$UNSHARD" publish "$MNT/f"
here_is f && fail "published after a failed fsync"
umount_ckpt
"$UNSHARD" status "$SRC" | grep -q '^kept: left' || fail "status of what is left"
"$UNSHARD" gc --age 0 "$SRC" >/dev/null || fail gc
here_is .staging-kept && fail "gc leaves what nobody writes"
here_is .staging-f && fail "gc leaves it"
done_ok
