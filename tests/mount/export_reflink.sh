#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# export on filesystems that share blocks: what lies at the same place of a
# block takes no room, and the rest is written as ever
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}" cmp losetup
[ "$(id -u)" = 0 ] || skip "loop devices are root's"
losetup -f >/dev/null 2>&1 || skip "no loop device here"

# Its data begin at 4096: "w" is at the beginning of a block, "odd" goes on to
# the middle of one, "off" begins there.
make_aligned() {
	"$PYTHON" - "$1" <<'EOS'
import json, os, struct, sys
sizes, head, at = {"w": 24 << 20, "odd": 4096 * 40 + 7, "off": 1 << 20}, {}, 0
for name, n in sizes.items():
    head[name] = {"dtype": "U8", "shape": [n], "data_offsets": [at, at + n]}
    at += n
text = json.dumps(head).encode().ljust(4096 - 8)
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + os.urandom(at))
    os.fsync(f.fileno())
EOS
}

used() { df -k --output=used "$at" | tail -n 1; }

try() { # KIND
	at=$WORK/$1
	mkdir "$at"
	truncate -s 320M "$WORK/disk"
	"mkfs.$1" -q "$WORK/disk" >/dev/null 2>&1 || fail "mkfs.$1"
	mount -o loop "$WORK/disk" "$at" || { say "no $1 here"; return 1; }
	make_aligned "$at/m.safetensors"
	sync -f "$at"
	before=$(used)
	"$UNSHARD" export --json --to tensors --verify "$at/m.safetensors" "$at/out" \
		>"$WORK/said" || fail "$1: export"
	sync -f "$at"
	grep -q "\"shared_nbytes\": $(((24 << 20) + 4096 * 40)), .*\"verified\": true" \
		"$WORK/said" || fail "$1: $(cat "$WORK/said")"
	[ $(($(used) - before)) -lt 4096 ] ||
		fail "$1: $before KiB before, $(used) now"
	for t in w odd off; do
		"$UNSHARD" cat "$at/m.safetensors" $t | cmp - "$at/out/$t" ||
			fail "$1: $t"
	done
	# a copy, not the source: it keeps its bytes when that is written
	cp "$at/out/w" "$WORK/w"
	printf x | dd of="$at/m.safetensors" bs=1 seek=10000 conv=notrunc status=none
	same "$WORK/w" "$at/out/w"
	umount "$at"
	rm "$WORK/disk"
	nr=$((nr + 1))
}

nr=0
for kind in xfs btrfs; do
	! command -v "mkfs.$kind" >/dev/null || try $kind
done
[ $nr -gt 0 ] || skip "needs XFS or Btrfs: mkfs, and a kernel that has it"

# Elsewhere it is copied or written, and as good.
make_aligned "$WORK/m.safetensors"
"$UNSHARD" export --to tensors "$WORK/m.safetensors" "$WORK/out" >/dev/null ||
	fail "export"
for t in w odd off; do
	"$UNSHARD" cat "$WORK/m.safetensors" $t | cmp - "$WORK/out/$t" ||
		fail "here: $t"
done
done_ok
