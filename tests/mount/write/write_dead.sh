# SPDX-License-Identifier: Apache-2.0
# Whoever has files of a mount open, for reading or for writing, is told at each
# further call that nobody answers any more: ENOTCONN, never an end of file and
# never success, whether or not the dead mount could be taken away.
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
requires python3

make_split "$WORK/ckpt" 200 4097 4
cat >"$WORK/dead.py" <<'END'
"""dead.py CKPT MODE PID...: opens, kills, and compares what each call says."""
import errno, mmap, os, signal, sys, time

mnt, mode, pids = sys.argv[1], sys.argv[2], [int(p) for p in sys.argv[3:]]
flags = os.O_RDONLY if mode == "ro" else os.O_RDWR
t = mnt + ("/step/shards/f" if mode == "shards" else "/tensors/w")
fd = os.open(t, flags)
d = os.open(os.path.dirname(t), os.O_RDONLY)
m = None
if mode == "rw":
    m = mmap.mmap(fd, 8192)
    m[4096:4101] = m[4096:4101]  # a page to be written
size = os.fstat(fd).st_size
got = os.pread(fd, size, 0)
assert len(got) == size
if mode != "ro":
    assert os.pwrite(fd, got[:100], 0) == 100
for p in pids:
    os.kill(p, signal.SIGKILL)


def alive(p):
    try:
        return open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def ended():
    """The kernel ends the connection with its last descriptor."""
    try:
        os.fstatvfs(fd)
    except OSError as e:
        return e.errno == errno.ENOTCONN


end = time.monotonic() + 20
while any(map(alive, pids)) or not ended():
    assert time.monotonic() < end, "it lives"
    time.sleep(0.01)
calls = {
    "read": lambda: os.pread(fd, 100, 5000),
    "fsync of a directory": lambda: os.fsync(d),
    "statfs": lambda: os.fstatvfs(fd),
    "a name": lambda: os.open("new", os.O_RDONLY, dir_fd=d),
}
if mode != "ro":
    calls["write"] = lambda: os.pwrite(fd, b"x" * 5000, 10)
    calls["ftruncate"] = lambda: os.ftruncate(fd, size)
    calls["fsync"] = lambda: os.fsync(fd)
    calls["fdatasync"] = lambda: os.fdatasync(fd)
    calls["a new file"] = lambda: os.open("n", os.O_CREAT | os.O_WRONLY, dir_fd=d)
if m:
    calls["msync"] = m.flush
bad = []
for _ in 1, 2:
    for what, call in calls.items():
        try:
            call()
            bad.append(f"{what}: success")
        except OSError as e:
            # a map's error is kept by its pages, without its number
            if e.errno != errno.ENOTCONN and not (what in ("msync", "fsync", "fdatasync") and m
                                                  and e.errno == errno.EIO):
                bad.append(f"{what}: {errno.errorcode[e.errno]}")
print("\n".join(bad), file=sys.stderr)
sys.exit(bool(bad))
END

mkdir "$WORK/runs"
for both in no yes; do
	for mode in ro rw replace shards; do
		case $mode in
		ro) mount_ckpt "$WORK/ckpt" ;;
		rw) mount_ckpt "$WORK/ckpt" rw ;;
		replace) mount_ckpt "$WORK/ckpt" replace ;;
		shards)
			rm -rf "$WORK/runs"/.staging-step
			mount_ckpt "$WORK/runs" rw
			mkdir "$MNT/step"
			cp "$WORK/whole.w" "$MNT/step/shards/f" || fail cp
			;;
		esac
		pids=$(worker_pid)
		# a supervisor that dies first cannot take the mount away
		[ $both = no ] || pids="$(supervisor_pid) $pids"
		python3 "$WORK/dead.py" "$MNT" $mode $pids 2>"$WORK/err" ||
			fail "$mode, supervisor killed: $both: $(cat "$WORK/err")"
		if [ $both = yes ]; then
			ls "$MNT" 2>"$WORK/err" && fail "a dead mount is listed"
			grep -q 'endpoint is not connected' "$WORK/err" ||
				fail "$(cat "$WORK/err")"
			"$UNSHARD" umount "$MNT" || fail "umount of a dead mount"
		fi
		wait_for 10 not mounted || fail "a dead mount stays"
	done
done
# Nothing that was acknowledged is lost, and nobody is locked out.
mount_ckpt "$WORK/ckpt" rw
same "$MNT/tensors/w" "$WORK/whole.w"
umount_ckpt
done_ok
