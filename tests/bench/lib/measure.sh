# SPDX-License-Identifier: Apache-2.0
# Sourced: prints figures as tests/run-bench reads them.  FILE has a line a turn, of
# which the first word counts; - is what comes in.

# The lower of the two in the middle, where the number is even.
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { if (!NR) exit 1; print v[int((NR + 1) / 2)] }'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", a / b }'; }

# The lowest and the highest; nothing of one turn, which has no spread.
spread() { sort -n "$1" | awk 'NR == 1 { low = $1 } { high = $1 } END { if (NR > 1) print low, high }'; }

# Turn k to turn k, where both files have as many.
ratios() { # ABOVE BELOW
	awk 'NR == FNR { above[FNR] = $1; n = FNR; next }
		{ below[FNR] = $1; m = FNR; none += $1 == 0 }
		END { if (n == m && !none)
			for (k = 1; k <= n; k++) printf "%.3f\n", above[k] / below[k] }' "$1" "$2"
}

tell() { # NAME VALUE UNIT [LIMIT [LOW HIGH]]; an empty word is as none
	local limit=${4-} low=${5-}
	[ -z "$low" ] || limit=${limit:--}
	echo "result $1 $2 $3${limit:+ $limit}${low:+ $low $6}"
}

measured() { # NAME UNIT FILE [LIMIT]: the median
	local it
	it=$(median "$3") || { echo "$1: no turns"; return 1; }
	tell "$1" "$it" "$2" "${4-}" $(spread "$3")
}

# Its spread is that of the ratios of turns, and it lies within: were each of these below
# some number, the ratio of the medians were, too.
compared() { # NAME ABOVE BELOW [LIMIT [UNIT]]: the ratio of their medians
	local above below
	above=$(median "$2") && below=$(median "$3") || { echo "$1: no turns"; return 1; }
	tell "$1" "$(ratio "$above" "$below")" "${5:-ratio}" "${4-}" $(ratios "$2" "$3" | spread -)
}

# Of lines "SECONDS KIB": the peak of the turn whose seconds are the median.
peak() { # NAME FILE [LIMIT]
	local it
	it=$(sort -n "$2" | awk '{ v[NR] = int($2 / 1024) } END { print v[int((NR + 1) / 2)] }')
	tell "$1" "$it" MiB "${3-}" $(awk '{ print int($2 / 1024) }' "$2" | spread -)
}
