/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h - ranks that read each byte once between them
 *
 *	ck_share_start(&share, &in, &err);
 *	ck_share_post(share, ranges, nr);	(what this rank wants first)
 *	if (ck_share_is_ready(share, src, end)) ... ck_share_copy(...);
 *	ck_share_at(share, src, off);	(all before that was copied)
 *	...
 *	ck_share_end(share);	(this rank wants no more, and reads for others)
 *	ck_share_free(share);
 *
 * All ranks post, and end, in the same order.  Of what all of them have posted each
 * reads its pieces into slots, a round ahead of what is copied from there; a round
 * begins when everyone has copied what its slots held before.
 *
 * Where a rank is gone, or does not answer, all is ready, and what was not shared
 * by then is not copied: each has to read that alone.
 *
 * Threads: three of its own; is_ready(), copy() and at() any, the others one at a
 * time.  It calls read(), two at a time, and changed() without a lock.
 */
#ifndef CK_SHARE_H
#define CK_SHARE_H

#include "core/comm/comm.h"
#include "core/comm/deal.h"

struct ck_share;

/* How far what belongs to an offset may reach behind it. */
#define CK_SHARE_BEHIND 16

struct ck_share_in {
	struct ck_comm *comm; /* taken: -EBUSY */
	uint64_t digest[2]; /* the same on all ranks, or all are refused */
	uint32_t nr_srcs;
	bool never_alone; /* refused where others would read alone */
	/* Pieces into @slot, each at its place; sets their bad. */
	void (*read)(void *arg, struct ck_deal_piece *v, unsigned nr,
		     unsigned char *slot);
	/* More is ready, or all has ended. */
	void (*changed)(void *arg);
	/* Nothing is shared, and nothing is to be read. */
	void (*refused)(void *arg, const struct ck_err *why);
	void *arg;
};

int ck_share_start(struct ck_share **out, const struct ck_share_in *in,
		   struct ck_err *err);
/* What it posted before is copied.  0 or -ENOMEM, and it has ended. */
int ck_share_post(struct ck_share *s, const struct ck_deal_range *v, size_t nr);
/* May be called again. */
void ck_share_end(struct ck_share *s);
/* Whether what lies before @end, and belongs to it, may be copied. */
bool ck_share_is_ready(struct ck_share *s, uint32_t src, uint64_t end);
/* False: not all of it is there. */
bool ck_share_copy(struct ck_share *s, uint32_t src, uint64_t off, uint64_t len,
		   void *dst);
/*
 * Where such bytes are in memory of the communicator's device, and *@len of them in
 * one stretch; 0: they are not.  took(): so many were copied from there.
 */
uint64_t ck_share_place(struct ck_share *s, uint32_t src, uint64_t off,
			uint64_t *len);
void ck_share_took(struct ck_share *s, uint32_t src, uint64_t off,
		   uint64_t len);
/* What lies before that, of what was posted, is copied. */
void ck_share_at(struct ck_share *s, uint32_t src, uint64_t off);
/* Nobody waits for this rank; the others read alone. */
void ck_share_abort(struct ck_share *s);
/* Whether nobody has anything more to say. */
bool ck_share_is_over(struct ck_share *s);

struct ck_share_stats {
	uint64_t received; /* bytes copied that another rank has read */
	uint64_t sent; /* bytes, where memory is not shared */
	uint64_t ns; /* in which there was talk */
	const char *why; /* it ended early; lasts; or NULL */
};
void ck_share_stats(struct ck_share *s, struct ck_share_stats *out);
/* After end() or abort(); waits for the others.  NULL: nothing. */
void ck_share_free(struct ck_share *s);

#endif
