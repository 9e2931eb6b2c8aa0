/* SPDX-License-Identifier: Apache-2.0 */
/* container.c - one way to open and to walk, over those of either kind */
#include "core/container/container.h"

#include "core/base/auto.h"
#include "core/base/suffix.h"
#include "core/container/torch_lost.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int ck_dir_source(const struct ck_dir *d, struct ck_builder *b,
		  const char *name, uint32_t *src, struct ck_source **out,
		  struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	int ret = ck_dir_open(d, name, &s, err);

	if (out)
		*out = NULL;
	if (ret == -ENOENT)
		return ck_builder_file(b, name, NULL, src, err);
	if (ret == -EACCES || ret == -EPERM || ret == -EIO)
		return ck_builder_file_lost(b, name, strerror(-ret), src, err);
	if (ret)
		return ret;
	ret = ck_builder_file(b, name, &s->st, src, err);
	if (!ret && out)
		*out = ck_steal(s);
	return ret;
}

int ck_container_open(struct ck_container *c, const struct ck_dir *dir,
		      struct ck_builder *b, const char *name, bool *ok,
		      struct ck_err *why, struct ck_err *err)
{
	return ck_container_open_as(c, dir, b, name,
				    ck_has_suffix(name, ".safetensors"), ok,
				    why, err);
}

int ck_container_open_as(struct ck_container *c, const struct ck_dir *dir,
			 struct ck_builder *b, const char *name, bool is_st,
			 bool *ok, struct ck_err *why, struct ck_err *err)
{
	int ret;

	*c = (struct ck_container){ .name = name, .is_st = is_st };
	*ok = false;
	*why = (struct ck_err){ 0 };
	ret = b ? ck_dir_source(dir, b, name, &c->t.src, &c->t.s, err) :
		  ck_dir_open(dir, name, &c->t.s, err);
	if (ret || !c->t.s)
		return ret;
	ret = c->is_st ?
		      ck_st_file_read(&c->st, name, c->t.src, c->t.s, 0, why) :
		      ck_torch_save_open(&c->t.ts, c->t.s, why);
	*ok = !ret;
	return !ret || ret == -EINVAL || ret == -EIO ?
		       0 :
		       ck_fail(err, -ret, "%s", why->msg);
}

void ck_container_close(struct ck_container *c)
{
	ck_st_file_free(&c->st);
	ck_torch_open_close(&c->t);
}

struct walk {
	struct ck_container *c;
	ck_found_fn fn;
	void *ctx;
};

static int each_leaf(void *ctx, const struct ck_torch_leaf *leaf,
		     struct ck_err *err)
{
	const struct walk *w = ctx;
	struct ck_found f = { .name = leaf->name,
			      .len = leaf->name_len,
			      .torch = &w->c->t,
			      .leaf = leaf };
	struct ck_torch_place at;
	struct ck_err why;
	int ret = 0;

	f.is_tensor = ck_torch_is_rebuild(w->c->t.ts.pickle, leaf->value);
	if (f.is_tensor) {
		ret = ck_torch_extent(&w->c->t, leaf->value, &at, &why, err);
		f.x = at.x;
	}
	return ret ? ret : w->fn(w->ctx, &f, err);
}

static int each_entry(const struct walk *w, struct ck_err *err)
{
	const struct ck_st_file *st = &w->c->st;
	char fault[CK_ERR_MAX / 2];
	int ret = 0;

	for (size_t i = 0; i < st->tensors.nr && !ret; i++) {
		const struct ck_st_entry *e = &st->tensors.v[i];
		const struct ck_found f = {
			.name = e->name,
			.len = e->name_len,
			.entry = e,
			.is_tensor = true,
			.x = { .shape = ck_st_file_shape(st, e),
			       .fault = e->why ? fault : NULL,
			       .off = e->begin,
			       .src = w->c->t.src,
			       .dtype = e->dtype,
			       .rank = e->rank },
		};

		if (e->why)
			snprintf(fault, sizeof(fault), "%s (dtype %s)", e->why,
				 e->dtype_name);
		ret = w->fn(w->ctx, &f, err);
	}
	return ret;
}

int ck_container_each(struct ck_container *c, struct ck_builder *b,
		      ck_found_fn fn, void *ctx, struct ck_err *err)
{
	struct walk w = { .c = c, .fn = fn, .ctx = ctx };
	struct ck_torch_lost_in lost = {
		.p = c->t.ts.pickle, .b = b, .file = c->name, .any = true
	};
	int ret;

	if (c->is_st) {
		ret = each_entry(&w, err);
		return ret ? ret : ck_st_file_say_faults(&c->st, b, err);
	}
	lost.from = ck_pickle_root(lost.p);
	ret = ck_torch_walk(lost.p, lost.from, each_leaf, &w, err);
	return ret ? ret : ck_torch_lost_report(&lost, err);
}
