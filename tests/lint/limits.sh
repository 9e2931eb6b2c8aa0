# SPDX-License-Identifier: Apache-2.0
# The limits that docs/errors.md tells users are those of core/base/limits.h.

work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
names=$(sed -n 's/^#define \(CK_MAX_[A-Z_]*\) .*/\1/p' core/base/limits.h)
{
	echo '#include "core/base/limits.h"'
	echo '#include <stdio.h>'
	echo 'int main(void) {'
	for n in $names; do
		echo "printf(\"$n %llu\\n\", (unsigned long long)($n));"
	done
	echo 'return 0; }'
} >"$work/limits.c"
${CC:-gcc} -I. "$work/limits.c" -o "$work/limits" && "$work/limits" | sort >"$work/code"

# | what | 64 KiB | `CK_MAX_NAME` |
sed -n 's/^|[^|]*| *\([0-9,]*\) *\([A-Za-z]*\) *| *`\(CK_MAX_[A-Z_]*\)` *|$/\3 \1 \2/p' \
	docs/errors.md | awk '
	BEGIN { unit["KiB"] = 2^10; unit["MiB"] = 2^20; unit["GiB"] = 2^30
		unit["bytes"] = unit[""] = 1 }
	{ gsub(",", "", $2); printf "%s %.0f\n", $1, $2 * unit[$3] }' |
	sort >"$work/doc"
diff "$work/code" "$work/doc"
