# SPDX-License-Identifier: Apache-2.0
# Every header compiles by itself.

status=0
flags="-std=c11 -D_GNU_SOURCE -I. -Wall -Wextra -Werror $(pkg-config --cflags $PKGS)"
for h in $(find core fs mount-helpers tests -name '*.h' | sort); do
	printf '#include "%s"\n' "$h" |
		${CC:-gcc} $flags -fsyntax-only -x c - || status=1
done
exit $status
