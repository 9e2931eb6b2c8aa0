/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c - items as parts sorted by where they are stored, a window at a time
 *
 * Items are taken in the order of where they begin, so that those of the same
 * bytes come together.  Of some of them at once what is deferred is resolved,
 * and their segments fill the arena; sorted, they are handed out in stretches
 * of a source, each with all parts that lie in it.  An item that has a segment
 * which is no plain copy is left to the reader.
 */
#include "core/load/load_priv.h"

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PART_MAX \
	(sizeof(struct ck_load_part) + CK_SEG_AXES * sizeof(struct ck_seg_axis))
#define FIRST_WINDOW (UINT64_C(2) << 20) /* bytes: reading begins early */

static const struct ck_chunk *first_chunk(const struct ck_load *load,
					  uint32_t item)
{
	const struct ck_tensor *t =
		&load->img->tensors[load->item[item].in.tensor];

	return t->nr ? &load->img->chunks[t->first] : NULL;
}

static int by_place(const void *pa, const void *pb, void *ctx)
{
	const struct ck_load *load = ctx;
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
	const struct ck_chunk *x = first_chunk(load, a),
			      *y = first_chunk(load, b);

	if (x && y && x->src != y->src)
		return x->src < y->src ? -1 : 1;
	if (x && y && x->off != y->off)
		return x->off < y->off ? -1 : 1;
	if (!x != !y)
		return x ? -1 : 1;
	return (a > b) - (a < b);
}

int ck_load_plan_new(struct ck_load *load, struct ck_err *err)
{
	uint64_t cells = 0, bytes;

	load->order = malloc((load->nr + 1) * sizeof(*load->order));
	if (!load->order)
		return ck_no_memory(err);
	for (size_t i = 0; i < load->nr; i++) {
		load->order[i] = (uint32_t)i;
		cells += load->img->tensors[load->item[i].in.tensor].nr;
	}
	for (uint32_t i = 0; i < load->img->nr_layouts; i++)
		if (load->img->layouts[i].flags & CK_LAYOUT_DEFERRED)
			load->deferred = true;
	qsort_r(load->order, load->nr, sizeof(*load->order), by_place, load);
	bytes = CK_MIN(cells, CK_LOAD_ARENA / PART_MAX) * PART_MAX;
	load->arena_room = CK_MAX(2 * bytes, (uint64_t)64 * PART_MAX);
	load->arena_room = CK_MIN(load->arena_room, CK_LOAD_ARENA);
	load->max_parts =
		(uint32_t)(load->arena_room / sizeof(struct ck_load_part));
	load->arena = malloc(load->arena_room);
	load->part = malloc(load->max_parts * sizeof(*load->part));
	load->active = malloc(load->max_parts * sizeof(*load->active));
	if (!load->arena || !load->part || !load->active)
		return ck_no_memory(err);
	return 0;
}

/* What cannot be resolved is found by plan. */
static void resolve_item(struct ck_load *load, uint32_t item)
{
	const struct ck_load_wish *w = &load->item[item];
	const struct ck_reader_in *in = ck_reader_settings(load->reader);
	struct ck_cursor cur;
	struct ck_seg seg;
	struct ck_box box;

	ck_load_box(load, w, &box);
	ck_cursor_init_box(&cur, load->img, in->resolved,
			   &load->img->tensors[w->in.tensor], &box);
	ck_cursor_resolve(&cur, NULL);
	while (!load->cancel && ck_cursor_next(&cur, &seg))
		;
}

void ck_load_resolve(struct ck_load_job *job)
{
	struct ck_load *load = job->load;

	for (size_t i = job->from; i < job->to; i++)
		resolve_item(load, load->order[i]);
}

static void add_part(struct ck_load *load, uint32_t item,
		     const struct ck_seg *seg, uint64_t end)
{
	struct ck_load_part *p = (void *)(load->arena + load->arena_used);

	*p = (struct ck_load_part){
		.off = seg->src_off,
		.end = end,
		.dst = seg->dst,
		.run = seg->run,
		.item = item,
		.src = load->img->chunks[seg->chunk].src,
		.nax = seg->nax,
		.elem = seg->elem,
		.xform = seg->xform,
	};
	memcpy(p->ax, seg->ax, seg->nax * sizeof(seg->ax[0]));
	load->part[load->nr_parts++] = (uint32_t)(load->arena_used / 8);
	load->arena_used += sizeof(*p) + seg->nax * sizeof(seg->ax[0]);
}

/* Whether @seg is a copy of whole elements in the order of its source. */
static bool is_plain(const struct ck_load *load, struct ck_seg *seg,
		     uint64_t *end)
{
	const struct ck_chunk *chunks = load->img->chunks;

	return seg->kind == CK_SEG_COPY && seg->op == CK_OP_SET &&
	       load->img->srcs[chunks[seg->chunk].src].kind <= CK_SRC_CODEC &&
	       ck_seg_in_order(seg, end);
}

static bool has_room(const struct ck_load *load, size_t limit)
{
	return load->arena_used + PART_MAX <= CK_MIN(limit, load->arena_room) &&
	       load->nr_parts < load->max_parts;
}

static void begin_item(struct ck_load *load, const struct ck_load_wish *w)
{
	struct ck_box box;

	ck_load_box(load, w, &box);
	ck_cursor_init_box_strided(&load->cur, load->img,
				   ck_reader_settings(load->reader)->resolved,
				   &load->img->tensors[w->in.tensor], &box,
				   w->in.stride);
	load->got = 0;
}

/* Parts of the item of which there was none before this window. */
struct mark {
	size_t used;
	uint32_t nr;
};

/* The rest of the item is the reader's, and all of it where nothing was read. */
static void leave_item(struct ck_load *load, uint32_t item,
		       const struct mark *mark)
{
	struct ck_load_wish *w = &load->item[item];
	uint64_t left = w->bytes - load->got;

	if (mark) {
		load->arena_used = mark->used;
		load->nr_parts = mark->nr;
		left = w->bytes;
	}
	load->within = false;
	load->plan_at++;
	ck_load_settle(load, item, left, true);
}

/* False: the window is full. */
static bool plan_item(struct ck_load *load, uint32_t item, size_t limit)
{
	struct ck_load_wish *w = &load->item[item];
	struct mark mark = { load->arena_used, load->nr_parts };
	bool fresh = !load->within;
	struct ck_seg seg;
	uint64_t end;

	if (fresh)
		begin_item(load, w);
	load->within = true;
	for (;;) {
		if (!has_room(load, limit))
			return false;
		if (!ck_cursor_next(&load->cur, &seg))
			break;
		if (!is_plain(load, &seg, &end)) {
			leave_item(load, item, fresh ? &mark : NULL);
			return true;
		}
		add_part(load, item, &seg, end);
		load->got += seg.nbytes;
	}
	if (load->got != w->bytes) {
		leave_item(load, item, fresh ? &mark : NULL);
		return true;
	}
	load->within = false;
	load->plan_at++;
	if (!w->bytes)
		ck_load_item_done(load, item);
	return true;
}

static int by_source(const void *pa, const void *pb, void *ctx)
{
	const struct ck_load *load = ctx;
	const struct ck_load_part *a = ck_load_part(load, *(uint32_t *)pa);
	const struct ck_load_part *b = ck_load_part(load, *(uint32_t *)pb);

	return ck_order2(a->src, b->src, a->off, b->off);
}

void ck_load_plan(struct ck_load *load)
{
	size_t limit =
		load->plan_at || load->within ? load->arena_room : FIRST_WINDOW;
	int64_t begun = ck_now_ns();

	load->arena_used = 0;
	load->nr_parts = 0;
	while (!load->cancel && load->plan_at < load->batch_end &&
	       plan_item(load, load->order[load->plan_at], limit))
		;
	qsort_r(load->part, load->nr_parts, sizeof(*load->part), by_source,
		load);
	load->sweep = (struct ck_load_sweep){ 0 };
	ck_load_post(load);
	ck_load_add(&load->ns_plan, (uint64_t)(ck_now_ns() - begun));
}

/* Makes the next stretch: its parts are active. */
static bool next_stretch(struct ck_load *load)
{
	struct ck_load_sweep *s = &load->sweep;
	const struct ck_load_part *p;
	unsigned more = 0;

	s->turn = 0;
	if (!s->nr_active) {
		if (s->next == load->nr_parts)
			return false;
		p = ck_load_part(load, load->part[s->next]);
		s->src = p->src;
		s->lo = p->off;
	}
	s->hi = (s->lo / load->stretch + 1) * load->stretch;
	for (; s->next < load->nr_parts; s->next++) {
		p = ck_load_part(load, load->part[s->next]);
		if (p->src != s->src || p->off >= s->hi)
			break;
		if (more++ >= CK_LOAD_PARTS && p->off > s->lo) {
			s->hi = p->off;
			break;
		}
		load->active[s->nr_active++] = load->part[s->next];
	}
	return true;
}

/* The stretch was handed out: what ends in it is active no more. */
static void end_stretch(struct ck_load *load)
{
	struct ck_load_sweep *s = &load->sweep;
	uint32_t nr = 0;

	for (uint32_t i = 0; i < s->nr_active; i++)
		if (ck_load_part(load, load->active[i])->end > s->hi)
			load->active[nr++] = load->active[i];
	s->nr_active = nr;
	s->turn = 0;
	s->lo = s->hi;
}

bool ck_load_next_at(const struct ck_load *load, uint32_t *src, uint64_t *lo)
{
	const struct ck_load_sweep *s = &load->sweep;
	const struct ck_load_part *p;

	if (s->turn || s->nr_active) {
		*src = s->src;
		*lo = s->lo;
		return true;
	}
	if (s->next == load->nr_parts)
		return false;
	p = ck_load_part(load, load->part[s->next]);
	*src = p->src;
	*lo = p->off;
	return true;
}

bool ck_load_take_stretch(struct ck_load *load, struct ck_load_job *job)
{
	struct ck_load_sweep *s = &load->sweep;
	uint64_t ahead;

	if (!s->turn && !next_stretch(load))
		return false;
	job->what = CK_LOAD_DO_STRETCH;
	job->src = s->src;
	job->lo = s->lo;
	job->hi = ahead = s->hi;
	job->nr = CK_MIN(s->nr_active - s->turn, CK_LOAD_PARTS);
	memcpy(job->part, load->active + s->turn,
	       job->nr * sizeof(job->part[0]));
	s->turn += job->nr;
	for (unsigned i = 0; i < job->nr; i++)
		ahead = CK_MAX(ahead, ck_load_part(load, job->part[i])->end);
	job->ahead = ahead;
	if (s->turn == s->nr_active)
		end_stretch(load);
	return true;
}
