# SPDX-License-Identifier: Apache-2.0
# 20,000 random operations in each way of delivery, and then the shards read by
# something that is not ours; fewer on tensors that are stored transposed or
# with copies, and through maps of three views at once.  UNSHARD_NIGHTLY=1: a
# million each, and 20,000 through three views.
LIMIT=240
LIMIT=${UNSHARD_NIGHTLY:+6000}
LIMIT=${LIMIT:-240}
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
fsx=${HELPERS:-$here/build/helper}/fsx
[ -x "$fsx" ] || fail "no helper fsx"
ops=${UNSHARD_NIGHTLY:+1000000}
ops=${ops:-20000}
views=${UNSHARD_NIGHTLY:+20000}
views=${views:-2000}

join() { python3 "$here/tests/mount/lib/join.py" "$WORK/ckpt" "$1" "$WORK/is"; }

make_split "$WORK/ckpt" 200 4097 4
seed=1
while read -r o how; do
	mount_ckpt "$WORK/ckpt" "rw,$o"
	"$fsx" "$MNT/tensors/w" "$WORK/whole.w" "$ops" $((seed++)) "$how" ||
		fail "$how with -o $o"
	umount_ckpt
	join w || fail join
	same "$WORK/is" "$WORK/whole.w"
	join cut.rows || fail join
	same "$WORK/is" "$WORK/whole.rows"
done <<END
direct=auto rw
direct=auto map
direct=off rw
direct=off all
END

# three views of the tensor, all mapped, stored into by turns
for o in direct=auto direct=off; do
	mount_ckpt "$WORK/ckpt" "rw,$o"
	at=$(python3 - "$MNT/model.safetensors" <<-'END'
		import json, struct, sys

		f = open(sys.argv[1], "rb")
		n = struct.unpack("<Q", f.read(8))[0]
		print(8 + n + json.loads(f.read(n))["w"]["data_offsets"][0])
	END
	)
	"$fsx" "$MNT/tensors/w" "$WORK/whole.w" "$views" \
		$((seed++)) views "$MNT/npy/w.npy@-0" \
		"$MNT/model.safetensors@$at" || fail "views with -o $o"
	umount_ckpt
	join w || fail join
	same "$WORK/is" "$WORK/whole.w"
done

# transposed, strided, conjugated and copied; sums of zips
for from in dcp/2.14-layouts torch/strided-2.15; do
	cp -r "$here/tests/formats/$from/in" "$WORK/odd"
	chmod -R u+w "$WORK/odd"
	mount_ckpt "$WORK/odd" rw
	mkdir "$WORK/want"
	for t in "$MNT"/tensors/*; do
		n=$(basename "$t")
		cp "$t" "$WORK/want/$n"
		[ -s "$t" ] || continue
		"$fsx" "$t" "$WORK/want/$n" 300 $((seed++)) all ||
			fail "$n of $from"
		# views of one storage: the others follow it
		for other in "$MNT"/tensors/*; do
			[ -e "$WORK/want/$(basename "$other")" ] &&
				cp -f "$other" "$WORK/want/"
		done
		same "$t" "$WORK/want/$n"
	done
	umount_ckpt
	mount_ckpt "$WORK/odd"
	for t in "$MNT"/tensors/*; do
		same "$t" "$WORK/want/$(basename "$t")"
	done
	umount_ckpt
	python3 "$here/tests/mount/lib/sums.py" "$WORK/odd" || fail "$from"
	rm -rf "$WORK/odd" "$WORK/want"
done
done_ok
