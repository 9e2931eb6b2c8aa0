# SPDX-License-Identifier: Apache-2.0
# A new checkpoint by plain file writes: what shards/ takes, what others see
# of it meanwhile, and when it is published.
LIMIT=120
. "$(dirname "$0")/../lib/common.sh"
requires cmp tar cp

CKPT=$here/tests/demo/checkpoint
T=tensors/model.lm_head.weight
SRC=$WORK/src
mount_ckpt "$SRC" rw
[ -d "$SRC" ] || fail "a new SRC is not made"
P=$MNT/step-1/shards

# refused ERRNO COMMAND...: it fails, and says so.
refused() {
	local want=$1
	shift
	"$@" >"$WORK/out" 2>&1 && fail "$* is not refused"
	grep -qi "$want" "$WORK/out" || fail "$*: $(head -n 1 "$WORK/out")"
}

# ---- a step begins, and is nobody else's business
mkdir "$MNT/step-1" || fail "mkdir of a step"
[ -z "$(ls "$MNT")" ] || fail "an unfinished step is listed: $(ls "$MNT")"
[ "$(ls "$MNT/step-1")" = shards ] || fail "shows $(ls "$MNT/step-1")"
grep -qx staged "$MNT/step-1/.unshard/status" || fail status
[ ! -e "$MNT/latest" ] || fail "latest of nothing"
refused exists mkdir "$MNT/step-1"
refused 'Invalid\|not permitted' mkdir "$MNT/.step-2"
refused 'not permitted' touch "$MNT/file"
refused 'not permitted' touch "$MNT/step-1/file"
refused 'not permitted' mkdir "$MNT/step-1/other"

# ---- ordinary files
echo one >"$P/a" && echo two >>"$P/a" || fail "write, append"
[ "$(cat "$P/a")" = "$(printf 'one\ntwo')" ] || fail "reads $(cat "$P/a")"
[ "$(cat "$SRC/.staging-step-1/files/a")" = "$(cat "$P/a")" ] || fail "in SRC"
truncate -s 2 "$P/a" && [ "$(cat "$P/a")" = on ] || fail truncate
echo x >"$P/a" && [ "$(cat "$P/a")" = x ] || fail O_TRUNC
mkdir -p "$P/d/e/f" && echo deep >"$P/d/e/f/g" || fail "mkdir -p"
mv "$P/d/e" "$P/moved" && [ "$(cat "$P/moved/f/g")" = deep ] || fail "mv of a directory"
mv "$P/a" "$P/b" && [ ! -e "$P/a" ] && [ "$(cat "$P/b")" = x ] || fail mv
echo y >"$P/a" && mv -f "$P/a" "$P/b" && [ "$(cat "$P/b")" = y ] || fail "mv onto"
chmod 640 "$P/b" && [ "$(stat -c %a "$P/b")" = 640 ] || fail chmod
touch -d @1000000000 "$P/b" && [ "$(stat -c %Y "$P/b")" = 1000000000 ] || fail touch
exec 7<"$P/b"; rm "$P/b"
[ "$(cat <&7)" = y ] || fail "an open file is gone"
exec 7<&-
rmdir "$P/d" && [ ! -e "$P/d" ] || fail rmdir
refused 'not empty' rmdir "$P/moved"
dd if=/dev/urandom of="$P/big" bs=1M count=5 conv=fsync status=none || fail dd
cp "$P/big" "$WORK/big"
dd if=/dev/zero of="$P/big" bs=1000 seek=7 count=3 conv=notrunc status=none &&
	dd if=/dev/zero of="$WORK/big" bs=1000 seek=7 count=3 conv=notrunc status=none
same "$P/big" "$WORK/big"
fallocate -l 6M "$P/big" 2>/dev/null && [ "$(stat -c %s "$P/big")" = 6291456 ] ||
	say "no fallocate here"

# ---- links that stay inside, and nothing else
ln -s moved/f/g "$P/last" && [ "$(cat "$P/last")" = deep ] || fail "ln -s"
ln -s ../last "$P/moved/best" && [ "$(cat "$P/moved/best")" = deep ] || fail "ln -s .."
[ "$(readlink "$P/moved/best")" = ../last ] || fail readlink
refused 'not permitted' ln -s /etc/passwd "$P/out"
refused 'not permitted' ln -s ../x "$P/out"
refused 'not permitted' ln -s moved/../../x "$P/out"
refused 'not permitted' mv "$P/moved/best" "$P/best"
refused 'not permitted' ln "$P/big" "$P/hard"
refused 'not permitted' mkfifo "$P/fifo"
refused 'cross-device\|not permitted' ln "$P/big" "$MNT/x"
mkdir "$MNT/step-2"
python=${PYTHON:-python3}
"$python" - "$P" "$MNT/step-2/shards" "$MNT" "$SRC" <<-'EOS' || fail "python"
	import ctypes, errno, mmap, os, sys
	p, other = sys.argv[1:3]
	def call(code, f, *a):
	    try: f(*a)
	    except OSError as e: assert e.errno == code, (f, a, e)
	    else: raise AssertionError((f, a, "succeeded"))
	libc = ctypes.CDLL(None, use_errno=True)
	def renameat2(a, b, flags):
	    if libc.renameat2(-100, a.encode(), -100, b.encode(), flags):
	        raise OSError(ctypes.get_errno(), "renameat2")
	open(f"{p}/x", "w").write("x"); open(f"{p}/y", "w").write("y")
	call(errno.EEXIST, renameat2, f"{p}/x", f"{p}/y", 1)
	renameat2(f"{p}/x", f"{p}/z", 1)
	renameat2(f"{p}/z", f"{p}/y", 2)
	assert open(f"{p}/z").read() == "y" and open(f"{p}/y").read() == "x"
	call(errno.EXDEV, os.rename, f"{p}/z", f"{other}/z")
	call(errno.EXDEV, os.rename, f"{p}/z", f"{p}/../../step-3")
	call(errno.EEXIST, os.open, f"{p}/z", os.O_CREAT | os.O_EXCL)
	call(errno.ENOENT, os.open, f"{p}/none", os.O_RDWR)
	call(errno.ENAMETOOLONG, os.open, f"{p}/" + "n" * 256, os.O_CREAT)
	with open(f"{p}/m", "wb") as f: f.truncate(1 << 20)
	with open(f"{p}/m", "r+b") as f:
	    m = mmap.mmap(f.fileno(), 0)
	    m[5:9] = b"mmap"; m[-3:] = b"end"; m.flush(); m.close()
	    f.seek(100); f.write(b"r+b"); f.flush(); os.fsync(f.fileno())
	b = open(f"{p}/m", "rb").read()
	assert len(b) == 1 << 20 and b[5:9] == b"mmap" and b[-3:] == b"end"
	assert b[100:103] == b"r+b"
	fd = os.open(f"{p}/m", os.O_RDONLY); os.ftruncate
	call(errno.EBADF, os.write, fd, b"x")
	call(errno.EINVAL, os.ftruncate, fd, 3); os.close(fd)
	d = os.open(p, os.O_RDONLY); os.fsync(d); os.close(d)
	f = os.open(f"{p}/z", os.O_RDWR); os.unlink(f"{p}/z")
	os.write(f, b"gone"); assert os.pread(f, 9, 0) == b"gone"
	assert os.fstat(f).st_nlink == 0; os.close(f)
	i = os.stat(f"{p}/y").st_ino; os.rename(f"{p}/y", f"{p}/yy")
	assert os.stat(f"{p}/yy").st_ino == i
	s = os.statvfs(p); assert s.f_bavail > 0 and s.f_namemax == 255
	top, below = (os.statvfs(d) for d in sys.argv[3:])
	free = [s.f_bavail * s.f_frsize for s in (top, below)]
	assert free[0] > 0 and abs(free[0] - free[1]) < 1 << 30, free
	assert top.f_blocks >= top.f_bfree and top.f_ffree
	os.mkdir(f"{p}/mode", 0o2750)
	assert os.stat(f"{p}/mode").st_mode & 0o777 == 0o750
	f = os.open(f"{p}/only", os.O_CREAT | os.O_WRONLY, 0o444)
	os.write(f, b"ro"); os.close(f)
	assert os.stat(f"{p}/only").st_mode & 0o777 == 0o444
EOS
rmdir "$MNT/step-2" || fail "rmdir of an empty step"
[ ! -e "$SRC/.staging-step-2" ] || fail "its stage is still there"
rm -r "$MNT/step-1" || fail "rm -r of a step"
[ -z "$(ls -A "$SRC")" ] || fail "left over: $(ls -A "$SRC")"

# ---- the index last: published at its rename
mkdir "$MNT/step-10"
cp "$CKPT"/__*.distcp "$MNT/step-10/shards" || fail cp
cp "$CKPT/.metadata" "$MNT/step-10/shards/.metadata.tmp"
echo old >"$MNT/step-10/shards/.metadata" # which it replaces
[ ! -e "$SRC/step-10" ] && [ ! -e "$MNT/latest" ] || fail "shown too early"
mv "$MNT/step-10/shards/.metadata.tmp" "$MNT/step-10/shards/.metadata" ||
	fail "the rename of the index"
[ -d "$SRC/step-10" ] || fail "not published: $(cat "$LOG")"
[ -s "$SRC/step-10/.unshard-manifest" ] || fail "no manifest"
[ "$(ls "$MNT")" = "$(printf 'latest\nstep-10')" ] || fail "lists $(ls "$MNT")"
[ "$(readlink "$MNT/latest")" = step-10 ] || fail latest
same "$MNT/step-10/shards/__0_0.distcp" "$CKPT/__0_0.distcp"
(cd "$MNT/latest/tensors" && sha256sum --quiet -c \
	"$here/tests/demo/expected.sha256") || fail "tensors of a new step"
[ -z "$(ls -A "$SRC" | grep staging)" ] || fail "left over: $(ls -A "$SRC")"
refused 'not permitted\|read-only' touch "$MNT/step-10/shards/new"
refused 'not permitted\|read-only' rm "$MNT/step-10/shards/.metadata"
refused exists mkdir "$MNT/step-10"

# ---- not complete: it stays, and says what is missing
mkdir "$MNT/step-11"
cp "$CKPT"/__[012]*.distcp "$MNT/step-11/shards"
cp "$CKPT/.metadata" "$MNT/step-11/shards/m"
mv "$MNT/step-11/shards/m" "$MNT/step-11/shards/.metadata" ||
	fail "the rename fails because it is not complete"
[ ! -e "$SRC/step-11" ] || fail "published without a shard"
grep -q '__3_0' "$MNT/step-11/.unshard/status" ||
	fail "status: $(cat "$MNT/step-11/.unshard/status")"
grep -q 'step-11: stays a draft: .*__3_0' "$LOG" || fail "log: $(cat "$LOG")"
[ "$(readlink "$MNT/latest")" = step-10 ] || fail "latest moved"
exec 7>"$MNT/step-11/shards/__3_0.distcp"
cat "$CKPT/__3_0.distcp" >&7
mv "$MNT/step-11/shards/.metadata" "$MNT/step-11/shards/m"
mv "$MNT/step-11/shards/m" "$MNT/step-11/shards/.metadata"
[ ! -e "$SRC/step-11" ] || fail "published while a file was open"
grep -q 'nobody writes' "$MNT/step-11/.unshard/status" || fail "not armed"
exec 7>&-
wait_for 10 test -d "$SRC/step-11" || fail "not published after the close"
[ "$(readlink "$MNT/latest")" = step-11 ] || fail "latest stays"

# ---- a folder that gets its name at the end
mkdir "$MNT/step-12.tmp"
cp "$CKPT"/__*.distcp "$CKPT/.metadata" "$MNT/step-12.tmp/shards"
refused 'not empty\|exists' mv -T "$MNT/step-12.tmp" "$MNT/step-11"
mv "$MNT/step-12.tmp" "$MNT/step-12" || fail "mv of a step"
[ -s "$SRC/step-12/.unshard-manifest" ] && [ ! -e "$MNT/step-12.tmp" ] ||
	fail "not published by its rename"

# ---- tools, as they are
mkdir "$MNT/by-tar" "$MNT/by-cp"
tar -C "$CKPT" -cf - . | tar -C "$MNT/by-tar/shards" -xf - || fail "tar x"
cp -a "$CKPT/." "$MNT/by-cp/shards/" || fail "cp -a"
diff -r "$CKPT" "$MNT/by-tar/shards" && diff -r "$CKPT" "$MNT/by-cp/shards" ||
	fail "copies differ"
umount_ckpt

# ---- an index that a copying tool renames: files may come behind it
mount_ckpt "$SRC" rw
HF=$WORK/hf
mkdir "$HF"
cp -r "$here/tests/formats/hf/indexed/in/." "$HF"
index=$(cd "$HF" && echo *.index.json)
echo '{}' >"$HF/tokenizer.json" # after all others by name
if command -v rsync >/dev/null; then
	mkdir "$MNT/by-rsync" "$MNT/dcp-rsync"
	rsync -a "$HF/" "$MNT/by-rsync/shards/" || fail "rsync -a"
	rsync -a "$CKPT/" "$MNT/dcp-rsync/shards/" || fail "rsync -a of dcp"
fi
# the same by hand
copied() { # STEP: all but what comes behind the index
	mkdir "$MNT/$1"
	cp "$HF"/*.safetensors "$MNT/$1/shards"
	cp "$HF/$index" "$MNT/$1/shards/.$index.Ab12Cd"
	mv "$MNT/$1/shards/.$index.Ab12Cd" "$MNT/$1/shards/$index"
}
behind() { # STEP: what comes behind it
	local f
	cp "$HF/tokenizer.json" "$MNT/$1/shards/" || fail "a file behind the index"
	for f in "$HF"/*; do
		[ -e "$MNT/$1/shards/${f##*/}" ] || cp "$f" "$MNT/$1/shards/"
	done
}
copied by-hand
grep -q 'nothing was written for 10 s' "$MNT/by-hand/.unshard/status" ||
	fail "status: $(cat "$MNT/by-hand/.unshard/status")"
[ ! -e "$SRC/by-hand" ] || fail "published at an index that was copied"
behind by-hand
for step in by-hand by-rsync dcp-rsync; do
	[ $step = by-hand ] || command -v rsync >/dev/null || continue
	wait_for 25 test -d "$SRC/$step" ||
		fail "$step: not published when quiet: $(cat "$LOG")"
	from=$HF
	[ $step != dcp-rsync ] || from=$CKPT
	diff -r -x .unshard-manifest "$from" "$SRC/$step" ||
		fail "$step: another copy"
done
umount_ckpt

# ---- not while anything comes behind it, though another one is meanwhile
mount_ckpt "$SRC" rw,publish-after=3
copied coming
copied left
comes() { echo >>"$MNT/coming/shards/tokenizer.json" && [ -d "$SRC/left" ]; }
wait_for 25 comes || fail "left: not published when quiet: $(cat "$LOG")"
[ ! -e "$SRC/coming" ] || fail "published while files came behind its index"
behind coming
wait_for 25 test -d "$SRC/coming" || fail "coming: not published when quiet"
diff -r -x .unshard-manifest "$HF" "$SRC/coming" || fail "coming: another copy"
umount_ckpt

# ---- quiet, and nothing else
mount_ckpt "$SRC" rw,publish=manual,publish-after=1
mkdir "$MNT/quiet"
cp "$CKPT"/__*.distcp "$MNT/quiet/shards"
cp "$CKPT/.metadata" "$MNT/quiet/shards/m"
mv "$MNT/quiet/shards/m" "$MNT/quiet/shards/.metadata"
[ ! -e "$SRC/quiet" ] || fail "published at a rename though manual"
wait_for 15 test -d "$SRC/quiet" || fail "not published when quiet: $(cat "$LOG")"
[ ! -e "$SRC/by-tar" ] || fail "one that this mount never wrote to is published"
# of ranks that no file counts, one alone is not all: the others can still write
mkdir "$MNT/ranks"
OF=$here/tests/formats/oneflow/local-rows/in
cp -r "$OF/model_0" "$MNT/ranks/shards/" || fail "rank 0"
wait_for 15 grep -q 'publish --ranks N' "$MNT/ranks/.unshard/status" ||
	fail "status: $(cat "$MNT/ranks/.unshard/status")"
[ ! -e "$SRC/ranks" ] || fail "published with one rank of two"
cp -r "$OF/model_1" "$MNT/ranks/shards/" || fail "rank 1"
"$UNSHARD" publish --ranks 2 "$MNT/ranks" >"$WORK/out" 2>&1 ||
	fail "two ranks: $(cat "$WORK/out")"
diff -r -x .unshard-manifest "$OF" "$SRC/ranks" || fail "two ranks: another copy"
umount_ckpt
# Readers of SRC never see what is not published.
mount_ckpt "$SRC"
[ ! -e "$MNT/by-tar" ] || fail "a mount for reading shows a stage"
refused 'read-only' mkdir "$MNT/step-99"
umount_ckpt
done_ok
