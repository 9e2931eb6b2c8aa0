# SPDX-License-Identifier: Apache-2.0
# Listings of folders of slices, in which other files wait: each file that a listing
# tells the kernel of is the one that a look-up finds.
. "$(dirname "$0")/../lib/common.sh"
requires "${PYTHON:=python3}"
export UNSHARD_KEEP=0

SRC=$WORK/src
mkdir "$SRC"
# numbers of files are small there, as those are that nodes have
if [ "${COMMON_PRIVATE-}" = 1 ]; then
	mount -t tmpfs -o size=10m tmpfs "$SRC" 2>/dev/null ||
		say "no tmpfs here: numbers of files will not meet those of others"
fi
mount_ckpt "$SRC" rw
mkdir "$MNT/s" && cat >"$MNT/s/unshard-layout.json" <<'J' || fail layout
{"unshard_layout": 1, "mesh": {"axes": [{"name": "tp", "size": 1}]},
 "tensors": [{"name": "w", "dtype": "uint8", "shape": [6000]}], "write": {}}
J
"$PYTHON" - "$MNT/s" <<'P' || fail "not what was written"
import os, sys
top = sys.argv[1]
ranks, shards = f"{top}/ranks/0", f"{top}/shards"

def put(path, text):
    with open(path, "x") as f:
        f.write(text)
        return os.fstat(f.fileno()).st_ino

number = {n: put(f"{ranks}/{n}", n) for n in (f"x{i}.tmp" for i in range(40))}
for i in range(200):
    put(f"{shards}/f{i}", f"a file of shards {i}")
kept = open(f"{ranks}/x0.tmp")
for _ in range(3):
    listed = {e.name: e for e in os.scandir(ranks)}
    assert set(number) < set(listed), listed
    for n, ino in number.items():
        assert os.stat(f"{ranks}/{n}").st_ino == ino, f"{n} is another file"
        assert open(f"{ranks}/{n}").read() == n, f"{n} has other bytes"
        with open(f"{ranks}/{n}", "r+") as f:
            f.write(n)
for i in range(200):
    assert open(f"{shards}/f{i}").read() == f"a file of shards {i}", i
# what the kernel forgets was counted
try:
    open("/proc/sys/vm/drop_caches", "w").write("2")
except OSError:
    pass
assert kept.read() == "x0.tmp"
assert os.stat(f"{ranks}/x0.tmp").st_ino == number["x0.tmp"]
P
done_ok
