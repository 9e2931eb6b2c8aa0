#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# unshard devices: a line each, and why what is not there is not.
. "$(dirname "$0")/lib/common.sh"

"$UNSHARD" devices >"$WORK/said" || fail "devices: $?"
[ "$(awk '{ print $1 }' "$WORK/said" | xargs)" = "plain uring cuda cufile nccl" ] ||
	fail "$(cat "$WORK/said")"
grep -q '^plain  *yes ' "$WORK/said" || fail "no plain engine"
! grep -E '^[a-z]+ +no ' "$WORK/said" | grep -v ': .' || fail "no reason"
"$UNSHARD" devices --json | "$PYTHON" -c '
import json, sys
for d in json.load(sys.stdin)["devices"]:
    assert d["there"] or d["why"], d
    print(d["name"], "yes" if d["there"] else "no")' >"$WORK/json" || fail "--json"
awk '{ print $1, $2 }' "$WORK/said" | cmp - "$WORK/json" || fail "--json says else"
"$UNSHARD" devices x 2>"$WORK/err" && fail "takes a word"
"$UNSHARD" devices >/dev/full 2>"$WORK/err" && fail "standard output was full"
done_ok
