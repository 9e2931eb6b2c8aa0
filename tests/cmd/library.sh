#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The library as it is installed: the examples of unshard(3) are built by
# pkg-config, the first with the shared and the static one: it reads, and the second saves.
LIMIT=240
. "$(dirname "$0")/lib/common.sh"
requires make scdoc pkg-config

D=$WORK/root case=$TOP/tests/formats/dcp/1.13/in
unset B LIBDIR
make -s -C "$TOP" ${SAN:+SAN=$SAN} install DESTDIR="$D" PREFIX=/usr \
	>"$WORK/make" 2>&1 || fail "make install: $(tail -n 5 "$WORK/make")"
example() { # NUMBER
	awk -v nr="$1" '/^```/ { on = !on; n += on; next } on && n == nr' \
		"$TOP/docs/man/unshard.3.scd"
}
example 1 >"$WORK/example.c"
example 2 >"$WORK/save.c"
cd "$WORK" || exit
export PKG_CONFIG_SYSROOT_DIR=$D PKG_CONFIG_PATH=$D/usr/lib/pkgconfig
pkg-config --exists --print-errors unshard || fail "no unshard.pc"
[ "$(pkg-config --modversion unshard)" = "$("$D/usr/bin/unshard" --version |
	grep -oE '[0-9.]+')" ] || fail "unshard.pc is of another version"
san=${SAN:+-fsanitize=address,undefined}
flags="-Wall -Wextra -Werror $san $(pkg-config --cflags unshard)"
${CC:-gcc} -std=c11 $flags example.c -o shared $(pkg-config --libs unshard) ||
	fail "the example is not built"
"$UNSHARD" cat "$case" st >want || fail "cat"
[ -n "$san" ] || {
	LD_LIBRARY_PATH=$D/usr/lib ./shared "$case" st | cmp - want ||
		fail "the example reads something else"
	LD_LIBRARY_PATH=$D/usr/lib ./shared "$case" no 2>err &&
		fail "it finds what is not there"
	LD_LIBRARY_PATH=$D/usr/lib ./shared "$WORK/none" st 2>err &&
		fail "it opens what is not there"
	grep -q "No such file" err || fail "its line is: $(cat err)"
}
${CC:-gcc} -std=c11 $flags save.c -o save $(pkg-config --libs unshard) ||
	fail "the example that saves is not built"
[ -n "$san" ] || {
	mkdir runs
	LD_LIBRARY_PATH=$D/usr/lib ./save runs step-1 || fail "it does not save"
	"$UNSHARD" cat runs/step-1 w | od -An -t f4 | tr -s ' \n' ' ' >saved
	grep -qx ' 1 2 3 4 5 6 ' saved || fail "it saves $(cat saved)"
	"$UNSHARD" verify runs/step-1 >out || fail "verify: $(cat out)"
	LD_LIBRARY_PATH=$D/usr/lib ./save runs step-1 2>err && fail "it saves twice"
	grep -q "step-1: exists" err || fail "its line is: $(cat err)"
}

# The static one asks for what Requires.private says, by the system's own .pc.
unset PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_PATH
if [ -z "$san" ]; then
	${CC:-gcc} -std=c11 $flags example.c -o static "$D/usr/lib/libunshard.a" \
		$(pkg-config --libs ${CORE_PKGS:-liburing libxxhash jansson \
		libzstd libdeflate libseccomp}) -pthread || fail "no static program"
	UNSHARD_PARSER=$D/usr/libexec/unshardfs/unshard-parser \
		./static "$case" st | cmp - want || fail "the static one"
fi
done_ok
