# SPDX-License-Identifier: Apache-2.0
# Random operations on files of shards/, and on a model of them: of fixed size
# in each way of delivery, and with truncate, append, holes and renames; then
# the files in SRC are compared.  UNSHARD_NIGHTLY=1: many more.
LIMIT=${UNSHARD_NIGHTLY:+6000}
LIMIT=${LIMIT:-180}
. "$(dirname "$0")/../lib/common.sh"
fsx=${HELPERS:-$here/build/helper}/fsx
[ -x "$fsx" ] || fail "no helper fsx"
ops=${UNSHARD_NIGHTLY:+1000000}
ops=${ops:-2000}
python=${PYTHON:-python3}
SRC=$WORK/src
mkdir "$SRC"
# every seventh operation is an fsync: in memory, where that is allowed
[ -n "${COMMON_PRIVATE-}" ] && mount -t tmpfs tmpfs "$SRC" || ops=$((ops / 4))

seed=1
while read -r o how; do
	mount_ckpt "$SRC" "rw,$o"
	mkdir "$MNT/fsx"
	head -c 1600000 /dev/urandom >"$WORK/model"
	cp "$WORK/model" "$MNT/fsx/shards/f"
	"$fsx" "$MNT/fsx/shards/f" "$WORK/model" "$ops" $((seed++)) "$how" ||
		fail "$how with -o $o"
	umount_ckpt
	same "$SRC/.staging-fsx/files/f" "$WORK/model"
	rm -r "$SRC/.staging-fsx"
done <<END
direct=auto rw
direct=auto map
direct=off rw
direct=off all
END

for o in direct=auto direct=off; do
	mount_ckpt "$SRC" "rw,$o"
	mkdir "$MNT/sizes"
	"$python" - "$MNT/sizes/shards" "$SRC/.staging-sizes/files" \
		$((ops / 2)) <<-'EOS' || fail "sizes with -o $o"
		import os, random, sys
		at, below, ops = sys.argv[1], sys.argv[2], int(sys.argv[3])
		r = random.Random(7)
		model, fd, name = bytearray(), None, f"{at}/a"
		def reopen():
		    global fd
		    if fd is not None: os.close(fd)
		    fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
		def check(i, what):
		    got = open(name, "rb").read()
		    assert got == model, (i, what, len(got), len(model))
		reopen()
		for i in range(ops):
		    off = r.randrange(0, 300000)
		    n = r.randrange(1, 70000)
		    data = r.randbytes(n)
		    what = r.choice(("write", "write", "append", "truncate",
		                     "read", "read", "rename", "replace", "reopen"))
		    if what == "write":
		        os.pwrite(fd, data, off)
		        if len(model) < off: model.extend(bytes(off - len(model)))
		        model[off:off + n] = data
		    elif what == "append":
		        with open(name, "ab") as f: f.write(data)
		        model += data
		        if len(model) > 1 << 20: what = "truncate"
		    if what == "truncate":
		        os.ftruncate(fd, off)
		        if len(model) < off: model.extend(bytes(off - len(model)))
		        del model[off:]
		    elif what == "read":
		        got = os.pread(fd, n, off)
		        assert got == model[off:off + n], (i, off, n)
		    elif what == "rename":
		        new = f"{at}/{'ab'[i % 2]}"
		        os.rename(name, new); name = new
		    elif what == "replace":
		        with open(f"{at}/tmp", "wb") as f: f.write(data)
		        os.rename(f"{at}/tmp", name)
		        model = bytearray(data); reopen()
		    elif what == "reopen": reopen()
		    if i % 50 == 0: check(i, what)
		os.close(fd)
		check(ops, "end")
		assert open(f"{below}/{name[-1]}", "rb").read() == model
	EOS
	rm -r "$MNT/sizes" || fail "rm -r"
	umount_ckpt
done
[ ! -d "$SRC" ] || umount "$SRC" 2>/dev/null
done_ok
