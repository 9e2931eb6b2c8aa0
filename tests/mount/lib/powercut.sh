# SPDX-License-Identifier: Apache-2.0
# powercut.sh - sourced after common.sh: an ext4 on a disk that logs each write
# (blocklog.c), and that disk as it was when the power went

requires mkfs.ext4 losetup
[ "$(id -u)" = 0 ] || skip "loop devices are root's"
[ -n "${COMMON_PRIVATE-}" ] || skip "needs mounts of its own"
rig=${HELPERS:-$here/build/helper}/blocklog
[ -x "$rig" ] || skip "no $rig: make check-mount builds it"
losetup -f >/dev/null 2>&1 || skip "no loop device here"
python=${PYTHON:-python3}
# disk: an empty ext4 on a disk that is logged, at $WORK/ext
disk() {
	rm -f "$WORK/disk" "$WORK/base" "$WORK/tape"
	truncate -s 24M "$WORK/disk"
	mkfs.ext4 -q -F -J size=4 "$WORK/disk" || fail mkfs
	cp --sparse=always "$WORK/disk" "$WORK/base"
	mkdir -p "$WORK/rig" "$WORK/ext" "$WORK/cut"
	"$rig" "$WORK/disk" "$WORK/tape" "$WORK/rig" &
	rig_pid=$!
	wait_for 5 test -e "$WORK/rig/disk" || fail "the rig does not answer"
	mount -o loop "$WORK/rig/disk" "$WORK/ext" 2>"$WORK/err" || {
		umount "$WORK/rig"
		skip "no loop mount here: $(head -n 1 "$WORK/err")"
	}
	rm -rf "$WORK/ext/lost+found"
	mkdir "$WORK/ext/src"
	sync -f "$WORK/ext"
}
undisk() {
	umount "$WORK/ext" || fail "umount of ext4"
	umount "$WORK/rig" || fail "umount of the rig"
	wait "$rig_pid"
}
at() { stat -c %s "$WORK/tape"; }

# plan FROM EXISTED DONE: at most $points prefixes that end after byte FROM of
# the tape, as "END END>=EXISTED END>=DONE", into $WORK/plan
plan() {
	"$python" - "$WORK" "$1" "$2" "$3" "$points" >"$WORK/plan" <<-'EOS' || fail plan
		import struct, sys
		work, start, existed, done, points = sys.argv[1], *map(int, sys.argv[2:])
		at, ends = 0, []
		with open(f"{work}/tape", "rb") as f:
		    while head := f.read(16):
		        f.seek(struct.unpack("<QQ", head)[1], 1)
		        at = f.tell()
		        if at >= start: ends.append(at)
		n = min(points, len(ends)) # spread evenly, the last one too
		for e in sorted({ends[(i + 1) * len(ends) // n - 1] for i in range(n)}):
		    print(e, int(e >= existed), int(e >= done))
	EOS
}
# replay END: the disk as it was at that byte of the tape, mounted at $WORK/cut
replay() {
	"$python" - "$WORK" "$1" <<-'EOS' || fail replay
		import shutil, struct, sys
		work, end = sys.argv[1], int(sys.argv[2])
		shutil.copyfile(f"{work}/base", f"{work}/now")
		with open(f"{work}/tape", "rb") as f, open(f"{work}/now", "r+b") as d:
		    while f.tell() < end:
		        off, n = struct.unpack("<QQ", f.read(16))
		        d.seek(off); d.write(f.read(n))
	EOS
	mount -o loop "$WORK/now" "$WORK/cut" || fail "cut at $1: no ext4"
}
