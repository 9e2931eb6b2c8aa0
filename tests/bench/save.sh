# SPDX-License-Identifier: Apache-2.0
# A model of BENCH_MIB=256 MiB from memory to a new checkpoint, durable, against pwrite
# and fsync of the same bytes and against dcp.save, each by two threads.  BENCH_TMP=FOLDER:
# on another file system.
torch=${CLIENTS_VENV:+$CLIENTS_VENV/bin/python}
torch=${torch:-$PYTHON}
"$torch" -c 'import torch.distributed.checkpoint' 2>/dev/null ||
	{ echo "needs Python with torch: CLIENTS_VENV=FOLDER"; exit 77; }
export UNSHARD_PARSER=$B/unshard-parser UNSHARD_LIBRARY=$B/libunshard.so
export PYTHONPATH=$TOP/packaging/python PYTHONDONTWRITEBYTECODE=1
echo "kernel $(uname -r), $(nproc) processors, $(stat -f -c %T .)," \
	"load $(cut -d' ' -f1-3 /proc/loadavg)"
"$torch" "$TOP/tests/bench/save_turns.py" "$PWD" "${BENCH_MIB:-256}"
