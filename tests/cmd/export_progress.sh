#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# export on a terminal: how far, how fast, how long still; nothing of it in a log
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}" strace
strace -o /dev/null true 2>/dev/null || skip "strace may not trace here"
[ -z "${SAN:-}" ] || skip "the sanitizer does not start below strace"
cd "$WORK" || exit 1
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" m.safetensors a U8 64,1048576
slow=(strace -f -o trace -e trace=pwrite64
	-e inject=pwrite64:delay_enter=15000 "$UNSHARD" export --verify
	-o parse-time=60 m.safetensors)

"${slow[@]}" log >out 2>err || fail "$(cat err)"
[ ! -s err ] || fail "in a log: $(cat err)"

on_terminal() { # OUT
	"$PYTHON" terminal.py "${slow[@]}" "$1"
}
cat >terminal.py <<'EOS'
import fcntl, os, pty, struct, subprocess, sys, termios
ours, theirs = pty.openpty()
columns = int(os.environ.get("COLUMNS_THERE", 0)) # 0: it does not say
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
p = subprocess.Popen(sys.argv[1:], stderr=theirs, stdout=subprocess.DEVNULL)
os.close(theirs)
said = b""
while True:
    try:
        got = os.read(ours, 65536)
    except OSError:
        break
    if not got:
        break
    said += got
sys.stdout.write(said.decode().replace("\r", "\n"))
sys.exit(p.wait())
EOS
on_terminal shown >shown.txt || fail "on a terminal"
grep -qE 'writing \[#+\.+\] [0-9.]+ MiB of 64.0 MiB, [0-9.]+ [KMG]iB/s, 0:[0-9]{2} left' \
	shown.txt || fail "writing: $(cat -v shown.txt)"
grep -q 'reading back \[' shown.txt || fail "reading back: $(cat -v shown.txt)"
cmp log shown || fail "other bytes"

# a line that wraps is not taken away by the next
COLUMNS_THERE=24 on_terminal narrow >narrow.txt || fail "24 columns"
for most in 80:shown.txt 24:narrow.txt; do
	sed 's/\x1b\[K//' "${most#*:}" |
		awk -v most="${most%:*}" 'length >= most' | grep . &&
		fail "wider than ${most%:*} columns"
done
done_ok
