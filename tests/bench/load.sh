# SPDX-License-Identifier: Apache-2.0
# A model of BENCH_MIB MiB, sharded over four ranks, into memory: against pread of the
# same extents, dcp.load, safetensors of a merged copy and, where they are installed beside
# torch, fastsafetensors and runai-model-streamer of the same copy.
. "$TOP/tests/bench/lib/load_data.sh"
"$torch" "$TOP/tests/bench/load_turns.py" "$BENCH_DIR/load" "$data" "$BENCH_THREADS" load
