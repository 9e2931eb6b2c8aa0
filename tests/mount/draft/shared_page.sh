# SPDX-License-Identifier: Apache-2.0
# One page of a file of shards/, into which one program stores through a map and
# another writes: nothing that was written is lost, or who came second is told.
LIMIT=90
. "$(dirname "$0")/../lib/common.sh"
requires python3

SRC=$WORK/src
mkdir "$SRC"

cat >"$WORK/share.py" <<'P'
import errno, mmap, os, sys

shards, src = sys.argv[1:]
PAGE = 4096
ROUNDS = 200


def fresh(name):
    with open(f"{shards}/{name}", "wb") as f:
        f.write(bytes(4 * PAGE))
    return f"{shards}/{name}"


def mapper(path, ready, end):
    """Stores into the first bytes of the page, and syncs, until told."""
    with open(path, "r+b") as f:
        m = mmap.mmap(f.fileno(), 0)
    n = 0
    m[0] = 1
    os.write(ready, b"x")
    os.set_blocking(end, False)
    while True:
        n += 1
        m[0] = n % 251 + 1
        m.flush()
        try:
            os.read(end, 1)  # its end
            break
        except BlockingIOError:
            pass
    m.close()
    os._exit(0)


def beside(name, flags):
    """Bytes that another program writes while the map is stored into."""
    path = fresh(name)
    ready, ends = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        os.close(ends[1])
        mapper(path, ready[1], ends[0])
    os.read(ready[0], 1)
    fd = os.open(path, flags)
    for i in range(ROUNDS):
        assert os.pwrite(fd, b"w", 1000 + i) == 1
    os.close(fd)
    os.close(ends[1])
    assert os.waitpid(pid, 0)[1] == 0
    got = open(f"{src}/{name}", "rb").read()
    lost = got[1000 : 1000 + ROUNDS].count(0)
    print(f"{name}: {lost} of {ROUNDS} lost")
    assert got[0], "what the map stored is lost"
    return lost


def told(name, first, second):
    """Who opens the file second is told that both do not go together."""
    path = fresh(name)
    a = os.open(path, first)
    try:
        os.close(os.open(path, second))
    except OSError as e:
        assert e.errno == errno.EBUSY, e
    else:
        sys.exit(f"{name}: the second opener is not told")
    os.close(a)
    b = os.open(path, second)
    os.pwrite(b, bytes(PAGE), 0) if second & os.O_DIRECT == 0 else None
    os.close(b)


# One that was closed is not in the way, though the kernel says so a moment later.
def again(name):
    path = fresh(name)
    for how in (os.O_RDWR, os.O_WRONLY | os.O_DIRECT) * ROUNDS:
        for flags in (os.O_WRONLY, how):
            os.close(os.open(path, flags))
    os._exit(0)


kids = [os.fork() or again(f"again{i}") for i in range(6)]
if any([os.waitpid(kid, 0)[1] for kid in kids]):
    sys.exit("closed files are in the way")

bad = beside("writer", os.O_WRONLY) + beside("both", os.O_RDWR)
told("map-and-direct", os.O_RDWR, os.O_WRONLY | os.O_DIRECT)
told("direct-and-map", os.O_WRONLY | os.O_DIRECT, os.O_RDWR)
if os.environ["MODE"] == "direct":
    told("write-and-map", os.O_WRONLY, os.O_RDWR)
sys.exit(bad != 0)
P

for MODE in direct cached; do
	export MODE
	[ $MODE = direct ] && opts= || opts=,direct=off
	mount_ckpt "$SRC" "rw$opts"
	mkdir "$MNT/step-$MODE"
	python3 "$WORK/share.py" "$MNT/step-$MODE/shards" \
		"$SRC/.staging-step-$MODE/files" || fail "$MODE"
	grep -q 'it may be mapped' "$LOG" || fail "no line: $(cat "$LOG")"
	umount_ckpt
done
done_ok
