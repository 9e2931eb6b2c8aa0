# SPDX-License-Identifier: Apache-2.0
# A 16-bit weight of which the optimizer has a float32 copy is written only if
# the user says what becomes of the other; then both, or one.
. "$(dirname "$0")/../lib/common.sh"
requires python3

cp -r "$here/tests/formats/deepspeed/zero2-3ranks/in" "$WORK/ckpt"
chmod -R u+w "$WORK/ckpt"
half=$MNT/tensors/module.emb.weight
full=$MNT/tensors/fp32.emb.weight

mount_ckpt "$WORK/ckpt" rw
cp "$half" "$WORK/half" && cp "$full" "$WORK/full"
printf ab | dd of="$half" conv=notrunc status=none 2>/dev/null &&
	fail "a write that training would undo"
same "$half" "$WORK/half"
wait_for 5 grep -q 'its float32 copy fp32.emb.weight.*-o master=' "$LOG" ||
	fail "no line that says why"
# the copy itself can be written, and so can what has none
printf abcd | dd of="$full" conv=notrunc status=none || fail "the copy"
cp "$WORK/full" "$WORK/full.new"
printf abcd | dd of="$WORK/full.new" conv=notrunc status=none
same "$full" "$WORK/full.new"
umount_ckpt

mount_ckpt "$WORK/ckpt" rw,master=ignore
printf 'xyz' | dd of="$half" bs=1 seek=7 conv=notrunc status=none || fail ignore
printf 'xyz' | dd of="$WORK/half" bs=1 seek=7 conv=notrunc status=none
same "$half" "$WORK/half"
same "$full" "$WORK/full.new"
umount_ckpt

# bytes 7 to 21 are of elements 3 to 10, all of which are written wider
mount_ckpt "$WORK/ckpt" rw,master=also
python3 - "$half" "$full" "$WORK/full.new" <<'END' || fail "master=also"
import mmap, os, sys

half, full, before = sys.argv[1:]
see = open(full, "rb")
m = mmap.mmap(see.fileno(), 0, prot=mmap.PROT_READ)
was = open(before, "rb").read()
assert m[:] == was
fd = os.open(half, os.O_WRONLY)
os.pwrite(fd, bytes(range(64, 78)), 7)
os.close(fd)
h = open(half, "rb").read()
want = was[:12] + b"".join(b"\0\0" + h[2 * i : 2 * i + 2] for i in range(3, 11)) + was[44:]
assert open(full, "rb").read() == want
assert m[:] == want, "the map of the copy is old"
END
umount_ckpt

# what is tied in a pipeline has a copy in the optimizer of each stage, of which
# one is shown; the rest of a pipeline is as any other
cp -r "$here/tests/formats/deepspeed/pipeline/in" "$WORK/pp"
chmod -R u+w "$WORK/pp"
for t in module fp32 exp_avg; do
	: >"$LOG"
	mount_ckpt "$WORK/pp" rw,master=also
	printf ab | dd of="$MNT/tensors/$t.tied_modules.embed.weight" \
		conv=notrunc status=none 2>/dev/null &&
		fail "$t: a copy of another stage would stay"
	# the supervisor writes the log
	wait_for 5 grep -q 'optimizer of each stage that is tied' "$LOG" ||
		fail "$t: $(cat "$LOG")"
	umount_ckpt
done
mount_ckpt "$WORK/pp" rw,master=also
printf '\200\77' | dd of="$MNT/tensors/module.3.down.weight" conv=notrunc \
	status=none || fail "one that is not tied"
head -c 4 "$MNT/tensors/fp32.3.down.weight" | cmp - <(printf '\0\0\200\77') ||
	fail "its copy"
umount_ckpt
mount_ckpt "$WORK/pp" rw,master=ignore
printf '\200\77' | dd of="$MNT/tensors/module.tied_modules.embed.weight" \
	conv=notrunc status=none || fail "master=ignore of one that is tied"
umount_ckpt

# Megatron-LM: one long vector a rank, which does not say of what
cp -r "$here/tests/formats/megatron/distributed-optimizer/in" "$WORK/mg"
chmod -R u+w "$WORK/mg"
norm=$MNT/tensors/decoder.layers.0.input_layernorm.weight
for how in rw rw,master=also; do
	: >"$LOG"
	mount_ckpt "$WORK/mg" $how
	printf ab | dd of="$norm" conv=notrunc status=none 2>/dev/null &&
		fail "$how: a write that the distributed optimizer would undo"
	umount_ckpt
	said='layernorm.weight: .*float32 copies.*-o master=ignore'
	wait_for 5 grep -q "$said" "$LOG" # by another process
	[ "$(grep -c "$said" "$LOG")" = 1 ] && [ "$(wc -l <"$LOG")" = 1 ] ||
		fail "$how: $(cat "$LOG")"
done
mount_ckpt "$WORK/mg" rw,master=ignore
printf ab | dd of="$norm" conv=notrunc status=none || fail "Megatron, ignore"
umount_ckpt
# both ranks have the new bytes, or the next mount would refuse the tensor
mount_ckpt "$WORK/mg"
[ "$(head -c 2 "$norm")" = ab ] || fail "Megatron: $(xxd "$norm")"
umount_ckpt

# nnScaler: bf16 weights, their copies in ZeRO's buckets; of tied weights the
# optimizer knows one name.
cp -r "$here/tests/formats/nnscaler/bf16-zero1/in" "$WORK/nn"
chmod -R u+w "$WORK/nn"
nn=$MNT/tensors
mount_ckpt "$WORK/nn" rw
for t in emb.weight head.weight blocks.0.up.weight; do
	printf ab | dd of="$nn/model.$t" conv=notrunc status=none 2>/dev/null &&
		fail "nnScaler: $t"
	n=${t/head/emb}
	said="model.$t: .* copy optimizer.$n.fp32_params"
	wait_for 5 grep -q "$said" "$LOG"
	tail -n 1 "$LOG" | grep -q "$said" ||
		fail "$t: $(tail -n 1 "$LOG")"
done
# a buffer has none
printf ab | dd of="$nn/model.blocks.0.shift" conv=notrunc status=none ||
	fail "nnScaler: a buffer"
cat "$nn"/optimizer.* >"$WORK/before"
umount_ckpt
mount_ckpt "$WORK/nn" rw,master=ignore
printf ab | dd of="$nn/model.head.weight" conv=notrunc status=none ||
	fail "nnScaler, ignore"
cat "$nn"/optimizer.* | cmp - "$WORK/before" || fail "nnScaler, ignore: a copy"
umount_ckpt
mount_ckpt "$WORK/nn" rw,master=also
printf '\200\077\000\300' |
	dd of="$nn/model.head.weight" bs=2 seek=5 conv=notrunc status=none ||
	fail "nnScaler, also"
[ "$(od -An -tf4 -j20 -N8 "$nn/optimizer.emb.weight.fp32_params" | xargs)" = \
	"1 -2" ] || fail "nnScaler, also: the copy"
cat "$nn"/optimizer.* | cmp -l - "$WORK/before" >"$WORK/differ"
[ "$(wc -l <"$WORK/differ")" -le 8 ] || fail "nnScaler, also: more than the two"
umount_ckpt

# the weight is written and its copy is not: that is said
UNSHARD_FAULT=write:2:1:28 mount_ckpt "$WORK/nn" rw,master=also
printf ab | dd of="$nn/model.head.weight" conv=notrunc status=none 2>/dev/null &&
	fail "nnScaler, also: a copy that could not be written"
grep -q 'training goes on from other values in its float32 copy optimizer.emb' \
	"$MNT/.unshard/problems" || fail "$(cat "$MNT/.unshard/problems")"
umount_ckpt

# and whoever stores the same again, through a map too, mends it
for o in direct=auto direct=off; do
	UNSHARD_FAULT=write:2:1:28 mount_ckpt "$WORK/nn" "rw,master=also,$o"
	python3 - "$MNT" <<'END' || fail "not mended by a map with -o $o"
import mmap, os, sys

mnt = sys.argv[1]
half = mnt + "/tensors/model.head.weight"
full = mnt + "/tensors/optimizer.emb.weight.fp32_params"
old = open(half, "rb").read()
new = bytes([old[10] ^ 1, old[11] ^ 4])
fd = os.open(half, os.O_RDWR)
try:
    os.pwrite(fd, new, 10)
    sys.exit("no fault")
except OSError:
    pass
assert open(half, "rb").read()[10:12] == new
assert open(full, "rb").read()[20:24] != b"\0\0" + new
m = mmap.mmap(fd, 0)
at = m.find(old[:10] + new + old[12:]) + 10
assert at >= 10
m[at : at + 2] = new
m.flush()
w, c = open(half, "rb").read(), open(full, "rb").read()
assert c[20:24] == b"\0\0" + new, "the copy"
m[at] ^= 2  # from now on only what changes counts again
m.flush()
w = open(half, "rb").read()
assert open(full, "rb").read() == c[:22] + w[10:12] + c[24:], "others"
END
	umount_ckpt
done

# ColossalAI: moments beside a bf16 model, and no copy of any weight: what is
# written is what the next load makes its float32 copies of
mkdir "$WORK/ca"
cp -r "$here/tests/formats/colossalai/async/in" "$WORK/ca/model"
cp -r "$here/tests/formats/colossalai/optim-async/in" "$WORK/ca/optimizer"
chmod -R u+w "$WORK/ca"
mount_ckpt "$WORK/ca" rw
norm=$MNT/model/tensors/model.norm.weight
cat "$MNT"/optimizer/tensors/* >"$WORK/before"
printf ab | dd of="$norm" conv=notrunc status=none || fail "ColossalAI"
cat "$MNT"/optimizer/tensors/* | cmp - "$WORK/before" || fail "ColossalAI: a state"
umount_ckpt
# its copies on two ranks agree, or the next mount would refuse it
mount_ckpt "$WORK/ca"
[ "$(head -c 2 "$norm")" = ab ] || fail "ColossalAI: $(xxd "$norm")"
umount_ckpt
expect 2 'master: expected' "$UNSHARD" mount "$WORK/ckpt" "$MNT" -o master=no

# of a page that is sent whole only what was stored counts, for the copy too;
# with the copy refused, what else is in the page can be written
for o in direct=auto direct=off "overlay=$WORK/over"; do
	rm -rf "$WORK/ckpt"
	cp -r "$here/tests/formats/deepspeed/zero2-3ranks/in" "$WORK/ckpt"
	chmod -R u+w "$WORK/ckpt"
	mount_ckpt "$WORK/ckpt" "rw,master=also,$o"
	python3 "$here/tests/mount/lib/master_pages.py" "$MNT" ||
		fail "pages with -o $o"
	umount_ckpt
done
rm -rf "$WORK/over"
mount_ckpt "$WORK/ckpt" rw
python3 - "$MNT" <<'END' || fail "a page of several"
import mmap, os, sys

mnt = sys.argv[1]
half, full = (mnt + "/tensors/%s.emb.weight" % n for n in ("module", "fp32"))
w, m = open(half, "rb").read(), open(full, "rb").read()
fd = os.open(mnt + "/model.pt", os.O_RDWR)
pt = mmap.mmap(fd, 0)
i, j = pt.find(w), pt.find(m)
assert 0 < j < i < j + 4096
pt[j : j + 4] = b"abcd"
pt.flush()
assert open(full, "rb").read() == b"abcd" + m[4:]
assert open(half, "rb").read() == w
pt[i : i + 2] = b"ab"
try:
    pt.flush()
    sys.exit("stored what training would undo")
except OSError:
    pass
assert open(half, "rb").read() == w
END
umount_ckpt
done_ok
