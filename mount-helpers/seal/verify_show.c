/* SPDX-License-Identifier: Apache-2.0 */
/* verify_show.c - the lines and the JSON of unshard verify */
#include "mount-helpers/seal/verify_show.h"
#include "mount-helpers/text.h"

#include <inttypes.h>
#include <string.h>

#define MAX_LISTED 4096 /* stretches of elements, in JSON */

void verify_list_begin(struct verify_show *s, const char *name)
{
	s->nr = 0;
	if (s->json)
		ck_str_fmt(s->out, ", \"%s\": [", name);
}

void verify_list_end(struct verify_show *s)
{
	if (s->json)
		ck_str_puts(s->out, "]");
}

static void comma(struct verify_show *s, size_t *nr)
{
	if ((*nr)++)
		ck_str_puts(s->out, ", ");
}

static void put_name(struct verify_show *s, const char *name, size_t len)
{
	if (s->json)
		ck_str_json(s->out, name, len);
	else
		ck_str_plain(s->out, name, len);
}

static void put_ref(struct verify_show *s, uint32_t ref)
{
	size_t len;
	const char *name = ck_catalog_str(s->img, ref, &len);

	put_name(s, name, len);
}

static void put_reason(struct verify_show *s, const struct ck_damage *d)
{
	switch (d->kind) {
	case CK_DAMAGE_EDITED:
		ck_str_puts(s->out,
			    "is being edited, or was when its mount died");
		break;
	case CK_DAMAGE_CHANGED:
		ck_str_puts(s->out, "not what was sealed");
		break;
	case CK_DAMAGE_UNREADABLE:
		ck_str_fmt(s->out, "cannot be read: %s", strerror(d->code));
		break;
	case CK_DAMAGE_CUT:
		ck_str_puts(s->out, "the file is shorter than it was");
		break;
	case CK_DAMAGE_GROWN:
		ck_str_puts(s->out, "the file is longer than it was");
		break;
	case CK_DAMAGE_MISSING:
		ck_str_puts(s->out, "the file does not exist");
		break;
	}
}

void verify_damage(struct verify_show *s, const struct ck_damage *d)
{
	s->nr_tensors = s->nr_objects = 0;
	if (s->json) {
		comma(s, &s->nr);
		ck_str_puts(s->out, "{\"file\": ");
		put_name(s, d->file, strlen(d->file));
		ck_str_fmt(s->out,
			   ", \"block\": %" PRIu64 ", \"nr_blocks\": %" PRIu64
			   ", \"offset\": %" PRIu64 ", \"nbytes\": %" PRIu64
			   ", \"reason\": \"",
			   d->block, d->nr_blocks, d->off, d->len);
		put_reason(s, d);
		ck_str_puts(s->out, "\", \"tensors\": [");
		return;
	}
	put_name(s, d->file, strlen(d->file));
	if (d->kind != CK_DAMAGE_MISSING) {
		ck_str_fmt(s->out, ": block %" PRIu64, d->block);
		if (d->nr_blocks > 1)
			ck_str_fmt(s->out, "-%" PRIu64,
				   d->block + d->nr_blocks - 1);
		ck_str_fmt(s->out, ", bytes %" PRIu64 " to %" PRIu64, d->off,
			   d->off + d->len);
	}
	ck_str_puts(s->out, ": ");
	put_reason(s, d);
	ck_str_puts(s->out, "\n");
}

static void put_box(struct verify_show *s, const struct ck_corrupt_elements *sp)
{
	unsigned rank = s->img->tensors[sp->tensor].rank;

	for (unsigned d = 0; d < rank; d++)
		ck_str_fmt(s->out,
			   s->json ? "%s[%" PRIu64 ", %" PRIu64 "]" :
				     "%s%" PRIu64 ":%" PRIu64,
			   d ? ", " : "", sp->start[d], sp->end[d]);
}

/* Of a tensor: "elements", "ranges", "box"; or words. */
static void put_where(struct verify_show *s,
		      const struct ck_corrupt_elements *sp)
{
	const struct ck_tensor *t = &s->img->tensors[sp->tensor];
	uint64_t volume = 1;

	if (!s->json) {
		for (unsigned d = 0; d < t->rank; d++)
			volume *= s->img->dims[t->shape + d];
		ck_str_fmt(s->out, "%" PRIu64 " of %" PRIu64 " elements, in [",
			   sp->nr_elements, volume);
		put_box(s, sp);
		ck_str_puts(s->out, "]");
		return;
	}
	ck_str_fmt(s->out, "\"elements\": %" PRIu64 ", \"box\": [",
		   sp->nr_elements);
	put_box(s, sp);
	ck_str_puts(s->out, "]");
	if (!sp->v || sp->nr > MAX_LISTED)
		return;
	ck_str_puts(s->out, ", \"ranges\": [");
	for (size_t i = 0; i < sp->nr; i++)
		ck_str_fmt(s->out, "%s[%" PRIu64 ", %" PRIu64 "]",
			   i ? ", " : "", sp->v[i].start, sp->v[i].end);
	ck_str_puts(s->out, "]");
}

/* "name": ..., "tree": ...; or TREE/NAME. */
static void put_tensor(struct verify_show *s, uint32_t i)
{
	const struct ck_tensor *t = &s->img->tensors[i];

	if (!s->json) {
		text_tree(s->out, s->img, t->tree);
		text_ref(s->out, s->img, t->name);
		return;
	}
	ck_str_puts(s->out, "\"name\": ");
	put_ref(s, t->name);
	if (s->img->nr_trees > 1) {
		ck_str_puts(s->out, ", \"tree\": ");
		put_ref(s, s->img->trees[t->tree]);
	}
}

void verify_corrupt(void *show, const struct ck_corrupt_elements *sp)
{
	struct verify_show *s = show;

	if (s->json) {
		comma(s, &s->nr_tensors);
		ck_str_puts(s->out, "{");
		put_tensor(s, sp->tensor);
		ck_str_puts(s->out, ", ");
		put_where(s, sp);
		ck_str_fmt(s->out, ", \"replicas\": %s}",
			   sp->copies ? "true" : "false");
		return;
	}
	s->nr_tensors++;
	ck_str_puts(s->out, "  ");
	put_tensor(s, sp->tensor);
	ck_str_puts(s->out, ": ");
	put_where(s, sp);
	ck_str_puts(s->out, sp->copies ? " (there are replicas)\n" : "\n");
}

void verify_edit(struct verify_show *s, const struct ck_corrupt_elements *sp)
{
	if (s->json) {
		comma(s, &s->nr);
		ck_str_puts(s->out, "{");
		put_tensor(s, sp->tensor);
		ck_str_puts(s->out, ", ");
		put_where(s, sp);
		ck_str_puts(s->out, "}");
		return;
	}
	put_tensor(s, sp->tensor);
	ck_str_puts(s->out, ": ");
	put_where(s, sp);
	ck_str_puts(s->out, "\n");
}

void verify_object(struct verify_show *s, uint32_t i)
{
	const struct ck_object *o = &s->img->objects[i];

	if (s->json) {
		ck_str_puts(s->out,
			    s->nr_objects++ ? ", " : "], \"objects\": [");
		put_ref(s, o->name);
		return;
	}
	s->nr_objects++;
	ck_str_puts(s->out, "  object ");
	text_tree(s->out, s->img, o->tree);
	text_ref(s->out, s->img, o->name);
	ck_str_puts(s->out, "\n");
}

void verify_damage_end(struct verify_show *s, const struct ck_damage *d)
{
	if (s->json)
		ck_str_puts(s->out, "]}");
	else if (s->img && !s->nr_tensors && !s->nr_objects &&
		 (d->kind == CK_DAMAGE_CHANGED ||
		  d->kind == CK_DAMAGE_UNREADABLE))
		ck_str_puts(s->out, "  no tensor's bytes: an index, padding, "
				    "or a file of another kind\n");
}

static void put_src(struct verify_show *s, uint32_t src)
{
	uint32_t name = ck_catalog_file_of(s->img, src);

	if (name == CK_NONE)
		put_name(s, "(the index)", 11);
	else
		put_ref(s, name);
}

static const char *as_sealed(const struct verify_show *s, enum ck_as_sealed v)
{
	if (s->json)
		return v == CK_SEALED_SAME  ? "true" :
		       v == CK_SEALED_OTHER ? "false" :
					      "null";
	return v == CK_SEALED_SAME  ? " (as sealed)" :
	       v == CK_SEALED_OTHER ? " (not as sealed)" :
				      "";
}

void verify_quarrel(struct verify_show *s, const struct ck_quarrel *q)
{
	if (s->json) {
		comma(s, &s->nr);
		ck_str_puts(s->out, "{");
		put_tensor(s, q->where.tensor);
		ck_str_puts(s->out, ", \"files\": [");
		put_src(s, q->a);
		ck_str_puts(s->out, ", ");
		put_src(s, q->b);
		ck_str_puts(s->out, "], ");
		put_where(s, &q->where);
		if (q->why) {
			ck_str_puts(s->out, ", \"reason\": ");
			ck_str_json(s->out, q->why->msg, strlen(q->why->msg));
		}
		if (q->a_sealed || q->b_sealed)
			ck_str_fmt(s->out, ", \"as_sealed\": [%s, %s]",
				   as_sealed(s, q->a_sealed),
				   as_sealed(s, q->b_sealed));
		ck_str_puts(s->out, "}");
		return;
	}
	s->nr++;
	put_tensor(s, q->where.tensor);
	ck_str_puts(s->out, q->why ? ": a replica cannot be read: " :
				     ": replicas differ: ");
	put_src(s, q->a);
	ck_str_puts(s->out, as_sealed(s, q->a_sealed));
	ck_str_puts(s->out, ", ");
	put_src(s, q->b);
	ck_str_puts(s->out, as_sealed(s, q->b_sealed));
	ck_str_puts(s->out, ": ");
	put_where(s, &q->where);
	if (q->why)
		ck_str_fmt(s->out, ": %s", q->why->msg);
	ck_str_puts(s->out, "\n");
}

void verify_duplicate(struct verify_show *s, const char *a, const char *b,
		      uint64_t pieces)
{
	if (s->json) {
		comma(s, &s->nr);
		ck_str_puts(s->out, "{\"files\": [");
	}
	put_name(s, a, strlen(a));
	ck_str_puts(s->out, ", ");
	put_name(s, b, strlen(b));
	if (s->json)
		ck_str_fmt(s->out, "], \"pieces\": %" PRIu64 "}", pieces);
	else
		ck_str_fmt(s->out,
			   ": all bytes of all %" PRIu64
			   " pieces are the same, where ranks should differ: "
			   "one may be a copy of the other\n",
			   pieces);
}

void verify_extra(struct verify_show *s, const char *file)
{
	if (s->json)
		comma(s, &s->nr);
	put_name(s, file, strlen(file));
	if (!s->json)
		ck_str_puts(s->out, ": was not there when it was sealed\n");
}

void verify_hole(struct verify_show *s, const struct ck_hole *h)
{
	if (s->json) {
		comma(s, &s->nr);
		ck_str_puts(s->out, "{\"file\": ");
	}
	put_name(s, h->file, strlen(h->file));
	ck_str_fmt(s->out,
		   s->json ? ", \"offset\": %" PRIu64 ", \"nbytes\": %" PRIu64 :
			     ": bytes %" PRIu64 " to %" PRIu64,
		   h->off, s->json ? h->len : h->off + h->len);
	if (h->of) {
		ck_str_puts(s->out, s->json ? ", \"of\": " : ", of ");
		put_name(s, h->of, strlen(h->of));
	}
	if (s->json)
		ck_str_puts(s->out, "}");
	else
		ck_str_fmt(s->out,
			   "%s are a hole: zeros that perhaps nobody wrote\n",
			   h->of ? "," : "");
}
