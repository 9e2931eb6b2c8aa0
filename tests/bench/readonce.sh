# SPDX-License-Identifier: Apache-2.0
# Ranks that load a checkpoint of 1 GiB together, past the page cache: bytes from storage,
# and seconds against one rank alone and what two processors copy; medians of turns.
# RANKS=2 (2,4,8), BENCH_MIB=1024, BENCH_TURNS=3, BENCH_DATA=FOLDER to keep the checkpoint.

: "${RANKS:=2}" "${BENCH_MIB:=1024}" "${BENCH_TURNS:=3}" "${BENCH_DATA:=$PWD/data}"
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

# median NAME: the line in the middle by its seconds
median() { sort -n "$1.turns" | sed -n "$(((BENCH_TURNS + 1) / 2))p"; }

# worst NAME FIELD: the largest of all turns
worst() { awk -v f="$2" '$f > m { m = $f } END { printf "%.0f\n", m }' "$1.turns"; }

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
		alone=$(median alone | cut -d' ' -f1) copy=$(median copy)
		for kind in shm tcp; do
			set -- $(median $kind)
			limit=
			[ "$n" -eq 2 ] && limit="<=1.15"
			awk -v k="$kind-$how-$n" -v s="$1" -v read="$(worst $kind 2)" -v stored="$5" \
				-v spread="$(worst $kind 3)" -v alone="$alone" -v copy="$copy" \
				-v limit="$limit" -v fell="$(worst $kind 6)" 'BEGIN {
				base = alone > copy ? alone : copy
				printf "result %s-read %.4f x <=1.02\n", k, read / stored
				printf "result %s-spread %.2f MiB <=8\n", k, spread / 1048576
				printf "result %s-time %.3f s\n", k, s
				printf "result %s-ratio %.3f x %s\n", k, s / base, limit
				printf "%s: one rank alone %s s, copied %s s; %s fell back\n", k, alone, copy, fell
			}'
			[ "$(worst $kind 6)" -eq 0 ] || { echo "$kind $how $n: a rank read alone"; exit 1; }
		done
	done
done
