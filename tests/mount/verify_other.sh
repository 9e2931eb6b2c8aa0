# SPDX-License-Identifier: Apache-2.0
# A manifest that is another checkpoint's, or damaged: -o verify and verify say so
# in a line, -o rw writes nothing or leaves what it finds, publish refuses it.
LIMIT=120
. "$(dirname "$0")/lib/common.sh"
requires python3 cmp

M=.unshard-manifest
make_copies() { # DIR ROWS PIECES
	python3 "$here/tests/mount/lib/copies.py" "$WORK/$1" 2 "$2" 4000 "$3" &&
		"$UNSHARD" seal "$WORK/$1" >/dev/null || fail "$1"
}
make_copies a 30 1
make_copies longer 31 1
cp -r "$WORK/a" "$WORK/same"
for f in "$WORK"/same/dp*; do
	printf other | dd of="$f" bs=1 seek=5000 conv=notrunc status=none
done
"$UNSHARD" seal --force "$WORK/same" >/dev/null || fail same
rm "$WORK/a/$M"
ckpt=$WORK/x
fresh() {
	rm -rf "$ckpt"
	cp -r "$WORK/a" "$ckpt"
}
# damage HOW: in place of the manifest
damage() {
	fresh
	cp "$WORK/same/$M" "$ckpt"
	case $1 in
	empty) : >"$ckpt/$M" ;;
	short) truncate -s 100 "$ckpt/$M" ;;
	flip) printf ZZZ | dd of="$ckpt/$M" bs=1 seek=150 conv=notrunc status=none ;;
	folder) rm "$ckpt/$M" && mkdir "$ckpt/$M" ;;
	fifo) rm "$ckpt/$M" && mkfifo "$ckpt/$M" ;;
	esac
}
# what a mount of it with -o rw leaves of all files
unchanged() { diff -r -x "$M" "$WORK/a" "$ckpt" || fail "$1: was changed"; }

# --- another checkpoint's
for from in 'longer 124080 bytes long' 'same block 0, .*not what was sealed'; do
	fresh
	cp "$WORK/${from%% *}/$M" "$ckpt"
	if [ "${from%% *}" = same ]; then
		mount_ckpt "$ckpt" verify
		cat "$MNT/tensors/w" >/dev/null 2>&1 && fail "$from: is shown"
		cp "$MNT/.unshard/problems" "$WORK/err"
		umount_ckpt
	else
		expect 1 "dp0-tp0.safetensors: .*not what was sealed" \
			"$UNSHARD" mount "$ckpt" "$MNT" -o "verify$SAN_OPTS"
	fi
	grep -q "dp0-tp0.*not what was sealed" "$WORK/err" &&
		grep -q "${from#* }" "$WORK/err" ||
		fail "$from: $(cat "$WORK/err")"
	"$UNSHARD" verify "$ckpt" >/dev/null 2>&1 && fail "$from: content"
	# what is written goes on to be no excuse for what was there
	mount_ckpt "$ckpt" rw
	printf new | dd of="$MNT/tensors/w" conv=notrunc status=none || fail dd
	cmp "$MNT/tensors/w" <(tail -c 120000 "$ckpt/dp1-tp0.safetensors") || fail dp1
	grep -q 'before they were written to' "$MNT/.unshard/problems" ||
		fail "$from: $(cat "$MNT/.unshard/problems")"
	umount_ckpt
	"$UNSHARD" verify "$ckpt" >/dev/null 2>&1 && fail "$from: content, later"
done
fresh
echo '{}' >"$ckpt/config.json"
"$UNSHARD" seal "$ckpt" >/dev/null || fail seal
rm "$ckpt/config.json"
expect 1 'config.json: was sealed, and does not exist$' \
	"$UNSHARD" mount "$ckpt" "$MNT" -o "verify$SAN_OPTS"

# --- damaged
for how in empty short flip folder fifo; do
	damage $how
	expect 1 "\\$M: " "$UNSHARD" mount "$ckpt" "$MNT" -o "verify$SAN_OPTS"
	expect 1 "\\$M: " "$UNSHARD" verify "$ckpt"
	mount_ckpt "$ckpt" rw
	printf new | dd of="$MNT/tensors/w" conv=notrunc status=none 2>/dev/null &&
		fail "$how: written to"
	same "$MNT/tensors/w" <(tail -c 120000 "$WORK/a/dp0-tp0.safetensors")
	umount_ckpt
	unchanged $how
done

# --- a copy of a sealed checkpoint as a new step: its manifest has to be true
mkdir "$WORK/steps"
mount_ckpt "$WORK/steps" rw
for how in same flip folder; do
	damage $how
	mkdir "$MNT/$how" && cp -r "$ckpt/." "$MNT/$how/shards" || fail "cp: $how"
	if [ $how = folder ]; then
		expect 1 "\\$M: .*directory" "$UNSHARD" publish "$WORK/steps/$how"
		rmdir "$MNT/$how/shards/$M" || fail rmdir
	else
		expect 1 "\\$M" "$UNSHARD" publish "$WORK/steps/$how"
		rm "$MNT/$how/shards/$M" || fail rm
	fi
	"$UNSHARD" publish "$WORK/steps/$how" >/dev/null || fail "publish: $how"
	"$UNSHARD" verify "$WORK/steps/$how" >/dev/null || fail "verify: $how"
done
umount_ckpt
# one of them is damaged later: the others are shown, and gc leaves all
: >"$WORK/steps/flip/$M"
"$UNSHARD" gc "$WORK/steps" >/dev/null || fail gc
mount_ckpt "$WORK/steps" verify
same "$MNT/same/tensors/w" <(tail -c 120000 "$WORK/a/dp0-tp0.safetensors")
ls "$MNT/flip" >/dev/null 2>&1
grep -q "flip.*\\$M: not a manifest" "$MNT/.unshard/problems" ||
	fail "$(cat "$MNT/.unshard/problems")"
umount_ckpt
done_ok
