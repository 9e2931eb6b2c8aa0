/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlay_sealed.c - whether what is copied is what was sealed
 *
 * The new checkpoint is sealed as it is: damage of the old one would be data of
 * it from then on.  So each block of a file that the manifest knows is compared
 * before it is copied, unless the overlay has all of it.
 */
#include "mount-helpers/overlay/overlay.h"

#include "core/base/check.h"
#include "core/base/str.h"
#include "core/io/checked.h"
#include "core/manifest/corrupt_elements.h"
#include "core/manifest/sealed.h"
#include "core/write/overlay.h"

#include <errno.h>
#include <string.h>

#define NAMES_MAX 3

struct names {
	const struct ck_catalog *img;
	struct ck_str text;
	uint32_t last;
	size_t nr;
};

int overlay_sealed_open(struct overlay_sealed *s, struct overlay *o)
{
	int ret = ck_manifest_load(&s->m, ck_ckpt_root(o->ck), &o->err);

	s->o = o;
	s->present = !ret;
	return ret == -ENOENT ? 0 : ret;
}

void overlay_sealed_close(struct overlay_sealed *s)
{
	if (s->present)
		ck_manifest_free(&s->m);
}

static void add_name(void *ctx, const struct ck_corrupt_elements *sp)
{
	struct names *n = ctx;

	if (n->nr && sp->tensor == n->last)
		return;
	n->last = sp->tensor;
	if (n->nr++ < NAMES_MAX)
		ck_str_fmt(&n->text, "%s%s", n->nr > 1 ? ", " : ", of ",
			   ck_catalog_str(n->img,
					  n->img->tensors[sp->tensor].name,
					  NULL));
}

/* ", of a, b and 7 more", or nothing where that cannot be said. */
static void name_corrupt(struct overlay *o, const char *file, uint64_t off,
			 uint64_t len, struct ck_str *out)
{
	struct names n = { .img = o->img };
	struct ck_corrupt_finder sp = { .img = o->img,
					.resolved = ck_ckpt_resolved(o->ck),
					.ctx = &n,
					.each = add_name };
	struct ck_err err;

	for (uint32_t t = 0; t < o->img->nr_tensors; t++)
		ck_ckpt_resolve(o->ck, t, &err);
	ck_corrupt_finder_find(&sp, file, off, len, &err);
	if (n.nr > NAMES_MAX)
		ck_str_fmt(&n.text, " and %zu more", n.nr - NAMES_MAX);
	ck_corrupt_finder_free(&sp);
	*out = n.text;
}

static int refuse(struct overlay *o, const char *file, uint64_t k, uint64_t off,
		  uint64_t end)
{
	ck_auto_str struct ck_str names = { 0 };
	bool edited = ck_sealed_was_edited(ck_ckpt_root(o->ck), file);

	name_corrupt(o, file, off, end - off, &names);
	return ck_fail(&o->err, EIO,
		       "%s: %s: block %llu, bytes %llu to %llu%s: not what was "
		       "sealed%s; nothing is published, for it would pass for "
		       "data (unshard verify names all damage)",
		       o->path, file, (unsigned long long)k,
		       (unsigned long long)off, (unsigned long long)end,
		       names.len && !names.failed ? names.v : "",
		       edited ? ", and is being edited, or was when its mount "
				"died" :
				"");
}

static bool is_new(struct overlay *o, uint32_t src, uint64_t off, uint64_t end)
{
	uint64_t at = off, len;

	return src != CK_NONE &&
	       ck_overlay_next(ck_ckpt_overlay(o->ck), src, &at, &len) &&
	       at == off && at + len >= end;
}

int overlay_sealed_check(struct overlay_sealed *s, const char *file,
			 uint32_t src, int fd, uint64_t off, uint64_t len)
{
	struct ck_manifest_file f;
	uint64_t k, at, end, digest;
	int ret;

	if (!s->present ||
	    !ck_manifest_find_file(&s->m, file, strlen(file), &f))
		return 0;
	for (k = CK_DIV_UP(off, UINT64_C(1) << s->m.shift);
	     k < f.nr && (at = k << s->m.shift) < off + len; k++) {
		end = CK_MIN(at + (UINT64_C(1) << s->m.shift), f.size);
		if (is_new(s->o, src, at, end))
			continue;
		ret = ck_checked_hash(&ck_engine_plain, fd, at, end, &digest);
		if (ret)
			return ck_fail(&s->o->err, -ret, "%s: %s", file,
				       strerror(-ret));
		if (digest != ck_manifest_block(&s->m, f.first + k))
			return refuse(s->o, file, k, at, end);
	}
	return 0;
}

int overlay_sealed_size(const struct overlay_sealed *s, const char *file,
			uint64_t size)
{
	struct ck_manifest_file f;

	if (!s->present ||
	    !ck_manifest_find_file(&s->m, file, strlen(file), &f) ||
	    f.size == size)
		return 0;
	return ck_fail(&s->o->err, EIO,
		       "%s: %s: not what was sealed, which was %llu bytes "
		       "long; nothing is published, for it would pass for data",
		       s->o->path, file, (unsigned long long)f.size);
}
