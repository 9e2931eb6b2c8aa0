#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# As a service: whoever started it hears when the mount answers, when it ends and
# why; and its log is JSON where that is asked for.
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
CKPT=$WORK/ckpt
make_safetensors "$CKPT/model.safetensors"

started() { # SOCKET ARGUMENT...: in the background
	"$PYTHON" "$here/tests/mount/lib/notified.py" "$1" \
		"$UNSHARD" mount "$CKPT" "$MNT" "${@:2}" >"$WORK/heard" 2>"$WORK/said" &
	notified=$!
}
is_heard() { grep -q "^$1" "$WORK/heard"; }
heard() { wait_for 20 is_heard "$1" || fail "expected $1, heard: $(cat "$WORK/heard" "$WORK/said")"; }

# --- by a name in a folder: ready when it answers, and not before
started "$WORK/notify" -f -o "log=$LOG$SAN_OPTS"
heard "READY=1 STATUS=serving $CKPT at $MNT"
[ "$(head -c 5 "$WORK/heard")" = READY ] || fail "heard first: $(cat "$WORK/heard")"
mounted || fail "ready and not mounted"
same "$MNT/tensors/a" "$WORK/a.bin"
umount_ckpt
heard "STOPPING=1 STATUS=unmounted ERRNO=0"
heard "exit 0"
wait $notified

# --- by an abstract one, ended by a signal, with a log in JSON
started "@$WORK/notify" -f -o "log-format=json$SAN_OPTS"
heard READY=1
kill "$(supervisor_pid)"
heard "STOPPING=1 STATUS=unmounting"
heard "exit 0"
wait $notified
"$PYTHON" - "$WORK/said" "$MNT" <<-'PY' || fail "the log: $(cat "$WORK/said")"
	import json, sys
	line, = [json.loads(l) for l in open(sys.argv[1])]
	assert line["mount"] == sys.argv[2], line
	assert line["message"] == "signal 15: unmounting", line
	assert line["time"].endswith("Z") and line["pid"] > 1, line
PY

# --- what the worker says, in a file
mount_ckpt "$CKPT" "log-format=json,direct=on"
truncate -s 1000 "$CKPT/model.safetensors"
cat "$MNT/tensors/a" >"$WORK/out" 2>&1 && fail "a torn tensor reads well"
is_logged() { grep -q '"message": "[^"]*model.safetensors' "$LOG"; }
wait_for 10 is_logged || fail "the log: $(cat "$LOG")"
umount_ckpt
"$PYTHON" -c 'import json, sys; [json.loads(l)["message"] for l in open(sys.argv[1])]' \
	"$LOG" || fail "the log: $(cat "$LOG")"

# --- one that fails says why, and is never ready
started "$WORK/notify2" -f -o "log=$LOG,format=safetensors,spool=/dev/null$SAN_OPTS"
heard "exit [1-9]"
wait $notified
is_heard READY && fail "ready: $(cat "$WORK/heard")"

# --- in the background nobody is told: the process that was started ends
make_safetensors "$CKPT/model.safetensors"
started "$WORK/notify3" -o "log=$LOG$SAN_OPTS"
heard "exit 0"
wait $notified
[ "$(wc -l <"$WORK/heard")" = 1 ] || fail "heard: $(cat "$WORK/heard")"
umount_ckpt
done_ok
