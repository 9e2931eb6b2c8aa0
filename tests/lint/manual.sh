# SPDX-License-Identifier: Apache-2.0
# What --help says is in the manual, and the other way round: subcommands,
# their flags, the -o options, formats; and what is promised names its tests.

status=0
no() {
	echo "$*"
	status=1
}
# Words that look like flags, in a page's source or in --help.
flags() {
	tr -d '*_\\' | sed 's/unshard --[a-z]*//g' | grep -oE '(^|[^[:alnum:]-])--[a-z][a-z-]+' |
		grep -oE -e '--[a-z-]+' | sort -u
}
# "NAME" or "NAME=VALUE" that begin an entry of the list of options.
help_options() { sed -n '/^-o NAME/,$s/^  \([a-z][a-z-]*\).*/\1/p' | sort -u; }
page_options() { sed -n 's/^\*\([a-z][a-z-]*\)\*\(=_.*\)\{0,1\}$/\1/p' | sort -u; }

compare() { # WHAT HELP PAGE
	local a b
	a=$(comm -23 <(echo "$2") <(echo "$3") | xargs)
	b=$(comm -13 <(echo "$2") <(echo "$3") | xargs)
	[ -z "$a" ] || no "$1: in --help, not in the manual: $a"
	[ -z "$b" ] || no "$1: in the manual, not in --help: $b"
}

commands=$("$B/unshard" --help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p')
[ -n "$commands" ] || no "unshard --help lists no commands"
for c in $commands; do
	man=docs/man/unshard-$c.1.scd
	[ -e "$man" ] || { no "$man: missing"; continue; }
	help=$("$B/unshard" "$c" --help=all)
	full=$(cat "$B/man/unshard-$c.1.scd")
	compare "$c flags" "$(echo "$help" | flags)" "$(echo "$full" | flags)"
	compare "$c options" "$(echo "$help" | help_options)" \
		"$(grep '^@options ' "$man" | "$B/options" | page_options)"
	grep -q "unshard-$c" docs/man/unshard.1.scd ||
		no "unshard.1.scd does not name unshard-$c(1)"
done
for man in docs/man/unshard-*.1.scd; do
	c=${man#docs/man/unshard-}
	echo "$commands" | grep -qx "${c%.1.scd}" ||
		no "$man: there is no such command"
done
# man fills lines: commands that are no literal text run into one another
awk 'FNR == 1 { raw = 0 } /^```/ { raw = !raw; next }
	!raw && (/^\tunshard [a-z]/ || /^\t[^\t]+\t/) { print FILENAME ":" FNR ": " $0 }' \
	docs/man/unshard*.1.scd | grep . && no "to be between lines of \`\`\`, or a list"
for f in $("$B/unshard" --formats | awk '{ print $1 }'); do
	cat "$B"/man/*.scd | grep -q "\*$f\*" || no "format $f: not in the manual"
done

# Each row of the tables of guarantees names its tests, and these exist.
rows() { # PAGE SECTION: the last cell of each row
	sed -n "/^## $2/,/^## /s/^| .*| \([^|]*\) |\$/\1/p" "$1" | tail -n +2
}
guarantees() { # PAGE SECTION WHERE .SUFFIX
	local cell name nr=0
	while read -r cell; do
		nr=$((nr + 1))
		case $cell in "the same") continue ;; *'`'*) ;; *) no "$1: a row without a test: $cell" ;; esac
		for name in $(grep -oE '`[^`]+`' <<<"$cell" | tr -d '`'); do
			[ "$name" = crash ] || [ -e "$3/$name$4" ] || no "$1: $name: there is no such test"
		done
	done < <(rows "$1" "$2")
	[ $nr -gt 5 ] || no "$1: a table of $nr guarantees"
}
guarantees docs/writing.md "What is promised" tests/mount/write .sh
guarantees docs/publishing.md Guarantees tests ""
exit $status
