/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder_names.c - file names of tensors, no two of one tree alike
 *
 * Of names whose files would be called the same, all but the first in byte
 * order get the hashed form.  Only a name made for it collides again; then
 * the next seed is tried.
 */
#include "core/catalog/builder_priv.h"
#include "core/catalog/names.h"

static int set_file(struct ck_builder *b, struct ck_entry *e, bool hashed,
		    unsigned seed, struct ck_err *err)
{
	char file[CK_FILE_NAME_MAX + 1];
	size_t len, n;
	const char *name = ck_intern_text(&b->in, e->name, &len);

	n = hashed ? ck_name_encode_hashed(name, len, seed, file) :
		     ck_name_encode(name, len, file);
	return ck_intern_str(&b->in, file, n, &e->file, err);
}

static int compare_text(const struct ck_builder *b, uint32_t x, uint32_t y)
{
	size_t x_len, y_len;
	const char *xs = ck_intern_text(&b->in, x, &x_len);
	const char *ys = ck_intern_text(&b->in, y, &y_len);
	int c = x == y ? 0 : memcmp(xs, ys, CK_MIN(x_len, y_len));

	return c ? c : (x_len > y_len) - (x_len < y_len);
}

static int by_file(const void *px, const void *py, void *ctx)
{
	const struct ck_builder *b = ctx;
	const struct ck_entry *x = &b->entries.v[*(const uint32_t *)px];
	const struct ck_entry *y = &b->entries.v[*(const uint32_t *)py];
	int c = (x->tree > y->tree) - (x->tree < y->tree);

	if (!c)
		c = compare_text(b, x->file, y->file);
	return c ? c : compare_text(b, x->name, y->name);
}

/* Sorts, and renames what has the file name of the one before it. */
static int separate(struct ck_builder *b, uint32_t *order, uint32_t nr,
		    unsigned seed, bool *again, struct ck_err *err)
{
	struct ck_entry *kept = NULL;

	*again = false;
	qsort_r(order, nr, sizeof(*order), by_file, b);
	for (uint32_t i = 0; i < nr; i++) {
		struct ck_entry *e = &b->entries.v[order[i]];
		int ret = 0;

		if (!kept || kept->tree != e->tree || kept->file != e->file) {
			kept = e;
			continue;
		}
		*again = true;
		if (seed < CK_NAME_SEEDS)
			ret = set_file(b, e, true, seed, err);
		else
			ret = ck_entry_refuse(
				b, e, "no file name is left for it", err);
		if (ret)
			return ret;
	}
	return 0;
}

static uint32_t drop_refused(const struct ck_builder *b, uint32_t *order,
			     uint32_t nr)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < nr; i++)
		if (!(b->entries.v[order[i]].flags & CK_ENTRY_REFUSED))
			order[kept++] = order[i];
	return kept;
}

int ck_builder_names(struct ck_builder *b, uint32_t *order, uint32_t *nr,
		     struct ck_err *err)
{
	bool again = true;
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->entries.nr; i++) {
		struct ck_entry *e = &b->entries.v[i];
		int ret;

		if (!(e->flags & CK_ENTRY_SEEN) || e->flags & CK_ENTRY_REFUSED)
			continue;
		ret = set_file(b, e, false, 0, err);
		if (ret)
			return ret;
		order[n++] = i;
	}
	for (unsigned seed = 0; again && seed <= CK_NAME_SEEDS; seed++) {
		int ret = separate(b, order, n, seed, &again, err);

		if (ret)
			return ret;
	}
	*nr = drop_refused(b, order, n);
	return 0;
}
