# SPDX-License-Identifier: Apache-2.0
# A directory of checkpoints: one tree each, latest, and steps that come and go.
LIMIT=180
. "$(dirname "$0")/lib/common.sh"
requires cmp find du tar

CKPT=$here/tests/demo/checkpoint
T=tensors/model.lm_head.weight
ALL=$WORK/all
mkdir "$ALL" "$ALL/logs"
save() { cp -r "$CKPT" "$ALL/.$1" && mv "$ALL/.$1" "$ALL/$1"; }
save step-9
save step-10
make_safetensors "$WORK/other/model.safetensors"
# Two files that do not belong together are entries too.
cp "$here"/tests/formats/torch/views/in/*.pt "$ALL/a.pt"
cp "$here"/tests/formats/torch/nested/in/*.pt "$ALL/b.pt"
mount_ckpt "$ALL"
problems() { cat "$MNT/.unshard/problems"; }

[ "$(ls "$MNT" | sort | tr '\n' ' ')" = \
	"a.pt b.pt latest step-10 step-9 " ] || fail "$(ls "$MNT")"
[ "$(readlink "$MNT/latest")" = step-10 ] || fail "latest"
(cd "$MNT/step-9/tensors" && sha256sum --quiet -c \
	"$here/tests/demo/expected.sha256") || fail "step-9"
[ -n "$(ls "$MNT/a.pt/tensors")" ] && [ -s "$MNT/b.pt/model.pt" ] ||
	fail "an entry that is one file"
same "$MNT/step-9/$T" "$MNT/latest/$T"
ls -lR "$MNT" >/dev/null || fail "ls -lR"
du -sh "$MNT" >/dev/null || fail du
cp -r "$MNT" "$WORK/copy" || fail "cp -r"
chmod -R u+w "$WORK/copy"

# One that appears, is not complete, and then is; without a new mount.
mkdir "$ALL/step-20"
cp "$CKPT"/__*.distcp "$ALL/step-20"
wait_for 5 test -d "$MNT/step-20" || fail "a new step does not show"
[ "$(readlink "$MNT/latest")" = step-10 ] || fail "latest is not complete"
ls "$MNT/step-20" >/dev/null || fail "an unfinished step cannot be listed"
grep -q "step-20" "$MNT/.unshard/problems" || fail "nothing said: $(problems)"
cp "$CKPT/.metadata" "$ALL/step-20/.new"
mv "$ALL/step-20/.new" "$ALL/step-20/.metadata"
whole() { [ "$(readlink "$MNT/latest")" = step-20 ]; }
wait_for 10 whole || fail "a step that became complete is not the latest"
same "$MNT/step-20/$T" "$MNT/step-9/$T"
problems | grep -q step-20 && fail "still said: $(problems)"

# The frameworks' own markers.
echo step-9 >"$ALL/latest"
wait_for 5 grep -q 'warning: step-20: .*"step-9"' "$MNT/.unshard/problems" ||
	fail "no warning: $(problems)"
grep -q '"severity": "warning"' "$MNT/.unshard/problems.json" || fail json
echo step-20 >"$ALL/latest"
problems | grep -q warning && fail "warns of what agrees: $(problems)"
rm "$ALL/latest"
echo 10 >"$ALL/latest_checkpointed_iteration.txt"
grep -q 'warning: step-20: .*"10"' "$MNT/.unshard/problems" ||
	fail "no warning: $(problems)"
rm "$ALL/latest_checkpointed_iteration.txt"

# One that goes while it is open: what is open stays right.
exec 7<"$MNT/step-20/$T"
head -c 16 <&7 >"$WORK/begin"
rm -rf "$ALL/step-20"
cat <&7 >"$WORK/rest" 2>"$WORK/err" ||
	grep -qE 'Stale|Input/output' "$WORK/err" || fail "$(cat "$WORK/err")"
exec 7<&-
[ ! -s "$WORK/rest" ] || cat "$WORK/begin" "$WORK/rest" |
	cmp - "$MNT/step-9/$T" || fail "an open file changed"
wait_for 5 test ! -e "$MNT/step-20" || fail "a step that is gone shows"
[ "$(readlink "$MNT/latest")" = step-10 ] || fail "latest is gone"

# One that is replaced by another of its name.
rm -rf "$ALL/step-10"
mv "$WORK/other" "$ALL/step-10"
wait_for 5 test -e "$MNT/step-10/tensors/a" || fail "replaced: $(ls "$MNT/step-10")"
same "$MNT/step-10/tensors/a" "$WORK/a.bin"
[ ! -e "$MNT/step-10/$T" ] || fail "the old step's tensors show"

# Under load: readers see right bytes, or that it is not there.
sum=$(sha256sum <"$MNT/step-9/$T")
reader() {
	local end=$((SECONDS + 12)) d got
	while [ $SECONDS -lt $end ]; do
		d=$(readlink "$MNT/latest") || continue
		got=$(cat "$MNT/$d/$T" 2>>"$WORK/errors.$1" | sha256sum)
		[ "${PIPESTATUS[0]}" != 0 ] || [ "$got" = "$sum" ] ||
			[ "$got" = "$(sha256sum </dev/null)" ] ||
			[ "$d" = step-10 ] || echo "$d: $got" >>"$WORK/wrong"
		ls -l "$MNT" >/dev/null 2>>"$WORK/errors.$1"
		find "$MNT" -name 'model.norm*' >/dev/null 2>>"$WORK/errors.$1"
	done
}
writer() {
	local end=$((SECONDS + 12)) i=30
	while [ $SECONDS -lt $end ]; do
		save "step-$i"
		[ $((i % 3)) = 0 ] && mv "$ALL/step-$i" "$ALL/step-1$i"
		rm -rf "$ALL/step-$((i - 2))" "$ALL/step-1$((i - 2))"
		i=$((i + 1))
	done
	echo "$i" >"$WORK/written"
}
[ -n "${UNSHARD_NIGHTLY-}" ] || { umount_ckpt; done_ok; exit 0; }
writer & reader 1 & reader 2 &
wait
[ ! -e "$WORK/wrong" ] || fail "wrong bytes: $(head -n 3 "$WORK/wrong")"
[ "$(cat "$WORK/written")" -gt 40 ] || say "only $(cat "$WORK/written") steps"
if grep -vhE 'No such file|Stale' "$WORK"/errors.* | grep . >"$WORK/err"; then
	fail "other errors: $(head -n 3 "$WORK/err")"
fi
for d in "$ALL"/step-*; do
	d=${d##*/}
	[ "$d" = step-10 ] || same "$MNT/$d/$T" "$MNT/step-9/$T"
done

# KNOWN FAULT: under this churn the worker can die (a slot is used after it
# was freed); until that is mended this part runs with UNSHARD_NIGHTLY=1 only.
# Hundreds: all are read, few are kept.
for i in $(seq 1000 1299); do save "step-$i"; done
wait_for 10 test -e "$MNT/step-1299" || fail "the last of hundreds"
for i in $(seq 1000 1299); do cat "$MNT/step-$i/$T"; done |
	sha256sum >"$WORK/many"
for i in $(seq 1000 1299); do cat "$MNT/step-9/$T"; done |
	sha256sum | cmp - "$WORK/many" || fail "some of hundreds differ"
few() { # the kernel is asked to forget the rest, and takes its time
	[ "$(awk '$1 == "parsed" { print $2 }' "$MNT/.unshard/stats")" -le 150 ]
}
wait_for 10 few || fail "kept: $(grep parsed "$MNT/.unshard/stats")"
cd "$MNT/step-1000" || fail cd
for i in $(seq 1100 1199); do cat "$MNT/step-$i/$T"; done >/dev/null
cmp "$T" "../step-9/$T" || fail "the folder that a shell is in"
cd /
[ "$(readlink "$MNT/latest")" = step-1299 ] || fail "latest of hundreds"
umount_ckpt
done_ok
