# SPDX-License-Identifier: Apache-2.0
# -o replace: the worker is killed at each write, rename and fsync that it asks the
# kernel for, with nothing of ours in the way.  There is the old tensor or the new
# one afterwards, what was acknowledged is the new one, and unshard recover ends
# what was begun.
LIMIT=180
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/split.sh"
. "$(dirname "$0")/../lib/replace.sh"
requires python3 cp strace
[ -z "${SAN:-}" ] || skip "sanitizers look for leaks at other times"

make_split "$WORK/keep" 300 4097 3
"$UNSHARD" seal "$WORK/keep" >/dev/null || fail seal
noise "$(stat -c %s "$WORK/whole.w")" 22 >"$WORK/new"
traced() { not grep -q "^TracerPid:[[:space:]]*0" /proc/"$1"/task/*/status; }
# attempt CALLS N: cp to a mount whose worker is killed at the Nth, which may be
# one of its end; cp's exit code, and 99 where there was no Nth
attempt() {
	local pid tracer rc
	rm -rf "$ckpt" && cp -r "$WORK/keep" "$ckpt"
	mount_ckpt "$ckpt" replace,engine=plain
	pid=$(worker_pid)
	strace -f -q -o "$WORK/trace" -e "trace=$1" \
		-e "inject=$1:signal=KILL:when=$2" -p "$pid" 2>"$WORK/err" &
	tracer=$!
	wait_for 10 traced "$pid" || skip "no strace: $(cat "$WORK/err")"
	cp "$WORK/new" "$MNT/tensors/w" 2>/dev/null
	rc=$?
	"$UNSHARD" umount "$MNT" 2>"$WORK/err"
	wait $tracer
	wait_for 10 not mounted || fail "$1 $2: the mount stays: $(cat "$WORK/err")"
	grep -q 'killed by SIGKILL' "$WORK/trace" && return $rc
	[ $rc = 0 ] || fail "$1: not killed, and cp gave $rc"
	return 99
}

for calls in pwritev rename,renameat,renameat2 fsync,fdatasync; do
	n=1
	while attempt $calls $n; rc=$?; [ $rc != 99 ]; do
		what="$calls, number $n"
		is=$(which_bytes)
		if left; then
			"$UNSHARD" cat "$ckpt" w >/dev/null 2>&1 &&
				fail "$what: read half-way"
			is=new
		fi
		[ "$is" != mixed ] || fail "$what: torn"
		[ $rc != 0 ] || [ "$is" = new ] || fail "$what: lost"
		"$UNSHARD" recover "$ckpt" >"$WORK/out" 2>&1 ||
			fail "$what: $(cat "$WORK/out")"
		left && fail "$what: recover left it"
		[ "$(which_bytes)" = "$is" ] || fail "$what: $(which_bytes), not $is"
		"$UNSHARD" verify "$ckpt" >"$WORK/out" 2>&1 ||
			fail "$what: $(cat "$WORK/out")"
		n=$((n + 1))
		[ $n -lt 60 ] || fail "$calls: no end"
	done
	[ "$(which_bytes)" = new ] || fail "$calls: no kill, and not new"
	[ $n -gt 1 ] || fail "$calls: nothing was killed"
	say "$calls: $((n - 1)) kills"
done
done_ok
