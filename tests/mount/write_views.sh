# SPDX-License-Identifier: Apache-2.0
# All views of the same bytes show what was written to one of them, at once,
# mapped or not; several writers to several views do not wait for each other
# for ever, also where few workers serve.
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/split.sh"
requires python3

make_split "$WORK/ckpt" 200 4097 5
for o in direct=auto direct=off threads=2,direct=off threads=2; do
	mount_ckpt "$WORK/ckpt" "rw,$o"
	python3 "$here/tests/mount/lib/coherent.py" "$MNT" 1.5 \
		>"$WORK/said" 2>&1 || fail "with -o $o: $(tail -n 5 "$WORK/said")"
	umount_ckpt
done
done_ok
