#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# random meshes, shards, stages and nested splits of MindSpore, OneFlow and
# ColossalAI, and partitions of DeepSpeed, each tensor against a writer that dealt its elements one by one
# UNSHARD_NIGHTLY=1: many more.
LIMIT=${UNSHARD_NIGHTLY:+1800}
LIMIT=${LIMIT:-120}
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"

rounds=8
[ -z "${UNSHARD_NIGHTLY:-}" ] || rounds=300
for seed in $(seq ${MESHES_SEED:-1} $((${MESHES_SEED:-1} + rounds - 1))); do
	for kind in mindspore oneflow colossalai deepspeed; do
		at=$WORK/$kind-$seed
		maker=(meshes.py $kind)
		[ $kind != deepspeed ] || maker=(zero.py)
		"$PYTHON" "$TOP/tests/cmd/lib/${maker[0]}" "${maker[@]:1}" \
			"$at" "$seed" || fail "$kind $seed: not made"
		opts=$(cat "$at/opts")
		"$UNSHARD" ls ${opts:+-o "$opts"} "$at/ckpt" >"$WORK/out" \
			2>"$WORK/err" ||
			fail "$kind $seed: $(cat "$WORK/err")"
		for want in "$at"/want/*; do
			"$UNSHARD" cat ${opts:+-o "$opts"} "$at/ckpt" \
				"$(basename "$want")" >"$WORK/t" ||
				fail "$kind $seed: cat $(basename "$want")"
			cmp "$want" "$WORK/t" ||
				fail "$kind $seed: $(basename "$want"): other bytes"
		done
		rm -rf "$at"
	done
done
done_ok
