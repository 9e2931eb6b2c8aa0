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
	fdatasync fsync wait4,waitid; do
	try tensors $call 1
done
for call in pwrite64 renameat,renameat2 unlinkat fsync; do
	try tensors $call 2
	try safetensors $call 1
done
try pt fdatasync 2 # recorded once
try pt pwrite64 9 # among the sums
[ $nr -ge 14 ] || fail "killed $nr times only"

# What one killed before its first record left does not go with another.
killed tensors fdatasync 1 || fail "not killed"
[ -e .o.unshard-part/a ] || fail "nothing was written"
expect 0 '' "$UNSHARD" export --to npy m.safetensors o
[ "$(ls -A o | xargs)" = 'a.npy b.npy c.npy' ] || fail "of another: $(ls -A o)"
rm -r o

# Slow enough to be recorded: what was is not written again.
strace -f -o trace -e trace=pwrite64,fsync \
	-e inject=pwrite64:delay_enter=100000 \
	-e inject=fsync:delay_enter=1500000 \
	"$UNSHARD" export -o parse-time=60 --to tensors m.safetensors o >out 2>err &
tracer=$!
wait_for 30 grep -qs unshexp .o.unshard-part/.unshard-export ||
	fail "nothing was recorded"
waits=$(pgrep -o -P $tracer) && writes=$(pgrep -o -P "$waits") || fail "no export"
kill -9 "$waits" $tracer
wait 2>/dev/null
wait_for 10 gone "$writes" || fail "it still writes"
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
		-e inject=pwrite64:delay_exit=50000 \
		env --default-signal=INT "$UNSHARD" export --to tensors \
		-o parse-time=60 m.safetensors o >out 2>err &
	tracer=$!
	wait_for 30 test -s .o.unshard-part/a || fail "$how: nothing is written"
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
wait_for 30 test -e .o.unshard-part/a || fail "nothing is written"
waits=$(pgrep -o -P $tracer) || fail "no export"
writes=$(pgrep -o -P "$waits") || fail "nobody writes"
kill -9 "$waits"
wait_for 10 gone "$writes" || fail "it still writes"
wait 2>/dev/null
rm -rf o .o.unshard-part

# What comes by that name meanwhile stays, and so does what is written.
for form in safetensors tensors; do
	file=.o.unshard-part/a
	[ $form = tensors ] || file=.o.unshard-part/o
	strace -f -o trace -e trace=pwrite64 \
		-e inject=pwrite64:delay_enter=2000000:when=1 \
		"$UNSHARD" export -o parse-time=60 --to $form m.safetensors o >out 2>err &
	tracer=$!
	wait_for 30 test -e $file || fail "$form: nothing is written"
	if [ $form = tensors ]; then
		mkdir o && echo kept >o/kept
	else
		echo kept >o
	fi
	wait $tracer
	[ $? = 2 ] || fail "$form: $(cat out err)"
	grep -q '^unshard export: ./o: is there by now' err || fail "$form: $(cat err)"
	grep -qr kept o || fail "$form: it was written over"
	rm -r o
	expect 0 'were there from before' "$UNSHARD" export --to $form m.safetensors o
	right $form
	rm -r o
done

# It holds the lock until its last bytes are on disk: the next one waits a while.
mkfifo let_go
held() { # COMMAND: another has the lock, until it is let go; what it does then
	rm -f trace held
	mkdir -p .o.unshard-part
	flock -o .o.unshard-part sh -c "touch held; read -r _ <let_go; $1" &
	wait_for 10 test -e held || fail "no lock"
}
next() { strace -f -o trace -e trace=flock "$UNSHARD" export --to tensors m.safetensors o; }
let_go() { # when the next one waits
	wait_for 10 grep -qs EAGAIN trace || say "nobody waits for the lock"
	echo >let_go
}
held :
let_go &
expect 0 '' next
wait
right tensors
rm -r o
held :
expect 3 'another export is writing there' next
let_go
wait
# ... and takes nothing from what was finished meanwhile.
held 'touch .o.unshard-part/mine; mv .o.unshard-part o'
let_go &
expect 3 'another export has written it meanwhile' next
wait
[ "$(ls -A o)" = mine ] || fail "after another: $(ls -A o)"
done_ok
