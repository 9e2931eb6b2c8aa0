/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sealed_later.c - what another mount made of the manifest since it was read
 *
 * One that edits replaces it at each fsync.  Who only reads looks at it again
 * where that matters: before a digest is told, and before a block is called
 * damaged.  It is read anew only if it is another file by then.
 */
#include "core/manifest/sealed_priv.h"

#include "core/base/auto.h"
#include "core/manifest/edited.h"

#include <errno.h>
#include <string.h>

const struct ck_manifest *ck_sealed_newest(struct ck_sealed *s)
{
	struct ck_manifest m;
	struct ck_err err;
	struct stat st;
	struct ck_id now;

	if (s->held)
		return &s->m;
	if (ck_manifest_stat(s->root, &st))
		return s->has_later ? &s->later : &s->m;
	now = ck_id_of(&st);
	if (ck_id_compare(&now, &s->seen) != CK_ID_SAME &&
	    !ck_manifest_load(&m, s->root, &err)) {
		ck_manifest_free(&s->later);
		s->later = m;
		s->has_later = true;
		s->seen = now;
	}
	return s->has_later ? &s->later : &s->m;
}

static bool has(const struct ck_catalog *img, const struct ck_tensor *t,
		const char *file)
{
	for (uint32_t c = t->first; c < t->first + t->nr_all; c++) {
		const struct ck_src *src = &img->srcs[img->chunks[c].src];

		if (src->kind == CK_SRC_CODEC)
			src = &img->srcs[src->parent];
		if (src->kind == CK_SRC_FILE &&
		    !strcmp(ck_catalog_str(img, src->name, NULL), file))
			return true;
	}
	return false;
}

bool ck_sealed_is_at(const struct ck_sealed *s, uint32_t t)
{
	ck_auto_free char *names = NULL;
	struct ck_err err;
	size_t len;
	int ret = ck_edited_read(s->root, &names, &len, &err);

	if (ret)
		return ret != -ENOENT;
	for (size_t at = 0; at < len; at += strlen(names + at) + 1)
		if (has(s->img, &s->img->tensors[t], names + at))
			return true;
	return false;
}

int ck_sealed_block_later(struct ck_sealed *s, const char *name, uint64_t size,
			  uint64_t block, uint64_t *digest)
{
	bool edited = ck_sealed_was_edited(s->root, name);
	uint64_t was = *digest;
	bool found;

	pthread_mutex_lock(&s->lock);
	found = ck_manifest_block_of(ck_sealed_newest(s), s->m.shift, name,
				     size, block, digest);
	pthread_mutex_unlock(&s->lock);
	if (found && *digest != was)
		return 1;
	return edited ? -EBUSY : 0;
}

int ck_sealed_later(void *ctx, uint32_t src, uint64_t block, uint64_t *digest)
{
	struct ck_sealed *s = ctx;
	const struct ck_src *file = &s->img->srcs[src];

	return ck_sealed_block_later(s,
				     ck_catalog_str(s->img, file->name, NULL),
				     file->id.size, block, digest);
}
