/* SPDX-License-Identifier: Apache-2.0 */
/* dump_problems.c - what is wrong, as JSON and as lines */
#include "core/catalog/dump_priv.h"

#include <inttypes.h>

static const char *const severity_names[] = {
	[CK_NOTE] = "note",
	[CK_WARNING] = "warning",
	[CK_ERROR] = "error",
};

static void put_optional(struct ck_str *out, const char *key,
			 const struct ck_catalog *img, uint32_t ref)
{
	if (ref == CK_NONE)
		return;
	ck_str_puts(out, ", ");
	ck_dump_key(out, key, img, ref);
}

static void put_problem(struct ck_str *out, const struct ck_catalog *img,
			const struct ck_problem *p)
{
	ck_str_fmt(out, "{\"severity\": \"%s\"", severity_names[p->severity]);
	put_optional(out, "tensor", img, p->tensor);
	put_optional(out, "view", img, p->view);
	put_optional(out, "file", img, p->file);
	if (p->off || p->len)
		ck_str_fmt(out,
			   ", \"offset\": %" PRIu64 ", \"nbytes\": %" PRIu64,
			   p->off, p->len);
	put_optional(out, "reason", img, p->reason);
	ck_str_puts(out, "}");
}

bool ck_dump_next_problem(const struct ck_catalog *img, struct ck_dump_pos *pos,
			  struct ck_str *out)
{
	if (pos->section)
		return false;
	ck_str_puts(out, pos->item ? "" : "[");
	if (pos->item < img->nr_problems) {
		ck_str_puts(out, pos->item ? ",\n" : "\n");
		put_problem(out, img, &img->problems[pos->item++]);
		return true;
	}
	ck_str_puts(out, "\n]\n");
	pos->section = 1;
	return true;
}

/* One line stays one line, whatever the names in it are. */
static void put_plain(struct ck_str *out, const struct ck_catalog *img,
		      uint32_t ref)
{
	size_t len;
	const char *s = ck_catalog_str(img, ref, &len);

	ck_str_plain(out, s, len);
}

static void put_named(struct ck_str *out, const char *what,
		      const struct ck_catalog *img, uint32_t ref)
{
	if (ref == CK_NONE)
		return;
	ck_str_fmt(out, "%s ", what);
	put_plain(out, img, ref);
	ck_str_puts(out, ": ");
}

bool ck_dump_next_line(const struct ck_catalog *img, struct ck_dump_pos *pos,
		       struct ck_str *out)
{
	const struct ck_problem *p = &img->problems[pos->item];

	if (pos->item >= img->nr_problems)
		return false;
	ck_str_fmt(out, "%s: ", severity_names[p->severity]);
	put_named(out, "tensor", img, p->tensor);
	put_named(out, "view", img, p->view);
	put_named(out, "file", img, p->file);
	if (p->off || p->len)
		ck_str_fmt(out, "bytes [%" PRIu64 ", %" PRIu64 "): ", p->off,
			   p->off + p->len);
	put_plain(out, img, p->reason);
	ck_str_puts(out, "\n");
	pos->item++;
	return true;
}
