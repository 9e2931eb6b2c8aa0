# SPDX-License-Identifier: Apache-2.0
# The repository, and what its commits say, speak of the project only.

patterns=$(grep -v '^#' tests/lint/words.patterns)
in_git=$(git rev-parse --is-inside-work-tree 2>/dev/null)
files() {
	if [ "$in_git" ]; then
		git ls-files -z --cached --others --exclude-standard
	else
		find . -path './build*' -prune -o -type f -print0
	fi
}
found=$(
	files | xargs -0 -r grep -nIE -e "$patterns" /dev/null
	[ -z "$in_git" ] || git log --format='commit %h: %B' |
		grep -nE -e "$patterns"
)
[ -z "$found" ] || { echo "$found"; exit 1; }
