#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# files of options that are no JSON, or JSON of another kind: a line each, with
# the file, and what was expected and found
. "$(dirname "$0")/lib/common.sh"
ms=$TOP/tests/formats/mindspore/2.10-row4/in
of=$TOP/tests/formats/oneflow/global/in
cd "$WORK" || exit 1

printf '\357\273\277{"a": 1}' >bom.json
printf '\377\376{\0' >utf16.json
: >empty.json
printf ' \n' >white.json
printf null >null.json
printf '[1, 2]' >list.json
printf '"x"' >text.json
printf '{}' >object.json
printf '{"a":' >cut.json

of() { # FILE: what each reader says of it
	case $1 in
	bom) echo 'byte 0: expected JSON, found a byte order mark (UTF-8)' ;;
	utf16) echo 'byte 0: expected JSON, found a byte order mark (UTF-16)' ;;
	empty) echo 'byte 0: expected JSON, found an empty file' ;;
	white) echo 'byte 2: expected JSON, found white space alone' ;;
	null) echo 'expected .*, found null' ;;
	list) echo 'expected .*, found a list of 2' ;;
	text) echo 'expected .*, found "x"' ;;
	object) echo '.*expected' ;;
	cut) echo 'byte 5: ' ;;
	esac
}
for f in bom utf16 empty white null list text object cut; do
	for o in reshard views layout strategy sbp; do
		ckpt=$ms
		[ $o != sbp ] || ckpt=$of
		"$UNSHARD" ls -o $o=$f.json "$ckpt" >out 2>err &&
			fail "-o $o=$f.json: taken"
		[ "$(wc -l <err)" = 1 ] || fail "-o $o=$f.json: $(cat err)"
		grep -q "$f.json: $(of $f)" err || fail "-o $o: $(cat err)"
		if grep -Eq 'wire|field' err; then fail "$(cat err)"; fi
	done
	expect 2 "$f.json: .*" "$UNSHARD" plan --reshard $f.json "$ms"
	grep -q "$(of $f)" err || fail "--reshard: $(cat err)"
done
expect 2 'bom.json: line 1: found a byte order mark' \
	"$UNSHARD" plan -o rules=bom.json --reshard tp=2 "$ms"
done_ok
