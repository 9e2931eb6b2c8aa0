#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# oci.sh EXECUTABLE ARCHITECTURE OUT - an OCI image with nothing but the command, as a
# tar archive of its layout; the same bytes for the same $SOURCE_DATE_EPOCH
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
image=$work/oci:$VERSION
when=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
rootless=
[ "$(id -u)" = 0 ] || rootless=--rootless

install -m 755 "$1" "$work/unshard"
touch -d "@$SOURCE_DATE_EPOCH" "$work/unshard"
umoci init --layout "$work/oci"
umoci new --image "$image"
umoci insert $rootless --image "$image" --history.created "$when" \
	--history.created_by packaging/oci.sh "$work/unshard" /unshard
umoci config --image "$image" --no-history --created "$when" --os linux \
	--architecture "$2" --config.entrypoint /unshard --config.cmd --help
umoci gc --layout "$work/oci"
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
	--mode=u+rwX,go+rX,go-w -C "$work/oci" -cf "$3" .
