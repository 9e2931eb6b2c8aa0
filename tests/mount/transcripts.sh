# SPDX-License-Identifier: Apache-2.0
# The transcripts of the README and of docs/views.md: each command, run as it is
# written, prints what stands below it.
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
done_ok
