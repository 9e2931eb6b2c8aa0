/* SPDX-License-Identifier: Apache-2.0 */
/*
 * duplicate_check.c - of a catalog: ranks that hold the same where they should
 * differ
 *
 * Some bytes of every piece first; then, of the ranks that these make
 * suspects, all bytes.
 */
#include "core/seal/verify.h"

#include "core/base/check.h"
#include "core/base/auto.h"
#include "core/catalog/duplicate_ranks.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

struct check {
	struct ck_ckpt *ck;
	const struct ck_catalog *img;
	struct ck_duplicate_ranks all;
	CK_VEC(uint32_t) suspect; /* units */
	uint32_t src; /* that @fd is of */
	int fd;
	ck_duplicate_fn each;
	void *ctx;
};

static int add_chunk(struct check *c, uint32_t t, uint32_t cell, uint32_t chunk,
		     struct ck_err *err)
{
	const struct ck_tensor *ten = &c->img->tensors[t];
	const struct ck_chunk *x = &c->img->chunks[chunk];
	const struct ck_src *src = &c->img->srcs[x->src];
	struct ck_duplicate_piece p = {
		.unit = src->unit,
		.src = x->src,
		.tensor = t,
		.cell = cell,
		.elem = ck_dtype_info(ten->dtype)->size,
	};
	struct ck_duplicate_piece *slot;

	if (!src->unit || src->kind != CK_SRC_FILE || x->state != CK_OK ||
	    !ck_duplicate_extent(c->img, x, ten->grid_rank, &p.off, &p.len))
		return 0;
	slot = ck_vec_push(&c->all.v);
	if (!slot)
		return ck_no_memory(err);
	*slot = p;
	return 0;
}

static int add_tensor(struct check *c, uint32_t t, struct ck_err *err)
{
	const struct ck_tensor *ten = &c->img->tensors[t];
	int ret = 0;

	for (uint32_t i = 0; i < ten->nr && ten->nr > 1; i++)
		for (uint32_t at = ten->first + i; at != CK_NONE && !ret;
		     at = ck_ring_next(c->img, ten->first + i, at))
			ret = add_chunk(c, t, i, at, err);
	return ret;
}

static int read_src(void *ctx, uint32_t src, void *buf, size_t len,
		    uint64_t off, struct ck_err *err)
{
	struct check *c = ctx;
	struct stat st;

	if (c->fd < 0 || c->src != src) {
		const char *name =
			ck_catalog_str(c->img, c->img->srcs[src].name, NULL);
		int ret;

		if (c->fd >= 0)
			close(c->fd);
		c->fd = -1;
		ret = ck_root_open_file(ck_ckpt_root(c->ck), name, &c->fd, &st,
					err);
		if (ret)
			return ret;
		c->src = src;
	}
	for (char *to = buf; len;) {
		ssize_t n = pread(c->fd, to, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EIO;
		to += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int suspect(void *ctx, uint32_t a, uint32_t b, uint64_t pieces,
		   struct ck_err *err)
{
	struct check *c = ctx;

	(void)pieces;
	if (!ck_vec_reserve(&c->suspect, 2))
		return ck_no_memory(err);
	c->suspect.v[c->suspect.nr++] = a;
	c->suspect.v[c->suspect.nr++] = b;
	return 0;
}

static int tell(void *ctx, uint32_t a, uint32_t b, uint64_t pieces,
		struct ck_err *err)
{
	const struct check *c = ctx;

	(void)err;
	c->each(c->ctx, ck_catalog_str(c->img, a, NULL),
		ck_catalog_str(c->img, b, NULL), pieces);
	return 0;
}

static int by_number(const void *px, const void *py)
{
	const uint32_t *x = px, *y = py;

	return (*x > *y) - (*x < *y);
}

static void keep_suspects(struct check *c)
{
	size_t kept = 0;

	qsort(c->suspect.v, c->suspect.nr, sizeof(*c->suspect.v), by_number);
	for (size_t i = 0; i < c->all.v.nr; i++)
		if (bsearch(&c->all.v.v[i].unit, c->suspect.v, c->suspect.nr,
			    sizeof(*c->suspect.v), by_number))
			c->all.v.v[kept++] = c->all.v.v[i];
	c->all.v.nr = kept;
}

int ck_duplicate_ranks_check(struct ck_ckpt *ck, ck_duplicate_fn each,
			     void *ctx, struct ck_err *err)
{
	struct check c = { .ck = ck,
			   .img = ck_ckpt_catalog(ck),
			   .fd = -1,
			   .each = each,
			   .ctx = ctx };
	struct ck_duplicate_ranks_in in = { .read = read_src,
					    .each = suspect,
					    .ctx = &c };
	int ret = 0;

	for (uint32_t t = 0; t < c.img->nr_tensors && !ret; t++)
		ret = add_tensor(&c, t, err);
	if (!ret)
		ret = ck_duplicate_ranks_find(&c.all, &in, err);
	if (!ret && c.suspect.nr) {
		keep_suspects(&c);
		in.whole = true;
		in.each = tell;
		ret = ck_duplicate_ranks_find(&c.all, &in, err);
	}
	if (c.fd >= 0)
		close(c.fd);
	free(c.all.v.v);
	free(c.suspect.v);
	return ret;
}
