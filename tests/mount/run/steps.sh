# SPDX-License-Identifier: Apache-2.0
# A directory of checkpoints: one tree each, latest, and steps that come and go.
LIMIT=180
. "$(dirname "$0")/../lib/common.sh"
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
	"a.pt b.pt hf latest step-10 step-9 " ] || fail "$(ls "$MNT")"
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
M=latest_checkpointed_iteration.txt
[ "$(cat "$MNT/$M")" = 10 ] || fail "$M: $(ls -l "$MNT")"
ls "$MNT" | grep -qx $M || fail "$M is not listed: $(ls "$MNT")"
echo 2000 >"$ALL/$M"
[ "$(cat "$MNT/$M")" = 2000 ] || fail "$M after a change: $(cat "$MNT/$M")"
rm "$ALL/$M"
[ ! -e "$MNT/$M" ] || fail "$M stays"
ls "$MNT" | grep -q $M && fail "$M is still listed"

# One that goes while it is open: each file is right or says that it is stale.
open=("$T" npy/model.lm_head.weight.npy model.safetensors model.pt
	shards/__0_0.distcp .unshard/catalog.json hf/config.json
	hf/model.safetensors)
i=0
for f in "${open[@]}"; do
	[ -e "$MNT/step-20/$f" ] || continue
	cat "$MNT/step-20/$f" >"$WORK/right.$i"
	exec {fd}<"$MNT/step-20/$f" || fail "open $f"
	head -c 16 <&"$fd" >"$WORK/begin.$i"
	fds[i]=$fd
	files[i++]=$f
done
[ $i -ge 6 ] || fail "only ${files[*]}"
exec {dir}<"$MNT/step-20"
cd "$MNT/step-20" || fail cd
rm -rf "$ALL/step-20"
for i in "${!fds[@]}"; do
	fd=${fds[i]}
	if cat <&"$fd" >"$WORK/rest" 2>"$WORK/err"; then
		cat "$WORK/begin.$i" "$WORK/rest" |
			cmp - "$WORK/right.$i" || fail "${files[i]} changed"
	else
		grep -q Stale "$WORK/err" ||
			fail "${files[i]}: $(cat "$WORK/err")"
		cat "$WORK/begin.$i" "$WORK/rest" |
			cmp -n "$(wc -c <"$WORK/rest")" - "$WORK/right.$i" ||
			fail "the begin of ${files[i]} changed"
	fi
	exec {fd}<&-
done
ls -lR . >/dev/null 2>"$WORK/err" ||
	! grep -vE 'Stale|No such file' "$WORK/err" || fail "$(cat "$WORK/err")"
cd /
exec {dir}<&-
wait_for 5 test ! -e "$MNT/step-20" || fail "a step that is gone shows"
[ "$(readlink "$MNT/latest")" = step-10 ] || fail "latest is gone"
problems | grep step-20 && fail "said of what is gone"

# One that is replaced by another of its name.
rm -rf "$ALL/step-10"
mv "$WORK/other" "$ALL/step-10"
wait_for 5 test -e "$MNT/step-10/tensors/a" || fail "replaced: $(ls "$MNT/step-10")"
same "$MNT/step-10/tensors/a" "$WORK/a.bin"
[ ! -e "$MNT/step-10/$T" ] || fail "the old step's tensors show"

# Under load: readers see right bytes, or that it is not there.
CHURN=4 MANY=60
[ -z "${UNSHARD_NIGHTLY-}" ] || CHURN=12 MANY=300
cat "$MNT/step-9/$T" >"$WORK/whole"
reader() {
	local end=$((SECONDS + CHURN)) d got=$WORK/got.$1
	while [ $SECONDS -lt $end ]; do
		d=$(readlink "$MNT/latest") || continue
		# All of it; or an error, after bytes that are right.
		if cat "$MNT/$d/$T" >"$got" 2>>"$WORK/errors.$1"; then
			cmp -s "$got" "$WORK/whole"
		else
			cmp -s -n "$(stat -c %s "$got")" "$got" "$WORK/whole"
		fi || cp "$got" "$WORK/wrong.$d"
		ls -l "$MNT" >/dev/null 2>>"$WORK/errors.$1"
		find "$MNT" -name 'model.norm*' >/dev/null 2>>"$WORK/errors.$1"
		stat -c %i "$MNT"/step-* 2>>"$WORK/errors.$1" | sort |
			uniq -d >>"$WORK/twins"
	done
}
writer() {
	local end=$((SECONDS + CHURN)) i=30
	while [ $SECONDS -lt $end ]; do
		save "step-$i"
		[ $((i % 3)) = 0 ] && mv "$ALL/step-$i" "$ALL/step-1$i"
		rm -rf "$ALL/step-$((i - 2))" "$ALL/step-1$((i - 2))"
		i=$((i + 1))
	done
	echo "$i" >"$WORK/written"
}
writer & reader 1 & reader 2 &
wait
wrong=$(find "$WORK" -maxdepth 1 -name 'wrong.*' -printf '%f %s bytes; ')
[ -z "$wrong" ] || fail "wrong bytes: $wrong"
[ "$(cat "$WORK/written")" -gt $((30 + CHURN)) ] || say "only $(cat "$WORK/written") steps"
[ ! -s "$WORK/twins" ] || fail "one inode for two steps"
# find takes two folders that went while it opened them for one and the same.
if grep -vhE 'No such file|Stale|File system loop' "$WORK"/errors.* | grep . >"$WORK/err"; then
	fail "other errors: $(head -n 3 "$WORK/err")"
fi
for d in "$ALL"/step-*; do
	d=${d##*/}
	[ "$d" = step-10 ] || # a parser that took too long is tried again
		wait_for 20 cmp -s "$MNT/$d/$T" "$MNT/step-9/$T" ||
		fail "$d: $(ls -a "$MNT/$d"; problems)"
done

# Many: all are read, few are kept.
parsed() { awk '$1 == "parsed" { print $2 }' "$MNT/.unshard/stats"; }
last=$((500000 + MANY - 1))
many() { seq 500000 $last; }
for i in $(many); do save "step-$i"; done
wait_for 10 test -e "$MNT/step-$last" || fail "the last of many"
for i in $(many); do cat "$MNT/step-$i/$T"; done | sha256sum >"$WORK/many"
for i in $(many); do cat "$MNT/step-9/$T"; done |
	sha256sum | cmp - "$WORK/many" || fail "some of many differ"
[ "$(parsed)" -le 32 ] || fail "kept: $(parsed)"
# What sleeps is the same when it is asked for again, where a shell is too.
cd "$MNT/step-500000" || fail cd
ls -i "$MNT/step-500000/tensors" >"$WORK/before"
exec 7<"$T" 8<shards/.metadata
for i in $(many); do cat "$MNT/step-$i/$T"; done >/dev/null
[ "$(parsed)" -le 33 ] || fail "kept, with one in use: $(parsed)"
cmp "$T" "../step-9/$T" || fail "the folder that a shell is in"
cmp - "../step-9/$T" <&7 || fail "a file that was open"
cmp - "$CKPT/.metadata" <&8 || fail "a shard that was open"
exec 7<&- 8<&-
for i in $(many); do cat "$MNT/step-$i/$T"; done >/dev/null
ls -i tensors | cmp - "$WORK/before" || fail "other inodes after a sleep"
[ "$(parsed)" -le 32 ] || fail "kept: $(parsed)"
# Folders of reshard/ that are made for who asks are the same ones afterwards.
cd /
R=$MNT/step-500001/reshard
cat "$R"/dim0=2/rank-0000[01].safetensors >"$WORK/two" || fail "dim0=2"
for i in $(many); do cat "$MNT/step-$i/$T"; done >/dev/null
cat "$R"/dim0=3/rank-0000[012].safetensors >"$WORK/three" || fail "dim0=3"
cat "$R"/dim0=2/rank-0000[01].safetensors | cmp - "$WORK/two" ||
	fail "dim0=2 means dim0=3 after a sleep"
cat "$MNT"/step-9/reshard/dim0=3/rank-0000[012].safetensors |
	cmp - "$WORK/three" || fail "dim0=3 is what dim0=2 was before a sleep"
cd "$MNT/step-500000" || fail cd
# Not the same: the shell's folder is gone, the name is the new one's.
for i in $(many); do cat "$MNT/step-$i/$T"; done >/dev/null
touch "$ALL/step-500000/more"
head -c 1 "$T" >/dev/null 2>"$WORK/err" && fail "reads of what is no more"
grep -q Stale "$WORK/err" || fail "not stale: $(cat "$WORK/err")"
same "$MNT/step-500000/$T" "$MNT/step-9/$T"
cd /
[ "$(readlink "$MNT/latest")" = step-$last ] || fail "latest of many"
umount_ckpt

# Where few files may be open, all steps are seen all the same.
(ulimit -n 64 && mount_ckpt "$ALL") || fail "not mounted with few files"
for i in $(many); do
	[ -e "$MNT/step-$i/$T" ] || fail "step-$i is not seen with few files"
done
umount_ckpt
done_ok
