# SPDX-License-Identifier: Apache-2.0
# Mounting, safetensors' load_file() and clone() of each tensor, against load_file() and
# clone() of a merged file, PyTorch's own converter with torch.load(), and dcp.load():
# once of a model as tp=4 saves it, half of its matrices by columns, once of one on a
# mesh of 2 x 2.  All in memory.
: "${BENCH_MIB:=256}"
for cut in tp mesh; do
	(
		BENCH_DATA=$PWD/$cut
		. "$TOP/tests/bench/lib/load_data.sh"
		mkdir -p mnt
		"$torch" -W ignore "$TOP/tests/bench/loadfile.py" "$data" "$PWD/mnt" $cut
	)
	rm -rf "${PWD:?}/$cut"
done
