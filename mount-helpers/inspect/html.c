/* SPDX-License-Identifier: Apache-2.0 */
/*
 * html.c - a checkpoint as one page: page.html, page.js and three JSON documents
 *
 * Names in it are hostile.  They stand in JSON only, where no "<" is left that
 * could end it; the script makes text of them, never elements; and the page says
 * by the script's digest that no other may run, and that nothing is fetched.
 */
#include "mount-helpers/inspect/inspect.h"

#include "mount-helpers/text.h"

#include "core/base/auto.h"
#include "core/catalog/dump.h"

#include <string.h>

extern const char page_html[], page_js[]; /* generated from these files */

/* Writes @json, and empties it; false: as text_flush(). */
static bool put(struct ck_str *json)
{
	ck_auto_str struct ck_str out = { 0 };
	bool ok = !json->failed;

	for (size_t i = 0; i < json->len; i++) {
		char c = json->v[i];

		if (c == '<' || c == '>' || c == '&')
			ck_str_fmt(&out, "\\u%04x", c);
		else
			ck_str_add(&out, &c, 1);
	}
	json->len = 0;
	return ok && text_flush(&out);
}

static bool begin(struct ck_str *out, const char *id)
{
	ck_str_fmt(out, "<script type=\"application/json\" id=\"%s\">", id);
	return text_flush(out);
}

static bool end(struct ck_str *out)
{
	ck_str_puts(out, "</script>\n");
	return text_flush(out);
}

bool html_put(const struct ck_catalog *img, const struct ck_resolved *resolved,
	      const char *path)
{
	ck_auto_str struct ck_str out = { 0 };
	struct ck_dump_pos pos = { 0 };
	bool ok;

	ck_str_puts(&out, page_html);
	ok = text_flush(&out) && begin(&out, "about");
	ck_str_puts(&out, "{\"path\": ");
	ck_str_json(&out, path, strlen(path));
	ck_str_puts(&out, "}");
	ok = ok && put(&out) && end(&out) && begin(&out, "catalog");
	while (ok && ck_dump_next_resolved(img, resolved, 1, &pos, &out))
		ok = put(&out);
	ok = ok && end(&out) && begin(&out, "found");
	pos = (struct ck_dump_pos){ 0 };
	while (ok && ck_dump_next(img, CK_DUMP_PROBLEMS, 1, &pos, &out))
		ok = put(&out);
	ok = ok && end(&out);
	ck_str_fmt(&out, "<script>%s</script>\n</body>\n</html>\n", page_js);
	return ok && text_flush(&out);
}
