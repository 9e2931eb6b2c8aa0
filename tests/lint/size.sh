# SPDX-License-Identifier: Apache-2.0
# Functions of more than 60 lines, files of more than 600, but for those in
# size.except.  In kernel style a body's braces stand alone in column one.

find core fs mount-helpers tests -name '*.[ch]' | sort | xargs awk '
FILENAME == except {
	if ($0 !~ /^#/ && NF >= 3) allowed[$1, $2] = 1
	else if ($0 !~ /^#/ && NF) { print FILENAME ": no reason: " $0; nr++ }
	next
}
function check(file, what, lines, most) {
	if (lines <= most || ((file, what) in allowed)) return
	printf "%s: %s: %d lines, not %d\n", file, what == "-" ? "the file" : what, lines, most
	nr++
}
function file_done() { if (last != "") check(last, "-", lines, 600) }
FNR == 1 { file_done(); last = FILENAME; lines = 0; name = ""; open = 0 }
{ lines = FNR }
/^[A-Za-z_].*[A-Za-z0-9_]+\(/ && !/;[ \t]*$/ {
	name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
}
/^{/ { open = FNR }
/^}/ && open { check(FILENAME, name, FNR - open + 1, 60); open = 0 }
END { file_done(); exit nr > 0 }
' except=tests/lint/size.except tests/lint/size.except
