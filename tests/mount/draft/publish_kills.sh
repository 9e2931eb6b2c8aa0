# SPDX-License-Identifier: Apache-2.0
# SIGKILL at any moment of a save: of the worker, or of the writer.  Afterwards
# a step is whole or not shown, one whose publish had returned is there, and
# the same save done again ends whole.  UNSHARD_NIGHTLY=1: 60 times.
LIMIT=${UNSHARD_NIGHTLY:+600}
LIMIT=${LIMIT:-90}
. "$(dirname "$0")/../lib/common.sh"
requires cp sha256sum

CKPT=$here/tests/demo/checkpoint
SRC=$WORK/src
mkdir "$SRC"
times=${UNSHARD_NIGHTLY:+60}
times=${times:-12}
whole() {
	(cd "$MNT/$1/tensors" && sha256sum --quiet -c \
		"$here/tests/demo/expected.sha256") >"$WORK/err" 2>&1
}
mkfifo "$WORK/begins"
# next COMMAND...: one call of a save; the one that is number $at begins beside
# whoever waits for it
next() {
	[ $((calls += 1)) != "$at" ] || echo >"$WORK/begins"
	"$@"
}
# save STEP: as torch.distributed.checkpoint does; says when it was published
save() {
	local d=$MNT/$1/shards r calls=0
	next mkdir "$MNT/$1" 2>/dev/null
	for r in 0 1 2 3; do
		next cp "$CKPT/__${r}_0.distcp" "$d/__${r}_0.distcp" || return
	done
	next cp "$CKPT/.metadata" "$d/.metadata.tmp" &&
		next mv "$d/.metadata.tmp" "$d/.metadata" &&
		echo "$1" >>"$WORK/returned" && next true
}
check() {
	local s
	touch "$WORK/returned"
	for s in "$SRC"/step-*; do
		[ ! -d "$s" ] || whole "${s##*/}" ||
			fail "torn: ${s##*/}: $(head -n 3 "$WORK/err")"
	done
	while read -r s; do
		[ -d "$SRC/$s" ] || fail "lost: $s, whose publish returned"
	done <"$WORK/returned"
}

hidden=0
for i in $(seq "$times"); do
	mount_ckpt "$SRC" rw
	worker=$(worker_pid)
	at=$((i % 8 + 1))
	save "step-$i" 2>/dev/null &
	writer=$!
	at=
	read -r _ <"$WORK/begins"
	answers $((i * 5 % 13))
	case $((i % 3)) in
	0) kill -9 $writer $(pgrep -P $writer) 2>/dev/null ;;
	*) kill -9 "$worker" ;;
	esac
	wait $writer 2>/dev/null
	if [ $((i % 3)) != 0 ]; then
		wait_for 10 not mounted || fail "the mount stays without a worker"
		mount_ckpt "$SRC" rw
	fi
	check
	"$UNSHARD" recover "$SRC" >/dev/null 2>&1
	check
	[ -d "$SRC/step-$i" ] || hidden=$((hidden + 1))
	# it may be EBUSY for a moment, while this mount ends a publish
	again() {
		[ -d "$SRC/step-$i" ] || save "step-$i" 2>"$WORK/err2" ||
			[ -d "$SRC/step-$i" ]
	}
	wait_for 10 again || fail "again: $(cat "$WORK/err2")"
	wait_for 10 test -d "$SRC/step-$i" || fail "step-$i is not published"
	check
	# a child of the killed writer may still be ending
	wait_for 5 "$UNSHARD" umount "$MNT" 2>/dev/null || fail "umount"
	rm -rf "$SRC/step-$i" "$WORK/returned"
done
say "$times kills, $hidden before the step was published, 0 torn, 0 lost"
done_ok
