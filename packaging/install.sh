#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# install.sh install|uninstall - what `make install` puts where
#
# B, VERSION, SONAME, PREFIX, LIBDIR, SBINDIR and DESTDIR come from the Makefile.
# PARTS: "program library" if not given; EXECUTABLE: the command, if not that of B;
# ZSHDIR: where zsh looks.

set -eu
cd "$(dirname "$0")/.."
bin=$PREFIX/bin man=$PREFIX/share/man doc=$PREFIX/share/doc/unshardfs
share=$PREFIX/share/unshardfs

put() { # MODE FROM TO
	install -D -m "$1" "$2" "$DESTDIR$3"
}

# Each line: MODE FROM TO, or "link" TARGET TO.
library() {
	echo "755 $B/unshard-parser $PREFIX/libexec/unshardfs/unshard-parser"
	echo "644 $B/$SONAME $LIBDIR/$SONAME"
	echo "link $SONAME $LIBDIR/libunshard.so"
	echo "644 $B/libunshard.a $LIBDIR/libunshard.a"
	echo "644 $B/unshard.pc $LIBDIR/pkgconfig/unshard.pc"
	echo "644 core/lib/unshard.h $PREFIX/include/unshard.h"
	pages 3
}

pages() { # SECTIONS, a digit each
	for page in "$B"/man/*.["$1"]; do
		echo "644 $page $man/man${page##*.}/${page##*/}"
	done
}

program() {
	echo "755 ${EXECUTABLE:-$B/unshard} $bin/unshard"
	# mount -t unshardfs runs the first, mount -t fuse.unshardfs the other.
	echo "link $bin/unshard $SBINDIR/mount.unshardfs"
	echo "link unshard $bin/unshardfs"
	pages 12456789
	echo "link mount.unshardfs.8 $man/man8/unshardfs.8"
	echo "755 packaging/udev/read-ahead $PREFIX/libexec/unshardfs/read-ahead"
	echo "644 $B/60-unshardfs.rules $PREFIX/lib/udev/rules.d/60-unshardfs.rules"
	for unit in system user; do
		echo "644 $B/systemd/$unit/unshardfs@.service" \
			"$PREFIX/lib/systemd/$unit/unshardfs@.service"
	done
	echo "644 packaging/completion/unshard.bash \
		$PREFIX/share/bash-completion/completions/unshard"
	echo "644 packaging/completion/unshard.fish \
		$PREFIX/share/fish/vendor_completions.d/unshard.fish"
	echo "644 packaging/completion/_unshard ${ZSHDIR:-$PREFIX/share/zsh/site-functions}/_unshard"
	for file in core/*/*.rules core/*/*/*.rules; do
		[ "$file" = core/mesh/names.rules ] || # for the build only
		echo "644 $file $share/${file##*/}"
	done
	for file in *.md LICENSE docs/*.md docs/*.svg docs/*.json docs/formats/*.md; do
		echo "644 $file $doc/$file"
	done
	echo "644 mount-helpers/fstab.example $doc/examples/fstab.example"
	for file in packaging/slurm/* packaging/kubernetes/*; do
		echo "644 $file $doc/examples/${file#packaging/}"
	done
}

list() {
	for part in ${PARTS:-program library}; do $part; done
}

list | while read -r mode from to; do
	case $1,$mode in
	install,link)
		mkdir -p "$DESTDIR${to%/*}"
		ln -sf "$from" "$DESTDIR$to" ;;
	install,*) put "$mode" "$from" "$to" ;;
	uninstall,*) rm -f "$DESTDIR$to" ;;
	*) echo "usage: install.sh install|uninstall" >&2; exit 2 ;;
	esac
done
[ "$1" = install ] || rmdir "$DESTDIR$doc"/docs/formats "$DESTDIR$doc"/examples/* "$DESTDIR$doc"/* \
	"$DESTDIR$doc" "$DESTDIR$share" "$DESTDIR$PREFIX/libexec/unshardfs" \
	2>/dev/null || :
