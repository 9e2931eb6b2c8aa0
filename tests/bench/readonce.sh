# SPDX-License-Identifier: Apache-2.0
# Ranks that load a checkpoint of BENCH_MIB MiB together, past the page cache: bytes from storage,
# and seconds against one rank alone and what two processors copy; medians of turns.
# RANKS=2 (2,4,8), BENCH_MIB=1024, BENCH_TURNS=3, BENCH_DATA=FOLDER to keep the checkpoint.

. "$TOP/tests/bench/lib/measure.sh"
: "${RANKS:=2}" "${BENCH_MIB:=512}" "${BENCH_TURNS:=3}" "${BENCH_DATA:=$PWD/data}"
export UNSHARD_PARSER=$B/unshard-parser
once=$BENCH_DIR/readonce rt=
chrt -r 10 true 2>/dev/null && rt="chrt -r 10"
[ -e "$BENCH_DATA/once/model.safetensors.index.json" ] ||
	"${PYTHON:-python3}" "$TOP/tests/bench/readonce_make.py" "$BENCH_DATA/once" "$BENCH_MIB"
echo "kernel $(uname -r), $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg), ${rt:-no real-time priority}"

# turn NAME ...: one more line of what that prints, below NAME
turn() {
	name=$1
	shift
	$rt "$@" >>"$name.turns" || { echo "failed: $*"; exit 1; }
}

# field NAME FIELD FORMAT UNIT: of each turn, in such units
field() { awk -v f="$2" -v u="$4" -v how="$3\n" '{ printf how, $f / u }' "$1.turns"; }

# worst NAME UNIT FILE LIMIT: the highest of the turns
worst() { tell "$1" "$(sort -n "$3" | tail -n 1)" "$2" "$4" $(spread "$3"); }

for n in $(echo "$RANKS" | tr , ' '); do
	for how in whole last; do
		rm -f ./*.turns
		for _ in $(seq "$BENCH_TURNS"); do
			turn alone "$once" "$BENCH_DATA/once" alone 1 whole
			for kind in shm tcp; do
				turn $kind "$once" "$BENCH_DATA/once" $kind "$n" $how
			done
			set -- $(tail -1 shm.turns)
			turn copy "$once" copy "$n" $(($4 / n))
		done
		alone=$(median alone.turns) copy=$(median copy.turns)
		base=$(printf '%s\n' "$copy copy" "$alone alone" | sort -n | tail -n 1 | cut -d' ' -f2)
		for kind in shm tcp; do
			k=$kind-$how-$n
			limit=
			[ "$n" -eq 2 ] && limit="<=1.15"
			set -- $(tail -n 1 $kind.turns)
			field $kind 2 %.4f "$5" >read
			field $kind 3 %.2f 1048576 >apart
			field $kind 1 %.3f 1 >time
			worst "$k-read" x read "<=1.02"
			worst "$k-spread" MiB apart "<=8"
			measured "$k-time" s time
			compared "$k-ratio" $kind.turns $base.turns "$limit" x
			fell=$(field $kind 6 %.0f 1 | sort -n | tail -n 1)
			echo "$k: one rank alone $alone s, copied $copy s; $fell fell back"
			[ "$fell" -eq 0 ] || { echo "$kind $how $n: a rank read alone"; exit 1; }
		done
	done
done
