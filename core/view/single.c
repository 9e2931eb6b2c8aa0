/* SPDX-License-Identifier: Apache-2.0 */
/*
 * single.c - a view that is one lazily composed file
 */
#include "core/view/single.h"

#include <stdio.h>
#include <string.h>

static const struct ck_compose *get(const struct ck_view *v)
{
	/* the lock in it makes this the one part that may change */
	return ck_lazy_get(&((struct ck_single *)v)->file, NULL);
}

uint32_t ck_single_nr(const struct ck_view *v)
{
	(void)v;
	return 1;
}

bool ck_single_file(const struct ck_view *v, uint32_t i, struct ck_vfile *out)
{
	const struct ck_compose *file = i ? NULL : get(v);

	return file && ck_compose_vfile(file, out);
}

void ck_single_label(const struct ck_view *v, uint32_t i,
		     char name[CK_VIEW_NAME])
{
	(void)i;
	snprintf(name, CK_VIEW_NAME, "%s", v->ops->name);
}

uint32_t ck_single_find(const struct ck_view *v, const char *name, size_t len)
{
	if (len != strlen(v->ops->name) || memcmp(name, v->ops->name, len) != 0)
		return CK_NONE;
	return 0;
}

void ck_single_at(const struct ck_view *v, uint32_t i, uint64_t off,
		  struct ck_span *out)
{
	(void)i;
	ck_compose_at(get(v), off, out);
}

int ck_single_made(const struct ck_view *v, uint32_t i, void *buf, uint64_t len,
		   uint64_t off, struct ck_err *err)
{
	(void)i;
	return ck_compose_made(get(v), buf, len, off, err);
}
