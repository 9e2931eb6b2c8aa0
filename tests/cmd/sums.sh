#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# examples of formats that say what their tensors hold: each tensor's bytes
#
# tests/formats/NAME/CASE/sums: a line "SHA256 TENSOR" for each that is whole.
LIMIT=120
. "$(dirname "$0")/lib/common.sh"
requires sha256sum

nr=0
for sums in "$TOP"/tests/formats/*/*/sums; do
	case=${sums%/*}
	args=()
	[ ! -e "$case/opts" ] || args=(-o "$(head -n 1 "$case/opts")")
	while read -r sum name; do
		"$UNSHARD" cat "${args[@]}" "$case/in" "$name" >"$WORK/t" ||
			fail "$case: cat $name"
		[ "$(sha256sum <"$WORK/t")" = "$sum  -" ] ||
			fail "$case: $name: other bytes"
		nr=$((nr + 1))
	done <"$sums"
done
[ $nr -ge 40 ] || fail "only $nr tensors were asked"

# What no file has is an error, never zeros.
M=$TOP/tests/formats/megatron
for t in bad-rank-missing bad-rank-cut; do
	expect 1 'mp_rank_01|are in no file' "$UNSHARD" cat \
		"$M/$t/in" decoder.layers.0.mlp.linear_fc2.weight
done
expect 1 'none of the built-in rules fits its name' "$UNSHARD" cat "$M/bad-no-rule/in" \
	decoder.layers.0.adapter.weight
# With a rule it is read, and found to be no copy.
printf '*.adapter.weight same\ndefault\n' >"$WORK/rules"
expect 1 'its copies in .* differ' "$UNSHARD" cat -o rules="$WORK/rules" \
	"$M/bad-no-rule/in" decoder.layers.0.adapter.weight
printf '*.adapter.weight split 0\ndefault\n' >"$WORK/rules"
expect 0 '' "$UNSHARD" cat -o rules="$WORK/rules" "$M/bad-no-rule/in" \
	decoder.layers.0.adapter.weight
[ "$(wc -c <"$WORK/out")" = 128 ] || fail "adapter.weight: other bytes"
expect 1 'no such file' "$UNSHARD" ls -o rules="$WORK/none" \
	"$M/bad-no-rule/in"
done_ok
