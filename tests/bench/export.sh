# SPDX-License-Identifier: Apache-2.0
# unshard export of model.safetensors against cp of a merged file of that size, both
# ended by fsync, the source in memory and not; then cp -r, rsync and tar of hf/ against
# the same of a merged folder.  Both sides take turns; the medians count.
: "${BENCH_MIB:=256}"
. "$TOP/tests/bench/lib/load_data.sh"
. "$TOP/tests/bench/lib/measure.sh"
: "${BENCH_ROUNDS:=3}"
shards=("$data"/dcp/*.distcp) merged=$data/merged.safetensors
mkdir -p "$data/hf"
ln -f "$merged" "$data/hf/model.safetensors"

seconds() { # COMMAND...
	local from
	from=$(date +%s%N)
	"$@" >/dev/null || exit 1
	awk -v ns=$(($(date +%s%N) - from)) 'BEGIN { printf "%.3f\n", ns / 1e9 }'
}
# Warm: in memory.  Cold: not there, but read a moment ago, as a host's cache may have it.
prepare() { # KIND FILE...
	local kind=$1 f
	shift
	rm -rf out out2
	cat "$@" >/dev/null
	sync
	[ "$kind" = warm ] || for f in "$@"; do
		dd of="$f" oflag=nocache conv=notrunc,fdatasync count=0 status=none
	done
}
plain() { cp --reflink=never "$merged" out && sync out; }
ours() { "$UNSHARD" export "$data/dcp" out; }
say() { # NAME PLAIN OURS LIMIT
	measured "${1}_plain" s "$2"
	measured "${1}_ours" s "$3"
	compared "${1}_ratio" "$2" "$3" "$4"
}

for kind in warm cold; do
	for _ in $(seq "$BENCH_ROUNDS"); do
		prepare $kind "$merged"
		seconds plain >>$kind.plain
		prepare $kind "${shards[@]}"
		seconds ours >>$kind.ours
	done
	say export_$kind $kind.plain $kind.ours '>=0.9'
done
rm -rf out
"$torch" - "$UNSHARD" export "$data/dcp" out <<'END'
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print("result export_memory", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, "KiB")
END
rm -rf out

"$UNSHARD" mount "$data/dcp" "$PWD/mnt"
trap '"$UNSHARD" umount mnt' EXIT
cp_r() { cp -r --reflink=never "$1" out && sync -f out; }
rsync_r() { rsync -r "$1/" out2 && sync -f out2; }
tar_r() { tar -C "$1" -cf out . && sync out; }
for tool in cp rsync tar; do
	command -v $tool >/dev/null || { echo "no $tool here"; continue; }
	for _ in $(seq "$BENCH_ROUNDS"); do
		prepare warm "$merged"
		seconds ${tool}_r "$data/hf" >>$tool.plain
		prepare warm "${shards[@]}"
		seconds ${tool}_r mnt/hf >>$tool.ours
	done
	say $tool $tool.plain $tool.ours '>=0.8'
done
rm -rf out out2
