# SPDX-License-Identifier: Apache-2.0
# What size rules cannot see.  Each folder of sources is a room: no two rooms
# include each other, by whatever way; none has more than 40 files; no struct
# tag is two types; and no file outside of a format's room names that format,
# as a string, by one of its functions or a header.  Rooms, their files and lines, and the
# public functions that one other file calls are in log/rooms of the build.

# These words are also views, containers and options, which are no reader's.
common='dcp hf layout safetensors torch'
formats=$(ls core/format/*/fmt.c 2>/dev/null | cut -d/ -f3 | grep -vxE "${common// /|}")
log=${B-build}/log/rooms
mkdir -p "${log%/*}"

find core fs mount-helpers -name '*.[ch]' | sort | xargs awk -v formats="$formats" -v log_file="$log" '
function folder(f) { sub("/[^/]*$", "", f); return f }
function bad(why) { print why; nr++ }
function reach(from, to, v, todo, n, w, seen) { # by the way that includes go
	todo[n = 1] = from
	while (n) {
		v = todo[n--]
		for (w in room)
			if ((v, w) in edge && !(w in seen)) {
				if (w == to) return 1
				seen[w]; todo[++n] = w
			}
	}
	return 0
}
BEGIN { nf = split(formats, format, "\n") }
FNR == 1 { here = folder(FILENAME); room[here]++; comment = 0 }
{ lines[here]++ }
/^#include "/ {
	split($0, part, "\""); to = folder(part[2])
	if (to != here && to ~ "^(core|fs|mount-helpers)") edge[here, to]
	if (to != here && to ~ "^core/format/") bad(FILENAME ":" FNR ": " to " is for its own files")
}
/^struct [a-z_0-9]+ [{]$/ && FILENAME ~ /\.h$/ {
	if ($2 in tag && tag[$2] != FILENAME) bad(FILENAME ":" FNR ": struct " $2 " is another type in " tag[$2])
	tag[$2] = FILENAME
}
/^[ \t]*(\/\*|\*)/ { next }
{
	for (i = 1; i <= nf; i++)
		if (index($0, format[i]) && here != "core/format/" format[i] &&
		    ($0 ~ "\"" format[i] "[ \"]" || $0 ~ "(^|[^a-z_])ck_" format[i] "_"))
			bad(FILENAME ":" FNR ": names the format " format[i] ", which only its own folder may")
}
/^[a-z][A-Za-z_0-9 *]*[ *][a-z_0-9]+\(/ && !/^(static|typedef)/ && !/;$/ && FILENAME ~ /\.c$/ {
	name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
	home[name] = FILENAME
}
FILENAME ~ /\.c$/ {
	rest = $0
	while (match(rest, /[a-z][a-z_0-9]*_[a-z_0-9]+/)) {
		word = substr(rest, RSTART, RLENGTH)
		if (!((word, FILENAME) in used)) { used[word, FILENAME]; users[word]++ }
		rest = substr(rest, RSTART + RLENGTH)
	}
}
END {
	for (a in room) {
		if (room[a] > 40) bad(a ": " room[a] " files, not 40")
		for (b in room)
			if (a < b && reach(a, b) && reach(b, a)) bad(a " and " b " include each other")
	}
	for (n in home) {
		others = users[n] - ((n, home[n]) in used)
		total++
		if (others == 1) once[folder(home[n])]++
	}
	for (a in room) printf "%-32s %3d files %6d lines %4d functions with one caller elsewhere\n", a, room[a], lines[a], once[a] | "sort >" log_file
	exit nr > 0
}' || exit 1
awk '{ f += $2; l += $4; o += $6 } END { printf "%d rooms, %d lines, %d public functions with one caller elsewhere: build/log/rooms\n", NR, l, o }' "$log"
