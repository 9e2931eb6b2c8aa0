# SPDX-License-Identifier: Apache-2.0
# Draws the ratios of build/bench/results.txt, lines SCRIPT NAME VALUE UNIT LIMIT LOW HIGH:
# a bar each from 0 to 2, a whisker from the lowest to the highest turn, a tick where the
# limit is.  about=TEXT is the line at the top.

BEGIN {
	wide = 900; margin = 16; row = 20; most = 2
	near = "#8fbce6"; beyond = "#f0a35e"; ink = "#1f2933"; pale = "#66727f"
}

$4 == "ratio" || $4 == "x" {
	n++
	script[n] = $1; name[n] = $2; value[n] = $3; limit[n] = $5; low[n] = $6; high[n] = $7
	if (length($2) > longest) longest = length($2)
}

function text(x, y, what, more) {
	gsub(/&/, "\\&amp;", what); gsub(/</, "\\&lt;", what); gsub(/>/, "\\&gt;", what)
	printf "<text x=\"%.1f\" y=\"%.1f\"%s>%s</text>\n", x, y, more, what
}
function line(x1, y1, x2, y2, color, width) {
	printf "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\" stroke-width=\"%s\"/>\n",
		x1, y1, x2, y2, color, width
}
function bar(y, v, color,	end, tip) { # one that goes on ends in a point
	end = at(v)
	tip = v > most ? sprintf("L%.1f %.1f", end + 8, y) : ""
	printf "<path d=\"M%.1f %.1fH%.1f%sL%.1f %.1fH%.1fz\" fill=\"%s\"/>\n",
		left, y - 6, end, tip, end, y + 6, left, color
}
function whisker(y, a, b) {
	if (a > most) return
	line(at(a), y, at(b), y, ink, 1.5)
	line(at(a), y - 3.5, at(a), y + 3.5, ink, 1.5)
	if (b <= most) line(at(b), y - 3.5, at(b), y + 3.5, ink, 1.5)
}
function at(v) { return left + (right - left) * (v > most ? most : v) / most }
function number(s) { return substr(s, 3) + 0 }
function missed(v, s) {
	return s != "-" && (substr(s, 1, 2) == ">=" ? v + 0 < number(s) : v + 0 > number(s))
}
function small(s) { # a name that has no room is written smaller
	return length(s) > names / 7.4 ? sprintf(" font-size=\"%.1f\"", 12 * names / 7.4 / length(s)) : ""
}

END {
	names = 7.4 * longest
	names = names < 120 ? 120 : names > 250 ? 250 : int(names)
	left = margin + names + 10; right = wide - margin - 260
	values = right + 62; spreads = values + 14; limits = wide - margin - 56
	for (i = 1; i <= n; i++) groups += script[i] != script[i - 1]
	top = 62; tall = top + n * row + groups * 32 + 46
	gray = " fill=\"" pale "\""; end = " text-anchor=\"end\""; mid = " text-anchor=\"middle\""

	printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" " \
	       "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\" fill=\"%s\">\n",
		wide, tall, wide, tall, ink
	printf "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", wide, tall
	text(margin, 24, about, " font-size=\"13\"")
	for (i = 0; i <= 2 * most; i++)
		text(at(i / 2), 52, i / 2 "", mid gray)
	text(values, 52, "median", end gray)
	text(spreads, 52, "spread", gray)
	text(limits, 52, "limit", gray)

	y = top
	for (i = 1; i <= n; i++) {
		if (script[i] != script[i - 1]) {
			line(margin, y, wide - margin, y, "#d5dbe1", 1)
			text(margin, y + 21, script[i], " font-weight=\"bold\"")
			y += 32
			for (k = i; k <= n && script[k] == script[i]; k++);
			for (g = 0; g <= 2 * most; g++)
				line(at(g / 2), y - 4, at(g / 2), y + (k - i) * row, "#e8ecf0", 1)
		}
		c = y + row / 2 - 2
		text(left - 10, c + 4, name[i], end small(name[i]))
		bar(c, value[i], missed(value[i], limit[i]) ? beyond : near)
		line(at(1), c - row / 2, at(1), c + row / 2, pale, 1)
		if (low[i] != "-") whisker(c, low[i] + 0, high[i] + 0)
		if (limit[i] != "-" && number(limit[i]) <= most)
			line(at(number(limit[i])), c - 8, at(number(limit[i])), c + 8, "#b3261e", 2)
		text(values, c + 4, value[i], end " font-weight=\"bold\"")
		if (low[i] != "-") text(spreads, c + 4, low[i] " to " high[i], gray)
		sub(/^>=/, "\342\211\245 ", limit[i]); sub(/^<=/, "\342\211\244 ", limit[i])
		if (limit[i] != "-") text(limits, c + 4, limit[i], "")
		y += row
	}
	if (!n) text(margin, y + 10, "no ratios", gray)

	y = tall - 20
	line(margin, y - 16, wide - margin, y - 16, "#d5dbe1", 1)
	left = margin; right = left + 30 * most
	bar(y, 1, near); text(left + 38, y + 4, "ratio of the medians", gray)
	left = right = margin + 190
	right += 30 * most
	bar(y, 1, beyond); text(left + 38, y + 4, "beyond its limit", gray)
	left = margin + 350; right = left + 30 * most
	whisker(y, 0, 1); text(left + 38, y + 4, "lowest to highest of the turns", gray)
	left = margin + 600
	line(left, y - 8, left, y + 8, "#b3261e", 2); text(left + 10, y + 4, "limit", gray)
	left = margin + 680; right = left + 30 * most
	line(left, y - 8, left, y + 8, pale, 1); text(left + 10, y + 4, "both sides alike", gray)
	print "</svg>"
}
