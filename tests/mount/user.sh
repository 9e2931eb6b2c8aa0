#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An ordinary user mounts and unmounts through fusermount3.
. "$(dirname "$0")/lib/common.sh"
requires cmp
CKPT=$WORK/ckpt
make_safetensors "$CKPT/model.safetensors"
user_setup

user_mount() {
	as_user "$UNSHARD" mount "$CKPT" "$MNT" -o "log=$LOG${1:+,$1}$SAN_OPTS" ||
		fail "mount gave exit $?"
	mounted || fail "mount said 0 and is not there"
}

user_mount
as_user cmp "$MNT/tensors/a" "$WORK/a.bin" || fail "wrong bytes"
super=$(supervisor_pid) worker=$(worker_pid)
[ "$(stat -c %u "/proc/$worker")" = "$(as_user id -u)" ] ||
	fail "the worker runs as another user"
as_user sh -c "exec 5<'$MNT/tensors/a'; '$UNSHARD' umount '$MNT'" \
	2>"$WORK/err" && fail "a busy mount was unmounted"
grep -q busy "$WORK/err" || fail "not called busy: $(cat "$WORK/err")"
as_user "$UNSHARD" umount "$MNT" || fail "umount gave exit $?"
mounted && fail "still mounted"
wait_for 10 gone "$worker" || fail "the worker outlives the mount"
wait_for 10 gone "$super" || fail "the supervisor outlives the mount"

# --- a killed worker, a signal
user_mount
kill -9 "$(worker_pid)"
wait_for 10 not mounted || fail "the mount of a killed worker is still there"
user_mount
super=$(supervisor_pid)
kill -TERM "$super"
wait_for 10 not mounted || fail "SIGTERM: still mounted"
wait_for 10 gone "$super" || fail "SIGTERM: the supervisor stays"

# --- what a user may not do gives one line
if [ "$(id -u)" = 0 ]; then
	expect 3 'allow_other' as_user "$UNSHARD" mount "$CKPT" "$MNT" \
		-o "allow_other$SAN_OPTS"
	mkdir "$WORK/roots" && chmod 755 "$WORK/roots"
	expect 3 'roots' as_user "$UNSHARD" mount "$CKPT" "$WORK/roots"
	chmod 700 "$CKPT" && chown 0:0 "$CKPT"
	expect 3 'ermission denied' as_user "$UNSHARD" mount "$CKPT" "$MNT"
	chmod 755 "$CKPT"
	chown 0:0 "$CKPT/model.safetensors"
	chmod 600 "$CKPT/model.safetensors"
	expect 3 'ermission denied' as_user "$UNSHARD" mount "$CKPT" "$MNT"
	chmod 644 "$CKPT/model.safetensors"
	# a shard that may not be read costs its own parts only
	cp -r "$here/tests/demo/checkpoint" "$WORK/locked"
	chmod -R a+rX "$WORK/locked" && chmod 600 "$WORK/locked/__3_0.distcp"
	as_user "$UNSHARD" mount "$WORK/locked" "$MNT" -o "log=$LOG$SAN_OPTS" ||
		fail "a locked shard: mount gave exit $?"
	as_user cat "$MNT/.unshard/problems" |
		grep -q '__3_0.distcp: the file cannot be read: Permission denied' ||
		fail "locked: $(as_user cat "$MNT/.unshard/problems")"
	name=model.model.layers.0.mlp.down_proj.weight
	as_user cat "$MNT/tensors/$name" >"$WORK/out" 2>"$WORK/err" &&
		fail "locked: it was read whole"
	as_user head -c 468 "$MNT/tensors/$name" >"$WORK/out" ||
		fail "locked: what other shards hold"
	head -c 468 "$here/tests/demo/down_proj.expected" | cmp - "$WORK/out" ||
		fail "locked: wrong bytes"
	as_user "$UNSHARD" umount "$MNT" || fail "locked: umount"
	chmod 600 "$WORK/fuse"
	expect 3 '/dev/fuse: Permission denied.*0666' \
		as_user "$UNSHARD" mount "$CKPT" "$MNT"
	chmod 666 "$WORK/fuse"
	user_mount
	expect 3 "$MNT" setpriv --reuid=65533 --regid=65533 --clear-groups \
		"$UNSHARD" umount "$MNT"
	mounted || fail "another user unmounted it"
	as_user "$UNSHARD" umount "$MNT" || fail "umount"
fi
mounted && fail "something is still mounted"

# --- a user's mount for others: what everybody may
third() { setpriv --reuid=65533 --regid=65533 --clear-groups "$@"; }
others_read() { third cmp "$MNT/tensors/a" "$WORK/a.bin" 2>/dev/null; }
if [ "$(id -u)" = 0 ] && [ -e /etc/fuse.conf ]; then
	echo user_allow_other >"$WORK/fuse.conf"
	mount --bind "$WORK/fuse.conf" /etc/fuse.conf || done_ok
	chmod 755 "$WORK" "$CKPT"
	export UNSHARD_KEEP=0
	user_mount allow_other
	others_read || fail "another user cannot read what everybody may"
	for mode in 600 640 604; do
		chmod $mode "$CKPT/model.safetensors"
		others_read && fail "another user reads a file of mode $mode"
		chmod 644 "$CKPT/model.safetensors"
	done
	for mode in 700 750 705; do
		chmod $mode "$CKPT"
		others_read && fail "another user reads in a folder of mode $mode"
		chmod 755 "$CKPT"
	done
	others_read || fail "another user cannot read any more"
	as_user cmp "$MNT/tensors/a" "$WORK/a.bin" || fail "nor its own"
	as_user "$UNSHARD" umount "$MNT" || fail "umount"
fi
done_ok
