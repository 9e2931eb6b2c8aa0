# SPDX-License-Identifier: Apache-2.0
# Every #include against tests/lint/layers.rules, and full paths only; what is
# in the top folder, too.

status=0
top=$(git ls-files 2>/dev/null | cut -d/ -f1)
for f in $(printf '%s\n' "${top:-$(ls -A)}" | sort -u); do
	awk -v f="$f" '$1 == "top" { for (i = 2; i <= NF; i++) ok += $i == f }
		END { exit !ok }' tests/lint/layers.rules ||
		{ echo "$f: has no place in the top folder"; status=1; }
done

find core fs mount-helpers tests -name '*.[ch]' | sort | xargs awk '
function folder(f) { sub("/[^/]*$", "", f); return f }
# A row "core/format/*" is for each of its folders.
function row(f) { return f in known ? f : folder(f) "/*" }
function may(from, to) {
	if (from == folder(to)) return 1
	from = row(from)
	return ((from, to) in ok) || ((from, folder(to)) in ok)
}
FILENAME == rules {
	sub("#.*", "")
	if ($1 == "top") next
	if ($1 == "foreign")
		for (i = 3; i <= NF; i++) home[$2, ++homes[$2]] = $i
	else if (NF) {
		known[$1] = 1
		for (i = 2; i <= NF; i++) ok[$1, $i] = 1
	}
	next
}
function at_home(h, f, i) {
	for (i = 1; i <= homes[h]; i++)
		if (index(f, home[h, i]) == 1) return 1
	return 0
}
function bad(why) { printf "%s:%d: %s\n", FILENAME, FNR, why; nr++ }
/^[ \t]*#[ \t]*include[ \t]*"/ {
	split($0, part, "\""); to = part[2]; from = folder(FILENAME)
	if (to !~ "/") bad("\"" to "\" is not a path from the top")
	else if (from ~ "^tests") next
	else if (!(row(from) in known)) bad("layers.rules does not know " from)
	else if (!may(from, to)) bad(from " may not include " to)
}
/^[ \t]*#[ \t]*include[ \t]*</ {
	split($0, part, "[<>]"); h = part[2]
	if (h ~ "^criterion/") h = "criterion/*"
	if ((h in homes) && !at_home(h, FILENAME)) bad("<" part[2] "> has another home")
}
END { exit nr > 0 }
' rules=tests/lint/layers.rules tests/lint/layers.rules || status=1
exit $status
