#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/run-scripts itself: which scripts pass.
. "$(dirname "$0")/lib/common.sh"

mkdir "$WORK/b"
ln -s "$UNSHARD" "$WORK/b/unshard"
at=$(realpath --relative-to "$TOP" "$WORK")
script() { # NAME, and its lines on standard input
	{ printf '. %q\n' "$TOP/tests/cmd/lib/common.sh" && cat; } >"$WORK/$1.sh"
}
result() { # pass|fail|skip NAME PATTERN
	: >"$WORK/results"
	(unset UNSHARD_TEST && B=$WORK/b RESULTS=$WORK/results \
		"$TOP/tests/run-scripts" "$at/$2.sh") >"$WORK/said" 2>&1
	grep -qE "^$1 [^ ]* $3" "$WORK/results" ||
		fail "$2: $(cat "$WORK/results" "$WORK/said")"
}

script whole <<<$'true\ndone_ok'
result pass whole ''
script cut <<<'true'
result fail cut 'ended before its last line, done_ok'
script left_early <<<$'exit 0\ndone_ok'
result fail left_early 'ended before'
script failed <<<$'fail "this"\ndone_ok'
result fail failed 'exit 1'
script skipped <<<$'skip "that"\ndone_ok'
result skip skipped 'that'
script skipped_beside <<<$'sleep 99 &\nskip "that"'
result fail skipped_beside 'left behind: process:sleep 99'
done_ok
