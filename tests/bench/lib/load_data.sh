# SPDX-License-Identifier: Apache-2.0
# Sourced: $torch, a Python with torch and safetensors; $data, a folder with dcp/ and
# merged.safetensors, warm.  BENCH_DATA=FOLDER keeps them from one run to the next.
# $cut: how it is cut (load_make.py); rows where it is not set.

: "${BENCH_MIB:=1024}" "${BENCH_THREADS:=2}" "${BENCH_DATA:=$PWD/data}"
export UNSHARD_PARSER=$B/unshard-parser
data=$BENCH_DATA
torch=${CLIENTS_VENV:+$CLIENTS_VENV/bin/python}
torch=${torch:-${PYTHON:-python3}}
"$torch" -c 'import safetensors.torch, torch' 2>/dev/null ||
	{ echo "needs Python with torch and safetensors: CLIENTS_VENV=FOLDER"; exit 77; }
mkdir -p "$data"
[ -e "$data/dcp/.metadata" ] ||
	"$torch" "$TOP/tests/bench/load_make.py" "$data" "$BENCH_MIB" "${cut:-rows}" 2>/dev/null
cat "$data"/dcp/*.distcp "$data/merged.safetensors" >/dev/null
echo "kernel $(uname -r), $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg)"
