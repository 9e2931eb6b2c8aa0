# SPDX-License-Identifier: Apache-2.0
# common.sh - what the tests of the commands share; source it first
#
#	. "$(dirname "$0")/lib/common.sh"
#	expect 0 '' "$UNSHARD" ls "$CKPT"
#	grep -q lm_head "$WORK/out" || fail "no head"
#	done_ok
#
# Nothing is mounted here.  $WORK is the test's own folder, gone afterwards,
# $TOP the source tree, $UNSHARD the command under test.  Exit 0: passed, 77:
# skipped, else failed; "LIMIT=N" before the line above: at most N seconds.
# The words mean what they mean in tests/mount/lib/common.sh.

set -u

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
UNSHARD=${UNSHARD:-$TOP/build/unshard}
case $UNSHARD in /*) ;; *) UNSHARD=$PWD/$UNSHARD ;; esac
export TOP UNSHARD

say() { echo "$(basename "$0"): $*" >&2; }
fail() { say "FAILED: $*"; exit 1; }
skip() { say "skipped: $*"; exit 77; }
requires() {
	local c
	for c; do
		command -v "$c" >/dev/null || skip "needs $c"
	done
}

[ -x "$UNSHARD" ] || fail "no command at $UNSHARD"
WORK=$(mktemp -d "${TMPDIR:-/tmp}/unshard-test.XXXXXX") || exit 1
chmod 755 "$WORK"
trap 'rm -rf --one-file-system "$WORK"' EXIT

. "$TOP/tests/lib/wait.sh"
. "$TOP/tests/lib/ended.sh"

same() { cmp "$1" "$2" || fail "$1 differs from $2"; }

# expect CODE PATTERN COMMAND...: that exit code, and, where it is not 0, one
# line on stderr that matches the pattern of grep -E.  $WORK/out, $WORK/err.
expect() {
	local want=$1 pattern=$2 rc=0 lines
	shift 2
	"$@" >"$WORK/out" 2>"$WORK/err" || rc=$?
	[ $rc = "$want" ] || fail "$*: exit $rc, expected $want:" \
		"$(head -n 3 "$WORK/err")"
	[ "$want" != 0 ] || return 0
	lines=$(wc -l <"$WORK/err")
	# ls has one for each of the first three errors, and one that counts
	[[ " $* " != *" ls "* || $lines -gt 4 ]] || lines=1
	[ "$lines" = 1 ] || fail "$*: $lines lines on stderr:" \
		"$(head -n 5 "$WORK/err")"
	grep -qE -e "$pattern" "$WORK/err" || fail "$*: expected" \
		"/$pattern/, found: $(cat "$WORK/err")"
}
