#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How a mount begins and the ways in which it ends.
. "$(dirname "$0")/lib/common.sh"
requires cmp

CKPT=$WORK/ckpt
make_safetensors "$CKPT/model.safetensors"

# --- it answers when the command returns, and reads are right
mount_ckpt "$CKPT"
same "$MNT/tensors/a" "$WORK/a.bin"
same "$MNT/tensors/b.c" "$WORK/b.bin"
[ "$(stat -c %s "$MNT/tensors/a")" = 8192 ] || fail "wrong size"
super=$(supervisor_pid) worker=$(worker_pid)
[ -n "$super" ] && [ -n "$worker" ] || fail "no supervisor or no worker"
umount_ckpt
gone "$worker" || fail "the worker outlives the mount"
gone "$super" || fail "the supervisor outlives the mount"
[ ! -s "$LOG" ] || fail "a good mount logged: $(cat "$LOG")"

# --- the plain umount does as well
mount_ckpt "$CKPT"
super=$(supervisor_pid)
umount "$MNT" 2>/dev/null || fusermount3 -u "$MNT" || fail "umount"
wait_for 10 gone "$super" || fail "the supervisor outlives umount"

# --- unshard umount waits for what comes after it, but not for who was stopped
mount_ckpt "$CKPT"
super=$(supervisor_pid) worker=$(worker_pid)
stop "$super"
timeout 20 "$UNSHARD" umount "$MNT" || fail "a stopped supervisor: exit $?"
mounted && fail "a stopped supervisor keeps it mounted"
gone "$worker" || fail "a stopped supervisor keeps the worker"
gone "$super" && fail "the supervisor was not stopped"
kill -CONT "$super"
wait_for 10 gone "$super" || fail "the supervisor outlives the mount"

# --- but not where the mount is seen from elsewhere, nor for one that hangs
mount_ckpt "$CKPT"
worker=$(worker_pid)
if mkdir "$WORK/bound" && mount --bind "$MNT" "$WORK/bound" 2>/dev/null; then
	timeout 20 "$UNSHARD" umount "$MNT" || fail "umount of one of two"
	mounted && fail "one of two is still mounted"
	same "$WORK/bound/tensors/a" "$WORK/a.bin"
	"$UNSHARD" umount "$WORK/bound" || fail "umount of the other"
	gone "$worker" || fail "the worker outlives both"
else
	umount_ckpt
fi
mount_ckpt "$CKPT"
worker=$(worker_pid)
stop "$worker"
timeout 20 "$UNSHARD" umount "$MNT" || fail "umount of one that hangs"
mounted && fail "one that hangs is still mounted"
kill -CONT "$worker"
wait_for 5 gone "$worker" || fail "the worker outlives the mount"

# --- a killed worker leaves no dead mount, even with a file open
mount_ckpt "$CKPT"
super=$(supervisor_pid)
exec 5<"$MNT/tensors/a"
kill -9 "$(worker_pid)"
wait_for 10 not mounted || fail "the mount of a killed worker is still there"
wait_for 10 gone "$super" || fail "the supervisor waits for nothing"
cat <&5 >/dev/null 2>&1 && fail "a file of a dead mount can be read"
exec 5<&-
grep -q 'worker died (signal 9' "$LOG" || fail "nothing in the log"
: >"$LOG"

# --- the place can be used again
mount_ckpt "$CKPT"
same "$MNT/tensors/a" "$WORK/a.bin"

# --- each signal unmounts
for sig in TERM INT HUP; do
	super=$(supervisor_pid) worker=$(worker_pid)
	kill -$sig "$super"
	wait_for 10 not mounted || fail "SIG$sig: still mounted"
	wait_for 10 gone "$super" || fail "SIG$sig: the supervisor stays"
	wait_for 10 gone "$worker" || fail "SIG$sig: the worker stays"
	mount_ckpt "$CKPT"
done

# --- with a file open too, within a few seconds; it may be read meanwhile
super=$(supervisor_pid) worker=$(worker_pid)
exec 5<"$MNT/tensors/a"
kill -TERM "$super"
wait_for 10 not mounted || fail "SIGTERM, busy: still mounted"
cmp - "$WORK/a.bin" <&5 || fail "an open file cannot be read to its end"
wait_for 6 gone "$super" || fail "SIGTERM, busy: the supervisor stays"
gone "$worker" || fail "SIGTERM, busy: the worker stays"
exec 5<&-

# --- signals to the worker are for the supervisor
mount_ckpt "$CKPT"
worker=$(worker_pid)
kill -TERM "$worker"
kill -INT "$worker"
taken() { not grep -q '^S[higPnd]*:.*[1-9a-f]' "/proc/$worker/status"; }
wait_for 10 taken || fail "the worker leaves its signals lying"
same "$MNT/tensors/a" "$WORK/a.bin"
gone "$worker" && fail "the worker ended"

# --- a killed supervisor takes nothing with it
super=$(supervisor_pid) worker=$(worker_pid)
kill -9 "$super"
wait_for 10 gone "$super" || fail "the supervisor cannot be killed"
same "$MNT/tensors/b.c" "$WORK/b.bin"
umount_ckpt
wait_for 10 gone "$worker" || fail "the worker outlives the mount"

# --- and when the worker dies then, umount still works
mount_ckpt "$CKPT"
worker=$(worker_pid)
kill -9 "$(supervisor_pid)" "$worker"
wait_for 10 gone "$worker" || fail "the worker cannot be killed"
umount_ckpt

# --- busy
mount_ckpt "$CKPT"
exec 5<"$MNT/tensors/a"
expect 3 busy "$UNSHARD" umount "$MNT"
mounted || fail "a busy mount was unmounted"
same "$MNT/tensors/a" "$WORK/a.bin"
worker=$(worker_pid)
"$UNSHARD" umount -l "$MNT" || fail "umount -l"
mounted && fail "umount -l left the mount"
cmp - "$WORK/a.bin" <&5 || fail "after umount -l an open file ended"
exec 5<&-
wait_for 10 gone "$worker" || fail "the worker outlives the last file"

# --- the foreground
"$UNSHARD" mount -f "$CKPT" "$MNT" 2>"$WORK/err" &
pid=$!
wait_for 5 test -e "$MNT/tensors/a" || fail "-f: does not mount"
same "$MNT/tensors/a" "$WORK/a.bin"
kill -INT $pid 2>/dev/null # ignored: a shell starts it so
kill -TERM $pid
wait $pid || fail "-f: exit $? after SIGTERM"
mounted && fail "-f: still mounted"
# with a manifest that its end writes anew, too
cp -r "$CKPT" "$WORK/sealed" && chmod -R u+w "$WORK/sealed"
"$UNSHARD" seal "$WORK/sealed" >"$WORK/out" || fail "seal"
"$UNSHARD" mount -f "$WORK/sealed" "$MNT" -o rw 2>"$WORK/err" &
pid=$!
wait_for 20 mounted || fail "-f, sealed: not mounted"
umount_ckpt
wait $pid || fail "-f, sealed: exit $?: $(cat "$WORK/err")"
"$UNSHARD" mount -f "$CKPT" "$MNT" 2>"$WORK/err" &
pid=$!
wait_for 5 test -e "$MNT/tensors/a" || fail "-f: does not mount again"
kill -9 "$(worker_pid)"
wait $pid
[ $? = 3 ] || fail "-f: expected exit 3 where the worker dies"
grep -q 'worker died' "$WORK/err" || fail "-f: no word of it"

# --- nothing is left in the spool
mkdir "$WORK/spool"
mount_ckpt "$CKPT" "spool=$WORK/spool"
[ "$(ls "$WORK/spool" | wc -l)" = 1 ] || fail "no folder in the spool"
umount_ckpt
spool_empty() { [ -z "$(ls "$WORK/spool")" ]; }
wait_for 10 spool_empty || fail "left in the spool: $(ls "$WORK/spool")"
done_ok
