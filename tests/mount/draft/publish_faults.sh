# SPDX-License-Identifier: Apache-2.0
# The worker dies at every step of a publish; writers die; the disk is full or
# fails.  Nothing torn is ever shown, and what can be ended is ended.
LIMIT=300
. "$(dirname "$0")/../lib/common.sh"
requires cmp cp

CKPT=$here/tests/demo/checkpoint
SRC=$WORK/src
mkdir "$SRC"
python=${PYTHON:-python3}
fill() { # STEP
	mkdir "$MNT/$1" && cp "$CKPT"/__*.distcp "$MNT/$1/shards" &&
		cp "$CKPT/.metadata" "$MNT/$1/shards/m"
}
index() { mv "$MNT/$1/shards/m" "$MNT/$1/shards/.metadata"; }
# Whatever is shown is whole.
check() {
	local d
	for d in "$SRC"/*/; do
		[ -d "$d" ] || continue
		"$UNSHARD" verify "$d" >"$WORK/out" 2>&1 ||
			fail "$1: $d is torn: $(cat "$WORK/out")"
	done
}

# ---- kill -9 of the worker at each step of a publish
step=1 killed=0
[ -n "${UNSHARD_NIGHTLY-}" ] && by=1 || by=2
while :; do
	UNSHARD_PUBLISH_FAULT=$step mount_ckpt "$SRC" rw
	fill k || fail "fill before step $step"
	if index k 2>/dev/null; then
		umount_ckpt
		break
	fi
	killed=$((killed + 1))
	wait_for 10 not mounted || fail "step $step: the mount stays"
	check "killed at step $step"
	mount_ckpt "$SRC" rw
	if [ ! -d "$SRC/k" ]; then
		# what was begun is ended by the mount; what was not, by us
		ended() {
			"$UNSHARD" publish "$MNT/k" >"$WORK/out" 2>&1 ||
				[ -d "$SRC/k" ]
		}
		wait_for 5 ended || fail "after step $step: $(cat "$WORK/out")"
	fi
	check "ended after step $step"
	clean() { [ -z "$(ls -A "$SRC" | grep staging)" ]; }
	wait_for 5 clean || fail "left over after step $step: $(ls -A "$SRC")"
	umount_ckpt
	rm -r "$SRC/k"
	step=$((step + by))
	[ $step -lt 100 ] || fail "publish has no end"
done
[ $((killed * by)) -ge 14 ] || fail "only $killed kills"
say "$killed kills of the worker in a publish"
rm -r "$SRC/k"

# ---- kill -9 of the worker beside the N-th file that a writer writes
mkfifo "$WORK/begins"
for i in 1 2 3 4 5 6; do
	mount_ckpt "$SRC" rw
	(
		mkdir "$MNT/w"
		n=0
		while :; do
			for f in "$CKPT"/__*.distcp "$CKPT/.metadata"; do
				[ $((n += 1)) != "$i" ] || echo >"$WORK/begins"
				to=${f##*/}
				cp "$f" "$MNT/w/shards/${to/#.metadata/m}" || exit
			done
			mv "$MNT/w/shards/m" "$MNT/w/shards/.metadata" || exit
		done
	) >/dev/null 2>&1 &
	worker=$(worker_pid)
	read -r _ <"$WORK/begins"
	answers $((i * 5 % 13))
	kill -9 "$worker"
	wait
	wait_for 10 not mounted || fail "the mount stays"
	check "killed while writing, $i"
	"$UNSHARD" recover "$SRC" >/dev/null || fail "recover $i"
	check "recovered, $i"
	swept() {
		"$UNSHARD" gc --age 0 "$SRC" >/dev/null || fail "gc $i"
		[ -z "$(ls -A "$SRC" | grep staging)" ]
	}
	wait_for 10 swept || fail "left: $(ls -A "$SRC")"
	rm -rf "$SRC/w"
done

# ---- kill -9 of a writer: its half file is no checkpoint
mount_ckpt "$SRC" rw
for i in 1 2 3 4 5 6; do
	mkdir "$MNT/v$i"
	(
		cp "$CKPT"/__[012]*.distcp "$MNT/v$i/shards"
		for n in $(seq 1 300); do
			[ $n != $((i * 13 % 50)) ] || echo >"$WORK/begins"
			head -c "$((n * 87))" "$CKPT/__3_0.distcp" \
				>"$MNT/v$i/shards/__3_0.distcp"
		done
	) 2>/dev/null &
	read -r _ <"$WORK/begins"
	{ kill -9 $! && wait; } 2>/dev/null
	cp "$CKPT/.metadata" "$MNT/v$i/shards/m"
	index "v$i" 2>/dev/null || { index "v$i" || fail "index v$i"; }
	check "writer killed, $i"
	rm -rf "$MNT/v$i" "$SRC/v$i"
done
umount_ckpt

# ---- a write that fails is told; a failed fsync dooms the step
UNSHARD_FAULT=write:3:1:5 mount_ckpt "$SRC" rw
mkdir "$MNT/e"
dd if=/dev/zero of="$MNT/e/shards/x" bs=4k count=5 2>"$WORK/err" &&
	fail "EIO of a write is not told"
grep -qi 'input/output' "$WORK/err" || fail "$(cat "$WORK/err")"
umount_ckpt
rm -r "$SRC"/.staging-e
UNSHARD_FAULT=sync:1:1:5 mount_ckpt "$SRC" rw
fill e
"$python" -c '
import os, sys
f = os.open(sys.argv[1], os.O_WRONLY)
try: os.fsync(f)
except OSError as e: sys.exit(e.errno != 5)
sys.exit("no error")' "$MNT/e/shards/__0_0.distcp" || fail "EIO of an fsync is not told"
index e 2>"$WORK/err" && fail "published though an fsync failed"
[ ! -e "$SRC/e" ] || fail "shown though an fsync failed"
grep -q '^doomed: .*fsync' "$MNT/e/.unshard/status" ||
	fail "status: $(cat "$MNT/e/.unshard/status")"
expect 1 'can only be thrown away' "$UNSHARD" publish "$MNT/e"
"$UNSHARD" status "$SRC" | grep -q 'e: doomed' || fail "status of a doomed one"
rm -r "$MNT/e" || fail "rm -r of a doomed one"
umount_ckpt
# The same in the publish itself: the rename of the index says it.
UNSHARD_PUBLISH_FAULT=2:5 mount_ckpt "$SRC" rw
fill e
echo old >"$MNT/e/shards/.metadata"
index e 2>"$WORK/err" && fail "EIO in a publish is not told"
[ "$(cat "$MNT/e/shards/.metadata")" = old ] && cmp "$CKPT/.metadata" \
	"$MNT/e/shards/m" || fail "a rename that failed was done"
[ -z "$(find "$SRC/.staging-e" -name "replaced-*")" ] || fail "left over"
grep -qi 'input/output' "$WORK/err" || fail "$(cat "$WORK/err")"
[ ! -e "$SRC/e" ] || fail "shown though its publish failed"
expect 1 'can only be thrown away' "$UNSHARD" publish "$MNT/e"
umount_ckpt
collected() { "$UNSHARD" gc --age 0 "$SRC" | grep -q 'removed: e'; }
wait_for 10 collected || fail "gc of a doomed one"

# ---- the disk is full
if [ -n "${COMMON_PRIVATE-}" ] && mkdir "$WORK/small" &&
	mount -t tmpfs -o size=160k tmpfs "$WORK/small" 2>/dev/null; then
	SRC=$WORK/small
	mount_ckpt "$SRC" rw
	mkdir "$MNT/f" "$MNT/g"
	dd if=/dev/zero of="$MNT/g/shards/fill" bs=4k count=20 2>/dev/null
	cp "$CKPT"/__*.distcp "$MNT/f/shards" 2>"$WORK/err" &&
		fail "a full disk is not told"
	grep -qi 'no space' "$WORK/err" || fail "$(cat "$WORK/err")"
	cp "$CKPT/.metadata" "$MNT/f/shards/m" 2>/dev/null
	index f 2>/dev/null
	[ ! -e "$SRC/f" ] || fail "published on a full disk"
	rm -r "$MNT/g" || fail "rm on a full disk"
	cp "$CKPT"/__*.distcp "$CKPT/.metadata" "$MNT/f/shards" ||
		fail "no space after rm"
	"$UNSHARD" publish "$MNT/f" >/dev/null || fail "publish after rm"
	check "after a full disk"
	umount_ckpt
	# a step that is doomed there says why, though nothing fits any more
	UNSHARD_FAULT=sync:1:1:28 mount_ckpt "$SRC" rw
	mkdir "$MNT/h" "$MNT/h/shards/deep" &&
		echo x >"$MNT/h/shards/deep/x" || fail "a new step"
	dd if=/dev/zero of="$MNT/h/shards/fill" bs=4k count=80 2>"$WORK/err"
	grep -qi 'no space' "$WORK/err" || fail "it is not full"
	"$python" -c 'import os, sys
f = os.open(sys.argv[1], os.O_WRONLY)
try: os.fsync(f)
except OSError as e: sys.exit(e.errno != 28)
sys.exit("no error")' "$MNT/h/shards/deep/x" || fail "ENOSPC of an fsync"
	why='h: deep/x: fsync: No space left on device'
	grep -qx "doomed: $why" "$MNT/h/.unshard/status" ||
		fail "status of the mount: $(cat "$MNT/h/.unshard/status")"
	for i in 1 2; do
		"$UNSHARD" status "$SRC" >"$WORK/out"
		grep -qx "  $why" "$WORK/out" || fail "status: $(cat "$WORK/out")"
		[ $i = 1 ] && umount_ckpt
	done
	expect 1 "may be lost .$why.; it can only" "$UNSHARD" publish "$SRC/h"
	collected() { "$UNSHARD" gc --age 0 "$SRC" | grep -q 'removed: h'; }
	wait_for 10 collected || fail "gc of one that is doomed on a full disk"
	umount "$SRC"
else
	say "no tmpfs here: a full disk is not tried"
fi
done_ok
