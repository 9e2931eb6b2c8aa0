# SPDX-License-Identifier: Apache-2.0
# An eighth of each tensor of BENCH_MIB MiB, along its first and its last dimension:
# against safetensors' get_slice of a merged copy.
. "$TOP/tests/bench/lib/load_data.sh"
"$torch" "$TOP/tests/bench/load_turns.py" "$BENCH_DIR/load" "$data" "$BENCH_THREADS" slices
