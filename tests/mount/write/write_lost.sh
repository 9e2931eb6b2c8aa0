# SPDX-License-Identifier: Apache-2.0
# A write is refused, and changes no file, while a file that should hold a copy
# of what it writes is missing or torn: the copy may come back.
. "$(dirname "$0")/../lib/common.sh"
requires "${PYTHON:=python3}" cmp getfattr

# Four ranks, each with a file of weights and one of the optimizer; dp copies,
# tp cuts.  $1: how the layout says that (steps, boxes).
make_copies() {
	rm -rf "$WORK/ckpt"
	"$PYTHON" - "$WORK/ckpt" "$1" <<'END' || fail "no checkpoint"
import json, os, struct, sys

d, how = sys.argv[1:]
os.mkdir(d)
for rank in range(4):
    part = bytes(range(rank % 2 * 32, rank % 2 * 32 + 32))
    for file, name in (("r", "t"), ("o", "m")):
        head = json.dumps({name: {"dtype": "U8", "shape": [8, 4],
                                  "data_offsets": [0, 32]}}).encode()
        head += b" " * (-len(head) % 8)
        with open(f"{d}/{file}-{rank}.safetensors", "wb") as f:
            f.write(struct.pack("<Q", len(head)) + head + part)
place = {"placement": {"dp": "replicate", "tp": {"shard": 0}}}
if how == "boxes":
    place = {"shape": [16, 4],
             "boxes": [{"at": {"tp": tp}, "start": [tp * 8, 0],
                        "size": [8, 4]} for tp in (0, 1)]}
json.dump({"unshard_layout": 1,
           "mesh": {"axes": [{"name": "dp", "size": 2},
                             {"name": "tp", "size": 2}]},
           "files": [{"path": "r-{rank}.safetensors",
                      "kind": "safetensors"},
                     {"path": "o-{rank}.safetensors",
                      "kind": "safetensors"}],
           "tensors": [{"name": "t", **place}, {"name": "m", **place}]},
          open(d + "/unshard-layout.json", "w"))
open(d + "/../whole", "wb").write(bytes(range(64)))
END
}

put() { # OFFSET
	printf NEWBYTES | dd of="$MNT/tensors/t" bs=1 seek="$1" \
		conv=notrunc,fsync 2>"$WORK/said"
}

# $1: the file that is lost; the rows from byte $2 on are in it, $3 are not
refused() {
	rm -rf "$WORK/was"
	cp -r "$WORK/ckpt" "$WORK/was"
	: >"$LOG"
	mount_ckpt "$WORK/ckpt" rw
	same "$MNT/tensors/t" "$WORK/whole"
	put "$2" && fail "written without $1"
	grep -q 'Input/output error' "$WORK/said" || fail "$(cat "$WORK/said")"
	diff -r "$WORK/was" "$WORK/ckpt" -x '.unshard*' ||
		fail "a refused write changed something"
	logged() { grep -q "$1" "$LOG"; }
	wait_for 5 logged "$1.*could not be written" ||
		fail "no word of $1: $(cat "$LOG")"
	put "$3" || fail "what all copies are there of: $(cat "$WORK/said")"
	umount_ckpt
}

for how in steps boxes; do
	make_copies $how
	mv "$WORK/ckpt/r-2.safetensors" "$WORK/r-2"
	refused r-2.safetensors 0 32
	mv "$WORK/r-2" "$WORK/ckpt/r-2.safetensors"
	mount_ckpt "$WORK/ckpt" rw # no copy disagrees
	put 0 || fail "all are back: $(cat "$WORK/said")"
	umount_ckpt

	make_copies $how # not even its header
	truncate -s 20 "$WORK/ckpt/r-1.safetensors"
	refused r-1.safetensors 32 0

	make_copies $how # the last bytes
	truncate -s -8 "$WORK/ckpt/r-3.safetensors"
	refused r-3.safetensors 56 0

	# All of one row of ranks is lost: the layout says that they held
	# copies.
	make_copies $how
	rm "$WORK/ckpt/r-2.safetensors" "$WORK/ckpt/r-3.safetensors"
	mount_ckpt "$WORK/ckpt" rw
	put 0 && fail "written without r-2"
	put 32 && fail "written without r-3"
	same "$MNT/tensors/t" "$WORK/whole"
	umount_ckpt

	# Another file of the same rank never held it.
	make_copies $how
	rm "$WORK/ckpt/o-0.safetensors"
	mount_ckpt "$WORK/ckpt" rw
	put 0 || fail "refused for want of o-0: $(cat "$WORK/said")"
	[ "$(getfattr --only-values -n user.unshard.state \
		"$MNT/tensors/t")" = ok ] || fail "t is not as it was"
	umount_ckpt
done
# Formats without an index: what a missing rank's file held, nobody knows.
for case in mindspore/2.10-once:rank_0/net.ckpt:d.scale \
	mindspore/2.10-row4:node0/CKP_1-4_32.ckpt:learning_rate \
	torch/dtensor-ranks:dtensor_rank0.pt:rep \
	nnscaler/tp2-dp2:0.ckpt:model.blocks.0.count; do
	IFS=: read -r name file tensor <<<"$case"
	rm -rf "$WORK/ckpt"
	cp -r "$here/tests/formats/$name/in" "$WORK/ckpt"
	chmod -R u+w "$WORK/ckpt"
	mv "$WORK/ckpt/$file" "$WORK/aside"
	rm -rf "$WORK/was"
	cp -r "$WORK/ckpt" "$WORK/was"
	: >"$LOG"
	mount_ckpt "$WORK/ckpt" rw,master=ignore
	[ -e "$MNT/tensors/$tensor" ] || tensor=$(ls "$MNT/tensors" | head -n 1)
	printf x | dd of="$MNT/tensors/$tensor" bs=1 conv=notrunc \
		2>"$WORK/said" && fail "$name: written without $file"
	grep -q 'Input/output error' "$WORK/said" || fail "$(cat "$WORK/said")"
	wait_for 5 grep -q "a copy of it may be in" "$LOG" || fail "$name: $(cat "$LOG")"
	umount_ckpt
	diff -r "$WORK/was" "$WORK/ckpt" -x '.unshard*' ||
		fail "$name: a refused write changed something"
	mv "$WORK/aside" "$WORK/ckpt/$file"
	mount_ckpt "$WORK/ckpt" rw,master=ignore
	printf x | dd of="$MNT/tensors/$tensor" bs=1 conv=notrunc \
		2>"$WORK/said" || fail "$name: all are back: $(cat "$WORK/said")"
	umount_ckpt
done
done_ok
