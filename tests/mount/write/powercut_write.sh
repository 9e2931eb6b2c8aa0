# SPDX-License-Identifier: Apache-2.0
# The power goes while tensors are written: what was synced is there, what was
# not is old or new byte by byte, the sums of containers and the manifest are
# right once a mount for writing has been there, and before that a mount for
# reading says that they may not be.  Of a file that is written anew (-o
# replace) there is all of the old or all of the new.  UNSHARD_NIGHTLY=1: 60
# cuts of each, else a few.
LIMIT=${UNSHARD_NIGHTLY:+3000}
LIMIT=${LIMIT:-180}
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
. "$(dirname "$0")/../lib/powercut.sh"
requires getfattr
points=${UNSHARD_NIGHTLY:+60}
points=${points:-3}
containers() { python3 "$here/tests/mount/lib/containers.py" "$@"; }
powered() { python3 "$here/tests/mount/lib/powered.py" "$@"; }
# independent KIND DIR: into $WORK/is; fails where a sum is wrong
independent() {
	case $1 in
	split) python3 "$here/tests/mount/lib/join.py" "$2" w "$WORK/is" ;;
	*) containers read "$2" "$WORK/is" ;;
	esac
}
settled() { # DIR
	! getfattr --only-values -n user.unshard.writing "$1" >/dev/null 2>&1
}
bad() {
	torn=$((torn + 1))
	say "torn, cut at $end: $*"
}

# before DIR KIND: nothing may be wrong that nobody says
before() {
	if ! independent "$2" "$1" 2>/dev/null; then
		unsure=$((unsure + 1))
		mount_ckpt "$1"
		grep -q 'warning: file model.*checksums' "$MNT/.unshard/problems" ||
			bad "a wrong sum that nobody says"
		umount_ckpt
	fi
	[ -e "$1/.unshard-edited" ] || "$UNSHARD" verify "$1" >"$WORK/out" 2>&1 ||
		bad "a wrong digest that nobody says: $(cat "$WORK/out")"
}
# after DIR: a mount for writing that is used
after() {
	mount_ckpt "$1" rw
	wait_for 20 settled "$1" || bad "the mark stays"
	head -c 1 "$MNT/tensors/w" |
		dd of="$MNT/tensors/w" conv=notrunc,fsync status=none ||
		bad "cannot be written: $(tail -n 1 "$LOG")"
	umount_ckpt
	"$UNSHARD" verify "$1" >"$WORK/out" 2>&1 || bad "$(cat "$WORK/out")"
	grep -q sealed "$WORK/out" || bad "no manifest: $(cat "$WORK/out")"
}
show() { say "$1: $cut cuts, $torn torn, $unsure of them with sums or a copy to be ended"; }

for kind in zip ckpt split; do
	if [ $kind = split ]; then
		make_split "$WORK/$kind" 150 2501 3
		cp "$WORK/whole.w" "$WORK/$kind.w"
	else
		containers make $kind "$WORK/$kind" "$WORK/$kind.w" || fail make
	fi
	"$UNSHARD" seal "$WORK/$kind" >/dev/null || fail seal
done

# ---- write-through, of containers with sums and of several files
for kind in zip ckpt split; do
	disk
	cp -r "$WORK/$kind" "$WORK/ext/src/c" && sync -f "$WORK/ext"
	mount_ckpt "$WORK/ext/src/c" rw
	from=$(at)
	powered write "$MNT/tensors/w" "$WORK/tape" "$WORK/ops" 12 $RANDOM ||
		fail "writes"
	umount_ckpt
	undisk
	plan "$from" "$from" "$from"
	cut=0 torn=0 unsure=0
	while read -r end _; do
		replay "$end"
		cut=$((cut + 1))
		before "$WORK/cut/src/c" $kind
		after "$WORK/cut/src/c"
		independent $kind "$WORK/cut/src/c" || bad "sums of $kind"
		powered check "$WORK/ops" "$WORK/$kind.w" "$end" "$WORK/is" ||
			bad "$kind"
		umount "$WORK/cut" || fail "umount of a cut"
	done <"$WORK/plan"
	show $kind
	[ $torn = 0 ] && [ $cut -ge 3 ] || fail "$kind: $torn torn"
done

# ---- a file written anew
for kind in zip split; do
	disk
	cp -r "$WORK/$kind" "$WORK/ext/src/c" && sync -f "$WORK/ext"
	head -c "$(stat -c %s "$WORK/$kind.w")" /dev/urandom >"$WORK/new"
	mount_ckpt "$WORK/ext/src/c" replace
	from=$(at)
	cp "$WORK/new" "$MNT/tensors/w" || fail "cp"
	done=$(at)
	umount_ckpt
	undisk
	plan "$from" "$from" "$done"
	cut=0 torn=0 unsure=0
	while read -r end _ returned; do
		replay "$end"
		cut=$((cut + 1))
		c=$WORK/cut/src/c
		if ls -A "$c" | grep -q '^\.unshard-redo-'; then
			unsure=$((unsure + 1))
			"$UNSHARD" cat "$c" w >/dev/null 2>&1 && bad "read half-way"
		elif ! "$UNSHARD" cat "$c" w >"$WORK/is" 2>/dev/null ||
			! { cmp -s "$WORK/is" "$WORK/new" ||
				cmp -s "$WORK/is" "$WORK/$kind.w"; }; then
			bad "a mixture"
		fi
		after "$c"
		independent $kind "$c" || bad "sums of $kind"
		if ! cmp -s "$WORK/is" "$WORK/new"; then
			cmp -s "$WORK/is" "$WORK/$kind.w" || bad "a mixture stays"
			[ "$returned" = 0 ] || bad "lost after cp returned"
		fi
		umount "$WORK/cut" || fail "umount of a cut"
	done <"$WORK/plan"
	show "-o replace, $kind"
	[ $torn = 0 ] && [ $cut -ge 3 ] || fail "-o replace, $kind: $torn torn"
done

# ---- copies that are made alike (unshard heal): nothing else changes, and what
# is left is named and can be healed again
if [ -z "${UNSHARD_NIGHTLY-}" ]; then
	say "heal is cut by night (UNSHARD_NIGHTLY=1)"
	done_ok
fi
python3 "$here/tests/mount/lib/copies.py" "$WORK/copies" 2 3200 500 2 ||
	fail copies
"$UNSHARD" seal "$WORK/copies" >/dev/null || fail seal
flip() { # FILE AT
	head -c 70000 /dev/urandom | dd of="$WORK/ext/src/c/$1.safetensors" \
		bs=1 seek="$2" conv=notrunc status=none
}
for how in sealed from; do
	disk
	c=$WORK/ext/src/c
	cp -r "$WORK/copies" "$c"
	flip dp0-tp0 100000
	flip dp0-tp0 700000
	flip dp0-tp1 300000
	[ $how = sealed ] || rm "$c/.unshard-manifest"
	sync -f "$WORK/ext"
	heal() {
		case $how in
		sealed) "$UNSHARD" heal --sealed "$1" ;;
		from) "$UNSHARD" heal --from 'dp1-*' "$1" ;;
		esac >"$WORK/out" 2>&1
	}
	from=$(at)
	heal "$c" || fail "heal: $(cat "$WORK/out")"
	done=$(at)
	undisk
	plan "$from" "$from" "$done"
	cut=0 torn=0 unsure=0
	while read -r end _ returned; do
		replay "$end"
		cut=$((cut + 1))
		c=$WORK/cut/src/c
		if ! "$UNSHARD" heal "$c" >"$WORK/out" 2>&1; then
			unsure=$((unsure + 1))
			grep -q '^w: replicas differ' "$WORK/out" ||
				bad "not named: $(cat "$WORK/out")"
			[ "$returned" = 0 ] || bad "lost after heal returned"
		fi
		heal "$c" || bad "heal again: $(cat "$WORK/out")"
		diff -r -x '.unshard-*' "$c" "$WORK/copies" >"$WORK/out" ||
			bad "$(cat "$WORK/out")"
		[ $how = from ] || "$UNSHARD" verify "$c" >"$WORK/out" 2>&1 ||
			bad "$(cat "$WORK/out")"
		umount "$WORK/cut" || fail "umount of a cut"
	done <"$WORK/plan"
	show "heal, $how"
	[ $torn = 0 ] && [ $cut -ge 3 ] && [ $unsure -ge 1 ] ||
		fail "heal, $how: $torn torn"
done
done_ok
