# SPDX-License-Identifier: Apache-2.0
# What a directory of checkpoints says of those in it, for other users: nothing of
# what they could not look at themselves.
. "$(dirname "$0")/lib/common.sh"
requires setpriv
[ "$(id -u)" = 0 ] || skip "needs root"
export UNSHARD_KEEP=0

RUN=$WORK/run
make_safetensors "$RUN/step_1/model.safetensors"
for k in 2 3 4; do
	mkdir -p "$RUN/step_$k"
	echo "{\"unshard_layout\": 1, SECRETWORD$(tr 234 BCD <<<$k)" >"$RUN/step_$k/unshard-layout.json"
	echo x >"$RUN/step_$k/rank-00000.safetensors"
done
mkdir "$RUN/step_3/sub"
chmod -R a+rX "$RUN"
chmod 700 "$RUN/step_2"
as_user ls "$RUN" >/dev/null || skip "$WORK is not open to others"
mount_ckpt "$RUN" allow-other
for k in 1 2 3 4; do ls "$MNT/step_$k" >/dev/null 2>&1; done # somebody looks in
P=$MNT/.unshard/problems

# says USER: what the list says of each step; words: what it says of files
says() {
	$1 cat "$P" >"$WORK/p" && $1 cat "$P.json" >"$WORK/p.json" || fail "$1: problems"
	"${PYTHON:-python3}" - "$WORK/p" "$WORK/p.json" <<'P' || fail "$1: lists differ"
import json, sys
lines = open(sys.argv[1]).read().splitlines()
of = [f"{p['severity']}: {p['file']}: {p['reason']}" for p in json.load(open(sys.argv[2]))]
assert lines == of, (lines, of)
P
	sed 's/^[a-z]*: \([^:]*\): .*/\1/' "$WORK/p" | sort | xargs
}
words() { grep -o 'SECRETWORD.' "$WORK/p" | sort -u | xargs; }

[ "$(says "")" = "step_2 step_3 step_4" ] || fail "root: $(cat "$WORK/p")"
[ "$(words)" = "SECRETWORDB SECRETWORDC SECRETWORDD" ] || fail "root: $(cat "$WORK/p")"
as_user cat "$MNT/step_2/.unshard/problems" 2>/dev/null && fail "its own"
[ "$(says as_user)" = "step_3 step_4" ] || fail "others: $(cat "$WORK/p")"
[ "$(words)" = "SECRETWORDC SECRETWORDD" ] || fail "others: $(cat "$WORK/p")"
# a folder that may be searched is not one that may be listed
chmod 711 "$RUN/step_2"
[ "$(says as_user)" = "step_3 step_4" ] || fail "0711: $(cat "$WORK/p")"
chmod 755 "$RUN/step_2"
[ "$(says as_user)" = "step_2 step_3 step_4" ] || fail "0755: $(cat "$WORK/p")"
# of a file, or a folder, that he may not read, the parser's words are not for him
chmod 600 "$RUN/step_4/unshard-layout.json"
chmod 700 "$RUN/step_3/sub"
[ "$(says as_user)" = "step_2 step_3 step_4" ] || fail "closed: $(cat "$WORK/p")"
[ "$(words)" = SECRETWORDB ] || fail "closed: $(cat "$WORK/p")"
grep -qx 'error: step_4: cannot be read; why is for who may read all of its files' \
	"$WORK/p" || fail "closed: $(cat "$WORK/p")"
as_user cat "$MNT/step_2/.unshard/problems" >/dev/null || fail "its own, open"
for k in 3 4; do
	as_user cat "$MNT/step_$k/.unshard/problems" >"$WORK/out" 2>&1 &&
		fail "its own: $(cat "$WORK/out")"
done
[ "$(says "")" = "step_2 step_3 step_4" ] || fail "root again: $(cat "$WORK/p")"
[ "$(words)" = "SECRETWORDB SECRETWORDC SECRETWORDD" ] || fail "root again: $(cat "$WORK/p")"
# by a group
chgrp 2000 "$RUN/step_4/unshard-layout.json" && chmod 640 "$RUN/step_4/unshard-layout.json"
chgrp 2000 "$RUN/step_2" && chmod 750 "$RUN/step_2"
member() { setpriv --reuid=65534 --regid=65534 --groups=2000 "$@"; }
[ "$(says member)" = "step_2 step_3 step_4" ] || fail "member: $(cat "$WORK/p")"
[ "$(words)" = "SECRETWORDB SECRETWORDD" ] || fail "member: $(cat "$WORK/p")"
[ "$(says as_user)" = "step_3 step_4" ] || fail "no member: $(cat "$WORK/p")"
# another folder of that name is not what the words are of
mv "$RUN/step_2" "$WORK/away"
make_safetensors "$RUN/step_2/model.safetensors"
chmod -R a+rX "$RUN/step_2"
[ "$(says as_user)" = "step_3 step_4" ] || fail "replaced: $(cat "$WORK/p")"
umount_ckpt

# ---- in a group, which has to be one that he may look into
mkdir "$RUN/group"
for k in 5 6; do cp -r "$RUN/step_3" "$RUN/group/step_$k"; done
chmod -R a+rX "$RUN"
mount_ckpt "$RUN" allow-other
for k in step_3 step_4 group/step_5 group/step_6; do
	ls "$MNT/$k" >/dev/null 2>&1
done
[ "$(says as_user)" = "group/step_5 group/step_6 step_3 step_4" ] || fail "group: $(cat "$WORK/p")"
chmod 711 "$RUN/group"
[ "$(says as_user)" = "step_3 step_4" ] || fail "a closed group: $(cat "$WORK/p")"
[ "$(says "")" = "group/step_5 group/step_6 step_3 step_4" ] || fail "group: $(cat "$WORK/p")"
umount_ckpt
done_ok
