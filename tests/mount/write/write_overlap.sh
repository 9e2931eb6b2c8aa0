#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Several writers of the same bytes at the same time: each byte is one of theirs,
# all copies of it agree, and so do sums and the manifest.
LIMIT=120
. "$(dirname "$0")/../lib/common.sh"
requires python3 cmp cp

lib=$here/tests/mount/lib
good() {
	"$UNSHARD" verify -r "$WORK/ckpt" >"$WORK/out" 2>&1 ||
		fail "$1: $(head -n 5 "$WORK/out")"
	grep -q 'as they were sealed' "$WORK/out" || fail "$1: not sealed"
}
overlap() { # SLOT HOW:FILE...
	timeout 40 python3 "$lib/overlap.py" "$MNT" "$@" >"$WORK/out" 2>&1 ||
		fail "$o: $*: $(tail -n 3 "$WORK/out")"
}

# --- stored three times: the last of two writers is the last everywhere
for o in rw rw,engine=plain,direct=off; do
	rm -rf "$WORK/ckpt"
	python3 "$lib/copies.py" "$WORK/ckpt" 3 30 39990 2 || fail copies
	"$UNSHARD" seal "$WORK/ckpt" >/dev/null || fail seal
	mount_ckpt "$WORK/ckpt" "$o"
	overlap 20011 write:tensors/w write:tensors/w
	overlap 50000 write:tensors/w sync:npy/w.npy write:model.safetensors
	overlap 40960 map:tensors/w write:npy/w.npy
	umount_ckpt
	for f in "$WORK"/ckpt/dp[12]-*; do
		cmp -s "$f" "${f/dp[12]/dp0}" || fail "$o: $f is another copy"
	done
	good "$o"
done

# --- an overlay: what it has of each copy
rm -rf "$WORK/ckpt"
python3 "$lib/copies.py" "$WORK/ckpt" 3 30 39990 2 || fail copies
o=overlay=$WORK/over
mount_ckpt "$WORK/ckpt" "$o"
overlap 20011 write:tensors/w write:tensors/w
umount_ckpt
"$UNSHARD" overlay apply "$WORK/ckpt" "$WORK/over" "$WORK/new" >/dev/null ||
	fail apply
rm -rf "$WORK/ckpt" && mv "$WORK/new" "$WORK/ckpt"
good overlay

# --- sums of containers
for kind in zip ckpt; do
	rm -rf "$WORK/ckpt"
	python3 "$lib/containers.py" make $kind "$WORK/ckpt" "$WORK/w" || fail make
	"$UNSHARD" seal "$WORK/ckpt" >/dev/null || fail seal
	o=rw
	mount_ckpt "$WORK/ckpt" rw
	overlap 30001 write:tensors/w sync:tensors/w write:npy/w.npy
	cp "$MNT/tensors/w" "$WORK/shown"
	umount_ckpt
	python3 "$lib/containers.py" read "$WORK/ckpt" "$WORK/w" ||
		fail "a sum of $kind"
	same "$WORK/w" "$WORK/shown"
	good $kind
done

# --- files written anew: all of one of them
rm -rf "$WORK/ckpt"
python3 "$lib/copies.py" "$WORK/ckpt" 2 300 39990 2 || fail copies
"$UNSHARD" seal "$WORK/ckpt" >/dev/null || fail seal
mount_ckpt "$WORK/ckpt" replace
for k in 1 2 3; do
	head -c $((300 * 39990)) /dev/zero | tr '\0' $k >"$WORK/new.$k"
done
for round in 1 2 3; do
	pids=
	for k in 1 2 3; do
		cp "$WORK/new.$k" "$MNT/tensors/w" & pids+=" $!"
	done
	for p in $pids; do wait "$p" || fail "cp, round $round"; done
	k=$(head -c 1 "$MNT/tensors/w")
	cmp -s "$MNT/tensors/w" "$WORK/new.$k" ||
		fail "round $round: some of one file and some of another"
done
umount_ckpt
good replace
done_ok
