#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Files of which the inode changed and not the time of their bytes: who reads goes on
# after chmod, link, rename and the like, and who wrote and set the time back is
# not served from anything that was kept.
LIMIT=120
. "$(dirname "$0")/lib/common.sh"
requires python3

cat >"$WORK/one.py" <<-'EOS'
	"""one.py MNT CKPT HOW: all of it in one process, whose files and maps stay open."""
	import json, mmap, os, sys
	mnt, ckpt, how = sys.argv[1:]
	cached = "off" in how
	shard = f"{ckpt}/model.safetensors"
	def stat(key):
	    with open(f"{mnt}/.unshard/stats", encoding="ascii") as f:
	        return int(dict(line.split(None, 1) for line in f)[key])
	def put(off, data, back=True):
	    was = os.stat(shard)
	    with open(shard, "r+b") as f:
	        f.seek(off)
	        f.write(data)
	    if back:
	        os.utime(shard, ns=(was.st_atime_ns, was.st_mtime_ns))
	        assert os.stat(shard).st_mtime_ns == was.st_mtime_ns
	def place(file):
	    with open(file, "rb") as f:
	        head = int.from_bytes(f.read(8), "little")
	        return 8 + head + json.loads(f.read(head))["a"]["data_offsets"][0]
	at, shown_at = place(shard), place(f"{mnt}/model.safetensors")
	a = f"{mnt}/tensors/a"
	size = os.path.getsize(a)
	old = open(a, "rb").read()
	fd = os.open(a, os.O_RDONLY)
	m = mmap.mmap(fd, size, prot=mmap.PROT_READ)
	whole = os.open(f"{mnt}/model.safetensors", os.O_RDONLY)
	def shown():
	    # a read past the page cache is right at once; pages go some time soon
	    now = open(a, "rb").read()
	    for i in range(10000):
	        seen = now, os.pread(fd, size, 0), os.pread(whole, size, shown_at), m[:]
	        if len(set(seen)) == 1 or not (cached or set(seen[:3]) == {now}):
	            break
	        os.stat(mnt), os.sched_yield()
	    return seen
	assert set(shown()) == {old}, "before"
	touches = stat("touched")
	def benign(name, f):
	    global touches
	    f()
	    # what is mapped or kept by the kernel was asked for before
	    assert set(shown()) == {old}, name
	    assert cached or stat("touched") > touches, name
	    touches = stat("touched")
	benign("chmod", lambda: os.chmod(shard, 0o600))
	benign("the same mode", lambda: os.chmod(shard, 0o600))
	benign("link", lambda: os.link(shard, f"{ckpt}/../link"))
	benign("unlink", lambda: os.unlink(f"{ckpt}/../link"))
	benign("rename", lambda: (os.rename(shard, shard + ".not"), os.rename(shard + ".not", shard)))
	if os.getuid() == 0:
	    benign("chown", lambda: os.chown(shard, 0, 0))
	if how == "rw":
	    # what the mount itself does to the file is no touch
	    for i in range(3):
	        with open(a, "r+b", buffering=0) as f:
	            f.write(old[:100])
	            os.fsync(f.fileno())
	        assert set(shown()) == {old} and stat("touched") == touches, "an edit"
	for i in range(3):
	    new = bytes([i + 1]) * size
	    put(at, new)
	    got = shown()
	    assert got[0] == new, f"{i}: opened after it"
	    assert set(got) == {new}, f"{i}: what was open: {[g == new for g in got]}"
	put(at, old, back=False)
	try:
	    os.pread(fd, size, 0) if not cached else open(a, "rb").read()
	    sys.exit("written, with another time, and no error")
	except OSError as e:
	    assert e.errno == 116, e
EOS

CKPT=$WORK/ckpt
make_safetensors "$CKPT/model.safetensors"
cp -a "$CKPT" "$WORK/kept"
for o in direct=auto direct=off engine=plain rw; do
	rm -rf "$CKPT" && cp -a "$WORK/kept" "$CKPT"
	mount_ckpt "$CKPT" "$o"
	python3 "$WORK/one.py" "$MNT" "$CKPT" "$o" || fail "$o"
	umount_ckpt
done

# --- with -o verify all is compared again
rm -rf "$CKPT" && cp -a "$WORK/kept" "$CKPT"
"$UNSHARD" seal "$CKPT" >"$WORK/out" || fail seal
mount_ckpt "$CKPT" verify
python3 - "$MNT/tensors/a" "$CKPT/model.safetensors" <<-'EOS' || fail verify
	import os, sys
	shown, shard = sys.argv[1:]
	old = open(shown, "rb").read()
	was = os.stat(shard)
	def put(byte):
	    with open(shard, "r+b") as f:
	        f.seek(was.st_size - 1)
	        f.write(byte)
	    os.utime(shard, ns=(was.st_atime_ns, was.st_mtime_ns))
	last = open(shard, "rb").read()[-1:]
	os.chmod(shard, 0o600)
	assert open(shown, "rb").read() == old, "chmod"
	put(bytes([last[0] ^ 1]))
	try:
	    open(shown, "rb").read()
	    sys.exit("not what was sealed, and no error")
	except OSError as e:
	    assert e.errno == 5, e
	put(last)
	assert open(shown, "rb").read() == old, "as it was sealed"
EOS
umount_ckpt
done_ok
