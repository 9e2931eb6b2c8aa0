# SPDX-License-Identifier: Apache-2.0
# Processes that write to a page of a file while others store into it through
# maps lose nothing, nor do these, whichever way the file is opened.
# UNSHARD_NIGHTLY=1: ten seconds each.
LIMIT=${UNSHARD_NIGHTLY:+900}
LIMIT=${LIMIT:-150}
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
requires python3
lib=$here/tests/mount/lib
time=${UNSHARD_NIGHTLY:+10}
time=${time:-0.4}

tries() { # PROGRAM ARGUMENT...
	python3 "$lib/$1" "${@:2}" >"$WORK/said" 2>&1 ||
		fail "$* with -o $o: $(tail -n 5 "$WORK/said")"
}

make_split "$WORK/ckpt" 200 4097 5
for o in direct=auto direct=off threads=2,direct=off threads=2; do
	mount_ckpt "$WORK/ckpt" "rw,$o"
	w=$MNT/tensors/w
	npy=$MNT/npy/w.npy@$(($(stat -c %s "$MNT/npy/w.npy") - 200 * 4097))
	for how in RDWR WRONLY 'RDWR|DIRECT'; do
		tries beside_map.py "$w" "$how"
		tries beside_many.py "$w" "$w" "$how" "$time"
		# of another view, what is not mapped for writing too
		tries beside_many.py "$w" "$npy" "${how/RDWR/WRONLY}" "$time"
	done
	tries beside_map.py "$w" SAME+RDWR
	tries beside_map.py "$w" 'SAME+RDWR|DIRECT'
	umount_ckpt
done
done_ok
