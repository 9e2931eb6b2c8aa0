/* SPDX-License-Identifier: Apache-2.0 */
/* merged_set.c - which tensors a merged file holds; see the header */
#include "core/view/merged_set.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ck_merged_set_free(struct ck_merged_set *h)
{
	ck_model_names_free(&h->names);
	free(h->v);
	*h = (struct ck_merged_set){ 0 };
}

static void report_name(const struct ck_view *v,
			const struct ck_merged_tensor *m)
{
	size_t len;
	const char *own =
		ck_catalog_str(v->img, v->img->tensors[m->tensor].name, &len);
	char why[256];

	if (len == m->name_len && !memcmp(own, m->name, len))
		return;
	snprintf(why, sizeof(why),
		 "it is there under the model's own name, %.*s",
		 (int)CK_MIN(m->name_len, 128), m->name);
	ck_view_not_meant(v, m->tensor, why);
}

/* Who looks for a tensor by its name is told why it is not there. */
static int report_copy(const struct ck_view *v, const struct ck_model_names *n,
		       struct ck_err *err)
{
	ck_auto_free bool *has = calloc((size_t)v->nr + 1, sizeof(*has));

	if (!has)
		return ck_no_memory(err);
	for (uint32_t i = 0; i < n->nr; i++) {
		has[n->v[i].tensor - v->first] = true;
		report_name(v, &n->v[i]);
	}
	for (uint32_t i = 0; i < v->nr; i++)
		if (!has[i])
			ck_view_not_meant(v, v->first + i,
					  "one copy of the weights is shown, "
					  "as -o weights= says, and no "
					  "optimizer state");
	return 0;
}

int ck_merged_set_take(struct ck_merged_set *h, const struct ck_view *v,
		       const struct ck_opts *opts,
		       const char *(*refuses)(const struct ck_catalog *,
					      uint32_t, const char *, size_t),
		       struct ck_err *err)
{
	const struct ck_catalog *img = v->img;
	int ret = 0;

	*h = (struct ck_merged_set){ 0 };
	h->v = calloc((size_t)v->nr + 1, sizeof(*h->v));
	if (!h->v)
		return ck_no_memory(err);
	if (ck_model_names_twice(img))
		ret = ck_model_names_make(&h->names, img, v->first, v->nr, opts,
					  err);
	if (!ret && h->names.nr)
		ret = report_copy(v, &h->names, err);
	for (uint32_t i = 0; !ret && i < (h->names.nr ?: v->nr); i++) {
		struct ck_merged_tensor m = { .tensor = v->first + i };
		const char *why;

		if (h->names.nr)
			m = h->names.v[i];
		else
			m.name = ck_catalog_str(
				img, img->tensors[m.tensor].name, &m.name_len);
		why = refuses(img, m.tensor, m.name, m.name_len);
		if (why)
			ck_view_leave_out(v, m.tensor, why);
		else
			h->v[h->nr++] = m;
	}
	return ret;
}
