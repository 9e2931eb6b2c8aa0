/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heal.c - stretches of replicas, and the blocks of the files that they lie in
 *
 * A byte a block says what hashing it gave, for blocks hold many stretches.
 * They are compared with the manifest that was there at the beginning: what is
 * written meanwhile makes a new one, which says nothing of what was right.
 */
#include "core/seal/heal.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/match.h"
#include "core/io/checked.h"
#include "core/root/fault_point.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct ck_heal {
	struct ck_ckpt *ck;
	const struct ck_catalog *img;
	bool *from; /* of each source: it counts; NULL: as sealed */
	bool sealed;
	struct ck_manifest m;
	_Atomic unsigned char *block; /* enum ck_as_sealed; NOT_SAID: not yet */
};

/* ---- which files count ---- */

static uint32_t file_of(const struct ck_catalog *img, uint32_t src)
{
	const struct ck_src *s = &img->srcs[src];

	if (s->kind == CK_SRC_CODEC)
		s = &img->srcs[s->parent];
	return s->kind == CK_SRC_FILE ? s->name : CK_NONE;
}

static int match(struct ck_heal *h, const char *pattern, struct ck_err *err)
{
	bool any = false;

	for (uint32_t i = 0; i < h->img->nr_srcs; i++) {
		uint32_t ref = file_of(h->img, i);
		const char *name;
		size_t len;

		if (ref == CK_NONE)
			continue;
		name = ck_catalog_str(h->img, ref, &len);
		if (!ck_glob(pattern, strlen(pattern), name, len))
			continue;
		h->from[i] = any = true;
	}
	return any ? 0 :
		     ck_fail(err, ENOENT,
			     "--from %s: no file with tensors has that name",
			     pattern);
}

static int match_all(struct ck_heal *h, const struct ck_opts *opts,
		     struct ck_err *err)
{
	const char *pattern = ck_opts_nth(opts, "from", 0);
	int ret = 0;

	if (!pattern)
		return 0;
	h->from = calloc(h->img->nr_srcs + 1u, sizeof(*h->from));
	if (!h->from)
		return ck_no_memory(err);
	for (size_t i = 1; !ret && pattern; i++) {
		ret = match(h, pattern, err);
		pattern = ck_opts_nth(opts, "from", i);
	}
	return ret;
}

int ck_heal_new(struct ck_heal **out, struct ck_ckpt *ck,
		const struct ck_opts *opts, struct ck_err *err)
{
	struct ck_heal *h = calloc(1, sizeof(*h));
	struct ck_err why = { 0 };
	int ret;

	if (!h)
		return ck_no_memory(err);
	h->ck = ck;
	h->img = ck_ckpt_catalog(ck);
	ret = match_all(h, opts, err);
	if (!ret) {
		ret = ck_manifest_load(&h->m, ck_ckpt_root(ck), &why);
		h->sealed = !ret;
		/* by files it can be healed all the same */
		if (ret && (ret == -ENOENT || h->from))
			ret = 0;
		else if (ret)
			*err = why;
	}
	if (!ret && h->sealed) {
		h->block = calloc(h->m.nr_blocks + 1, 1);
		ret = h->block ? 0 : ck_no_memory(err);
	}
	if (ret) {
		ck_heal_free(h);
		return ret;
	}
	*out = h;
	return 0;
}

void ck_heal_free(struct ck_heal *h)
{
	if (!h)
		return;
	free(h->from);
	free((void *)h->block);
	if (h->sealed)
		ck_manifest_free(&h->m);
	free(h);
}

bool ck_heal_has_manifest(const struct ck_heal *h)
{
	return h->sealed;
}

/* ---- what the manifest says ---- */

/* The bytes of @src from the first to the last that @seg takes. */
static void span(const struct ck_seg *seg, uint64_t *lo, uint64_t *hi)
{
	uint64_t from = seg->src_off - seg->skip;
	uint64_t end = seg->src_off + seg->run;

	for (unsigned i = 0; i < seg->nax; i++) {
		int64_t step = seg->ax[i].src;
		uint64_t n = seg->ax[i].n - 1;

		if (step < 0)
			from -= n * (0 - (uint64_t)step);
		else
			end += n * (uint64_t)step;
	}
	*lo = CK_MIN(*lo, from);
	*hi = CK_MAX(*hi, end);
}

/* Where @chunk has bytes [off, off + len) of @t.  False: nobody knows. */
static bool find(const struct ck_heal *h, uint32_t t, uint32_t chunk,
		 uint64_t off, uint64_t len, uint64_t *lo, uint64_t *hi)
{
	const struct ck_resolved *resolved = ck_ckpt_resolved(h->ck);
	struct ck_cursor cur, alt;
	struct ck_seg seg, part;

	*lo = UINT64_MAX;
	*hi = 0;
	ck_cursor_init(&cur, h->img, resolved, &h->img->tensors[t], off, len);
	while (ck_cursor_next(&cur, &seg)) {
		ck_cursor_init_alt(&alt, &cur, &seg, chunk);
		ck_cursor_resolve(&alt, NULL);
		while (ck_cursor_next(&alt, &part)) {
			if (part.kind != CK_SEG_COPY)
				return false;
			span(&part, lo, hi);
		}
	}
	return *lo < *hi;
}

static enum ck_as_sealed hash(struct ck_heal *h,
			      const struct ck_manifest_file *f, int fd,
			      uint64_t k)
{
	_Atomic unsigned char *known = &h->block[f->first + k];
	uint64_t off = k << h->m.shift;
	uint64_t end = CK_MIN(off + (UINT64_C(1) << h->m.shift), f->size);
	uint64_t digest;
	int ret;

	if (*known != CK_SEALED_NOT_SAID)
		return (enum ck_as_sealed) * known;
	ret = ck_checked_hash(&ck_engine_plain, fd, off, end, &digest);
	*known = !ret && digest == ck_manifest_block(&h->m, f->first + k) ?
			 CK_SEALED_SAME :
			 CK_SEALED_OTHER;
	return (enum ck_as_sealed) * known;
}

/* Bytes [lo, hi) of the file. */
static enum ck_as_sealed look(struct ck_heal *h, uint32_t name, uint64_t lo,
			      uint64_t hi)
{
	const char *file = ck_catalog_str(h->img, name, NULL);
	struct ck_manifest_file f;
	ck_auto_fd int fd = -1;
	struct stat st;
	struct ck_err err;

	if (!ck_manifest_find_file(&h->m, file, strlen(file), &f))
		return CK_SEALED_NOT_SAID;
	if (ck_root_open_file(ck_ckpt_root(h->ck), file, &fd, &st, &err) ||
	    (uint64_t)st.st_size != f.size || hi > f.size)
		return CK_SEALED_OTHER;
	for (uint64_t k = lo >> h->m.shift; k <= (hi - 1) >> h->m.shift; k++)
		if (hash(h, &f, fd, k) != CK_SEALED_SAME)
			return CK_SEALED_OTHER;
	return CK_SEALED_SAME;
}

enum ck_as_sealed ck_heal_sealed(struct ck_heal *h, uint32_t t, uint32_t chunk,
				 uint64_t off, uint64_t len)
{
	const struct ck_src *src = &h->img->srcs[h->img->chunks[chunk].src];
	uint64_t lo, hi;

	if (!h->sealed || src->kind != CK_SRC_FILE ||
	    !find(h, t, chunk, off, len, &lo, &hi))
		return CK_SEALED_NOT_SAID;
	return look(h, src->name, lo, hi);
}

/* ---- healing ---- */

struct healing {
	struct ck_heal *h;
	struct ck_edit *e;
	struct ck_healed *out;
};

static bool counts(void *ctx, uint32_t t, uint32_t chunk, uint64_t off,
		   uint64_t len)
{
	const struct healing *x = ctx;

	if (x->h->from)
		return x->h->from[x->h->img->chunks[chunk].src];
	return ck_heal_sealed(x->h, t, chunk, off, len) == CK_SEALED_SAME;
}

static int put(void *ctx, uint32_t t, const void *buf, uint64_t len,
	       uint64_t off, struct ck_err *err)
{
	struct healing *x = ctx;
	int ret;

	x->out->decided++;
	if (!x->e)
		return 0;
	ret = ck_fault_point("heal", err);
	return ret ? ret : ck_ckpt_write(x->h->ck, x->e, t, buf, len, off, err);
}

static void undecided(void *ctx, uint32_t t, uint64_t off, uint64_t len,
		      unsigned nr)
{
	struct healing *x = ctx;

	(void)t;
	(void)off;
	(void)len;
	nr ? x->out->several++ : x->out->none++;
}

int ck_heal_tensor(struct ck_heal *h, uint32_t t, struct ck_edit *e,
		   struct ck_healed *out, struct ck_err *err)
{
	struct healing x = { .h = h, .e = e, .out = out };
	const struct ck_mend mend = {
		.ctx = &x, .counts = counts, .put = put, .undecided = undecided
	};
	int ret = 0;

	*out = (struct ck_healed){ 0 };
	if (e)
		ret = ck_ckpt_may_write(h->ck, t, err);
	return ret ? ret : ck_ckpt_mend(h->ck, t, &mend, err);
}
