# SPDX-License-Identifier: Apache-2.0
# kit.sh - libfuse's passthrough_ll, to compare with; source it after common.sh

# find_passthrough: $PASSTHROUGH, or built from the source that Debian ships.
find_passthrough() {
	local example=/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c
	[ -z "${PASSTHROUGH-}" ] || return 0
	[ -e "$example" ] && command -v gcc >/dev/null || return 1
	PASSTHROUGH=$WORK/passthrough_ll
	gcc -O2 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -w \
		-I"$(dirname "$example")" $(pkg-config --cflags fuse3) \
		"$example" -o "$PASSTHROUGH" $(pkg-config --libs fuse3) \
		2>/dev/null
}

# mount_theirs: a folder of the same file system, at $THEIRS
mount_theirs() {
	THEIRS=$WORK/theirs
	mkdir "$WORK/theirs.src" "$THEIRS"
	"$PASSTHROUGH" -o \
		"source=$WORK/theirs.src,default_permissions,allow_other" \
		"$THEIRS" || fail passthrough_ll
}
