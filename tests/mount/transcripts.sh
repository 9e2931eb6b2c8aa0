# SPDX-License-Identifier: Apache-2.0
# The transcripts of the README and of docs/views.md, and the first ones of
# docs/publishing.md and docs/resharding.md: each command, run as it is written,
# prints what stands below it.
LIMIT=60
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}" cmp sha256sum
[ -z "${SAN:-}" ] || skip "the transcripts mount with the sandbox on"
mkdir "$WORK/bin"
ln -s "$UNSHARD" "$WORK/bin/unshard"
PATH=$WORK/bin:$PATH

for page in README.md docs/views.md; do
	mkdir "$WORK/page"
	(cd "$WORK/page" && "$PYTHON" "$here/tests/mount/lib/transcript.py" \
		"$here/$page") || fail "$page"
	rm -rf "$WORK/page"
done

section() { # PAGE NAME: in the folder where we are
	"$PYTHON" "$here/tests/mount/lib/transcript.py" "$here/$1" --section "$2" ||
		fail "$1: $2"
}
mkdir "$WORK/page" "$WORK/page/runs" "$WORK/page/mnt" "$WORK/page/m"
cd "$WORK/page" || exit 1
cp -r "$here/tests/demo/checkpoint" saved
section docs/publishing.md "What it looks like"
cp -r "$here/tests/mount/data/reshard" .
sed -n 's/^    //; /^{"mesh"/,/}}$/p' "$here/docs/resharding.md" | head -n 2 >two.json
section docs/resharding.md "Another mesh"
"$UNSHARD" umount m || fail "m: not unmounted"
done_ok
