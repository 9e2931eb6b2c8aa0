/* SPDX-License-Identifier: Apache-2.0 */
/* new.c - what a load has of its own, made and let go */
#include "core/load/load_priv.h"

#include "core/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void ck_load_delete(struct ck_load *load)
{
	ck_share_free(load->share);
	for (size_t i = 0; load->item && i < load->nr; i++)
		free(load->item[i].why);
	if (load->event >= 0)
		close(load->event);
	pthread_cond_destroy(&load->changed);
	free(load->item);
	free(load->dims);
	free(load->order);
	free(load->done);
	free(load->slow);
	free(load->arena);
	free(load->part);
	free(load->active);
	free((void *)load->drop);
	free(load);
}

struct ck_load *ck_load_new(struct ck_load_pool *pool,
			    const struct ck_load_in *in)
{
	struct ck_load *load = calloc(1, sizeof(*load));
	pthread_condattr_t attr;

	if (!load)
		return NULL;
	load->pool = pool;
	load->reader = in->reader;
	load->touches = ck_reader_forget_touched(in->reader);
	load->img = ck_reader_settings(in->reader)->img;
	load->progress = in->progress;
	load->arg = in->arg;
	load->ring = in->ring;
	/* As stored; pieces of it lie in a slot at multiples of 16 bytes. */
	load->stretch =
		in->ring ? ck_ring_chunk(in->ring) / 8 * 7 : CK_LOAD_STRETCH;
	load->no_prefault = in->no_prefault || in->ring;
	load->is_direct = in->cache == CK_LOAD_DIRECT;
	load->no_dstore = in->no_dstore;
	load->bad = SIZE_MAX;
	load->event = -1;
	load->told_ns = ck_now_ns();
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&load->changed, &attr);
	pthread_condattr_destroy(&attr);
	return load;
}

int ck_load_prepare(struct ck_load *load, const struct ck_load_in *in,
		    size_t *bad, struct ck_err *err)
{
	int ret;

	if (in->nr >= UINT32_MAX)
		return ck_fail(err, EINVAL, "%zu items", in->nr);
	ret = ck_load_items(load, in, bad, err);
	if (ret)
		return ret;
	load->done = malloc((in->nr + 1) * sizeof(*load->done));
	load->slow = malloc((in->nr + 1) * sizeof(*load->slow));
	if (in->cache == CK_LOAD_DROPPED)
		load->drop =
			calloc(load->img->nr_srcs + 1, sizeof(*load->drop));
	if (!load->done || !load->slow ||
	    (in->cache == CK_LOAD_DROPPED && !load->drop))
		return ck_no_memory(err);
	ret = ck_load_plan_new(load, err);
	/* Its threads begin: nothing fails behind it. */
	return ret ? ret : ck_load_together(load, in, err);
}
