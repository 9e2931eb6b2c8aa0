# SPDX-License-Identifier: Apache-2.0
# Parsing the index of a large checkpoint: 8.2 MB, 3.8 million opcodes.

[ -n "$PYTHON" ] || { echo "needs Python"; exit 77; }
"$PYTHON" -c 'import lzma, sys
sys.stdout.buffer.write(lzma.open(sys.argv[1]).read())' \
	"$TOP/tests/bench/llama405b_fsdp16.metadata.xz" >index
"$BENCH_DIR/pickle" index 10
