/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounted_metrics.c - counters of all that a mount shows, by step
 *
 * Of those that somebody has looked into; one that sleeps keeps its counts.
 */
#include "fs/tree/mounted_priv.h"

#include "core/base/vec.h"

#include <stdlib.h>
#include <string.h>

static struct fs_metrics_of metrics_of(const struct fs_mounted *m)
{
	struct fs_metrics_of of = {
		.step = m->name,
		.counts = m->past,
		.whole = m->whole,
		.tensors = m->files,
		.bytes = m->total,
		.errors = m->errors + m->failed,
		.warnings = m->warnings,
	};

	/* Under the table's lock it is not put to sleep meanwhile. */
	if (atomic_load(&m->state) == FS_MOUNTED_READY && m->ck) {
		fs_counts_add(&of.counts, ck_ckpt_stats(m->ck));
		of.errors += ck_ckpt_runtime_errors(m->ck);
	}
	return of;
}

/* Of the mount all; of a group what is in it; of one, itself. */
static bool is_shown(const struct fs_mounted *of, const struct fs_mounted *m)
{
	size_t len = of->name ? strlen(of->name) : 0;

	if (m->steps || m->gone || (!m->made_s && m != of))
		return false;
	return m == of || !of->nr ||
	       (of->steps && !strncmp(m->name, of->name, len) &&
		m->name[len] == '/');
}

static int by_step(const void *a, const void *b)
{
	const struct fs_metrics_of *x = a, *y = b;

	return strcmp(x->step ? x->step : "", y->step ? y->step : "");
}

void fs_mounted_metrics(struct fs_mounted_table *s, const struct fs_mounted *of,
			struct ck_str *out)
{
	CK_VEC(struct fs_metrics_of) all = { 0 };
	struct fs_metrics_of *m;

	if (is_shown(of, of)) {
		m = ck_vec_push(&all);
		out->failed |= !m;
		if (m)
			*m = metrics_of(of);
	}
	pthread_mutex_lock(&s->lock);
	for (const struct fs_mounted *i = s->first; i; i = i->next) {
		if (i == of || !is_shown(of, i))
			continue;
		m = ck_vec_push(&all);
		out->failed |= !m;
		if (m)
			*m = metrics_of(i);
	}
	if (all.nr)
		qsort(all.v, all.nr, sizeof(*all.v), by_step);
	/* here, for names end with their entries */
	fs_metrics_text(s->in.mnt ? s->in.mnt : "", all.v, all.nr, out);
	pthread_mutex_unlock(&s->lock);
	free(all.v);
}
