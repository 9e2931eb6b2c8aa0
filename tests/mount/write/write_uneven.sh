# SPDX-License-Identifier: Apache-2.0
# A write that fails at one copy of its bytes: .unshard/problems names the file,
# verify --replicas the bytes, and writing them again makes the copies agree.
LIMIT=120
. "$(dirname "$0")/../lib/common.sh"
requires python3 cmp

ckpt=$WORK/ckpt
head -c 1200000 /dev/zero | tr '\0' n >"$WORK/new"
put() { dd if="$WORK/new" of="$MNT/tensors/w" bs=1M conv=notrunc,fsync status=none; }
says() { # FILE WHY
	local p=$MNT/.unshard/problems
	grep -q "^warning: file $1: a write to tensor w failed here ($2), and" "$p" ||
		fail "$o: $2: $(cat "$p")"
}
# The same through a map of a file of several tensors: what is shown is one of the
# copies, and a page as it was.
store() {
	python3 - "$MNT" "$WORK/new" <<'END' || fail "a map"
import mmap, os, sys

mnt, new = sys.argv[1:]
new = open(new, "rb").read()
w = open(mnt + "/tensors/w", "rb").read()
m = mmap.mmap(os.open(mnt + "/model.safetensors", os.O_RDWR), 0)
at = m.find(w)
assert at > 0
m[at : at + len(new)] = new
m.flush()
END
}
make_copies() {
	rm -rf "$ckpt"
	python3 "$here/tests/mount/lib/copies.py" "$ckpt" 2 300 4000 1 || fail copies
}

# --- any failure of either copy is said, and once
for o in rw,engine=uring rw,engine=plain,direct=off; do
	make_copies
	for nth in 1 2; do
		UNSHARD_FAULT=write:$nth:1:5 mount_ckpt "$ckpt" "$o"
		put 2>/dev/null && fail "$o: write $nth is taken"
		says "dp[01]-tp0.safetensors" 'Input/output error'
		put || fail "$o: once more"
		[ "$(grep -c 'written again' "$MNT/.unshard/problems")" = 1 ] ||
			fail "$o: $(cat "$MNT/.unshard/problems")"
		umount_ckpt
	done
done
# what is stored once has no copies that differ
rm "$ckpt"/dp1-* "$ckpt/unshard-layout.json"
UNSHARD_FAULT=write:1:1:5 mount_ckpt "$ckpt" rw
put 2>/dev/null && fail "the write is taken"
grep 'written again' "$MNT/.unshard/problems" && fail "a line about one copy"
umount_ckpt

# --- there is room for one copy, and none for the holes of the other
[ -n "${COMMON_PRIVATE-}" ] && mkdir "$WORK/m" &&
	mount -t tmpfs -o size=6m t "$WORK/m" 2>/dev/null || skip "no tmpfs here"
ckpt=$WORK/m/ckpt
for o in rw,engine=uring rw,engine=plain; do
	for sealed in '' yes map; do
		make_copies
		head=$(($(stat -c %s "$ckpt"/dp0-*) - 1200000))
		dd if=/dev/zero of="$(echo "$ckpt"/dp0-*)" bs=$head seek=1 \
			count=1200000 iflag=count_bytes conv=notrunc status=none
		cp --sparse=always "$ckpt"/dp0-* "$ckpt"/dp1-*
		[ "$sealed" != yes ] || "$UNSHARD" seal "$ckpt" >/dev/null || fail seal
		mount_ckpt "$ckpt" "$o"
		head -c 1 "$MNT/tensors/w" | dd of="$MNT/tensors/w" \
			conv=notrunc status=none || fail "a first write"
		cat /dev/zero >"$WORK/m/fill" 2>/dev/null
		put 2>/dev/null && fail "$o: taken on a full disk"
		says "dp1-tp0.safetensors" 'No space left on device'
		rm "$WORK/m/fill"
		[ "$sealed" != map ] || store
		umount_ckpt
		if [ "$sealed" = map ]; then
			cmp "$ckpt"/dp0-* "$ckpt"/dp1-* || fail "$o: not healed by a map"
			continue
		fi
		"$UNSHARD" verify -r "$ckpt" >"$WORK/out" 2>&1 &&
			fail "$o: verify is content"
		grep -q '^w: replicas differ: .*dp1-tp0' "$WORK/out" || fail "$o: $(cat "$WORK/out")"
		mount_ckpt "$ckpt" "$o"
		put || fail "$o: once more"
		umount_ckpt
		cmp "$ckpt"/dp0-* "$ckpt"/dp1-* || fail "$o: not healed"
		"$UNSHARD" verify -r "$ckpt" >"$WORK/out" 2>&1 ||
			fail "$o: $(cat "$WORK/out")"
	done
done
umount "$WORK/m"
done_ok
