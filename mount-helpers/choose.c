/* SPDX-License-Identifier: Apache-2.0 */
/* choose.c - names by patterns, sorted as people count */
#include "mount-helpers/choose.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

bool choose_matches(const struct ck_catalog *img, uint32_t name,
		    const char *pattern)
{
	size_t len;
	const char *text = ck_catalog_str(img, name, &len);

	if (strlen(text) != len) /* a NUL in it: no pattern has one */
		return !strcmp(pattern, "*");
	return !strcmp(text, pattern) || !fnmatch(pattern, text, 0);
}

static bool is_chosen(const struct ck_catalog *img, uint32_t name,
		      char *const *pattern, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		if (choose_matches(img, name, pattern[i]))
			return true;
	return !nr;
}

static int compare(const struct ck_catalog *img, uint32_t tree_a, uint32_t a,
		   uint32_t tree_b, uint32_t b)
{
	const char *x = ck_catalog_str(img, a, NULL);
	const char *y = ck_catalog_str(img, b, NULL);
	int c = strverscmp(x, y);

	if (tree_a != tree_b)
		return tree_a < tree_b ? -1 : 1;
	return c ? c : strcmp(x, y);
}

static int by_tensor(const void *pa, const void *pb, void *ctx)
{
	const struct ck_catalog *img = ctx;
	const struct ck_tensor *a = &img->tensors[*(const uint32_t *)pa];
	const struct ck_tensor *b = &img->tensors[*(const uint32_t *)pb];

	return compare(img, a->tree, a->name, b->tree, b->name);
}

static int by_object(const void *pa, const void *pb, void *ctx)
{
	const struct ck_catalog *img = ctx;
	const struct ck_object *a = &img->objects[*(const uint32_t *)pa];
	const struct ck_object *b = &img->objects[*(const uint32_t *)pb];

	return compare(img, a->tree, a->name, b->tree, b->name);
}

bool choose(struct choice *c, const struct ck_catalog *img,
	    char *const *pattern, unsigned nr)
{
	*c = (struct choice){
		.tensor = calloc(img->nr_tensors + 1u, sizeof(uint32_t)),
		.object = calloc(img->nr_objects + 1u, sizeof(uint32_t)),
	};
	if (!c->tensor || !c->object) {
		choice_free(c);
		return false;
	}
	for (uint32_t i = 0; i < img->nr_tensors; i++)
		if (is_chosen(img, img->tensors[i].name, pattern, nr))
			c->tensor[c->nr_tensors++] = i;
	for (uint32_t i = 0; i < img->nr_objects; i++)
		if (is_chosen(img, img->objects[i].name, pattern, nr))
			c->object[c->nr_objects++] = i;
	qsort_r(c->tensor, c->nr_tensors, sizeof(uint32_t), by_tensor,
		(void *)img);
	qsort_r(c->object, c->nr_objects, sizeof(uint32_t), by_object,
		(void *)img);
	return true;
}

void choice_free(struct choice *c)
{
	free(c->tensor);
	free(c->object);
	*c = (struct choice){ 0 };
}
