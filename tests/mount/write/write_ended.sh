# SPDX-License-Identifier: Apache-2.0
# A mount that ends while programs write: a busy umount is refused and loses
# nothing; TERM, and kill -9 of the worker, leave a zip whose sums are right or
# made right by the next mount, with -o rw, -o replace and an overlay.
LIMIT=120
# the kernel releases no file of a mount that was ended by a signal
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
. "$(dirname "$0")/../lib/common.sh"
requires python3 cmp

lib=$here/tests/mount/lib
ckpt=$WORK/ckpt
t=$MNT/tensors/w
# writers of the same bytes, until the mount ends; what a write or a close gave
# is theirs
start_writers() { # MODE
	local k
	pids=
	rm -f "$WORK"/began.*
	for k in 1 2 3; do
		python3 - "$t" "$k" "$1" "$WORK/began.$k" <<'END' &
import os, sys
path, k, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
try:
    while True:
        fd = os.open(path, os.O_WRONLY | (os.O_TRUNC if mode == "replace" else 0))
        at, size = 0, 900001
        while at < size:
            n = min(70001, size - at)
            at += os.pwrite(fd, bytes([k]) * n, at)
            if at == n:
                open(sys.argv[4], "w").close()  # again in each round
        if k == 1:
            os.fsync(fd)
        os.close(fd)
except OSError:
    pass
END
		pids+=" $!"
	done
	go_on
}
# go_on: each writer begins to write it all, once more
go_on() {
	local k
	rm -f "$WORK"/began.*
	for k in 1 2 3; do
		wait_for 20 test -e "$WORK/began.$k" || fail "writer $k"
	done
}
ended() { [ -z "$(pids_of unshard)" ]; }
stop_writers() { kill -9 $pids 2>/dev/null; wait $pids 2>/dev/null; }
# written: every byte is one of the writers', and some of them are
written() {
	python3 - "$1" "$mode" <<'END' || fail "$o, $how: $1"
import sys
data = open(sys.argv[1], "rb").read()
assert len(data) == 900001
rest = data.translate(None, b"\1\2\3")
assert not rest or sys.argv[2] != "replace" or len(rest) == len(data), len(rest)
if sys.argv[2] == "replace" and not rest:
    assert len(set(data)) == 1, "of several files"
END
}

for o in rw replace "overlay=$WORK/over"; do
	mode=${o%%=*}
	for how in umount TERM KILL; do
		[ "$mode/$how" != replace/umount ] &&
			[ "$mode/$how" != overlay/TERM ] ||
			[ -n "${UNSHARD_NIGHTLY-}" ] || continue
		rm -rf "$ckpt" "$WORK/over"
		python3 "$lib/containers.py" make zip "$ckpt" "$WORK/w" || fail make
		"$UNSHARD" seal "$ckpt" >/dev/null || fail seal
		[ $mode != overlay ] || sha256sum "$ckpt"/* >"$WORK/sums"
		mount_ckpt "$ckpt" "$o"
		start_writers $mode
		go_on
		case $how in
		umount)
			"$UNSHARD" umount "$MNT" 2>"$WORK/err" &&
				fail "$o: a busy mount ends"
			grep -q busy "$WORK/err" || fail "$o: $(cat "$WORK/err")"
			go_on
			stop_writers
			wait_for 10 umount "$MNT" 2>/dev/null || fail "$o: umount"
			;;
		TERM) kill -TERM "$(supervisor_pid)" ;;
		KILL) kill -9 "$(worker_pid)" ;;
		esac
		wait_for 20 not mounted || { mounted && stop_writers; }
		wait_for 20 not mounted || fail "$o, $how: still mounted"
		stop_writers
		wait_for 20 ended || fail "$o: processes"
		mount_ckpt "$ckpt" "$o"
		cp "$t" "$WORK/shown" || fail "$o, $how: $(tail -n 2 "$LOG")"
		written "$WORK/shown"
		# the next one settles what was begun
		printf '\1' | dd of="$t" conv=notrunc,fsync status=none ||
			[ $mode = replace ] || fail "$o, $how: a later write"
		cp "$t" "$WORK/shown"
		umount_ckpt
		if [ $mode = overlay ]; then
			sha256sum --quiet -c "$WORK/sums" || fail "$o, $how"
			"$UNSHARD" overlay apply "$ckpt" "$WORK/over" \
				"$WORK/new" >/dev/null || fail "$o, $how: apply"
			rm -rf "$ckpt" && mv "$WORK/new" "$ckpt"
		fi
		python3 "$lib/containers.py" read "$ckpt" "$WORK/is" ||
			fail "$o, $how: a sum is wrong"
		same "$WORK/is" "$WORK/shown"
		"$UNSHARD" verify "$ckpt" >"$WORK/out" 2>&1 ||
			fail "$o, $how: $(cat "$WORK/out")"
		set -- "$ckpt"/.unshard-new* "$ckpt"/.unshard-redo*
		[ ! -e "$1" ] && [ ! -e "$2" ] || fail "$o, $how: left $*"
	done
done
done_ok
