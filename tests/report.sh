# SPDX-License-Identifier: Apache-2.0
# Sourced by tests/run and the stages: one result is one call.

: "${TOP:=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}"
: "${B:=build}" "${RESULTS:=/dev/null}"
case $B in /*) ;; *) B=$TOP/$B ;; esac
export TOP B RESULTS

result() { # pass|fail|skip NAME [WHY]
	printf '%s %s %s\n' "$1" "$2" "${3-}" >>"$RESULTS"
	case $1 in
	pass) [ -z "${SHOW_PASS-}" ] || printf 'ok    %s %s\n' "$2" "${3-}" ;;
	skip) printf 'skip  %s: %s\n' "$2" "$3" ;;
	fail) printf 'FAIL  %s: %s\n' "$2" "$3" ;;
	esac
}

# Sanitizers write one file a process here: a leak does not change Criterion's
# exit code, so the files are what counts.
san_begin() { # FOLDER
	rm -rf "$1" && mkdir -p "$1" && chmod 1777 "$1"
	local common="log_path=$1/report"
	export ASAN_OPTIONS="$common:detect_leaks=1:detect_stack_use_after_return=1"
	export UBSAN_OPTIONS="$common:print_stacktrace=1"
	export TSAN_OPTIONS="$common:exitcode=66"
}

# Leaks only, and each allocated by Criterion for itself: it loses what it had
# for a test's time limit now and then.  A test's own have a frame of the test.
of_criterion() { # REPORT
	awk '/(ERROR|WARNING): / && !/LeakSanitizer/ || /runtime error/ { other = 1 }
		/^ *#[1-9]/ { n++; if (!/libcriterion/) other = 1 }
		END { exit other || !n }' "$1"
}

san_end() { # FOLDER NAME
	local left
	left=$(find "$1" -type f -size +0 | sort |
		while read -r f; do of_criterion "$f" || echo "$f"; done)
	[ -n "$left" ] || return 0
	head -n 40 $left
	result fail "$2" "the sanitizer left $(echo "$left" | wc -l) reports in $1"
	return 1
}

# The first Python that has NumPy, or nothing.
find_python() {
	local p
	for p in "${PYTHON-}" python3 /usr/bin/python3; do
		[ -n "$p" ] && "$p" -c 'import numpy' 2>/dev/null && break
	done && echo "$p"
}
