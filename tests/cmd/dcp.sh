#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# dcp/ of examples of every format, exported, holds the same tensors and objects
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
F=$TOP/tests/formats
cd "$WORK" || exit 1

# format/case, how many objects dcp/ has
same_in_dcp() {
	local in=$F/$1/in
	rm -rf dcp
	expect 0 '' "$UNSHARD" export --to dcp "$in" dcp
	[ -e dcp/.metadata ] && [ -e dcp/__0_0.distcp ] || fail "$1: $(ls -A dcp)"
	"$UNSHARD" diff "$in" dcp >out || fail "$1: other tensors: $(cat out)"
	"$UNSHARD" ls --json dcp >out || fail "$1: $(cat out)"
	"$PYTHON" -c 'import json, sys
n = len(json.load(open("out"))["objects"])
sys.exit(n != int(sys.argv[1]) and f"{n} objects")' "$2" ||
		fail "$1: other objects"
}

same_in_dcp dcp/2.14-zstd 1
same_in_dcp dcp/megatron-0.13 3 # not common.pt
same_in_dcp colossalai/optim-async 11
same_in_dcp deepspeed/pipeline 62
same_in_dcp deepspeed/universal3 111 # of 113
same_in_dcp hf/index-prefix 5
same_in_dcp megatron/virtual-stages 12
same_in_dcp mindspore/2.10-grid 0
same_in_dcp nnscaler/merged-doubtful 2
same_in_dcp oneflow/0.9-nested 13 # of 15
same_in_dcp torch/misc 25 # of 27
same_in_dcp torch/dtensor-ranks 0
done_ok
