#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# .unshard/metrics is Prometheus' text, by step, and unshard metrics joins mounts.
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
check() { "$PYTHON" "$here/tests/mount/lib/metrics.py" "$@"; }
of() { check "$@" <"$MNT/.unshard/metrics" || fail "$(cat "$MNT/.unshard/metrics")"; }

# --- one checkpoint
one=$WORK/one
make_safetensors "$one/model.safetensors"
mount_ckpt "$one" direct=on
label="mount=\"$MNT\""
cat "$MNT/tensors/a" "$MNT/tensors/b.c" >/dev/null
[ "$(of "unshard_read_bytes_total{$label}" "unshard_errors_total{$label}" \
	"unshard_checkpoint_tensors{$label}" "unshard_checkpoint_complete{$label}" \
	"unshard_up{$label}" | tr '\n' ' ')" = "9192 0 2 1 1 " ] ||
	fail "$(cat "$MNT/.unshard/metrics")"
[ "$(of "unshard_reads_total{$label}")" = "$(of "unshard_read_duration_seconds_count{$label}")" ] ||
	fail "reads without a duration"
# Each counter of stats is there, with the same value.
awk '$1 == "source_bytes" { print $2 }' "$MNT/.unshard/stats" |
	cmp - <(of "unshard_source_read_bytes_total{$label}") || fail "other than stats"
truncate -s 1000 "$one/model.safetensors"
cat "$MNT/tensors/a" >/dev/null 2>&1 && fail "a torn tensor reads well"
[ "$(of "unshard_errors_total{$label}")" -gt 0 ] || fail "no error is counted"
[ "$(of "unshard_checkpoint_errors{$label}")" -gt 0 ] || fail "no problem is counted"
umount_ckpt

# --- of many: those that somebody has looked into, and their sum goes on when they sleep
runs=$WORK/a\"b
for ((k = 1; k <= 40; k++)); do make_safetensors "$runs/step-$k/model.safetensors"; done
mount_ckpt "$runs" direct=on
[ "$(of "unshard_up{$label}" "unshard_reads_total{$label}" | tr '\n' ' ')" = "1 none " ] ||
	fail "nobody looked: $(cat "$MNT/.unshard/metrics")"
for ((k = 1; k <= 40; k++)); do cat "$MNT/step-$k/tensors/b.c" >/dev/null; done
cat "$MNT/step-1/tensors/b.c" >/dev/null
for k in 1:2000 2:1000 40:1000; do
	[ "$(of "unshard_read_bytes_total{$label,step=\"step-${k%:*}\"}")" = "${k#*:}" ] ||
		fail "step ${k%:*}: $(grep read_bytes "$MNT/.unshard/metrics")"
done
check <"$MNT/step-2/.unshard/metrics" >/dev/null || fail "of a step"
grep -c '^unshard_reads_total' "$MNT/step-2/.unshard/metrics" | grep -qx 1 || fail "of a step"

# --- two mounts as one text; one that hangs is down
other=$WORK/other\"mnt
mkdir "$other"
make_safetensors "$one/model.safetensors"
"$UNSHARD" mount "$one" "$other" -o "log=$LOG$SAN_OPTS" || fail "the other"
"$UNSHARD" metrics "$MNT" "$other" >"$WORK/both" || fail "metrics: $?"
[ "$(check "unshard_up{$label}" "unshard_up{mount=\"$WORK/other\\\"mnt\"}" <"$WORK/both" |
	tr '\n' ' ')" = "1 1 " ] || fail "both: $(cat "$WORK/both")"
"$UNSHARD" metrics --file "$WORK/unshard.prom" "$MNT" "$other" || fail "--file: $?"
check <"$WORK/unshard.prom" || fail "$(cat "$WORK/unshard.prom")"
[ "$(ls "$WORK" | grep -c unshard.prom)" = 1 ] || fail "left: $(ls "$WORK")"
[ "$(stat -c %a "$WORK/unshard.prom")" = 644 ] || fail "mode of the file"
# Without a name all, be there some of others, which may hang.
"$UNSHARD" metrics >"$WORK/all" 2>/dev/null
check "unshard_up{$label}" <"$WORK/all" | grep -qx 1 || fail "without a name: $(cat "$WORK/all")"

worker=$("$PYTHON" -c 'import os, sys
print(os.getxattr(sys.argv[1], "user.unshard.pid").decode())' "$other")
stop "$worker"
expect 3 'did not|took|longer|ended' "$UNSHARD" metrics "$MNT" "$other"
kill -CONT "$worker"
[ "$(check "unshard_up{$label}" "unshard_up{mount=\"$WORK/other\\\"mnt\"}" <"$WORK/out" |
	tr '\n' ' ')" = "1 0 " ] || fail "one hangs: $(cat "$WORK/out")"
expect 3 'expected a mount' "$UNSHARD" metrics "$WORK"
expect 3 'none' "$UNSHARD" metrics "$MNT" --file "$WORK/none/x"
"$UNSHARD" umount "$other" || fail "umount"
umount_ckpt
done_ok
