# SPDX-License-Identifier: Apache-2.0
# The sources are as "make format" leaves them.

command -v clang-format-14 >/dev/null || { echo "needs clang-format-14"; exit 77; }
find core fs mount-helpers tests -name '*.[ch]' | sort |
	xargs clang-format-14 --dry-run -Werror 2>&1 | grep 'error:' |
	cut -d: -f1,2 | sort -t: -k1,1 -u | sed 's/$/: not as make format leaves it/' |
	grep .
[ $? = 1 ]
