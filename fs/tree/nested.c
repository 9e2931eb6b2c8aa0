/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/tree/nested.h"

#include "core/view/as_ckpt.h"
#include "fs/tree/mounted.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct below {
	struct ck_ckpt *ck;
	struct ck_view *view[FS_MAX_VIEWS]; /* as in a mounted checkpoint */
};

struct fs_nested {
	struct ck_view *v;
	const struct ck_opts *opts;
	pthread_mutex_t lock; /* making */
	struct below *_Atomic folder[CK_VIEW_FOLDERS]; /* NULL: not made */
};

struct fs_nested *fs_nested_new(struct ck_view *v, const struct ck_opts *opts)
{
	struct fs_nested *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->v = v;
	n->opts = opts;
	pthread_mutex_init(&n->lock, NULL);
	return n;
}

static void free_below(struct below *b)
{
	for (unsigned i = 0; b && i < FS_MAX_VIEWS; i++)
		ck_view_close(b->view[i]);
	if (b)
		ck_ckpt_close(b->ck);
	free(b);
}

void fs_nested_free(struct fs_nested *n)
{
	if (!n)
		return;
	for (unsigned d = 0; d < CK_VIEW_FOLDERS; d++)
		free_below(n->folder[d]);
	pthread_mutex_destroy(&n->lock);
	free(n);
}

/* Under the lock. */
static struct below *make(struct fs_nested *n, uint32_t d)
{
	struct below *b = calloc(1, sizeof(*b));
	struct ck_err err;
	int ret = b ? ck_view_as_ckpt(&b->ck, n->v, d, false, &err) : -1;

	/* one level: see core/io/scratch.c */
	for (unsigned i = 0; !ret && ck_views[i] && i < FS_MAX_VIEWS; i++)
		if (!ck_views[i]->nests)
			ret = ck_view_open(&b->view[i], ck_views[i], b->ck, 0,
					   n->opts, &err);
	if (!ret)
		return b;
	if (b)
		ck_view_leave_out(n->v, CK_NONE, err.msg);
	free_below(b);
	return NULL;
}

static struct below *need(struct fs_nested *n, uint64_t d)
{
	struct below *b;
	char name[256];

	if (d >= n->v->ops->folders->nr_listed(n->v) || d >= CK_VIEW_FOLDERS)
		return NULL;
	b = atomic_load_explicit(&n->folder[d], memory_order_acquire);
	if (b || !n->v->ops->folders->name(n->v, (uint32_t)d, name))
		return b;
	pthread_mutex_lock(&n->lock);
	b = atomic_load(&n->folder[d]);
	if (!b) {
		b = make(n, (uint32_t)d);
		atomic_store_explicit(&n->folder[d], b, memory_order_release);
	}
	pthread_mutex_unlock(&n->lock);
	return b;
}

const struct ck_view *fs_nested_view(struct fs_nested *n, uint64_t nr)
{
	const struct below *b =
		n && nr >= FS_MAX_VIEWS ? need(n, nr / FS_MAX_VIEWS - 1) : NULL;

	return b ? b->view[nr % FS_MAX_VIEWS] : NULL;
}

void fs_nested_below(const struct fs_nested *n, uint64_t nr,
		     const struct ck_view **v, uint32_t *file)
{
	*v = n->v;
	*file = ck_view_as_ckpt_file(n->v, (uint32_t)(nr / FS_MAX_VIEWS - 1));
}

uint64_t fs_nested_find(struct fs_nested *n, uint32_t d, const char *name)
{
	uint64_t nr = (d + UINT64_C(1)) * FS_MAX_VIEWS;

	for (unsigned i = 0; n && ck_views[i] && i < FS_MAX_VIEWS; i++)
		if (!strcmp(ck_views[i]->name, name))
			return fs_nested_view(n, nr + i) ? nr + i : 0;
	return 0;
}

bool fs_views_asked(struct ck_view *const *view)
{
	for (unsigned i = 0; i < FS_MAX_VIEWS; i++) {
		const struct ck_view *v = view[i];

		if (v && v->ops->folders &&
		    v->ops->folders->nr(v) > v->ops->folders->nr_listed(v))
			return true;
	}
	return false;
}

bool fs_nested_asked(struct fs_nested *n)
{
	for (unsigned d = 0; n && d < CK_VIEW_FOLDERS; d++) {
		const struct below *b = atomic_load(&n->folder[d]);

		if (b && fs_views_asked(b->view))
			return true;
	}
	return false;
}
