# SPDX-License-Identifier: Apache-2.0
# core is a library of its own: it exports ck_* only, and from core/lib/ what
# unshard.h declares; a second program links with all of it and without libfuse.

status=0
lib=$B/libunshard-core.a
alien=$(nm -A --defined-only -g "$lib" 2>/dev/null |
	awk '$NF !~ /^(ck_|unshard_|__odr_asan|__asan|__start_|__stop_)/ { print $1 ": exports " $NF }')
[ -z "$alien" ] || { echo "$alien"; status=1; }

case ${SAN-} in
1) san=-fsanitize=address,undefined ;;
*) san= ;;
esac
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cat >"$work/second.c" <<'EOC'
#include "tests/lib/openckpt.h"
int main(int argc, char **argv)
{
	struct ck_err err = { 0 };
	struct ck_opts opts = { 0 };
	struct ck_ckpt *ck = 0;
	if (argc < 2 || open_ckpt(&ck, argv[1], &opts, &err))
		return 1;
	ck_ckpt_close(ck);
	return 0;
}
EOC
${CC:-gcc} -std=c11 -D_GNU_SOURCE -I. $san "$work/second.c" -o "$work/second" \
	-Wl,--whole-archive "$lib" -Wl,--no-whole-archive \
	$(pkg-config --libs $CORE_PKGS) -pthread 2>&1 | head -n 30
[ -x "$work/second" ] || { echo "core does not link by itself"; exit 1; }
readelf -d "$work/second" | grep -q 'NEEDED.*libfuse' &&
	{ echo "core pulls in libfuse"; status=1; }
exit $status
