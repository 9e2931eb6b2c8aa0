# SPDX-License-Identifier: Apache-2.0
# publish, status, recover and gc, without a mount: stages as a mount that is
# gone leaves them.
. "$(dirname "$0")/lib/common.sh"

CKPT=$TOP/tests/demo/checkpoint
SRC=$WORK/src
mkdir "$SRC"
# stage NAME [FILE...]: those files of the demo checkpoint, or all
stage() {
	local name=$1
	shift
	mkdir -p "$SRC/.staging-$name/files"
	(cd "$CKPT" && cp "${@:-.metadata}" "$SRC/.staging-$name/files")
	[ $# != 0 ] || cp "$CKPT"/__* "$SRC/.staging-$name/files"
}
u() { "$UNSHARD" "$@"; }

# ---- what is missing
stage step-1 .metadata __0_0.distcp __1_0.distcp __2_0.distcp
expect 1 'step-1: not complete: .*__3_0' u publish "$SRC/step-1"
u status "$SRC" >"$WORK/out" || fail status
grep -q '^step-1: left, 4 files' "$WORK/out" || fail "$(cat "$WORK/out")"
grep -q 'not complete: .*__3_0' "$WORK/out" || fail "$(cat "$WORK/out")"
u status --json "$SRC" | python3 -c '
import json, sys
(s,) = json.load(sys.stdin)
assert s["name"] == "step-1" and not s["complete"], s
assert "__3_0" in s["reason"] and s["files"] == 4, s' || fail "status --json"

# ---- complete
cp "$CKPT/__3_0.distcp" "$SRC/.staging-step-1/files"
u status "$SRC" | grep -q 'complete: unshard publish' || fail "status of a whole one"
u publish "$SRC/step-1" | grep -qx 'step-1: published' || fail publish
[ ! -e "$SRC/.staging-step-1" ] || fail "left over"
u publish --json "$SRC/step-1/" | grep -q '"before": true' || fail "twice"
u verify "$SRC/step-1" >/dev/null || fail "its manifest is wrong"
# a folder that was made for want of a mount was not published
mkdir -p "$SRC/by-hand/shards"
expect 1 'by-hand: is there, but .*it has no \.unshard-manifest' \
	"$UNSHARD" publish "$SRC/by-hand"
rm -r "$SRC/by-hand"
# the same as seal makes, tensors included, but for when it was made
cp -r "$SRC/step-1" "$WORK/sealed"
rm "$WORK/sealed/.unshard-manifest"
u seal "$WORK/sealed" >/dev/null || fail seal
python3 - "$SRC/step-1/.unshard-manifest" "$WORK/sealed/.unshard-manifest" <<'END' ||
import struct, sys
a, b = (open(p, "rb").read() for p in sys.argv[1:])
assert struct.unpack_from("<Q", a, 32)[0] > 3, "no tensors"
made = 56
assert a[:made] == b[:made] and a[made + 8 : -16] == b[made + 8 : -16]
END
	fail "publish and seal differ"
[ -z "$(u status "$SRC")" ] || fail "status of what is published"
for c in status gc recover; do
	u $c "$SRC" step-1 >"$WORK/out" && [ ! -s "$WORK/out" ] || fail "$c of a published one"
	expect 1 "none: is no draft of $SRC, nor" u $c "$SRC" none
	expect 1 "none: is no draft of $SRC, nor" u $c "$SRC" step-1 none
done
expect 2 'expected' u publish
expect 1 'none: is no draft' u publish "$SRC/none"
expect 1 'expected DIR/NAME' u publish "$SRC/.x"
expect 2 'expected a number' u publish --ranks=many "$SRC/step-1"

# ---- another name, and one that is taken
stage new
expect 1 'already' u publish --as step-1 "$SRC/new"
for name in .. a/b .hidden latest ""; do
	expect 2 'not the name of a checkpoint' u publish --as "$name" "$SRC/new"
done
touch "$SRC/step-1/old"
u publish --as step-1 --replace "$SRC/new" >/dev/null || fail --replace
[ ! -e "$SRC/step-1/old" ] && [ ! -e "$SRC/.staging-new" ] || fail "not replaced"
u publish --as step-1 --json "$SRC/new" | grep -q '"before": true' ||
	fail "again, under the other name"
for how in "" --replace; do
	expect 1 'typo: there is no draft of that name, .*step-1 was not published from it' \
		u publish $how --as step-1 "$SRC/typo"
done
(cd "$SRC" && stage here && u publish here) >/dev/null && [ -d "$SRC/here" ] ||
	fail "a step of the working directory"

# ---- a manifest that was copied along
S=$SRC/.staging-came/files
came() { u publish -o crc=ignore "$@" "$SRC/came"; }
damage() { printf 'XY' | dd of="$1" bs=1 seek=700 conv=notrunc status=none; }
stage came
cp "$WORK/sealed/.unshard-manifest" "$S"
damage "$S/__1_0.distcp"
for i in 1 2; do
	expect 1 '__1_0\.distcp: block 0 .bytes 0 to [0-9]*. is not what was sealed' came
done
u status "$SRC" came >"$WORK/out"
grep -q 'not complete: __1_0\.distcp: block 0' "$WORK/out" || fail "$(cat "$WORK/out")"
cp "$WORK/sealed/__1_0.distcp" "$S"
u status "$SRC" came | grep -q '  complete:' || fail "status of what was mended"
rm "$S/__1_0.distcp"
printf 'other' >"$S/other"
expect 1 '__1_0' came
cp "$WORK/sealed/__1_0.distcp" "$S"
printf 'more' >>"$S/__2_0.distcp"
expect 1 '__2_0\.distcp: has [0-9]* bytes, and had' came
cp "$WORK/sealed/__2_0.distcp" "$S"
head -c 200 "$WORK/sealed/.unshard-manifest" >"$S/.unshard-manifest"
expect 1 '\.unshard-manifest: 200 bytes long.*; remove it' came
cp "$WORK/sealed/.unshard-manifest" "$S"
came >/dev/null || fail "as it was sealed, and another file"
u verify "$SRC/came" >/dev/null || fail "verify of it"
stage came
cp "$WORK/sealed/.unshard-manifest" "$S"
damage "$S/__1_0.distcp"
expect 1 'block 0' came --as came-2
rm "$S/.unshard-manifest"
came --as came-2 >/dev/null || fail "without the manifest"
# our own, of a publish that broke off before its end, says nothing of what came
for n in $(seq 6 20); do
	rm -rf "$SRC/.staging-off"
	stage off
	UNSHARD_PUBLISH_FAULT=$n:5 "$UNSHARD" publish "$SRC/off" >/dev/null 2>&1
	[ ! -e "$SRC/.staging-off/files/.unshard-manifest" ] || break
done
[ -e "$SRC/.staging-off/files/.unshard-manifest" ] || fail "none broke off behind it"
damage "$SRC/.staging-off/files/__1_0.distcp"
u publish -o crc=ignore "$SRC/off" >/dev/null || fail "its own manifest"

# ---- ranks that no file counts
mkdir -p "$SRC/.staging-ms/files"
cp -r "$TOP"/tests/formats/mindspore/2.10-row4/in/node* "$SRC/.staging-ms/files/" ||
	fail "no example of ranks"
rm -rf "$SRC"/.staging-ms/files/*strategy*
n=$(ls "$SRC/.staging-ms/files" | grep -c node)
expect 1 'ranks|not complete' u publish "$SRC/ms"
expect 1 "missing rank" u publish --ranks $((n + 1)) "$SRC/ms"
f=$(ls "$SRC"/.staging-ms/files/node1/*.ckpt | head -n 1)
cp "$f" "$WORK/whole"
truncate -s $(($(stat -c %s "$f") / 2)) "$f"
expect 1 'not complete' u publish --ranks $n "$SRC/ms"
cp "$WORK/whole" "$f"
u publish --ranks $n --as by-ranks "$SRC/ms" >/dev/null || fail "with --ranks"
stage ms .metadata

# ---- accelerate's folders, a checkpoint each: all must be whole
mkdir -p "$SRC"/.staging-acc/files/pytorch_model_fsdp_0 \
	"$SRC"/.staging-acc/files/optimizer_0
cp "$CKPT"/__* "$CKPT/.metadata" "$SRC/.staging-acc/files/pytorch_model_fsdp_0"
cp "$CKPT"/__[013]* "$CKPT/.metadata" "$SRC/.staging-acc/files/optimizer_0"
expect 1 'not complete: optimizer_0: .*__2_0' u publish "$SRC/acc"
cp "$CKPT"/__2* "$SRC/.staging-acc/files/optimizer_0"
u publish "$SRC/acc" >/dev/null || fail "folders of accelerate"

# ---- a run, its checkpoints a folder down: the same
RUN=$SRC/.staging-run/files/checkpoints
mkdir -p "$RUN/0000-0002" "$RUN/0000-0004"
cp "$CKPT"/__* "$CKPT/.metadata" "$RUN/0000-0002"
cp "$CKPT"/__[013]* "$CKPT/.metadata" "$RUN/0000-0004"
expect 1 'not complete: checkpoints: 0000-0004: .*__2_0' u publish "$SRC/run"
cp "$CKPT"/__2* "$RUN/0000-0004"
u status "$SRC" run | grep -q 'complete: unshard publish' || fail "status of a run"
u publish "$SRC/run" >/dev/null || fail "a run"
u ls "$SRC/run" | grep -q '0000-0004  (latest)' || fail "ls of a run"
mkdir -p "$SRC/.staging-logs/files/checkpoints"
cp "$0" "$SRC/.staging-logs/files/checkpoints"
expect 1 'not complete: no checkpoint found' u publish "$SRC/logs"
rm -r "$SRC/.staging-logs"

# ---- killed at each step of a publish: the rest is done by whoever comes
i=1 killed=0
while :; do
	rm -rf "$SRC/k" "$SRC/.staging-k"
	stage k
	UNSHARD_PUBLISH_FAULT=$i u publish "$SRC/k" >"$WORK/out" 2>&1 && break
	killed=$((killed + 1))
	if [ -e "$SRC/k" ]; then
		u verify "$SRC/k" >/dev/null || fail "torn at step $i"
	fi
	if [ $((i % 2)) = 0 ]; then
		u recover "$SRC" >/dev/null || fail "recover after step $i"
	fi
	u publish "$SRC/k" >/dev/null || fail "publish after step $i"
	u verify "$SRC/k" >/dev/null || fail "wrong after step $i"
	u recover "$SRC" >/dev/null || fail "recover after step $i"
	[ -z "$(ls -A "$SRC" | grep 'staging-k')" ] || fail "left over after $i"
	i=$((i + 1))
	[ $i -lt 100 ] || fail "publish has no end"
done
[ $killed -ge 15 ] || fail "only $killed steps"

# ---- a folder that cannot be removed while something in it is open (sshfs,
# bindfs: ENOTEMPTY) goes at the end of the command
for i in $(seq "$killed"); do
	rm -rf "$SRC/k" "$SRC"/.staging-k "$SRC"/.staging-.gone*
	stage k
	UNSHARD_PUBLISH_FAULT=$i:39 u publish "$SRC/k" >/dev/null 2>&1 || continue
	[ -z "$(ls -A "$SRC" | grep 'staging-.gone')" ] || fail "left at step $i"
done

# ---- gc
u gc "$SRC" | grep -q 'kept: ms: changed' || fail "gc of what is new"
u gc --age 0 "$SRC" step-9 | grep -q . && fail "gc of another"
# The clock of who wrote last may be ahead.
find "$SRC/.staging-ms" -type f -exec touch -d '1 hour' {} +
u gc --age 1 "$SRC" ms | grep -q 'kept: ms: changed 0 s ago' || fail "gc of what is to come"
u gc --json --age=0 "$SRC" ms | grep -q '"removed": true' || fail gc
[ ! -e "$SRC/.staging-ms" ] || fail "gc left it"
[ -d "$SRC/step-1" ] || fail "gc took a checkpoint"
done_ok
