/* SPDX-License-Identifier: Apache-2.0 */
/* target.c - finds the tensor or the object that a word names */
#include "core/lib/target.h"

#include "core/base/match.h"
#include "core/catalog/catalog.h"

#include <errno.h>
#include <string.h>

struct search {
	const struct ck_catalog *img;
	const char *text;
	unsigned found;
	uint32_t tensor, object;
};

static bool same(const struct ck_catalog *img, uint32_t ref, const char *text,
		 size_t len)
{
	size_t n;
	const char *s;

	if (ref == CK_NONE)
		return false;
	s = ck_catalog_str(img, ref, &n);
	return n == len && !memcmp(s, text, len);
}

static void search_objects(struct search *s, uint32_t tree, const char *name,
			   size_t len)
{
	for (uint32_t i = 0; i < s->img->nr_objects; i++) {
		const struct ck_object *o = &s->img->objects[i];

		if (o->tree != tree || !same(s->img, o->name, name, len))
			continue;
		s->found++;
		s->object = i;
	}
}

static void search_tree(struct search *s, uint32_t tree, const char *name,
			size_t len)
{
	uint32_t t = ck_catalog_find_name(s->img, tree, name, len);

	if (t == CK_NONE)
		t = ck_catalog_find_file(s->img, tree, name, len);
	if (t == CK_NONE) {
		search_objects(s, tree, name, len);
		return;
	}
	s->found++;
	s->tensor = t;
}

/* The word as a name, first as it is, then as TREE/NAME. */
static bool search(struct search *s, size_t len)
{
	s->found = 0;
	s->tensor = CK_NONE;
	s->object = CK_NONE;
	for (uint32_t tree = 0; tree < s->img->nr_trees; tree++)
		search_tree(s, tree, s->text, len);
	for (uint32_t tree = 1; tree < s->img->nr_trees && !s->found; tree++) {
		size_t n;
		const char *name =
			ck_catalog_str(s->img, s->img->trees[tree], &n);

		if (n < len && !memcmp(s->text, name, n) && s->text[n] == '/')
			search_tree(s, tree, s->text + n + 1, len - n - 1);
	}
	return s->found > 0;
}

static int refused(const struct search *s, size_t len, struct ck_err *err)
{
	for (uint32_t i = 0; i < s->img->nr_problems; i++) {
		const struct ck_problem *p = &s->img->problems[i];

		if (p->severity == CK_ERROR && p->reason != CK_NONE &&
		    same(s->img, p->tensor, s->text, len))
			return ck_fail(err, EBADMSG, "%.*s: refused: %s",
				       (int)len, s->text,
				       ck_catalog_str(s->img, p->reason, NULL));
	}
	return 0;
}

/* Where the slice of "NAME[...]" begins; NULL: it has none. */
static const char *bracket(const char *text, size_t len)
{
	return len && text[len - 1] == ']' ? memrchr(text, '[', len) : NULL;
}

static int take(const struct search *s, const char *slice, size_t len,
		struct ck_target *out, struct ck_err *err)
{
	const struct ck_tensor *t;

	if (s->found > 1)
		return ck_fail(err, EINVAL,
			       "%s: several parts of the checkpoint have that "
			       "name; say PART/NAME",
			       s->text);
	out->tensor = s->tensor;
	out->object = s->object;
	out->sliced = slice != NULL;
	if (s->tensor == CK_NONE)
		return !slice ? 0 :
				ck_fail(err, EINVAL,
					"%s: an object cannot be sliced",
					s->text);
	t = &s->img->tensors[s->tensor];
	if (slice)
		return ck_subscript_parse(s->img->dims + t->shape, t->rank,
					  slice, len, &out->slice, err);
	ck_subscript_whole(s->img->dims + t->shape, t->rank, &out->slice);
	return 0;
}

static void offer_all(struct ck_nearest *n, const struct ck_catalog *img)
{
	const char *name;
	size_t len;

	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		name = ck_catalog_str(img, img->tensors[i].name, &len);
		ck_nearest_offer(n, name, len);
	}
	for (uint32_t i = 0; i < img->nr_objects; i++) {
		name = ck_catalog_str(img, img->objects[i].name, &len);
		ck_nearest_offer(n, name, len);
	}
}

static int none(const struct ck_catalog *img, const char *text, size_t len,
		struct ck_err *err)
{
	struct ck_nearest n;

	ck_nearest_begin(&n, text, len);
	offer_all(&n, img);
	return ck_fail(err, ENOENT,
		       "no tensor or object is called \"%.*s\" "
		       "(%s%.*s%sunshard ls lists them)",
		       (int)len, text, n.name ? "did you mean " : "",
		       n.name ? (int)n.name_len : 0, n.name ? n.name : "",
		       n.name ? "? " : "");
}

int ck_target_find(const struct ck_catalog *img, const char *text,
		   struct ck_target *out, struct ck_err *err)
{
	struct search s = { .img = img, .text = text };
	size_t len = strlen(text), name_len = len;
	const char *open = bracket(text, len);
	int ret;

	if (search(&s, len))
		return take(&s, NULL, 0, out, err);
	ret = refused(&s, len, err);
	if (open && !ret) {
		name_len = (size_t)(open - text);
		if (search(&s, name_len))
			return take(&s, open + 1, len - name_len - 2, out, err);
		ret = refused(&s, name_len, err);
	}
	if (ret)
		return ret;
	return none(img, text, name_len, err);
}
