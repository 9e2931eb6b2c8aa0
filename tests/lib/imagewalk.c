/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/imagewalk.h"

#include "core/catalog/dump.h"
#include "core/catalog/catalog.h"
#include "core/geom/cursor.h"
#include "core/geom/dtype.h"

#include <stdio.h>
#include <stdlib.h>

/* Of a damaged catalog a read may be of any size: so far is far enough. */
#define MAX_SEGS 2000
#define MAX_READ (UINT64_C(1) << 16)

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "imagewalk: %s\n", what);
	abort();
}

static void check_seg(const struct ck_catalog *img, const struct ck_seg *s,
		      uint64_t want)
{
	uint64_t dst = s->dst + s->run;
	__int128 lo = (__int128)s->src_off, hi = lo + s->run;
	const struct ck_src *src;

	for (unsigned d = 0; d < s->nax; d++) {
		__int128 far = (__int128)(s->ax[d].n - 1) * s->ax[d].src;

		dst += (s->ax[d].n - 1) * (uint64_t)s->ax[d].dst;
		*(far < 0 ? &lo : &hi) += far;
	}
	must(dst <= want, "a segment outside the request");
	if (s->kind != CK_SEG_COPY)
		return;
	must(s->chunk < img->nr_chunks, "a segment of no chunk");
	src = &img->srcs[img->chunks[s->chunk].src];
	must(lo >= 0, "a segment before its source");
	if (src->kind == CK_SRC_MEM)
		must(hi <= (__int128)src->len, "a segment after its source");
}

static void read_some(const struct ck_catalog *img, const struct ck_tensor *t,
		      uint64_t pos)
{
	uint64_t want = t->size - pos < MAX_READ ? t->size - pos : MAX_READ;
	struct ck_cursor cur;
	struct ck_seg seg;

	ck_cursor_init(&cur, img, NULL, t, pos, want);
	for (unsigned i = 0; i < MAX_SEGS && ck_cursor_next(&cur, &seg); i++)
		check_seg(img, &seg, want);
}

static void walk_tensor(const struct ck_catalog *img, uint32_t i)
{
	const struct ck_tensor *t = &img->tensors[i];
	size_t file_len, name_len;
	const char *file = ck_catalog_str(img, t->file, &file_len);
	const char *name = ck_catalog_str(img, t->name, &name_len);

	must(ck_catalog_find_file(img, t->tree, file, file_len) == i,
	     "a tensor is not found by its file");
	ck_catalog_find_name(img, t->tree, name, name_len);
	read_some(img, t, 0);
	read_some(img, t, t->size / 3);
	read_some(img, t, t->size > 5 ? t->size - 5 : 0);
	must(ck_tensor_first_hole(img, t) <= t->size, "a hole past the end");
	for (uint32_t c = t->first; c < t->first + t->nr; c++) {
		uint32_t at = img->chunks[c].next;

		for (unsigned n = 0; at != CK_NONE && at != c; n++) {
			must(n < t->nr_all, "a ring without end");
			at = img->chunks[at].next;
		}
	}
}

static void walk_documents(const struct ck_catalog *img)
{
	for (unsigned doc = CK_DUMP_CATALOG; doc <= CK_DUMP_PROBLEMS_TEXT;
	     doc++) {
		struct ck_dump_pos pos = { 0 };
		struct ck_str out = { 0 };

		while (ck_dump_next(img, doc, 1, &pos, &out))
			out.len = 0;
		ck_str_free(&out);
	}
}

void imagewalk(const struct ck_catalog *img)
{
	for (uint32_t i = 0; i < img->nr_tensors; i++)
		walk_tensor(img, i);
	walk_documents(img);
}
