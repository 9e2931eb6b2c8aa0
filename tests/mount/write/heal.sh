# SPDX-License-Identifier: Apache-2.0
# The worker is killed between two copies of the bytes that a program writes, with
# nothing of ours in the way, in several formats.  The copies differ then, none is
# served, and unshard heal names them and makes them what the user, or the
# manifest, says; killed in the middle itself, and run again.
LIMIT=240
. "$(dirname "$0")/../lib/common.sh"
requires python3 cp cmp strace
[ -z "${SAN:-}" ] || skip "sanitizers look for leaks at other times"

C=$WORK/ckpt
W=$WORK/w # the tensor: .old and .new
traced() { not grep -q "^TracerPid:[[:space:]]*0" /proc/"$1"/task/*/status; }
# the file of the first part of TENSOR, and the first that has a copy of that
files_of() { # TENSOR
	"$UNSHARD" inspect --json $opts "$C" 2>/dev/null | python3 -c '
import json, sys
t = [t for t in json.load(sys.stdin)["tensors"] if t["name"] == sys.argv[1]][0]
s = t["sources"]
print(s[0]["file"], [r["file"] for r in s if r.get("replica_of") == 0][0])' "$1"
}
# killed TENSOR: the new bytes, and the worker dies before it writes a second copy
killed() {
	local pid tracer
	mount_ckpt "$C" "rw,engine=plain,threads=1,master=ignore${opts:+,${opts#-o}}"
	pid=$(worker_pid)
	# the first is of who writes, in the file that is locked
	strace -f -qq -o "$WORK/trace" -e trace=pwrite64 \
		-e inject=pwrite64:signal=KILL:when=3 -p "$pid" 2>"$WORK/err" &
	tracer=$!
	wait_for 10 traced "$pid" || skip "no strace: $(cat "$WORK/err")"
	dd if="$W.new" of="$MNT/tensors/$1" bs=1M conv=notrunc \
		status=none 2>/dev/null
	wait_for 10 gone "$pid" || fail "$what: not killed"
	wait $tracer
	wait_for 10 not mounted || fail "$what: the mount stays"
}
is() { # WHICH TENSOR
	"$UNSHARD" cat $opts "$C" "$2" >"$WORK/got" || fail "$what: cat"
	cmp -s "$WORK/got" "$W.$1" || fail "$what: is not the $1 one"
	"$UNSHARD" verify -r $opts "$C" >"$WORK/out" 2>&1
	grep -q 'replicas differ\|is being edited\|checksum' "$WORK/out" &&
		fail "$what: $(cat "$WORK/out")"
	return 0
}
prepare() { # DIR TENSOR
	rm -rf "$C"
	cp -rL "$1" "$C" && chmod -R u+w "$C"
	"$UNSHARD" cat $opts "$C" "$2" >"$W.old" || fail "$what: cat"
	tr '\000-\377' '\001-\377\000' <"$W.old" >"$W.new"
	read -r first second < <(files_of "$2")
	[ -n "$second" ] || fail "$what: $2 has no copies"
}

while read -r what sealed tensor opts; do
	dir=$here/tests/formats/$what/in
	[ -n "${UNSHARD_NIGHTLY:-}" ] && set -- no yes || set -- "$sealed"
	for sealed; do
		prepare "$dir" "$tensor"
		[ $sealed = no ] || "$UNSHARD" seal $opts "$C" >/dev/null || fail seal
		killed "$tensor"
		# what a user sees; of items that are found when they are read, and of
		# what is large, only heal and verify --replicas tell
		if [ $what != dcp/2.14-rank-local ]; then
			"$UNSHARD" cat $opts "$C" "$tensor" >"$WORK/got" \
				2>"$WORK/err" && fail "$what: served from one of two"
			grep -q '(unshard heal)' "$WORK/err" ||
				fail "$what: $(cat "$WORK/err")"
		fi
		rc=0
		"$UNSHARD" heal $opts "$C" >"$WORK/out" 2>"$WORK/err" || rc=$?
		[ $rc = 1 ] || fail "$what: heal gave $rc: $(cat "$WORK/err")"
		grep -q "^$tensor: replicas differ: " "$WORK/out" ||
			fail "$what: $(cat "$WORK/out" "$WORK/err")"
		"$UNSHARD" verify --replicas $opts "$C" \
			>"$WORK/out.v" 2>"$WORK/err" &&
			fail "$what: verify --replicas passes it"
		grep -q "$tensor: .*differ" "$WORK/out.v" ||
			fail "$what: verify: $(cat "$WORK/out.v" "$WORK/err")"
		cp -a "$C" "$WORK/torn"
		if [ $sealed = yes ]; then
			grep -q "(as sealed)" "$WORK/out" || fail "$what: $(cat "$WORK/out")"
			expect 0 '' "$UNSHARD" heal --sealed --master ignore $opts "$C"
			is old "$tensor"
			"$UNSHARD" verify $opts "$C" >"$WORK/out" 2>&1
			grep -q 'as they were sealed' "$WORK/out" ||
				fail "$what: verify: $(cat "$WORK/out")"
		else
			expect 2 'is not sealed' "$UNSHARD" heal --sealed $opts "$C"
			expect 0 '' "$UNSHARD" heal --from "$second" --master ignore $opts "$C"
			is old "$tensor"
		fi
		rm -rf "$C" && mv "$WORK/torn" "$C"
		# killed before each write of its own
		rc=137 n=0
		while [ $rc = 137 ]; do
			n=$((n + 1))
			{ UNSHARD_PUBLISH_FAULT=$n "$UNSHARD" heal --from "$first" \
				--master ignore $opts "$C" >"$WORK/out"; } 2>/dev/null
			rc=$?
			[ $n -lt 2 ] || break
		done
		[ $n = 2 ] || fail "$what: not killed, and gave $rc"
		"$UNSHARD" heal --from "$first" --master ignore $opts "$C" \
			>"$WORK/out" 2>"$WORK/err"
		grep -q "all copies are alike\|tensor healed" "$WORK/out" ||
			fail "$what: $(cat "$WORK/out" "$WORK/err")"
		is new "$tensor"
	done
	say "$what: $second"
done <<END
dcp/2.14-rank-local yes norm
dcp/2.14-rank-local no norm
deepspeed/autotp no exp_avg.inp.bias
megatron/by-processes yes decoder.layers.0.input_layernorm.weight
colossalai/dist-equal-ranks no cube
mindspore/2.10-grid yes adam_m.all.scale
nnscaler/safetensors no model.blocks.0.gain
oneflow/rules-found yes System-Train-TrainStep
torch/dtensor-ranks no rep
END

# ---- a large tensor of two parts, each in two files, and both differ ----
C=$WORK/cut what=layout opts=
python3 "$here/tests/mount/lib/copies.py" "$C" 2 1000 4000 2 || fail copies
flip() { # FILE AT
	head -c 100 /dev/zero | dd of="$C/$1.safetensors" bs=1 seek="$2" \
		conv=notrunc status=none
}
flip dp0-tp0 1000000
flip dp1-tp0 1500000
flip dp1-tp1 500000
expect 1 'copies differ in 2 places; --from FILE says whose bytes count$' \
	"$UNSHARD" heal "$C"
expect 1 'copies differ in 2 places' "$UNSHARD" heal --json "$C"
python3 -c 'import json, sys; r = json.load(sys.stdin)["replicas"]
assert sorted(x["files"][1][:7] for x in r) == ["dp1-tp0", "dp1-tp1"], r
assert [x["elements"] > n for x in r for n in [190, 90] if "tp0" in x["files"][1]], r
assert all(x["name"] == "w" for x in r), r' <"$WORK/out" || fail "--json"
# words that are wrong, and what decides nothing: nothing is written
cp -a "$C" "$WORK/was"
expect 2 'no file with tensors has that name' "$UNSHARD" heal --from dp7 "$C"
expect 2 'not both' "$UNSHARD" heal --from dp7 --sealed "$C"
expect 2 'also or ignore' "$UNSHARD" heal --master x --from 'dp0-*' "$C"
expect 2 'no tensor' "$UNSHARD" heal --from 'dp0-*' "$C" none
expect 1 'nothing was healed: 1 tensor left' "$UNSHARD" heal --from '*' "$C"
grep -q 'w: left as it is: --from names several of its copies' "$WORK/out" ||
	fail "$(cat "$WORK/out")"
# who edits it keeps others out
mount_ckpt "$C" rw
exec 7<>"$MNT/tensors/w"
expect 3 'is being edited' "$UNSHARD" heal --from 'dp0-*' "$C"
exec 7>&-
umount_ckpt
diff -r "$C" "$WORK/was" || fail "it was written to"
# one part, then the other
expect 1 'the copies of 1 tensor still differ' \
	"$UNSHARD" heal --from dp0-tp0.safetensors "$C"
grep -q 'w: left as it is: some of it is in no file that --from' "$WORK/out" ||
	fail "$(cat "$WORK/out")"
expect 0 '' "$UNSHARD" heal --json --from dp1-tp1.safetensors "$C" w
python3 -c 'import json, sys; d = json.load(sys.stdin)
assert d["healed"] == ["w"] and d["left"] == [], d' <"$WORK/out" || fail "--json"
for tp in 0 1; do
	for dp in 0 1; do
		cmp "$C/dp$dp-tp$tp.safetensors" \
			"$WORK/was/dp$tp-tp$tp.safetensors" || fail "dp$dp-tp$tp"
	done
done
expect 0 '' "$UNSHARD" heal "$C"
grep -q 'all copies are alike' "$WORK/out" || fail "$(cat "$WORK/out")"

# ---- bytes that went bad in a sealed one: block by block, and its manifest stays true
"$UNSHARD" seal "$C" >/dev/null || fail seal
cp -a "$C" "$WORK/good"
flip dp0-tp0 1200000
flip dp1-tp1 700000
expect 1 'places; --from FILE .*, --sealed those that are as they were sealed' \
	"$UNSHARD" heal "$C"
grep -q 'dp0-tp0.safetensors (not as sealed), dp1-tp0.safetensors (as sealed)' \
	"$WORK/out" || fail "$(cat "$WORK/out")"
expect 0 '' "$UNSHARD" heal --sealed "$C"
diff -r -x .unshard-manifest "$C" "$WORK/good" || fail "not what was sealed"
expect 0 '' "$UNSHARD" verify -r "$C"
# both went bad: nobody knows
flip dp0-tp0 100000
flip dp1-tp0 100050
expect 1 'nothing was healed' "$UNSHARD" heal --sealed "$C"
grep -q 'as it was sealed in none of its copies' "$WORK/out" || fail "$(cat "$WORK/out")"

# ---- where nothing but bytes tells copies from parts, that is said, with what to
# give; the others are healed all the same
C=$WORK/unsure
cp -r "$here/tests/formats/colossalai/bin-no-record/in" "$C" && chmod -R u+w "$C"
flip_in() { # TENSOR
	"$UNSHARD" inspect --json "$C" 2>/dev/null | python3 -c '
import json, sys
t = [t for t in json.load(sys.stdin)["tensors"] if t["name"] == sys.argv[2]][0]
s = t["sources"][1]
with open(sys.argv[1] + "/" + s["file"], "r+b") as f:
    f.seek(s["offset"])
    b = f.read(1)
    f.seek(s["offset"])
    f.write(bytes([b[0] ^ 1]))' "$C" "$1" || fail "flip $1"
}
flip_in running
why='running: left as it is: its copies in .* differ, or are parts, of which no record tells: -o layout=FILE does'
for how in "" "--from *00000.bin"; do
	expect 1 'incomplete: 1 tensor left out' "$UNSHARD" heal $how "$C"
	grep -q "$why" "$WORK/out" || fail "$(cat "$WORK/out")"
	grep -q 'all copies are alike' "$WORK/out" && fail "said to be alike"
done
expect 1 incomplete "$UNSHARD" heal --json "$C"
python3 -c 'import json, sys; d = json.load(sys.stdin)
assert [x["name"] for x in d["left"]] == ["running"] and d["replicas"] == []' \
	<"$WORK/out" || fail "--json"
flip_in cube
expect 0 '' "$UNSHARD" heal --from '*00000.bin' "$C"
grep -q '1 tensor healed' "$WORK/out" && grep -q "$why" "$WORK/out" ||
	fail "$(cat "$WORK/out")"

# ---- a weight that training would undo ----
C=$WORK/nn T=model.blocks.0.down.weight
cp -r "$here/tests/formats/nnscaler/bf16-zero1/in" "$C" && chmod -R u+w "$C"
"$UNSHARD" inspect --json "$C" 2>/dev/null | python3 -c '
import json, os, sys
t = [t for t in json.load(sys.stdin)["tensors"] if t["name"] == sys.argv[2]][0]
s = t["sources"][0]
with open(sys.argv[1] + "/" + s["file"], "r+b") as f:
    f.seek(s["offset"])
    f.write(b"\200\77")
print(s["file"])' "$C" $T >"$WORK/file" || fail "a copy"
expect 1 'the copies of 1 tensor still differ' "$UNSHARD" heal --from "$(cat "$WORK/file")" "$C"
grep -q "$T: left as it is: .*training goes on from its float32 copy" \
	"$WORK/out" || fail "$(cat "$WORK/out")"
expect 0 '' "$UNSHARD" heal --master also --from "$(cat "$WORK/file")" "$C"
"$UNSHARD" cat "$C" "optimizer.${T#model.}.fp32_params" | head -c 4 | cmp - <(printf '\0\0\200\77') ||
	fail "the float32 copy did not follow"
done_ok
