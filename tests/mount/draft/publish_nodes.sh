# SPDX-License-Identifier: Apache-2.0
# Several nodes, each a mount of its own of the same directory: they meet in
# one step, whoever completes it publishes, and one that dies costs nothing
# that shows.
LIMIT=150
. "$(dirname "$0")/../lib/common.sh"
requires cmp cp

CKPT=$here/tests/demo/checkpoint
SRC=$WORK/src
A=$WORK/a B=$WORK/b
mkdir "$SRC" "$A" "$B"
# Each mount in a network of its own, where that is allowed: they need none.
alone=()
[ -n "${COMMON_PRIVATE-}" ] && unshare -n true 2>/dev/null && alone=(unshare -n)
# on MNT [OPTION,...]
on() {
	"${alone[@]}" "$UNSHARD" mount "$SRC" "$1" -o "rw,log=$WORK/log${2:+,$2}$SAN_OPTS" ||
		fail "mount at $1"
}
put() { cp "$CKPT/$2" "$1/" || fail "cp $2"; }
index() {
	cp "$CKPT/.metadata" "$1/.metadata.tmp" &&
		mv "$1/.metadata.tmp" "$1/.metadata" || fail "the index"
}
whole() { (cd "$1/tensors" && sha256sum --quiet -c "$here/tests/demo/expected.sha256"); }
shown() { [ -d "$SRC/$1" ]; }
on "$A"
on "$B"

# ---- two mounts, one step
mkdir "$A/step-1" || fail mkdir
[ -d "$B/step-1/shards" ] || fail "the other mount does not join"
mkdir "$B/step-1" 2>/dev/null && fail "made twice"
mkdir -p "$B/step-1/shards" || fail "mkdir -p"
put "$A/step-1/shards" __0_0.distcp
put "$A/step-1/shards" __1_0.distcp
put "$B/step-1/shards" __2_0.distcp
put "$B/step-1/shards" __3_0.distcp
[ "$(ls "$A/step-1/shards" | wc -l)" = 4 ] || fail "a sees $(ls "$A/step-1/shards")"
index "$A/step-1/shards"
shown step-1 || fail "not published: $(cat "$WORK/log")"
[ "$(readlink "$B/latest")" = step-1 ] || fail "b does not see it"
whole "$B/step-1" || fail "b reads other tensors"
"$UNSHARD" publish "$B/step-1" | grep -q 'before' || fail "a double publish"
"$UNSHARD" status "$B" >"$WORK/out" && [ ! -s "$WORK/out" ] || fail "status: $(cat "$WORK/out")"

# ---- both make it at the same moment
for i in 1 2 3 4 5; do
	mkdir -p "$A/both-$i/shards" & mkdir -p "$B/both-$i/shards" &
	wait %1 && wait %2 || fail "both at once"
	echo "$i" >"$A/both-$i/shards/f"
	[ "$(cat "$B/both-$i/shards/f")" = "$i" ] || fail "two stages of one name"
	rm -r "$A/both-$i" || fail "rm -r"
	[ ! -e "$B/both-$i" ] || fail "b still has it"
done

# ---- one still writes when the other's index comes
mkdir "$A/step-2"
for r in 0 1 2; do put "$A/step-2/shards" __${r}_0.distcp; done
exec 7>"$B/step-2/shards/__3_0.distcp"
cat "$CKPT/__3_0.distcp" >&7
index "$A/step-2/shards"
shown step-2 && fail "published while b writes"
"$UNSHARD" status "$SRC" | grep -q 'step-2: being written' ||
	fail "status: $("$UNSHARD" status "$SRC")"
expect 3 'open for writing' "$UNSHARD" publish "$A/step-2"
exec 7>&-
wait_for 15 shown step-2 || fail "not published after b closed: $(cat "$WORK/log")"
whole "$A/step-2" || fail "step-2 is torn"

# ---- the index comes first: the one who completes it publishes
mkdir "$A/step-3"
for r in 0 1; do put "$A/step-3/shards" __${r}_0.distcp; done
index "$A/step-3/shards"
shown step-3 && fail "published without two ranks"
put "$B/step-3/shards" __2_0.distcp
put "$B/step-3/shards" __3_0.distcp
wait_for 15 shown step-3 || fail "not published by b: $(cat "$WORK/log")"
whole "$A/step-3" || fail "step-3 is torn"

# ---- both publish at once, ten at a time
mkdir "$A/step-4"
cp "$CKPT"/__* "$CKPT/.metadata" "$A/step-4/shards"
closed() { "$UNSHARD" status "$SRC" | not grep -q 'step-4: being written'; }
wait_for 10 closed || fail "status: $("$UNSHARD" status "$SRC")"
for i in 1 2 3 4 5 6 7 8 9 10; do
	"$UNSHARD" publish "$A/step-4" >"$WORK/p.$i" 2>&1 || echo "$?" >"$WORK/rc.$i" &
done
wait
shown step-4 || fail "nobody published: $(cat "$WORK"/p.*)"
[ "$(cat "$WORK"/p.* | grep -c ': published$')" = 1 ] ||
	fail "not one publisher: $(cat "$WORK"/p.*)"
cat "$WORK"/p.* | grep -v -e published -e 'being published' -e 'open for writing' &&
	fail "other answers"
whole "$A/step-4" || fail "step-4 is torn"

# ---- a node dies while it writes
mkdir "$A/step-5"
for r in 0 1; do put "$A/step-5/shards" __${r}_0.distcp; done
put "$B/step-5/shards" __2_0.distcp
(head -c 5000 "$CKPT/__3_0.distcp"; sleep 60) >"$B/step-5/shards/__3_0.distcp" &
writer=$!
wait_for 5 test -s "$SRC/.staging-step-5/files/__3_0.distcp" || fail "no bytes yet"
kill -9 "$(workers | tail -n 1)"
wait_for 10 not mounted "$B" || fail "the dead mount stays"
kill "$writer" 2>/dev/null
pkill -P "$writer" 2>/dev/null
index "$A/step-5/shards"
shown step-5 && fail "published though a shard is cut off"
"$UNSHARD" status "$A" step-5 >"$WORK/out"
grep -q 'step-5: open' "$WORK/out" && grep -q 'not complete: ' "$WORK/out" ||
	fail "status: $(cat "$WORK/out")"
[ "$(readlink "$A/latest")" = step-4 ] || fail "latest"
on "$B"
put "$B/step-5/shards" __3_0.distcp
wait_for 15 shown step-5 || fail "the rerun does not complete it: $(cat "$WORK/log")"
whole "$B/step-5" || fail "step-5 is torn"

# ---- a slice that one node wrote, and that another empties and writes a half of,
# is not what the first one wrote and the half; whoever writes all of it completes it
layout() {
	mkdir "$A/$1" && cat >"$A/$1/unshard-layout.json" <<-J || fail "layout of $1"
		{"unshard_layout": 1, "mesh": {"axes": [{"name": "dp", "size": 2}]},
		 "tensors": [{"name": "w", "dtype": "uint8", "shape": [100000]},
		             {"name": "v", "dtype": "uint8", "shape": [10]}],
		 "write": {}}
	J
}
head -c 100000 /dev/zero | tr '\0' a >"$WORK/before"
head -c 100000 /dev/zero | tr '\0' b >"$WORK/after"
for how in removed emptied made; do
	s=slices-$how
	layout $s
	# then making it finds what was written since
	[ $how != made ] || rm "$B/$s/ranks/1/w" || fail rm
	cp "$WORK/before" "$A/$s/ranks/0/w" || fail "$how: cp"
	[ $how != removed ] || rm "$B/$s/ranks/1/w" || fail rm
	head -c 60000 "$WORK/after" >"$B/$s/ranks/1/w" || fail "$how: a half"
	printf 0123456789 >"$B/$s/ranks/1/v" || fail "$how: v"
	expect 1 'not complete: w: bytes 60000 to 100000 of 100000 were not written' \
		"$UNSHARD" publish "$A/$s"
	cp "$WORK/after" "$A/$s/ranks/0/w" || fail "$how: again"
	wait_for 15 shown $s || fail "$how: not published: $("$UNSHARD" status "$A")"
	same "$B/$s/tensors/w" "$WORK/after"
done

# ---- gc leaves what a mount has, wherever it is
mkdir "$A/step-6"
echo x >"$A/step-6/shards/x"
"$UNSHARD" gc --age 0 "$B" | grep -q 'kept: .*open' || fail "gc of what is open"
for m in "$A" "$B"; do "$UNSHARD" umount "$m" || fail "umount $m"; done
# the workers end a moment after their mounts
collected() { "$UNSHARD" gc --age 0 "$SRC" | grep -q 'removed: step-6'; }
wait_for 10 collected || fail gc
[ "$(ls -A "$SRC" | tr '\n' ' ')" = \
	"slices-emptied slices-made slices-removed step-1 step-2 step-3 step-4 step-5 " ] ||
	fail "left over: $(ls -A "$SRC")"
done_ok
