/* SPDX-License-Identifier: Apache-2.0 */
/* crcs.c - CRC-32 of members of zips and of MindSpore's files, block by block */
#include "core/seal/crcs.h"

#include "core/base/check.h"
#include "core/base/crc32.h"
#include "core/base/search.h"
#include "core/base/vec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct find {
	struct ck_crcs *c;
	const struct ck_catalog *img;
};

static int by_name(const void *key, const void *file)
{
	return strcmp(key, ((const struct ck_hash_file *)file)->name);
}

static int add(void *ctx, uint32_t src, uint64_t off, uint64_t len,
	       uint32_t crc, struct ck_err *err)
{
	struct find *f = ctx;
	const struct ck_hash_list *l = f->c->files;
	const char *name = ck_catalog_str(f->img, f->img->srcs[src].name, NULL);
	const struct ck_hash_file *file =
		bsearch(name, l->v, l->nr, sizeof(*l->v), by_name);
	struct ck_crc *at;

	/* one of another directory of the chain, that changed, or is not read */
	if (!file || file->known || !len || !ck_range_ok(off, len, file->size))
		return 0;
	at = ck_vec_push(f->c);
	if (!at)
		return ck_no_memory(err);
	*at = (struct ck_crc){ .file = (size_t)(file - l->v),
			       .off = off,
			       .len = len,
			       .crc = crc };
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct ck_crc *x = a, *y = b;

	return ck_order2(x->file, y->file, x->off, y->off);
}

static size_t nr_parts(const struct ck_crcs *c, const struct ck_crc *s)
{
	return (size_t)(((s->off + s->len - 1) >> c->shift) -
			(s->off >> c->shift) + 1);
}

/* Hostile ones overlap: then there are no more parts than blocks and sums. */
static size_t lay_out(struct ck_crcs *c)
{
	size_t kept = 0, parts = 0;

	for (size_t i = 0; i < c->nr; i++) {
		const struct ck_crc *last = kept ? &c->v[kept - 1] : NULL;

		if (last && last->file == c->v[i].file &&
		    c->v[i].off < last->off + last->len)
			continue;
		c->v[kept] = c->v[i];
		c->v[kept].first = parts;
		parts += nr_parts(c, &c->v[kept++]);
	}
	c->nr = kept;
	return parts;
}

int ck_crcs_find(struct ck_crcs *c, struct ck_ckpt *ck,
		 const struct ck_hash_list *files, unsigned shift,
		 struct ck_err *err)
{
	struct find f = { .c = c, .img = ck_ckpt_catalog(ck) };
	int ret;

	*c = (struct ck_crcs){ .files = files, .shift = shift };
	ret = ck_ckpt_sums(ck, add, &f, err);
	if (ret)
		return ret;
	if (c->nr)
		qsort(c->v, c->nr, sizeof(*c->v), by_place);
	c->part = calloc(lay_out(c) + 1, sizeof(*c->part));
	return c->part ? 0 : ck_no_memory(err);
}

/* The first that ends behind byte @at of @file. */
static size_t first_at(const struct ck_crcs *c, size_t file, uint64_t at)
{
	return CK_FIRST(i, 0, c->nr,
			c->v[i].file > file ||
				(c->v[i].file == file &&
				 c->v[i].off + c->v[i].len > at));
}

void ck_crcs_pass(struct ck_crcs *c, size_t file, uint64_t at,
		  const void *bytes, size_t len)
{
	for (size_t i = first_at(c, file, at); i < c->nr; i++) {
		const struct ck_crc *s = &c->v[i];
		uint64_t lo = CK_MAX(at, s->off);
		uint64_t hi = CK_MIN(at + len, s->off + s->len);
		uint32_t *part;

		if (s->file != file || lo >= hi)
			break;
		part = &c->part[s->first + (lo >> c->shift) -
				(s->off >> c->shift)];
		*part = ck_crc32(*part, (const char *)bytes + (lo - at),
				 hi - lo);
	}
}

static uint32_t whole(const struct ck_crcs *c, const struct ck_crc *s)
{
	uint64_t at = s->off, end = s->off + s->len;
	uint32_t crc = 0;

	for (size_t k = 0; at < end; k++) {
		uint64_t next = ((at >> c->shift) + 1) << c->shift;
		uint64_t len = CK_MIN(next, end) - at;

		crc = ck_crc32_join(crc, c->part[s->first + k], len);
		at += len;
	}
	return crc;
}

int ck_crcs_check(const struct ck_crcs *c, struct ck_err *err)
{
	for (size_t i = 0; i < c->nr; i++) {
		const struct ck_crc *s = &c->v[i];
		uint32_t crc = whole(c, s);

		if (crc != s->crc)
			return ck_fail(err, EBADMSG,
				       "%s: bytes %" PRIu64 " to %" PRIu64
				       ": their CRC-32 is %08" PRIx32
				       ", the file says %08" PRIx32
				       ": they are damaged",
				       c->files->v[s->file].name, s->off,
				       s->off + s->len, crc, s->crc);
	}
	return 0;
}

void ck_crcs_free(struct ck_crcs *c)
{
	free(c->v);
	free(c->part);
}
