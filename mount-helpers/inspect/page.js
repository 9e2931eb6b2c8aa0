// SPDX-License-Identifier: Apache-2.0
"use strict";
// Names come from files that nobody vouches for: they are only ever text.
const MAX_ROWS = 400, MAX_BOXES = 4096;
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const catalog = read("catalog"), problems = read("found"), about = read("about");
const byId = (id) => document.getElementById(id);

// Lone surrogates stand for bytes that are no UTF-8; what a terminal obeys is shown.
function plain(text) {
	return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu,
		(c) => "\\x" + c.codePointAt(0).toString(16).slice(-2).padStart(2, "0"));
}
function element(kind, text, name) {
	const e = document.createElement(kind);
	if (text !== undefined)
		e.textContent = plain(text);
	if (name)
		e.className = name;
	return e;
}
function row(cells, names) {
	const tr = document.createElement("tr");
	cells.forEach((text, i) => tr.append(element("td", text, names && names[i])));
	return tr;
}
function size(n) {
	const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
	let u = 0;
	for (; n >= 1024 && u < 5; u++)
		n /= 1024;
	return (u ? n.toFixed(1) : n) + " " + units[u];
}
const natural = new Intl.Collator("en", { numeric: true }).compare;
const tensors = catalog.tensors.slice().sort((a, b) => natural(a.name, b.name));

function summarize() {
	const types = new Map();
	let bytes = 0;
	for (const t of tensors) {
		bytes += t.nbytes;
		types.set(t.dtype, (types.get(t.dtype) || 0) + 1);
	}
	byId("title").textContent = plain(about.path);
	byId("summary").textContent = plain(`${catalog.format}, ${tensors.length} tensors, ${size(bytes)} (` +
		[...types].map(([d, n]) => `${n} ${d}`).join(", ") + `), ${catalog.objects.length} objects`);
	const list = byId("problems");
	if (!problems.length)
		list.append(element("p", "none", "ok"));
	const files = new Map();
	for (const p of problems) {
		const key = p.severity + "\u0000" + (p.file || "");
		files.set(key, (files.get(key) || []).concat(p));
	}
	for (const of of files.values()) {
		const d = document.createElement("details"), s = document.createElement("summary");
		s.append(element("span", of[0].severity, of[0].severity),
			element("span", " " + (of[0].file || "") + (of.length > 1 ? ` (${of.length})` : "")));
		d.append(s);
		d.open = files.size < 4;
		of.slice(0, MAX_ROWS).forEach((p) => d.append(element("div", (p.tensor ? p.tensor + ": " : "") +
			(p.view ? p.view + ": " : "") + (p.reason || ""))));
		list.append(d);
	}
}

// The axes along which pieces differ: the first goes down, the second across.
function axes(t) {
	const cut = [];
	t.shape.forEach((n, d) => {
		if (t.sources.some((s) => s.box && (s.box[d] || []).length && (s.box[d][0] > 0 || s.box[d][1] < n)))
			cut.push(d);
	});
	return cut;
}
function svg(kind, attributes) {
	const e = document.createElementNS("http://www.w3.org/2000/svg", kind);
	for (const k in attributes)
		e.setAttribute(k, attributes[k]);
	return e;
}
function draw(t) {
	const at = byId("mesh"), cut = axes(t);
	at.replaceChildren(element("h3", t.name), element("p", `${t.dtype} [${t.shape.join(", ")}], ${size(t.nbytes)}, ` +
		`${t.sources.length} pieces` + (cut.length ? `, cut along axis ${cut.join(" and ")}` : "")));
	const boxes = t.sources.filter((s) => s.box && s.box.length === t.shape.length);
	if (boxes.length === t.sources.length && cut.length <= 2 && boxes.length <= MAX_BOXES && t.shape.length) {
		const [down, across] = [cut.length ? cut[0] : 0, cut.length > 1 ? cut[1] : -1];
		const h = Math.max(60, Math.min(640, 26 * new Set(boxes.map((s) => s.box[down][0])).size));
		const w = across < 0 ? 320 : Math.min(960, 110 * new Set(boxes.map((s) => s.box[across][0])).size);
		const picture = svg("svg", { width: w + 2, height: h + 2, role: "img" });
		const copies = new Map();
		const scale = (d, n, all) => (d < 0 || !t.shape[d] ? 0 : n / t.shape[d] * all);
		boxes.forEach((s, i) => {
			const y = scale(down, s.box[down][0], h), y2 = scale(down, s.box[down][1], h);
			const x = scale(across, across < 0 ? 0 : s.box[across][0], w);
			const x2 = across < 0 ? w : scale(across, s.box[across][1], w);
			const key = x + "," + y, nth = copies.get(key) || 0;
			copies.set(key, nth + 1);
			const g = svg("g", {}), bad = s.state && s.state !== "ok";
			if (!nth)
				g.append(svg("rect", { x: x + 1, y: y + 1, width: Math.max(x2 - x, 1), height: Math.max(y2 - y, 1),
					fill: bad ? "#f6c4c4" : `hsl(${(i * 47) % 360} 60% 88%)` }));
			const label = svg("text", { x: x + 5, y: y + 15 + 12 * nth });
			label.textContent = plain(s.file || "index").slice(-Math.max(4, Math.floor((x2 - x) / 7)));
			const tip = svg("title", {});
			tip.textContent = plain(`${s.file || "index"} offset ${s.offset}, ${s.nbytes} bytes` + (bad ? ", " + s.state : ""));
			g.append(label, tip);
			if (12 * nth < y2 - y)
				picture.append(g);
		});
		at.append(picture);
	}
	const list = document.createElement("table");
	t.sources.slice(0, MAX_ROWS).forEach((s) => list.append(row([
		s.box ? "[" + s.box.map((b) => b.join(":")).join(", ") + "]" : "", s.file || "(in the index)",
		"offset " + s.offset, s.nbytes + " bytes", s.state || "ok"], ["", "", "n", "n", s.state || "ok"])));
	if (t.sources.length > MAX_ROWS)
		list.append(row([`and ${t.sources.length - MAX_ROWS} more`]));
	at.append(list);
}
function show() {
	const word = byId("search").value.toLowerCase();
	const found = tensors.filter((t) => !word || t.name.toLowerCase().includes(word) || t.dtype === word || t.state === word);
	byId("count").textContent = `${found.length} of ${tensors.length}` + (found.length > MAX_ROWS ? `, the first ${MAX_ROWS}` : "");
	byId("tensors").replaceChildren(...found.slice(0, MAX_ROWS).map((t) => {
		const tr = row([t.dtype, "[" + t.shape.join(", ") + "]", t.nbytes, t.state, t.sources.length, t.name],
			["", "", "n", t.state, "n", ""]);
		tr.className = "t";
		tr.addEventListener("click", () => draw(t));
		return tr;
	}));
	return found;
}
function count() {
	const files = new Map();
	for (const t of tensors)
		for (const s of t.sources) {
			const f = files.get(s.file) || [0, 0];
			files.set(s.file, [f[0] + s.nbytes, f[1] + 1]);
		}
	byId("files").append(...[...files].sort((a, b) => natural(a[0] || "", b[0] || "")).slice(0, MAX_ROWS)
		.map(([name, [bytes, nr]]) => row([bytes, nr, name || "(in the index)"], ["n", "n", ""])));
}
summarize();
count();
try { // page.html#attn looks for that
	byId("search").value = decodeURIComponent(location.hash.slice(1));
} catch (e) {
	byId("search").value = "";
}
byId("search").addEventListener("input", show);
const found = show();
if (found.length) { // the one that says most of the mesh
	const says = (t) => Math.min(axes(t).length, 2) * 1e7 + t.sources.length;
	draw(found.reduce((a, b) => (says(b) > says(a) ? b : a)));
}
document.body.dataset.shown = "1";
