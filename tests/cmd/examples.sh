# SPDX-License-Identifier: Apache-2.0
# The examples of docs/formats/README.md: each command in it, run as it is
# written, prints what it shows.
LIMIT=60
. "$(dirname "$0")/lib/common.sh"

cd "$TOP" || fail "no $TOP"
PAGE=docs/formats/README.md
nr=0
check() { # COMMAND, and what it has to print in $WORK/want
	bash -c "${1//build\/unshard/"$UNSHARD"}" >"$WORK/got" 2>&1 || true
	case $1 in
	find*) sort -o "$WORK/got" "$WORK/got"; sort -o "$WORK/want" "$WORK/want" ;;
	*'make '*) return ;;
	esac
	sed -i 's/ *$//' "$WORK/got" "$WORK/want"
	diff "$WORK/want" <(sed -e '$a\' "$WORK/got") >"$WORK/diff" ||
		fail "$1: $(cat "$WORK/diff")"
	nr=$((nr + 1))
}
command=
while IFS= read -r line || [ -n "$command" ]; do
	case $line in
	'    $ '*)
		[ -z "$command" ] || check "$command"
		command=${line#    \$ }
		: >"$WORK/want" ;;
	'    '*)
		[ -z "$command" ] || echo "${line#    }" >>"$WORK/want" ;;
	*)
		[ -z "$command" ] || check "$command"
		command= ;;
	esac
done <"$PAGE"
# each row of the table names an example that its command shows
rows=0
while read -r name at; do
	"$UNSHARD" inspect "$at" >"$WORK/got" 2>&1 || fail "$at: $(cat "$WORK/got")"
	grep -q "^format *$name\$" "$WORK/got" || fail "$at is not read as $name"
	rows=$((rows + 1))
done < <(sed -n 's/^| `\([a-z_]*\)`.*`\(tests\/formats\/[^`]*\)` |$/\1 \2/p' "$PAGE")
[ "$rows" = "$(grep -c '^| `' "$PAGE")" ] || fail "only $rows rows have one"
[ "$nr" -ge 12 ] || fail "only $nr examples were found in $PAGE"
done_ok
