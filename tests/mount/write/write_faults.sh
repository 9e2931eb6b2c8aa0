# SPDX-License-Identifier: Apache-2.0
# What fails below a write reaches who wrote, once and for all where a sync
# failed; a worker that is killed loses nothing that it acknowledged; files
# that somebody else changes are not written and not read any more.
LIMIT=120
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
requires python3

make_split "$WORK/ckpt" 200 4097 4
cp -r "$WORK/ckpt" "$WORK/keep"
t=$MNT/tensors/w
join() { python3 "$here/tests/mount/lib/join.py" "$WORK/ckpt" "$1" "$WORK/is"; }
fresh() { rm -rf "$WORK/ckpt" && cp -r "$WORK/keep" "$WORK/ckpt"; }

# errnos OP...: each "write", "sync" or "close" and the errno it must give
errnos() { python3 "$here/tests/mount/lib/failing.py" "$t" "$@" || fail "$*"; }

for e in uring plain; do
	o="rw,engine=$e"
	UNSHARD_FAULT=write:3:1:28 mount_ckpt "$WORK/ckpt" "$o"
	errnos write:ENOSPC write:0 sync:0 close:0
	umount_ckpt
	UNSHARD_FAULT=write:2:1:5 mount_ckpt "$WORK/ckpt" "$o"
	errnos write:EIO sync:0 write:0 close:0
	umount_ckpt
	# half of a write: continued
	UNSHARD_FAULT=write:2:3:0 mount_ckpt "$WORK/ckpt" "$o"
	errnos write:0 close:0
	umount_ckpt
	# a failed sync: this file never again, by whoever wrote to it
	UNSHARD_FAULT=sync:2:1:5 mount_ckpt "$WORK/ckpt" "$o"
	errnos write:0 sync:EIO sync:EIO close:0
	errnos sync:0 write:0 sync:EIO close:0
	umount_ckpt
	UNSHARD_FAULT=sync:1:1:28 mount_ckpt "$WORK/ckpt" "$o"
	errnos write:0 sync:ENOSPC write:0 sync:ENOSPC
	umount_ckpt
done
wait_for 5 grep -q 'could not be written to storage' "$LOG" || fail "no line in the log"

# --- the same, seen from the kernel's side
if command -v strace >/dev/null && [ -z "${SAN:-}" ]; then
	mount_ckpt "$WORK/ckpt" rw,engine=plain,threads=1
	strace -f -qq -o "$WORK/trace" -e trace=pwritev,fdatasync \
		-e inject=pwritev:error=ENOSPC:when=3 \
		-e inject=fdatasync:error=EIO:when=2 \
		-p "$(worker_pid)" 2>/dev/null &
	tracer=$!
	if wait_for 5 grep -q "^TracerPid:[[:space:]]*[1-9]" \
		"/proc/$(worker_pid)/status"; then
		errnos write:ENOSPC write:0 sync:EIO sync:EIO
	fi
	kill $tracer
	wait $tracer
	umount_ckpt
fi

# --- kill -9 of the worker: what was acknowledged is there
for after in 3 20 45; do
	fresh
	cp "$WORK/whole.w" "$WORK/model.w"
	mount_ckpt "$WORK/ckpt" rw
	python3 "$here/tests/mount/lib/killed.py" "$t" "$WORK/model.w" \
		"$(worker_pid)" $after || fail "killed after $after"
	wait_for 10 not mounted || fail "a dead mount stays"
	join w || fail join
	python3 - "$WORK/is" "$WORK/model.w" "$WORK/model.w.maybe" <<'END' ||
import sys
got, sure, maybe = (open(p, "rb").read() for p in sys.argv[1:])
# bytes of the write under way are old or new, all others what they should be
sys.exit(any(g not in (a, b) for g, a, b in zip(got, sure, maybe)) or len(got) != len(sure))
END
		fail "an acknowledged byte is lost after $after"
done

# --- somebody else
fresh
mount_ckpt "$WORK/ckpt" rw
f=$WORK/ckpt/shard-00002-model-00001-of-00001.safetensors
errnos write:0 sync:0 read:0 close:0
printf x | dd of="$f" bs=1 seek=5000 conv=notrunc status=none
errnos write:ESTALE read:ESTALE close:0
umount_ckpt
mount_ckpt "$WORK/ckpt" rw
errnos write:0 read:0 close:0
cp "$f" "$WORK/copy" && mv "$WORK/copy" "$f"
errnos write:ESTALE read:ESTALE close:0
umount_ckpt
mount_ckpt "$WORK/ckpt" rw
truncate -s 9000 "$f"
errnos write:EIO read:EIO close:0
umount_ckpt

# --- what is never written
fresh
ln "$f" "$WORK/second name"
mount_ckpt "$WORK/ckpt" rw
errnos open:EROFS
wait_for 5 grep -q 'hard links' "$LOG" || fail "no line about hard links"
umount_ckpt
rm "$WORK/second name"
mount_ckpt "$WORK/ckpt" rw
rm "$f"
errnos write:EIO close:0
umount_ckpt

# --- one that is sealed by itself, and one whose directory is sealed
one=$WORK/ones/one.safetensors
make_safetensors "$one"
cp "$one" "$WORK/one.keep"
for what in "$one ${one%/*}" "${one%/*} $one"; do
	"$UNSHARD" seal "${what% *}" >/dev/null || fail "seal ${what% *}"
	for ckpt in $what; do
		mount_ckpt "$ckpt" rw
		t=$MNT/tensors/a
		[ "$ckpt" = "$one" ] || [ "${what% *}" = "$one" ] ||
			{ errnos write:0 close:0; umount_ckpt; continue; }
		errnos open:EROFS
		wait_for 5 grep -q 'sealed' "$LOG" || fail "no line about a seal"
		: >"$LOG"
		dd if=/dev/zero of="$MNT/model.safetensors" bs=1 count=1 \
			conv=notrunc 2>/dev/null && fail "all of it was written"
		umount_ckpt
	done
	"$UNSHARD" verify "${what% *}" >/dev/null || fail "verify ${what% *}"
	rm "${one%/*}"/.unshard-*
	cp "$WORK/one.keep" "$one"
done
t=$MNT/tensors/w
cp -r "$here/tests/formats/dcp/2.14-zstd/in" "$WORK/zstd"
mount_ckpt "$WORK/zstd" rw
n=0
for t in "$MNT"/tensors/*; do
	cp "$t" "$WORK/was"
	printf x | dd of="$t" conv=notrunc status=none 2>/dev/null && continue
	same "$t" "$WORK/was"
	n=$((n + 1))
done
[ $n -gt 0 ] || fail "a compressed tensor was written"
wait_for 5 grep -q 'compressed, which cannot be written' "$LOG" || fail "no line: zstd"
done_ok
