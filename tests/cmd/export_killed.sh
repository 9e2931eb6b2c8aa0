#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# export, killed at every kind of step: nothing half is there, the same command
# ends well, and goes on where it was
LIMIT=120 # its waits are long where much else runs
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}" cmp flock strace
strace -o /dev/null true 2>/dev/null || skip "strace may not trace here"
[ -z "${SAN:-}" ] || skip "the sanitizer does not start below strace"
cd "$WORK" || exit 1
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" m.safetensors \
	a U8 9,1048576 b U8 9,1048576 c U8 7
for t in a b c; do
	expect 0 '' "$UNSHARD" cat m.safetensors $t
	mv out want-$t
done

killed() { # FORM CALL WHEN: kill -9 at that call of each process
	strace -f -o trace -e "trace=$2" \
		-e "inject=$2:signal=SIGKILL:when=$3" \
		"$UNSHARD" export --to "$1" m.safetensors o >out 2>err
	grep -q SIGKILL trace
}
right() { # FORM
	case $1 in
	tensors)
		[ "$(ls -A o | xargs)" = 'a b c' ] || fail "$1: $(ls -A o)"
		for t in a b c; do same o/$t want-$t; done ;;
	pt)
		"$PYTHON" -c 'import sys, zipfile
assert zipfile.ZipFile(sys.argv[1]).testzip() is None' o || fail "pt: a sum"
		cp o o.pt
		expect 0 '' "$UNSHARD" diff m.safetensors o.pt
		rm o.pt ;;
	*)
		cp o o.safetensors
		expect 0 '' "$UNSHARD" diff m.safetensors o.safetensors ;;
	esac
}

nr=0
try() { # FORM CALL WHEN
	if killed "$@"; then
		nr=$((nr + 1))
	elif [ ! -e o ]; then
		fail "$*: neither killed nor done"
	fi
	if [ -e o ]; then # but for its last steps
		right "$1"
	else
		expect 0 '' "$UNSHARD" export --to "$1" m.safetensors o
		right "$1"
		[ ! -e .o.unshard-part ] || fail "$*: $(ls -A .o.unshard-part)"
	fi
	rm -rf o .o.unshard-part
}
for call in mkdirat flock fork,clone,vfork pwrite64 ftruncate renameat unlinkat \
	syncfs fsync wait4,waitid; do
	try tensors $call 1
done
for call in pwrite64 renameat unlinkat fsync; do
	try tensors $call 2
	try safetensors $call 1
done
try pt syncfs 2 # recorded once
try pt pwrite64 9 # among the sums
[ $nr -ge 14 ] || fail "killed $nr times only"

# What one killed before its first record left does not go with another.
killed tensors syncfs 1 || fail "not killed"
[ -e .o.unshard-part/a ] || fail "nothing was written"
expect 0 '' "$UNSHARD" export --to npy m.safetensors o
[ "$(ls -A o | xargs)" = 'a.npy b.npy c.npy' ] || fail "of another: $(ls -A o)"
rm -r o

# Slow enough to be recorded: what was is not written again.
strace -f -o trace -e trace=pwrite64,fsync \
	-e inject=pwrite64:delay_enter=800000 \
	-e inject=fsync:delay_enter=1500000 \
	"$UNSHARD" export -o parse-time=60 --to tensors m.safetensors o >out 2>err &
for _ in $(seq 250); do
	grep -qs unshexp .o.unshard-part/.unshard-export && break
	sleep 0.1
done
grep -qs unshexp .o.unshard-part/.unshard-export || fail "nothing was recorded"
pkill -9 -P $! && kill -9 $! 2>/dev/null
wait 2>/dev/null
sleep 0.3
[ ! -e o ] || fail "it ended"
expect 0 '' "$UNSHARD" export --to tensors m.safetensors o
grep -q 'were there from before' out || fail "it began anew: $(cat out)"
right tensors
rm -r o

# Stopped by a signal at once, before a record is due: all that is written is. Both
# of timeout(1), which sends it to the command and then to its group.
for how in TERM INT timeout; do
	sig=${how/timeout/TERM}
	strace -f -o trace -e trace=pwrite64,openat \
		-e inject=pwrite64:delay_exit=400000 \
		env --default-signal=INT "$UNSHARD" export --to tensors \
		-o parse-time=60 m.safetensors o >out 2>err &
	tracer=$!
	for _ in $(seq 250); do
		[ -s .o.unshard-part/a ] && break
		sleep 0.02
	done
	waits=$(grep -m1 -o '^[0-9]*' trace)
	kill -$sig "$waits"
	[ $how != timeout ] || kill -TERM "$waits" $(pgrep -P "$waits")
	wait $tracer
	[ ! -e o ] || fail "$how: it ended"
	grep -q 'stopped; [0-9]* of [0-9]* bytes are written, the same command goes on$' err ||
		fail "$how: said $(cat err)"
	tail -n 1 trace | grep -q "killed by SIG$sig" || fail "$how: $(tail -n 1 trace)"
	expect 0 '' "$UNSHARD" export --json --to tensors m.safetensors o
	grep -q '"resumed_nbytes": [1-9]' out || fail "$how: it began anew: $(cat out)"
	right tensors
	rm -r o
done

# Who writes ends with who waits for it: a job is killed by the one id it has.
strace -f -o trace -e trace=pwrite64 \
	-e inject=pwrite64:delay_enter=3000000 \
	"$UNSHARD" export -o parse-time=60 --to tensors m.safetensors o >out 2>err &
tracer=$!
for _ in $(seq 250); do
	[ -e .o.unshard-part/a ] && break
	sleep 0.1
done
waits=$(pgrep -o -P $tracer) || fail "no export"
writes=$(pgrep -o -P "$waits") || fail "nobody writes"
kill -9 "$waits"
for _ in $(seq 20); do
	readlink "/proc/$writes/exe" >/dev/null || break
	sleep 0.1
done
readlink "/proc/$writes/exe" >/dev/null && fail "it still writes"
wait 2>/dev/null
rm -rf o .o.unshard-part

# It holds the lock until its last bytes are on disk: the next one waits a while.
held() { # SECONDS COMMAND...: while another has the lock; what that does at last
	mkdir -p .o.unshard-part
	flock -o .o.unshard-part sh -c "touch held; sleep $1; $2" &
	for _ in $(seq 100); do
		[ ! -e held ] || break
		sleep 0.05
	done
	rm held
}
held 1.5 :
expect 0 '' "$UNSHARD" export --to tensors m.safetensors o
right tensors
rm -r o
held 9 :
expect 3 'another export is writing there' \
	"$UNSHARD" export --to tensors m.safetensors o
kill $! && wait 2>/dev/null
# ... and takes nothing from what was finished meanwhile.
held 1.5 'touch .o.unshard-part/mine; mv .o.unshard-part o'
expect 3 'another export has written it meanwhile' \
	"$UNSHARD" export --to tensors m.safetensors o
[ "$(ls -A o)" = mine ] || fail "after another: $(ls -A o)"
exit 0
