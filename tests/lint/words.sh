# SPDX-License-Identifier: Apache-2.0
# The repository, and what its commits say, speak of the project only.

patterns=$(grep -v '^#' tests/lint/words.patterns)
if git rev-parse --git-dir >/dev/null 2>&1; then
	files() { git ls-files -z --cached --others --exclude-standard; }
else
	files() { find . -path './build*' -prune -o -type f -print0; }
fi
status=0
files | xargs -0 -r grep -nIE -e "$patterns" /dev/null && status=1
if git rev-parse --git-dir >/dev/null 2>&1; then
	git log --format='commit %h: %B' | grep -nE -e "$patterns" && status=1
fi
exit $status
