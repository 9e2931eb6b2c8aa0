# SPDX-License-Identifier: Apache-2.0
# nnScaler: checkpoints of many plans, byte by byte; a run's folder with links;
# names for a merged optimizer; 100 ranks in a second.
LIMIT=180
. "$(dirname "$0")/lib/common.sh"
requires cmp diff "${PYTHON:=python3}"

make_ckpt() {
	"$PYTHON" "$here/tests/formats/make_nnscaler.py" "$WORK/nn" "$@" ||
		fail "$*: not made"
}

# whole KEY=VALUE...: makes one and compares every tensor
whole() {
	make_ckpt "$@"
	mount_ckpt "$WORK/nn/ck"
	diff -rq "$WORK/nn/want" "$MNT/tensors" >"$WORK/diff" ||
		fail "$*: $(head -3 "$WORK/diff")"
	grep -v 'not saved by design' "$MNT/.unshard/problems" &&
		fail "$*: that is no problem"
	umount_ckpt
}

whole plan=2 units=2 tied=1
whole plan=2 units=3 zero=1 buckets=3 dedup=1 bf16=1
whole plan=2 units=4 zero=1 groups=2 mixed=1
whole plan=1 units=3 zero=3 width=7
whole plan=2 units=2 zero=3 table=0
whole plan=4 units=2 stages=2 layers=3 zero=1 buckets=2 st=1
whole plan=2 units=2 zero=1 old=1 mixed=1 dedup=1
if [ -n "${UNSHARD_NIGHTLY:-}" ]; then
	for seed in $(seq 20); do
		for zero in 0 1 3; do
			whole plan=$((1 + seed % 3)) units=$((1 + seed % 4)) \
				zero=$zero buckets=$((1 + seed % 5)) \
				dedup=$((seed % 2)) bf16=$((seed / 2 % 2)) \
				st=$((seed / 4 % 2)) seed="$seed"
		done
	done
fi

# --- the folder of a run: its checkpoints, and links between them
RUN=$WORK/run
mkdir -p "$RUN/checkpoints/last" "$RUN/.nnscaler"
make_ckpt plan=2 steps=2
mv "$WORK/nn/ck" "$RUN/checkpoints/0000-0002"
make_ckpt plan=2 steps=4
mv "$WORK/nn/ck" "$RUN/checkpoints/0000-0004"
ln -s ../0000-0004/0.ckpt ../0000-0004/1.ckpt "$RUN/checkpoints/last"
mount_ckpt "$RUN"
[ "$(ls "$MNT" | tr '\n' ' ')" = "0000-0002 0000-0004 hf last latest " ] ||
	fail "a run shows $(ls "$MNT")"
[ "$(readlink "$MNT/latest")" = 0000-0004 ] || fail "latest"
diff -rq "$WORK/nn/want" "$MNT/last/tensors" || fail "last is another"
umount_ckpt
"$UNSHARD" ls "$RUN" >"$WORK/out" || fail "ls of a run"
[ "$(grep -c ^complete "$WORK/out")" = 3 ] || fail "ls: $(cat "$WORK/out")"
"$UNSHARD" ls "$RUN/checkpoints/last" 2>"$WORK/err" && fail "links were followed"
grep -q 'last/0.ckpt: a link to .*-o follow=' "$WORK/err" ||
	fail "of links: $(cat "$WORK/err")"
"$UNSHARD" ls -o "follow=$RUN" "$RUN/checkpoints/last" >/dev/null ||
	fail "follow"

# --- a merged file that could be of several parameters
MERGED=$here/tests/formats/nnscaler/merged-doubtful/in
mount_ckpt "$MERGED"
[ -e "$MNT/tensors/optimizer.state.0.exp_avg" ] || fail "no state by number"
grep -q 'o params=FILE' "$MNT/.unshard/problems" || fail "no way is said"
cp "$MNT/tensors/optimizer.state.0.exp_avg" "$WORK/state"
umount_ckpt
printf '%s\n' a.x c.weight c.bias d >"$WORK/names"
mount_ckpt "$MERGED" "params=$WORK/names"
same "$MNT/tensors/optimizer.a.x.exp_avg" "$WORK/state"
umount_ckpt
printf '%s\n' a.x c.weight d c.bias >"$WORK/names"
"$UNSHARD" ls -o "params=$WORK/names" "$MERGED" 2>"$WORK/err" &&
	fail "names that do not fit"
grep -q 'line 3' "$WORK/err" || fail "$(cat "$WORK/err")"

# --- 100 ranks
make_ckpt plan=4 units=25 zero=1 buckets=4 layers=4
best=999999
for i in 1 2 3; do
	start=$(date +%s%N)
	"$UNSHARD" ls ${SAN:+-o sandbox=off} "$WORK/nn/ck" >/dev/null || fail "100 ranks"
	took=$((($(date +%s%N) - start) / 1000000))
	[ "$took" -lt "$best" ] && best=$took
done
say "100 ranks: $best ms"
[ -n "${SAN:-}" ] || [ "$best" -lt 1000 ] ||
	fail "100 ranks took $best ms"
done_ok
