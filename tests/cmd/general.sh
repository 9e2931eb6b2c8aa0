#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The command itself: what it lists, what it refuses, its exit codes.
. "$(dirname "$0")/lib/common.sh"

expect 0 '' "$UNSHARD" --version
for how in -V version; do
	"$UNSHARD" $how | cmp - "$WORK/out" || fail "$how is not --version"
done
grep -qE '^unshard [0-9]+\.[0-9]+' "$WORK/out" || fail "$(cat "$WORK/out")"
expect 0 '' "$UNSHARD" --formats
for f in dcp hf safetensors; do
	grep -q "^$f " "$WORK/out" || fail "--formats lacks $f"
done

# --- help goes to standard output and names every command, each with help
expect 0 '' "$UNSHARD" --help
[ ! -s "$WORK/err" ] || fail "--help says something on stderr"
commands=$(sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p' "$WORK/out")
for c in mount umount ls cat; do
	echo "$commands" | grep -qx "$c" || fail "--help lacks $c"
done
for c in $commands; do
	expect 0 '' "$UNSHARD" "$c" --help
	head -n 1 "$WORK/out" | grep -q "^usage: unshard $c " ||
		fail "$c --help begins with $(head -n 1 "$WORK/out")"
	"$UNSHARD" help "$c" | cmp - "$WORK/out" || fail "help $c is not $c --help"
	expect 2 "unknown option --colour" "$UNSHARD" "$c" --colour
	for level in --help --help=all; do
		"$UNSHARD" "$c" "$level" >"$WORK/out" || fail "$c $level"
		awk 'length > 80' "$WORK/out" | grep . &&
			fail "$c $level: lines of more than 80 columns"
		grep '[^.]\.\.$' "$WORK/out" && fail "$c $level: two full stops"
	done
	expect 2 "unknown option -Q" "$UNSHARD" "$c" -Q
done
expect 2 'takes? no|unknown option --json' "$UNSHARD" umount --json /

# --- no words
ckpt=$TOP/tests/demo/checkpoint
"$UNSHARD" >"$WORK/out" 2>"$WORK/err"
[ $? = 2 ] || fail "no command: expected 2"
[ ! -s "$WORK/out" ] || fail "no command: words on standard output"
expect 2 'no command "lss" .did you mean ls[?]' "$UNSHARD" lss
expect 2 'no command "lss" .did you mean ls[?]' "$UNSHARD" help lss
expect 2 'no command "frobnicate" .unshard --help' "$UNSHARD" frobnicate
expect 2 "there is such a path: unshard mount $ckpt MNT\$" "$UNSHARD" "$ckpt"
expect 2 "there is such a path: unshard mount $ckpt $WORK/mnt\$" "$UNSHARD" "$ckpt" "$WORK/mnt"

# --- two levels of help: a screen, and everything
"$UNSHARD" mount --help >"$WORK/out"
[ "$(wc -l <"$WORK/out")" -lt 30 ] || fail "mount --help: $(wc -l <"$WORK/out") lines"
grep -q '^  config=DIR  *hf/ shows' "$WORK/out" || fail "$(cat "$WORK/out")"
! grep -q 'parse-time' "$WORK/out" || fail "parse-time is not for a first look"
"$UNSHARD" mount --help=all >"$WORK/out"
grep -q '^  parse-time=N  *Seconds .*' "$WORK/out" || fail "$(cat "$WORK/out")"
grep -q '^Speed and memory$' "$WORK/out" || fail "no groups: $(cat "$WORK/out")"
COLUMNS=60 "$UNSHARD" mount --help=all | awk 'length > 60' | grep . &&
	fail "wider than the terminal"

# --- options stand anywhere; "--" ends them
expect 0 '' "$UNSHARD" ls "$ckpt" -o engine=plain --json
expect 0 '' "$UNSHARD" ls --json -oengine=plain "$ckpt"
expect 0 '' "$UNSHARD" ls -o format=dcp -o max-files=9 -- "$ckpt"
expect 2 'for unshard mount' "$UNSHARD" ls -o direct=on "$ckpt"
expect 2 'expected one of.*dcp' "$UNSHARD" ls -o format=none "$ckpt"
expect 1 '/no/such' "$UNSHARD" ls -- /no/such

# --- what was meant
expect 2 'unknown option --jsn .did you mean --json[?]' "$UNSHARD" ls --jsn "$ckpt"
expect 2 'unknown option "fomat" .did you mean format[?]' \
	"$UNSHARD" ls -o fomat=dcp "$ckpt"
expect 2 'called "lm_hed.weigth" .did you mean model.lm_head.weight[?]' \
	"$UNSHARD" cat "$ckpt" lm_hed.weigth
expect 2 'called "lm_head.weight" .did you mean model.lm_head.weight[?]' \
	"$UNSHARD" cat "$ckpt" lm_head.weight

# --- a part of a checkpoint is none
for part in .metadata __0_0.distcp; do
	expect 1 "$part: it is part of a checkpoint: give its directory" \
		"$UNSHARD" ls "$ckpt/$part"
done

# --- a full standard output is an error
if [ -c /dev/full ]; then
	"$UNSHARD" ls --json "$ckpt" >/dev/full 2>"$WORK/err"
	[ $? = 3 ] || fail "/dev/full: expected 3"
	[ "$(wc -l <"$WORK/err")" = 1 ] || fail "/dev/full: $(cat "$WORK/err")"
	"$UNSHARD" --help >/dev/full 2>"$WORK/err"
	[ $? = 3 ] || fail "--help to /dev/full: expected 3"
	"$UNSHARD" --version >/dev/full 2>"$WORK/err"
	[ $? = 3 ] || fail "--version to /dev/full: expected 3"
	for c in "inspect --json" "layout show"; do # more than stdio keeps
		"$UNSHARD" $c "$ckpt" >/dev/full 2>"$WORK/err"
		[ $? = 3 ] || fail "$c to /dev/full: expected 3"
		grep -qx "unshard ${c% *}: standard output: No space left on device" \
			"$WORK/err" || fail "$c to /dev/full: $(cat "$WORK/err")"
	done
fi

# --- the index may take no longer than it is allowed to
mkdir "$WORK/big"
{
	printf '\200\002'
	yes '' | head -c 300000000 | tr '\n' '0'
} >"$WORK/big/.metadata"
start=$(date +%s)
"$UNSHARD" ls -o parse-time=1,format=dcp "$WORK/big" >/dev/null 2>"$WORK/err" &&
	fail "300 MB of pops are a checkpoint"
[ $(($(date +%s) - start)) -le 6 ] || fail "parse-time=1 took too long"
[ "$(wc -l <"$WORK/err")" = 1 ] || fail "parse-time: $(cat "$WORK/err")"
done_ok
