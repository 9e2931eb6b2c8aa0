# SPDX-License-Identifier: Apache-2.0
# Errors of the disk as the kernel gives them (strace), while a new step is written
# and published: a write that fails is told and may be done again; an fsync that
# fails, of whatever file, dooms the step, in the mount and in the command.
LIMIT=180
. "$(dirname "$0")/../lib/common.sh"
requires python3 cp strace
[ -z "${SAN:-}" ] || skip "sanitizers look for leaks at other times"

SRC=$WORK/src
K=$WORK/keep
mkdir "$SRC"
python3 "$here/tests/mount/lib/copies.py" "$K" 2 100 2000 2 || fail copies
"$UNSHARD" cat "$K" w >"$WORK/w" || fail cat
cat >"$WORK/layout.json" <<J
{"unshard_layout": 1, "mesh": {"axes": [{"name": "tp", "size": 1}]},
 "tensors": [{"name": "w", "dtype": "uint8", "shape": [200000]}], "write": {}}
J
traced() { not grep -q "^TracerPid:[[:space:]]*0" /proc/"$1"/task/*/status; }
# inject WHAT...: from now on, in the worker
inject() {
	local pid args=() i
	pid=$(worker_pid)
	for i; do args+=(-e "inject=$i"); done
	strace -f -qq -o "$WORK/trace" "${args[@]}" -p "$pid" 2>"$WORK/err" &
	tracer=$!
	wait_for 10 traced "$pid" || skip "no strace: $(cat "$WORK/err")"
}
calm() {
	kill $tracer
	wait $tracer 2>/dev/null
	grep -q INJECTED "$WORK/trace" || fail "nothing was injected"
}
here_is() { [ -d "$SRC/$1" ]; }
# begin STEP [slices]
begin() {
	mkdir "$MNT/$1" || fail "mkdir $1"
	[ $# = 1 ] || cp "$WORK/layout.json" "$MNT/$1/unshard-layout.json" ||
		fail "layout of $1"
}
doomed() { # STEP
	grep -q '^doomed' "$MNT/$1/.unshard/status" ||
		fail "$1: $(cat "$MNT/$1/.unshard/status")"
	expect 1 'may be lost|can only be written again' "$UNSHARD" publish "$MNT/$1"
	here_is "$1" && fail "$1 is published"
}
published() { # STEP
	"$UNSHARD" publish "$MNT/$1" >"$WORK/out" 2>"$WORK/err" ||
		fail "$1: $(cat "$WORK/err")"
	same "$MNT/$1/tensors/w" "$WORK/w"
	"$UNSHARD" verify "$SRC/$1" >"$WORK/out" 2>&1 || fail "$1: $(cat "$WORK/out")"
}
fsynced() { # FROM TO
	dd if="$1" of="$2" bs=64k conv=notrunc,fsync status=none 2>"$WORK/err"
}
mount_ckpt "$SRC" rw,publish=manual,engine=plain,threads=1

# ---- a write that fails, of a file and of a slice
begin s1
inject pwrite64:error=EIO:when=2
cp "$K"/* "$MNT/s1/shards/" 2>"$WORK/err" && fail "EIO of a write is not told"
grep -q 'Input/output' "$WORK/err" || fail "$(cat "$WORK/err")"
calm
cp "$K"/* "$MNT/s1/shards/" || fail "again"
published s1
for call in pwrite64 pwritev; do
	begin "s2$call" slices
	inject "$call:error=EIO:when=1"
	if cp "$WORK/w" "$MNT/s2$call/ranks/0/w" 2>"$WORK/err"; then
		kill $tracer
		wait $tracer 2>/dev/null # slices are not written by this call
	else
		calm
		expect 1 'not complete' "$UNSHARD" publish "$MNT/s2$call"
		cp "$WORK/w" "$MNT/s2$call/ranks/0/w" || fail "again"
	fi
	published "s2$call"
done

# ---- an fsync that fails: the writer is told, once and for all
begin s3
inject fsync,fdatasync:error=EIO:when=1
fsynced "$K/dp0-tp0.safetensors" "$MNT/s3/shards/dp0-tp0.safetensors" &&
	fail "EIO of an fsync is not told"
calm
cp "$K"/* "$MNT/s3/shards/" 2>/dev/null
doomed s3
begin s4 slices
inject fsync,fdatasync:error=EIO:when=1
fsynced "$WORK/w" "$MNT/s4/ranks/0/w" && fail "EIO of an fsync of a slice is not told"
calm
doomed s4

# ---- a close that fails, as NFS says of what did not arrive: fsync says nothing
# of it afterwards, and on another node never did
begin s4c
cp "$K"/* "$MNT/s4c/shards/" || fail cp
exec 7<>"$MNT/s4c/shards/dp0-tp0.safetensors"
head -c 100 "$K/dp0-tp0.safetensors" >&7
inject close:error=EIO
python3 -c 'import os; os.close(7)' 2>"$WORK/err" && fail "EIO of a close is not told"
calm
exec 7>&-
doomed s4c

# ---- each fsync of a publish by command; what was not doomed can be published
for kind in files slices; do
	n=0 lost=0
	while [ $n -lt 20 ]; do
		n=$((n + 1))
		s=p$kind$n
		if [ $kind = files ]; then
			begin $s
			cp "$K"/* "$MNT/$s/shards/" || fail cp
		else
			begin $s slices
			cp "$WORK/w" "$MNT/$s/ranks/0/w" || fail cp
		fi
		strace -f -qq -o "$WORK/trace" -e trace=fsync,fdatasync \
			-e inject=fsync,fdatasync:error=EIO:when=$n \
			"$UNSHARD" publish "$MNT/$s" >"$WORK/out" 2>"$WORK/err"
		rc=$?
		grep -q INJECTED "$WORK/trace" || break
		if [ $rc = 0 ]; then # after the rename
			here_is $s || fail "$s: said to be published"
			continue
		fi
		[ "$(wc -l <"$WORK/err")" = 1 ] || fail "$s: $(cat "$WORK/err")"
		if here_is $s; then # the last one, of the directory
			same "$MNT/$s/tensors/w" "$WORK/w"
			continue
		fi
		if "$UNSHARD" publish "$MNT/$s" >"$WORK/out" 2>"$WORK/err2"; then
			# of ours, not of what somebody wrote
			grep -q 'can only be written again' "$WORK/err" &&
				fail "$s: published after all: $(cat "$WORK/err")"
			same "$MNT/$s/tensors/w" "$WORK/w"
			"$UNSHARD" verify "$SRC/$s" >/dev/null 2>&1 || fail "$s is torn"
		else
			grep -q 'may be lost\|can only be written again' "$WORK/err2" ||
				fail "$s: $(cat "$WORK/err" "$WORK/err2")"
			lost=$((lost + 1))
		fi
		say "$s: $(head -c 150 "$WORK/err")"
	done
	[ $n -gt 3 ] && [ $n -lt 20 ] && [ $lost -gt 0 ] || fail "$kind: $n fsyncs"
	say "$kind: $((n - 1)) fsyncs failed one by one"
done

# ---- the index of slices is on storage before it has the name by which the next
# publish takes it as it is
begin s5 slices
cp "$WORK/w" "$MNT/s5/ranks/0/w" || fail cp
strace -f -y -qq -o "$WORK/trace" -e trace=fsync,fdatasync,renameat,renameat2,rename \
	"$UNSHARD" publish "$MNT/s5" >"$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
awk '/sync\(.*unshard-layout\.json>/ { synced = 1 }
	/rename.*"unshard-layout\.json"/ { moved = 1; if (!synced) exit }
	END { exit !(synced && moved) }' "$WORK/trace" ||
	fail "the index is moved before it is synced: $(cat "$WORK/trace")"
umount_ckpt
done_ok
