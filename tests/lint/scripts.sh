# SPDX-License-Identifier: Apache-2.0
# Shell scripts parse, and say whose licence they are under; so do C files.

status=0
no() {
	echo "$*"
	status=1
}
scripts=$(find tests packaging .ci docs mount-helpers -type f ! -name '*.[ch]' -size -200k \
	! -path 'tests/formats/*' ! -path 'tests/fuzz/corpus/*' ! -path 'tests/demo/checkpoint/*' 2>/dev/null |
	while read -r f; do
		case $f in *.sh) echo "$f"; continue ;; esac
		head -c 20 "$f" | tr -d '\0' | grep -Eq '^#!.*/(ba)?sh' && echo "$f"
	done | sort)
for f in $scripts; do
	shell=bash
	head -n 1 "$f" | grep -q '^#!/bin/sh' && shell=sh
	$shell -n "$f" || no "$f: does not parse"
done
for f in $scripts $(find core fs mount-helpers tests -name '*.[ch]'); do
	head -n 3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' ||
		no "$f: no SPDX line at the top"
done
for t in $(find tests/cmd tests/mount -name '*.sh' ! -path '*/lib/*' | sort); do
	grep -q 'common\.sh"' "$t" ||
		no "$t: does not source tests/common.sh"
	# whoever reads there may have it open still when the test unmounts
	grep -Hn '<(.*MNT' "$t" && no "$t: <(...) reads a mount, and nobody waits for its end"
done
exit $status
