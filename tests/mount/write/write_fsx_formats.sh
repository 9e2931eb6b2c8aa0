# SPDX-License-Identifier: Apache-2.0
# Random operations on tensors in containers that keep sums of their bytes, in
# each way of delivery: torch's zip, MindSpore's file with a trailer, DCP's
# items, and safetensors in several files, all sealed.  Then the same bytes, the
# sums and the manifest, by a fresh mount and by readers that are not ours.
# UNSHARD_NIGHTLY=1: 20,000 operations each; FSX_OPS=N: N.
LIMIT=${UNSHARD_NIGHTLY:+3000}
LIMIT=${LIMIT:-120}
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
fsx=${HELPERS:-$here/build/helper}/fsx
[ -x "$fsx" ] || fail "no helper fsx"
ops=${UNSHARD_NIGHTLY:+20000}
ops=${FSX_OPS:-${ops:-200}}
containers() { python3 "$here/tests/mount/lib/containers.py" "$@" || fail "$*"; }

# each msync and each close syncs: in memory, where that is allowed
D=$WORK/data
mkdir "$D"
[ -z "${COMMON_PRIVATE-}" ] || mount -t tmpfs -o size=64m tmpfs "$D" || true

make_dcp() { # two by two pieces, written as a whole and published
	mkdir "$D/src"
	cat >"$WORK/layout.json" <<-'EOS'
		{"unshard_layout": 1,
		 "mesh": {"axes": [{"name": "dp", "size": 2}, {"name": "tp", "size": 2}]},
		 "tensors": [{"name": "w", "dtype": "float32", "shape": [600, 374],
		  "placement": {"dp": {"shard": 0}, "tp": {"shard": 1}}}],
		 "write": {"format": "dcp"}}
	EOS
	head -c $((600 * 374 * 4)) /dev/urandom >"$WORK/dcp.w"
	mount_ckpt "$D/src" rw
	mkdir "$MNT/dcp" && cp "$WORK/layout.json" "$MNT/dcp/unshard-layout.json" &&
		cp "$WORK/dcp.w" "$MNT/dcp/tensors/w" || fail "slices: $(cat "$LOG")"
	"$UNSHARD" publish "$MNT/dcp" >/dev/null || fail "publish"
	umount_ckpt
	mv "$D/src/dcp" "$D/dcp"
	# ours leaves sums out, as torch may; these are kept up to date, then
	containers sums "$D/dcp"
	rm "$D/dcp/.unshard-manifest"
	[ "$(ls "$D/dcp"/*.distcp | wc -l)" = 4 ] || fail "not four files"
}

# independent KIND OUT: the tensor as it is in the files
independent() {
	case $1 in
	split) python3 "$here/tests/mount/lib/join.py" "$D/split" w "$2" ||
		fail join ;;
	*) containers read "$D/$1" "$2" ;;
	esac
}

containers make zip "$D/zip" "$WORK/zip.w"
containers make ckpt "$D/ckpt" "$WORK/ckpt.w"
make_split "$D/split" 250 3601 4
cp "$WORK/whole.w" "$WORK/split.w"
make_dcp
seed=1 cells=0
for kind in dcp zip ckpt split; do
	[ -e "$D/$kind/.unshard-manifest" ] ||
		"$UNSHARD" seal "$D/$kind" >/dev/null || fail "seal"
	independent $kind "$WORK/is"
	same "$WORK/is" "$WORK/$kind.w"
	while read -r o how; do
		[ "$how" != all ] || [ "$ops" -ge 10000 ] || continue
		cp "$WORK/$kind.w" "$WORK/was"
		began=$(date +%s)
		mount_ckpt "$D/$kind" "rw,$o"
		"$fsx" "$MNT/tensors/w" "$WORK/$kind.w" "$ops" $((seed++)) "$how" ||
			fail "$kind, $how with -o $o"
		same "$MNT/tensors/w" "$WORK/$kind.w"
		independent $kind "$WORK/is" # before the unmount, after a close
		same "$WORK/is" "$WORK/$kind.w"
		umount_ckpt
		cmp -s "$WORK/was" "$WORK/$kind.w" && fail "nothing was written"
		independent $kind "$WORK/is"
		same "$WORK/is" "$WORK/$kind.w"
		mount_ckpt "$D/$kind" verify
		same "$MNT/tensors/w" "$WORK/$kind.w"
		tail -c "$(stat -c %s "$WORK/is")" "$MNT/npy/w.npy" |
			cmp - "$WORK/is" || fail "npy of $kind"
		umount_ckpt
		"$UNSHARD" verify "$D/$kind" >"$WORK/out" 2>&1 ||
			fail "$kind: $(cat "$WORK/out")"
		say "$kind, $how with -o $o: $ops operations," \
			"$(($(date +%s) - began)) s"
		cells=$((cells + 1))
	done <<-END
		direct=auto rw
		direct=off rw
		direct=auto map
		direct=off all
	END
done
umount "$D" 2>/dev/null
[ $cells -ge 12 ] || fail "only $cells cells"
done_ok
