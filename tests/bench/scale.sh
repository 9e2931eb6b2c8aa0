# SPDX-License-Identifier: Apache-2.0
# How long a mount of a large checkpoint takes, and how much memory it keeps:
# the .metadata of Llama 3.1 405B with its optimizer (54,576 chunks), one of
# 1,000,000 chunks, and one of 3,500,000 as 1,024 ranks write; the shards are sparse
# files.  Then folders: of 100,000 tensors,
# and a run of 1,000 checkpoints.

. "$TOP/tests/bench/lib/measure.sh"
[ -n "$PYTHON" ] || { echo "needs Python with NumPy"; exit 77; }

# The process that serves the mount: the one with the FUSE device open.
worker() {
	local p
	for p in /proc/[0-9]*; do
		[ "$(cat "$p/comm" 2>/dev/null)" = unshard-worker ] || continue
		tr '\0' ' ' <"$p/cmdline" | grep -qF "$PWD/mnt" && echo "${p#/proc/}"
	done | head -n 1
}
memory() { awk -v k="$1:" '$1 == k { print $2 / 1024 }' "/proc/$(worker)/status"; }
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.3f", b - a }'; }

# The median of three; it stays mounted.
first_mount() { # NAME SECONDS PEAK
	local name=$1
	for _ in 1 2 3; do
		# SECONDS PEAK: the parser is the largest of what is waited for.
		"$BENCH_DIR/cost" "$UNSHARD" mount "$PWD/$name" "$PWD/mnt" \
			-o index-cache=off >>"$name.cost"
		[ "$(wc -l <"$name.cost")" = 3 ] || "$UNSHARD" umount mnt
	done
	measured "${name}_mount" s "$name.cost" "<=$2"
	peak "${name}_parser_peak" "$name.cost" "<=$3"
}

measure() { # NAME SECONDS PEAK [RESIDENT]
	local name=$1 start
	first_mount "$1" "$2" "$3"
	start=$(now)
	ls -l mnt/tensors >/dev/null
	echo "result ${name}_ls $(since "$start") s"
	resident=$(memory VmRSS)
	echo "result ${name}_resident $resident MiB${4:+ <=$4}"
	start=$(now)
	echo "catalog.json: $(stat -c %s mnt/.unshard/catalog.json) bytes"
	echo "result ${name}_catalog_size $(since "$start") s"
}

echo "kernel $(uname -r), $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg)"
mkdir llama405b million ranks1024
"$PYTHON" "$TOP/tests/bench/dcp.py" sparse \
	"$TOP/tests/bench/llama405b_fsdp16.metadata.xz" llama405b
measure llama405b 0.5 64 32
"$UNSHARD" umount mnt

"$PYTHON" "$TOP/tests/bench/dcp.py" many million 1000000
measure million 1.5 300
# Once more, by the catalog that is kept.
"$UNSHARD" umount mnt
for _ in 1 2 3 4; do
	"$BENCH_DIR/cost" "$UNSHARD" mount "$PWD/million" "$PWD/mnt" \
		-o "index-cache=$PWD/kept" >>again.cost
	"$UNSHARD" umount mnt
done
tail -n 3 again.cost >kept.cost
measured million_again s kept.cost "<=0.05"
"$UNSHARD" mount "$PWD/million" "$PWD/mnt"
awk -v m="$resident" 'BEGIN {
	printf "result million_bytes_a_chunk %.0f B <=150\n", m * 1048576 / 1e6 }'
"$UNSHARD" umount mnt

"$PYTHON" "$TOP/tests/bench/dcp.py" many ranks1024 3500000 1024 1024
first_mount ranks1024 5 1024
"$UNSHARD" umount mnt
rm -rf ranks1024

# `ls -l` of 100,000 tensors, of which the names were listed a moment ago, against as many
# files of this file system.
mkdir names plain
"$PYTHON" "$TOP/tests/bench/dcp.py" many names 100000 1
for _ in 1 2 3 4 5; do
	"$UNSHARD" mount "$PWD/names" "$PWD/mnt"
	[ -n "$(ls -U plain)" ] || (cd plain && ls -U ../mnt/tensors | xargs touch)
	[ "$(ls -U mnt/tensors | wc -l)" = 100000 ] || exit 1
	for dir in plain mnt/tensors; do
		"$BENCH_DIR/cost" ls -l $dir >>"${dir##*/}.ls"
	done
	"$UNSHARD" umount mnt
done
measured ls_100000 s tensors.ls
compared ls_100000_to_plain plain.ls tensors.ls ">=0.5"
rm -rf names plain

# Only the newest of 1,000 has an index that can be parsed: no other one is looked into
# before somebody does.
mkdir run
for n in $(seq 999); do
	mkdir "run/step-$n"
	printf '\200\002cut' >"run/step-$n/.metadata"
	: >"run/step-$n/__0_0.distcp"
done
mkdir run/step-1000
"$PYTHON" "$TOP/tests/bench/dcp.py" many run/step-1000 10 1
for _ in 1 2 3 4 5; do
	"$BENCH_DIR/cost" "$UNSHARD" mount "$PWD/run" "$PWD/mnt" >>run.cost
	[ "$(ls mnt/latest/tensors | wc -l)" = 10 ] && [ "$(ls mnt | wc -l)" = 1002 ] || exit 1
	"$UNSHARD" umount mnt
done
measured run_of_1000_mount s run.cost "<=0.5"
