/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sealed_index.c - sources whose blocks are compared before they are used
 *
 * The files are the checkpoint's, which may lie; the digests are the
 * manifest's, which ck_manifest_parse() has checked.  A bit a block of the
 * manifest says that it was good, as long as the file has the identity that it
 * had then.
 */
#include "core/manifest/sealed_index.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/vec.h"
#include "core/root/source.h"
#include "core/manifest/sealed_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define BUFFER ((size_t)256 << 10)
#define TRIES 8

/* A file's first or last block is bad. */
struct end {
	uint64_t file;
	struct ck_err why;
};

struct ck_sealed_index {
	struct ck_sealed *sealed;
	struct ck_dir_wrap wrap;
	XXH3_state_t *state;
	unsigned char *buf; /* BUFFER */
	struct ck_id *seen; /* of each file of the manifest, when compared */
	uint64_t *good; /* a bit a block of the manifest */
	struct ck_err bad; /* the first */
	CK_VEC(struct end) ends;
};

struct watched {
	struct ck_source base;
	struct ck_source *below;
	struct ck_sealed_index *x;
	struct ck_manifest_file file;
	uint64_t number; /* of the file */
};

static bool is_good(const struct ck_sealed_index *x, uint64_t k)
{
	return x->good[k / 64] >> (k % 64) & 1;
}

static void set_good(struct ck_sealed_index *x, uint64_t k, bool good)
{
	uint64_t bit = UINT64_C(1) << (k % 64);

	if (good)
		x->good[k / 64] |= bit;
	else
		x->good[k / 64] &= ~bit;
}

static int hash(struct watched *w, uint64_t off, uint64_t end, uint64_t *digest,
		struct ck_err *err)
{
	struct ck_sealed_index *x = w->x;

	XXH3_64bits_reset(x->state);
	while (off < end) {
		size_t len = (size_t)CK_MIN(BUFFER, end - off);
		int ret = ck_source_read(w->below, x->buf, len, off, err);

		if (ret)
			return ret;
		XXH3_64bits_update(x->state, x->buf, len);
		off += len;
	}
	*digest = XXH3_64bits_digest(x->state);
	return 0;
}

/*
 * -EBADMSG: it is not what was sealed.  Another mount may have edited the
 * block, and the manifest since.
 */
static int compare(struct watched *w, uint64_t k, uint64_t off, uint64_t end,
		   struct ck_err *err)
{
	struct ck_sealed *s = w->x->sealed;
	uint64_t is = 0, want = ck_manifest_block(&s->m, w->file.first + k);
	int later = 1;

	for (int i = 0; later > 0 && i < TRIES; i++) {
		int ret = hash(w, off, end, &is, err);

		if (ret)
			return ret;
		if (is == want)
			return 0;
		later = ck_sealed_block_later(s, w->base.name, w->file.size, k,
					      &want);
	}
	return ck_fail(err, EBADMSG,
		       "%s: block %llu, bytes %llu to %llu: not what was "
		       "sealed%s; what tensors there are is read from it",
		       w->base.name, (unsigned long long)k,
		       (unsigned long long)off, (unsigned long long)end,
		       later ? ", and is being edited, or was when its mount "
			       "died" :
			       "");
}

/* It is read for once; the caller of ck_sealed_index_end() decides. */
static int note_end(struct watched *w, struct ck_err *err)
{
	struct end *e = ck_vec_push(&w->x->ends);

	if (!e)
		return ck_no_memory(err);
	*e = (struct end){ w->number, *err };
	return 0;
}

static int check_block(struct watched *w, uint64_t k, struct ck_err *err)
{
	unsigned shift = w->x->sealed->m.shift;
	uint64_t off = k << shift;
	uint64_t end = CK_MIN(off + (UINT64_C(1) << shift), w->file.size);
	int ret;

	if (is_good(w->x, w->file.first + k))
		return 0;
	ret = compare(w, k, off, end, err);
	if (ret == -EBADMSG) {
		ret = -EIO;
		err->code = EIO;
		if (!k || k + 1 == w->file.nr)
			ret = note_end(w, err);
	}
	if (!ret)
		set_good(w->x, w->file.first + k, true);
	return ret;
}

static int check(struct watched *w, uint64_t off, uint64_t len,
		 struct ck_err *err)
{
	unsigned shift = w->x->sealed->m.shift;
	int ret = 0;

	if ((uint64_t)w->base.st.st_size != w->file.size)
		return ck_fail(err, EIO,
			       "%s: not what was sealed, which was %llu bytes "
			       "long",
			       w->base.name, (unsigned long long)w->file.size);
	if (!len || !ck_range_ok(off, len, w->file.size))
		return 0; /* the file says what is wrong with that */
	for (uint64_t k = off >> shift; !ret && k <= (off + len - 1) >> shift;
	     k++)
		ret = check_block(w, k, err);
	return ret;
}

static int read_watched(struct ck_source *s, void *buf, size_t len,
			uint64_t off, struct ck_err *err)
{
	struct watched *w = (struct watched *)s;
	struct ck_err why = { 0 };
	int ret = check(w, off, len, &why);

	if (!ret)
		return ck_source_read(w->below, buf, len, off, err);
	if (!w->x->bad.code)
		w->x->bad = why;
	return ck_fail(err, -ret, "%s", why.msg);
}

static void close_watched(struct ck_source *s)
{
	ck_source_close(((struct watched *)s)->below);
	free(s);
}

static const struct ck_source_ops ops = { read_watched, close_watched };

static struct ck_source *wrap(void *ctx, struct ck_source *below)
{
	struct ck_sealed_index *x = ctx;
	const struct ck_manifest *m = &x->sealed->m;
	uint64_t number =
		ck_manifest_number(m, below->name, strlen(below->name));
	struct watched *w;
	struct ck_id id;

	if (number == CK_NO_FILE)
		return below;
	w = malloc(sizeof(*w));
	if (!w) {
		ck_source_close(below);
		return NULL;
	}
	*w = (struct watched){ .base = { &ops, below->name, below->st },
			       .below = below,
			       .x = x,
			       .number = number };
	ck_manifest_file(m, number, &w->file);
	id = ck_id_of(&below->st);
	if (ck_id_compare(&x->seen[number], &id) != CK_ID_SAME)
		for (uint64_t k = 0; k < w->file.nr; k++)
			set_good(x, w->file.first + k, false);
	x->seen[number] = id;
	return &w->base;
}

static int make(struct ck_sealed_index *x, const struct ck_root *root,
		struct ck_err *err)
{
	static const struct ck_catalog none;
	const struct ck_manifest *m;
	int ret = ck_sealed_open(&x->sealed, root, &none, err);

	if (ret)
		return ret;
	m = &x->sealed->m;
	x->wrap = (struct ck_dir_wrap){ wrap, x };
	x->state = XXH3_createState();
	x->buf = malloc(BUFFER);
	x->seen = calloc(m->nr_files + 1, sizeof(*x->seen));
	x->good = calloc(m->nr_blocks / 64 + 1, sizeof(*x->good));
	return x->state && x->buf && x->seen && x->good ? 0 : ck_no_memory(err);
}

int ck_sealed_index_open(struct ck_sealed_index **out,
			 const struct ck_root *root, struct ck_err *err)
{
	struct ck_sealed_index *x = calloc(1, sizeof(*x));
	int ret = x ? make(x, root, err) : ck_no_memory(err);

	if (ret)
		ck_sealed_index_free(x);
	else
		*out = x;
	return ret;
}

void ck_sealed_index_free(struct ck_sealed_index *x)
{
	if (!x)
		return;
	ck_sealed_free(x->sealed);
	XXH3_freeState(x->state);
	free(x->buf);
	free(x->seen);
	free(x->good);
	free(x->ends.v);
	free(x);
}

const struct ck_dir_wrap *ck_sealed_index_wrap(struct ck_sealed_index *x)
{
	return &x->wrap;
}

static bool has_bytes(const struct ck_catalog *img, const char *name)
{
	for (uint32_t i = 0; i < img->nr_chunks; i++) {
		const struct ck_src *src = &img->srcs[img->chunks[i].src];

		if (src->kind == CK_SRC_FILE &&
		    !strcmp(ck_catalog_str(img, src->name, NULL), name))
			return true;
	}
	return false;
}

static bool may_be_bad(const struct ck_sealed_index *x,
		       const struct ck_catalog *img, uint64_t file)
{
	struct ck_manifest_file f;

	ck_manifest_file(&x->sealed->m, file, &f);
	return has_bytes(img, f.name);
}

int ck_sealed_index_end(const struct ck_sealed_index *x,
			const struct ck_catalog *img, bool apart,
			struct ck_err *err)
{
	const struct ck_err *bad = x->bad.code ? &x->bad : NULL;

	for (size_t i = 0; i < x->ends.nr && !bad; i++)
		if (!img || !apart || !may_be_bad(x, img, x->ends.v[i].file))
			bad = &x->ends.v[i].why;
	return bad ? ck_fail(err, bad->code, "%s", bad->msg) : 0;
}
