# SPDX-License-Identifier: Apache-2.0
# The other rules find what they are for: a toy tree with one offence each.

top=$PWD status=0
work=$(mktemp -d) && trap 'rm -rf "$work" "$work.out"' EXIT
cd "$work" || exit 1
mkdir -p core/base core/geom fs mount-helpers tests/cmd tests/mount packaging .ci docs
cp -r "$top/tests/lint" tests/lint
: >tests/lint/size.except

finds() { # RULE PATTERN FILE: it offends alone, and the tree without it not
	mkdir -p "${3%/*}" && cat >"$3"
	bash "tests/lint/$1.sh" >"$work.out" 2>&1 &&
		{ echo "$1.sh does not mind $3"; status=1; }
	grep -qE -e "$2" "$work.out" ||
		{ echo "$1.sh says of $3:"; head -n 3 "$work.out"; status=1; }
	rm "$3"
	bash "tests/lint/$1.sh" >"$work.out" 2>&1 ||
		{ echo "$1.sh minds a clean tree:"; head -n 3 "$work.out"; status=1; }
}

echo '/* SPDX-License-Identifier: Apache-2.0 */' >core/base/err.h
echo '#include "fs/opts.h"' | finds layers 'geom may not include fs' core/geom/a.c
echo '#include "err.h"' | finds layers 'not a path from the top' core/base/a.c
echo '#include "core/base/err.h"' | finds layers 'does not know core/new' core/new/a.c
echo '#include <fuse_lowlevel.h>' | finds layers 'another home' core/geom/a.c
echo '#include <liburing.h>' | finds layers 'another home' fs/a.c
echo '{}' | finds layers 'v.json: has no place' ./v.json
{
	printf 'static int f(int a)\n{\n'
	yes '	a++;' | head -n 59
	printf '\treturn a;\n}\n'
} | finds size 'f: 62 lines' fs/a.c
yes '' | head -n 601 | finds size 'the file: 601 lines' core/base/a.c
echo '/* see /wor''k/notes */' | finds words 'a\.c:1:' core/base/a.c
echo 'size_t ck_x(void);' | finds headers 'unknown type' core/base/a.h
printf '#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\nif then\n' |
	finds scripts 'does not parse' tests/a.sh
echo 'int a;' | finds scripts 'no SPDX' core/base/a.c
printf '#include "fs/b.h"\n' >core/base/c.h
printf '#include "core/base/c.h"\n' | finds rooms 'include each other' fs/b.h
rm core/base/c.h
printf 'struct ck_a {\n};\n' >core/geom/a.h
printf 'struct ck_a {\n};\n' | finds rooms 'struct ck_a is another type' core/base/a.h
rm core/geom/a.h
mkdir -p core/format/toy && : >core/format/toy/fmt.c
echo 'const char *a = "toy";' | finds rooms 'names the format toy' core/geom/a.c
echo '#include "core/format/toy/a.h"' | finds rooms 'toy is for its own' core/geom/a.c
for i in $(seq 40); do echo >core/geom/f$i.c; done
echo | finds rooms 'core/geom: 41 files' core/geom/a.c
rm -r core/format core/geom/f*.c
if command -v clang-format-14 >/dev/null; then
	cp "$top/.clang-format" .
	echo 'int  a;' | finds style 'a\.c:1' core/base/a.c
fi
exit $status
