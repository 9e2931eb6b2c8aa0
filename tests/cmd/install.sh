#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make install puts everything where it belongs, uninstall takes it away, and
# the completion completes.
LIMIT=180
. "$(dirname "$0")/lib/common.sh"
requires make scdoc

D=$WORK/root
unset B LIBDIR # those of the tree are the defaults
run() {
	make -s -C "$TOP" ${SAN:+SAN=$SAN} "$1" DESTDIR="$D" PREFIX=/usr \
		>"$WORK/make" 2>&1 || fail "make $1: $(tail -n 5 "$WORK/make")"
}
run install
"$D/usr/bin/unshard" --version >/dev/null || fail "the command does not run"
[ "$(readlink "$D/sbin/mount.unshardfs")" = /usr/bin/unshard ] ||
	fail "mount.unshardfs leads to $(readlink "$D/sbin/mount.unshardfs")"
for f in share/man/man1/unshard.1 share/man/man3/unshard.3 include/unshard.h \
	lib/libunshard.so lib/libunshard.a lib/pkgconfig/unshard.pc \
	libexec/unshardfs/unshard-parser share/man/man8/mount.unshardfs.8 share/man/man5/unshard-views.5 \
	share/doc/unshardfs/README.md share/doc/unshardfs/docs/errors.md \
	share/unshardfs/megatron.rules \
	lib/systemd/system/unshardfs@.service lib/systemd/user/unshardfs@.service \
	share/doc/unshardfs/examples/fstab.example \
	share/doc/unshardfs/examples/slurm/prolog.sh \
	share/doc/unshardfs/examples/kubernetes/sidecar.yaml \
	share/doc/unshardfs/docs/layout.schema.json; do
	[ -s "$D/usr/$f" ] || fail "no /usr/$f"
done
for c in $("$UNSHARD" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
	[ -s "$D/usr/share/man/man1/unshard-$c.1" ] || fail "no manual of $c"
done
! grep -r '@[A-Z]*@' "$D/usr/lib/systemd" || fail "a unit is not finished"
# What the manual pages name is there, below where all of it was installed.
grep -ohE '[a-z/]*share/[a-z]*/[a-z./]*[a-z]' "$TOP"/docs/man/*.scd | sort -u >"$WORK/named"
grep -q docs/writing.md "$WORK/named" || fail "the pages name nothing"
while read -r f; do
	[ -e "$D/usr/$f" ] || fail "a manual page names $f"
done <"$WORK/named"
# Relative links of the README lead somewhere.
grep -oE '\]\([a-z][^):]*\)' "$D/usr/share/doc/unshardfs/README.md" |
	tr -d ']()' | while read -r f; do
	[ -e "$D/usr/share/doc/unshardfs/$f" ] || fail "README: no $f"
done || exit 1

# completes CUR WORDS...: among what is offered for the last of WORDS is CUR.
completes() {
	local want=$1
	shift
	PATH=$D/usr/bin:$PATH bash -c '
		compopt() { :; }
		complete() { :; }
		. "$0"
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
		_unshard
		printf "%s\n" "${COMPREPLY[@]}"
		' "$D/usr/share/bash-completion/completions/unshard" "$@" \
		>"$WORK/offered"
	grep -qxF -e "$want" "$WORK/offered" || fail "$*: no $want in:" \
		"$(head -n 5 "$WORK/offered")"
}
completes inspect unshard in
completes --json unshard ls --j
completes -t unshard ls -
completes -f unshard ls -f
completes -l unshard umount -
completes -o unshard ls -
completes format= unshard mount -o for
completes ro,engine= unshard mount -o ro,en
completes plain unshard mount -o ro,engine = pl
completes dcp unshard mount -o format =
completes tensors unshard export --to te
completes age unshard find --sort a
completes mounts unshard mo
[ -n "${SAN:-}" ] || completes model.lm_head.weight \
	unshard cat "$TOP/tests/demo/checkpoint" model.lm

# The same by fish, for the word that the cursor is in; and zsh can read its own.
offers() { # WORD LINE
	PATH=$D/usr/bin:$PATH fish -Nc \
		"source $D/usr/share/fish/vendor_completions.d/unshard.fish; complete -C'$2'" |
		cut -f 1 >"$WORK/offered"
	grep -qxF -e "$1" "$WORK/offered" || fail "fish: $2: no $1"
}
if command -v fish >/dev/null; then
	export XDG_CONFIG_HOME=$WORK XDG_DATA_HOME=$WORK
	offers inspect "unshard in"
	offers --json "unshard ls --j"
	offers -t "unshard ls -"
	offers -l "unshard umount -"
	offers ro,engine= "unshard mount -o ro,en"
	offers ro,engine=plain "unshard mount -o ro,engine=pl"
	[ -n "${SAN:-}" ] || offers model.lm_head.weight \
		"unshard cat $TOP/tests/demo/checkpoint model.lm"
fi
! command -v zsh >/dev/null || zsh -n "$D/usr/share/zsh/site-functions/_unshard" ||
	fail "_unshard: zsh cannot read it"

run uninstall
left=$(find "$D" ! -type d)
[ -z "$left" ] || fail "left behind: $left"
done_ok
