# SPDX-License-Identifier: Apache-2.0
# xfstests' fsx: of fixed size on a tensor in several shards, in each way of
# delivery, after which the shards are read by something that is not ours; and
# with truncations, holes and renames in shards/, as on passthrough_ll.
#
#	make check-posix FSX=PROGRAM	ltp/fsx of xfstests; OPS=20000 each
LIMIT=1800
. "$(dirname "$0")/../mount/lib/common.sh"
. "$(dirname "$0")/../mount/lib/split.sh"
. "$(dirname "$0")/kit.sh"
[ -x "${FSX-}" ] || skip "FSX=PROGRAM: there is none"
case $FSX in /*) ;; *) FSX=$here/$FSX ;; esac
ops=${OPS:-20000}
seed=1
fixed="-L -F -H -z -C -I -J -B -E -0 -o 65536"
mkdir "$WORK/fsx"

run() { # NAME FILE FLAG...
	local name=$1 file=$2 start
	shift 2
	start=$(date +%s)
	"$FSX" -N "$ops" -S $((seed++)) -P "$WORK/fsx" "$@" "$file" \
		>"$WORK/fsx.log" 2>&1
	grep -q "A-OK" "$WORK/fsx.log" || {
		tail -n 30 "$WORK/fsx.log"
		return 1
	}
	say "$name: $ops operations, $(($(date +%s) - start)) s"
}

make_split "$WORK/ckpt" 200 4097 4
while read -r name o flags; do
	mount_ckpt "$WORK/ckpt" "rw,$o"
	run "$name" "$MNT/tensors/w" $fixed $flags || fail "$name"
	cp "$MNT/tensors/w" "$WORK/shown"
	umount_ckpt
	python3 "$here/tests/mount/lib/join.py" "$WORK/ckpt" w "$WORK/stored" ||
		fail join
	same "$WORK/stored" "$WORK/shown"
done <<END
direct direct=on -R -W
O_DIRECT direct=on -Z -r 4096 -w 4096 -t 4096 -R -W
mapped direct=auto
io_uring direct=auto -U
cached direct=off -R -W
cached+mapped direct=off
reopened direct=off -c 100
END

# Files of shards/: every call that fsx knows.
mkdir "$WORK/src"
compare=
find_passthrough && compare=yes
for o in direct=auto direct=off; do
	mount_ckpt "$WORK/src" "rw,$o"
	mkdir "$MNT/fsx"
	run "shards/ $o" "$MNT/fsx/shards/f" || ours=failed
	umount_ckpt
	rm -rf "$WORK"/src/.staging-*
	[ -n "${ours-}" ] || continue
	[ -n "$compare" ] || fail "shards/ with -o $o"
	mount_theirs
	run "passthrough_ll" "$THEIRS/f" && fail "worse than passthrough_ll"
	umount "$THEIRS"
	break
done
done_ok
