# SPDX-License-Identifier: Apache-2.0
# Opening in a process that has 2 GiB touched, and the load after it.
. "$TOP/tests/bench/lib/load_data.sh"
"$torch" "$TOP/tests/bench/load_turns.py" "$BENCH_DIR/load" "$data" "$BENCH_THREADS" open

# The index of Llama 3.1 405B with its optimizer: parsed, and by eight ranks of a
# node that are given the catalog of one.
mkdir llama405b
"$PYTHON" "$TOP/tests/bench/dcp.py" sparse \
	"$TOP/tests/bench/llama405b_fsdp16.metadata.xz" llama405b
"$BENCH_DIR/opens" "$PWD/llama405b" 8 >opens
read -r parsed shared low high <opens
echo "result llama405b_open $parsed s <=0.15 $low $high"
echo "result llama405b_open_by_catalog_8_ranks $shared s"
