#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A user without root mounts in a user namespace of his own, and needs no fusermount3:
# as docs/recipes.md says it.
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}" unshare
user_setup
as_user unshare -rmpf mount -t tmpfs none "$MNT" 2>/dev/null ||
	skip "users may not mount in namespaces of theirs here"
as_user "$PYTHON" -c "" 2>/dev/null || PYTHON=/usr/bin/python3
[ -z "${SAN:-}" ] || skip "the transcript mounts with the sandbox on"
mkdir "$WORK/bin" "$WORK/page"
cp "$UNSHARD" "$WORK/bin/unshard"
cp -r "$here/tests/demo/checkpoint" "$WORK/page/ckpt"
mkdir -p "$WORK/t/tests/mount/lib" "$WORK/page/mnt"
cp "$here/tests/mount/lib/transcript.py" "$WORK/t/tests/mount/lib/"
cp "$here/docs/recipes.md" "$here/tests/demo/expected.sha256" "$WORK/"
chown -R 65534:65534 "$WORK" 2>/dev/null
cd "$WORK/page" || exit 1
PATH=$WORK/bin:$PATH UNSHARD=$WORK/bin/unshard as_user "$PYTHON" \
	"$WORK/t/tests/mount/lib/transcript.py" "$WORK/recipes.md" \
	--section "Without root and without fusermount3" || fail "the recipe"

# And where there is no fusermount3 at all.
mkdir "$WORK/few"
for c in sh ls sha256sum env; do ln -s "$(command -v $c)" "$WORK/few/"; done
ln -s "$WORK/bin/unshard" "$WORK/few/"
as_user env PATH="$WORK/few" "$(command -v unshare)" -rmpf sh -c \
	'unshard mount ckpt mnt && cd mnt/tensors && sha256sum -c --quiet "$0"' \
	"$WORK/expected.sha256" || fail "without fusermount3"
none_left() { [ -z "$(pids_of unshard)" ]; }
wait_for 10 none_left || fail "left: $(pids_of unshard)"
done_ok
