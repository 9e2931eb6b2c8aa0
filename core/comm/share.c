/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.c - what a rank asks for, and reads for all
 *
 * Two threads read this rank's pieces, a round each, as far as slots are free.
 */
#include "core/comm/share_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a rank asks for ---- */

int ck_share_post(struct ck_share *s, const struct ck_deal_range *v, size_t nr)
{
	struct ck_deal_range *own = calloc(nr + 1, sizeof(*own));

	if (!own) {
		ck_share_abort(s);
		return -ENOMEM;
	}
	if (nr)
		memcpy(own, v, nr * sizeof(*own));
	nr = ck_deal_tidy(own, nr, CK_SHARE_RANGES);
	pthread_mutex_lock(&s->lock);
	free(s->next.v); /* none, but where all has ended */
	s->next = (struct ck_share_list){ own, nr };
	s->posted = s->fresh = true;
	s->copied = false;
	s->at_src = 0;
	s->at_off = 0;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

void ck_share_end(struct ck_share *s)
{
	pthread_mutex_lock(&s->lock);
	s->ended = true;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
}

bool ck_share_is_ready(struct ck_share *s, uint32_t src, uint64_t end)
{
	const struct ck_deal *d = &s->deal;
	bool ready = true;
	size_t i;

	pthread_mutex_lock(&s->lock);
	if (!s->over && s->fresh) {
		ready = false;
	} else if (!s->over) {
		end += CK_SHARE_BEHIND - 1;
		i = ck_deal_find(d, src, end);
		/* Piece i if it begins before that, else the one before it. */
		if (i < d->nr && d->v[i].src == src && d->v[i].lo <= end)
			i++;
		ready = !i || ck_deal_round(d, i - 1) < s->nr_ready;
	}
	pthread_mutex_unlock(&s->lock);
	return ready;
}

/* The piece that byte @off is in, and its round; NULL: it is not there. */
static const struct ck_deal_piece *piece_at(struct ck_share *s, uint32_t src,
					    uint64_t off, uint32_t *round)
{
	const struct ck_deal *d = &s->deal;
	uint32_t ready;
	size_t i;

	pthread_mutex_lock(&s->lock);
	ready = s->fresh ? 0 : s->nr_ready;
	pthread_mutex_unlock(&s->lock);
	if (!ready)
		return NULL;
	i = ck_deal_find(d, src, off);
	*round = ck_deal_round(d, i);
	if (*round >= ready || d->v[i].src != src || d->v[i].lo > off ||
	    d->v[i].bad)
		return NULL;
	return &d->v[i];
}

static void count(struct ck_share *s, const struct ck_deal_piece *p, uint64_t n)
{
	if (p->reader != s->rank)
		atomic_fetch_add_explicit(&s->received, n,
					  memory_order_relaxed);
}

bool ck_share_copy(struct ck_share *s, uint32_t src, uint64_t off, uint64_t len,
		   void *dst)
{
	unsigned char *to = dst;

	while (len) {
		uint32_t round;
		const struct ck_deal_piece *p = piece_at(s, src, off, &round);
		unsigned slot;
		uint64_t n, at;

		if (!p)
			return false;
		slot = round % CK_COMM_SLOTS;
		at = p->at + (off - p->lo);
		n = CK_MIN(len, p->lo + p->len - off);
		if (p->reader == s->rank || !ck_comm_device(s->comm))
			memcpy(to, ck_comm_slot(s->comm, p->reader, slot) + at,
			       n);
		else if (ck_comm_get(s->comm, to,
				     ck_comm_place(s->comm, p->reader, slot) +
					     at,
				     n, NULL))
			return false;
		count(s, p, n);
		to += n;
		off += n;
		len -= n;
	}
	return true;
}

uint64_t ck_share_place(struct ck_share *s, uint32_t src, uint64_t off,
			uint64_t *len)
{
	uint32_t round;
	const struct ck_deal_piece *p = piece_at(s, src, off, &round);

	if (!p || !ck_comm_device(s->comm))
		return 0;
	*len = CK_MIN(*len, p->lo + p->len - off);
	return ck_comm_place(s->comm, p->reader, round % CK_COMM_SLOTS) +
	       p->at + (off - p->lo);
}

void ck_share_took(struct ck_share *s, uint32_t src, uint64_t off, uint64_t len)
{
	uint32_t round;
	const struct ck_deal_piece *p = piece_at(s, src, off, &round);

	if (p)
		count(s, p, len);
}

void ck_share_at(struct ck_share *s, uint32_t src, uint64_t off)
{
	pthread_mutex_lock(&s->lock);
	s->copied = src == UINT32_MAX;
	s->at_src = src;
	s->at_off = off;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
}

/* ---- reading ---- */

static bool wait_to_read(struct ck_share *s, uint32_t *round)
{
	bool may;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		*round = s->nr_begun;
		may = s->dealt && *round < s->deal.nr_rounds &&
		      *round < s->may_read;
		if (may || s->quit || s->over)
			break;
		pthread_cond_wait(&s->cond, &s->lock);
	}
	may = may && !s->quit && !s->over;
	s->nr_begun += may;
	pthread_mutex_unlock(&s->lock);
	return may;
}

/* Into the slot, and from there to where others get it from. */
static void read_round(struct ck_share *s, struct ck_deal_piece *v, unsigned nr,
		       unsigned slot)
{
	if (!nr)
		return;
	s->in.read(s->in.arg, v, nr, ck_comm_slot(s->comm, s->rank, slot));
	if (ck_comm_put(s->comm, slot, v[nr - 1].at + v[nr - 1].len, NULL))
		for (unsigned i = 0; i < nr; i++)
			v[i].bad = true;
}

/* Rounds are said in their order. */
static void was_read(struct ck_share *s, uint32_t round)
{
	bool *next;

	pthread_mutex_lock(&s->lock);
	s->is_read[round % CK_COMM_SLOTS] = true;
	while (*(next = &s->is_read[s->nr_read % CK_COMM_SLOTS])) {
		*next = false;
		s->nr_read++;
	}
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
}

static void *fetch(void *arg)
{
	struct ck_share *s = arg;
	ck_auto_free struct ck_deal_piece *mine =
		calloc(CK_SHARE_PIECES, sizeof(*mine));
	uint32_t round;

	if (!mine)
		ck_share_abort(s);
	while (mine && wait_to_read(s, &round)) {
		struct ck_share_round *w = &s->word[round % CK_COMM_SLOTS];
		const struct ck_deal *d = &s->deal;
		unsigned nr = 0;

		for (uint32_t i = d->first[round]; i < d->first[round + 1]; i++)
			if (d->v[i].reader == s->rank)
				mine[nr++] = d->v[i];
		read_round(s, mine, nr, round % CK_COMM_SLOTS);
		*w = (struct ck_share_round){ .round = round };
		for (unsigned k = 0; k < nr; k++)
			w->bad[k / 8] |= (uint8_t)(mine[k].bad << k % 8);
		was_read(s, round);
	}
	return NULL;
}

/* ---- all of it ---- */

void ck_share_abort(struct ck_share *s)
{
	pthread_mutex_lock(&s->lock);
	s->quit = true;
	if (!s->over && !s->refused)
		ck_comm_abort(s->comm);
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
}

bool ck_share_is_over(struct ck_share *s)
{
	bool over;

	pthread_mutex_lock(&s->lock);
	over = s->over;
	pthread_mutex_unlock(&s->lock);
	return over;
}

void ck_share_stats(struct ck_share *s, struct ck_share_stats *out)
{
	pthread_mutex_lock(&s->lock);
	*out = (struct ck_share_stats){ s->received, s->sent, s->ns,
					s->over && s->why.code ? s->why.msg :
								 NULL };
	pthread_mutex_unlock(&s->lock);
}

static void let_go(struct ck_share *s)
{
	for (unsigned i = 0; s->list && i < s->ranks; i++)
		free(s->list[i].v);
	free(s->next.v);
	free(s->list);
	free(s->used);
	ck_deal_free(&s->deal);
	pthread_cond_destroy(&s->cond);
	pthread_mutex_destroy(&s->lock);
	ck_comm_leave(s->comm);
	free(s);
}

/* Signals of the process are not for these threads. */
static int start(struct ck_share *s)
{
	unsigned nr = 0;
	sigset_t all, was;
	int ret = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	while (!ret && nr < CK_SHARE_FETCHERS) {
		ret = pthread_create(&s->fetcher[nr], NULL, fetch, s);
		nr += !ret;
	}
	if (!ret)
		ret = pthread_create(&s->talker, NULL, ck_share_talk, s);
	if (ret)
		ck_share_abort(s);
	while (ret && nr)
		pthread_join(s->fetcher[--nr], NULL);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	return ret;
}

int ck_share_start(struct ck_share **out, const struct ck_share_in *in,
		   struct ck_err *err)
{
	struct ck_share *s;
	int ret;

	if (!ck_comm_take(in->comm))
		return ck_fail(err, EBUSY,
			       "another load uses this communicator");
	s = calloc(1, sizeof(*s));
	if (!s) {
		ck_comm_leave(in->comm);
		return ck_no_memory(err);
	}
	s->in = *in;
	s->comm = in->comm;
	s->rank = ck_comm_rank(s->comm);
	s->ranks = ck_comm_ranks(s->comm);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->cond, NULL);
	s->list = calloc(s->ranks, sizeof(*s->list));
	s->used = calloc(s->ranks, sizeof(*s->used));
	if (!s->list || !s->used) {
		let_go(s);
		return ck_no_memory(err);
	}
	ret = start(s);
	if (ret) {
		let_go(s);
		return ck_fail(err, ret, "threads to share with: %s",
			       strerror(ret));
	}
	*out = s;
	return 0;
}

void ck_share_free(struct ck_share *s)
{
	if (!s)
		return;
	pthread_join(s->talker, NULL);
	for (unsigned i = 0; i < CK_SHARE_FETCHERS; i++)
		pthread_join(s->fetcher[i], NULL);
	let_go(s);
}
