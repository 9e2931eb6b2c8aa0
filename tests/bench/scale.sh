# SPDX-License-Identifier: Apache-2.0
# How long a mount of a large checkpoint takes, and how much memory it keeps:
# the .metadata of Llama 3.1 405B with its optimizer (54,576 chunks), and one
# of 1,000,000 chunks; the shards are sparse files.

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

measure() { # NAME CHUNKS SECONDS
	local name=$1 start
	for _ in 1 2 3; do
		# SECONDS PEAK: the parser is the largest of what is waited for.
		"$BENCH_DIR/cost" "$UNSHARD" mount "$PWD/$name" "$PWD/mnt" \
			-o index-cache=off >>"$name.cost"
		[ "$(wc -l <"$name.cost")" = 3 ] || "$UNSHARD" umount mnt
	done
	sort -n "$name.cost" | sed -n 2p | while read -r seconds peak; do
		echo "result ${name}_mount $seconds s <=$3"
		echo "result ${name}_parser_peak $((peak / 1024)) MiB"
	done
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
mkdir llama405b million
"$PYTHON" "$TOP/tests/bench/dcp.py" sparse \
	"$TOP/tests/bench/llama405b_fsdp16.metadata.xz" llama405b
measure llama405b 54576 0.5 32
"$UNSHARD" umount mnt

"$PYTHON" "$TOP/tests/bench/dcp.py" many million 1000000
measure million 1000000 4
# Once more, by the catalog that is kept.
"$UNSHARD" umount mnt
for _ in 1 2 3 4; do
	"$BENCH_DIR/cost" "$UNSHARD" mount "$PWD/million" "$PWD/mnt" \
		-o "index-cache=$PWD/kept" >>again.cost
	"$UNSHARD" umount mnt
done
echo "result million_again $(tail -n 3 again.cost | sort -n | awk 'NR == 2 { print $1 }') s <=0.2"
"$UNSHARD" mount "$PWD/million" "$PWD/mnt"
awk -v m="$resident" 'BEGIN {
	printf "result million_bytes_a_chunk %.0f B <=150\n", m * 1048576 / 1e6 }'
"$UNSHARD" umount mnt
