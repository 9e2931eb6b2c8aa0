/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/catalog/kit.h"

#include "core/geom/tiling.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct kit kit_new(void)
{
	struct kit k = { .fd = memfd_create("image", MFD_ALLOW_SEALING) };

	k.b = ck_builder_new(&k.err);
	cr_assert(k.b && k.fd >= 0);
	return k;
}

void kit_free(struct kit *k)
{
	ck_catalog_unmap(&k->img);
	ck_builder_free(k->b);
	close(k->fd);
}

uint32_t kit_file(struct kit *k, const char *name, uint64_t size)
{
	struct stat st = { .st_mode = S_IFREG | 0640,
			   .st_size = (off_t)size,
			   .st_ino = 7 };
	uint32_t src;

	cr_assert_eq(ck_builder_file(k->b, name, &st, &src, &k->err), 0, "%s",
		     k->err.msg);
	return src;
}

uint32_t kit_missing(struct kit *k, const char *name)
{
	uint32_t src;

	cr_assert_eq(ck_builder_file(k->b, name, NULL, &src, &k->err), 0);
	return src;
}

void kit_add(struct kit *k, const struct ck_part *p)
{
	cr_assert_eq(ck_builder_add(k->b, p, &k->err), 0, "%s", k->err.msg);
}

const struct ck_catalog *kit_image(struct kit *k)
{
	if (k->img.base)
		return &k->img;
	cr_assert_eq(ck_builder_finish(k->b, "kit", k->fd, &k->err), 0, "%s",
		     k->err.msg);
	cr_assert_eq(ck_catalog_map(&k->img, k->fd, &k->err), 0, "%s",
		     k->err.msg);
	return &k->img;
}

uint32_t kit_find(struct kit *k, const char *name)
{
	return ck_catalog_find_name(kit_image(k), 0, name, strlen(name));
}

const struct ck_tensor *kit_tensor(struct kit *k, const char *name)
{
	uint32_t t = kit_find(k, name);

	cr_assert_neq(t, CK_NONE, "%s is not served", name);
	return &k->img.tensors[t];
}

static bool names(const struct ck_catalog *img, const struct ck_problem *p,
		  const char *tensor)
{
	return p->tensor == CK_NONE ?
		       !tensor :
		       tensor && !strcmp(ck_catalog_str(img, p->tensor, NULL),
					 tensor);
}

unsigned kit_nr_problems(struct kit *k, const char *tensor)
{
	const struct ck_catalog *img = kit_image(k);
	unsigned nr = 0;

	for (uint32_t i = 0; i < img->nr_problems; i++)
		nr += names(img, &img->problems[i], tensor);
	return nr;
}

const char *kit_reason(struct kit *k, const char *tensor)
{
	const struct ck_catalog *img = kit_image(k);
	const char *reason = NULL;

	for (uint32_t i = 0; i < img->nr_problems; i++) {
		if (!names(img, &img->problems[i], tensor))
			continue;
		cr_assert_null(reason, "more than one problem: %s", reason);
		reason = ck_catalog_str(img, img->problems[i].reason, NULL);
	}
	cr_assert_not_null(reason, "no problem names %s", tensor);
	return reason;
}

struct ck_str kit_dump(const struct ck_catalog *img, enum ck_dump_doc doc)
{
	struct ck_str out = { 0 };
	struct ck_dump_pos pos = { 0 };

	while (ck_dump_next(img, doc, 3, &pos, &out))
		;
	cr_assert_not(out.failed);
	return out;
}

struct ck_str kit_cells(const struct ck_catalog *img, const struct ck_tensor *t)
{
	struct ck_str out = { 0 };
	struct ck_box box;

	ck_str_puts(&out, "");
	for (uint32_t i = t->first; i < t->first + t->nr; i++) {
		ck_chunk_box(img, t->grid_rank, &img->chunks[i], &box);
		ck_str_puts(&out, out.len ? " [" : "[");
		for (unsigned d = 0; d < box.rank; d++)
			ck_str_fmt(&out, "%s%llu:%llu", d ? ", " : "",
				   (unsigned long long)box.start[d],
				   (unsigned long long)(box.start[d] +
							box.len[d]));
		ck_str_puts(&out, "]");
	}
	return out;
}
