#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How far the kernel reads ahead for maps: 4 MiB where root mounts, and by the
# packages' udev rule; else one line says how.
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
[ "$(id -u)" = 0 ] || skip "needs root"
[ -d /sys/class/bdi ] || skip "no /sys/class/bdi"
CKPT=$WORK/ckpt
make_safetensors "$CKPT/model.safetensors"

setting() {
	echo "/sys/class/bdi/$(awk -v m="$MNT" '$5 == m { print $3 }' \
		/proc/self/mountinfo)/read_ahead_kb"
}
told() { awk '$1 == "read_ahead_kib" { print $2 }' "$MNT/.unshard/stats"; }
map() {
	"$PYTHON" -c 'import mmap, sys
f = open(sys.argv[1], "rb")
m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
assert m[:] == open(sys.argv[2], "rb").read()' "$1" "$2" || fail "map of $1"
}

mount_ckpt "$CKPT"
[ "$(cat "$(setting)")" -ge 4096 ] || fail "root: $(cat "$(setting)") KiB"
[ "$(told)" = "$(cat "$(setting)")" ] || fail "stats say $(told)"
map "$MNT/tensors/a" "$WORK/a.bin"
grep "maps are slow" "$LOG" && fail "warned though it is raised"
umount_ckpt

# Not raised on request, and by users who may not.
mount_ckpt "$CKPT" read-ahead=off
[ "$(cat "$(setting)")" -lt 4096 ] || skip "the kernel's own is that large"
[ "$(told)" = "$(cat "$(setting)")" ] || fail "stats say $(told)"
umount_ckpt

user_setup
as_user "$UNSHARD" mount "$CKPT" "$MNT" -o "log=$LOG$SAN_OPTS" ||
	fail "mount gave exit $?"
[ "$(cat "$(setting)")" -lt 4096 ] || fail "a user raised it"
as_user cat "$MNT/tensors/a" >/dev/null
grep "maps are slow" "$LOG" && fail "warned though nothing is mapped"
as_user "$PYTHON" -c '' 2>/dev/null || skip "no Python for users"
map() {
	as_user "$PYTHON" -c 'import mmap, sys
f = open(sys.argv[1], "rb")
m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
assert m[:] == open(sys.argv[2], "rb").read()' "$1" "$2" || fail "map of $1"
}
map "$MNT/tensors/a" "$WORK/a.bin"
map "$MNT/tensors/b.c" "$WORK/b.bin"
grep -c "maps are slow.*$(setting)" "$LOG" | grep -qx 1 ||
	fail "expected one line that names $(setting): $(cat "$LOG")"

# What udev runs for the device; a device of another mount stays as it is.
other=$(awk '$5 == "/proc" { print $3 }' /proc/self/mountinfo)
"$here/packaging/udev/read-ahead" "$other" || fail "another mount's device"
device=$(setting) device=${device%/*}
"$here/packaging/udev/read-ahead" "${device##*/}" || fail "exit $?"
[ "$(cat "$(setting)")" = 4096 ] || fail "not raised by udev's rule"
[ "$(as_user awk '$1 == "read_ahead_kib" { print $2 }' "$MNT/.unshard/stats")" = 4096 ] ||
	fail "stats do not follow"
as_user "$UNSHARD" umount "$MNT" || fail "umount"
done_ok
