# SPDX-License-Identifier: Apache-2.0
# replace.sh - sourced after split.sh: what a replacement that was killed has left
# of tensor w in $ckpt, which was $WORK/whole.w and is to be $WORK/new

ckpt=$WORK/ckpt
left() { ls -A "$ckpt" | grep -q '^\.unshard-redo-'; }
# which_bytes: old, new, or mixed, as an independent reader finds it
which_bytes() {
	python3 "$here/tests/mount/lib/join.py" "$ckpt" w "$WORK/is" || fail join
	if cmp -s "$WORK/is" "$WORK/whole.w"; then
		echo old
	elif cmp -s "$WORK/is" "$WORK/new"; then
		echo new
	else
		echo mixed
	fi
}
