/* SPDX-License-Identifier: Apache-2.0 */
/*
 * talk.c - windows, and their rounds: read, said to be there, moved, copied
 *
 * A round is ready when every rank has said that it read it, which each says only
 * when it has copied what the slots behind the next rounds held: so a slot is
 * never written while somebody looks at it, whatever becomes of the others.
 */
#include "core/comm/share_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/vec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * A stretch of a block's size reaches over three rounds, and the first of them
 * is not copied before the last is there.
 */
#define LAG 3

/* What a rank begins with: of a window. */
struct window_word {
	uint64_t digest[2], nr, ended;
};

/* ---- talking: a window ---- */

static bool wait_for_post(struct ck_share *s, struct window_word *w)
{
	struct ck_share_list *mine = &s->list[s->rank];
	bool go;

	pthread_mutex_lock(&s->lock);
	while (!s->posted && !s->ended && !s->quit)
		pthread_cond_wait(&s->cond, &s->lock);
	go = !s->quit;
	free(mine->v);
	*mine = s->next; /* nothing, where it has ended */
	s->next = (struct ck_share_list){ 0 };
	*w = (struct window_word){ { s->in.digest[0], s->in.digest[1] },
				   mine->nr,
				   !s->posted };
	s->posted = false;
	pthread_mutex_unlock(&s->lock);
	return go;
}

/* Of two that are not the same everybody says the same. */
static int compare(const struct ck_share *s, const struct window_word *all,
		   struct ck_err *err)
{
	for (unsigned i = 1; i < s->ranks; i++)
		if (memcmp(all[i].digest, all[0].digest, sizeof(all[0].digest)))
			return ck_fail(
				err, ESTALE,
				"rank %u of %u loads another checkpoint, or by "
				"other options, than rank 0: %016llx%016llx "
				"and %016llx%016llx",
				i, s->ranks,
				(unsigned long long)all[i].digest[1],
				(unsigned long long)all[i].digest[0],
				(unsigned long long)all[0].digest[1],
				(unsigned long long)all[0].digest[0]);
	return 0;
}

static int make_room(struct ck_share *s, const struct window_word *all,
		     struct ck_err *err)
{
	for (unsigned i = 0; i < s->ranks; i++) {
		struct ck_share_list *l = &s->list[i];

		if (i == s->rank)
			continue;
		if (all[i].nr > CK_SHARE_RANGES + s->in.nr_srcs)
			return ck_fail(err, EPROTO,
				       "rank %u of %u says %llu ranges", i,
				       s->ranks, (unsigned long long)all[i].nr);
		free(l->v);
		l->nr = all[i].nr;
		l->v = calloc(l->nr + 1, sizeof(*l->v));
		if (!l->v)
			return ck_no_memory(err);
	}
	return 0;
}

static int swap_lists(struct ck_share *s, struct ck_err *err)
{
	ck_auto_free struct ck_comm_bytes *all =
		calloc(s->ranks, 2 * sizeof(*all));
	ck_auto_free struct iovec *iov = calloc(s->ranks, 2 * sizeof(*iov));
	const struct ck_share_list *mine = &s->list[s->rank];
	int ret;

	if (!all || !iov)
		return ck_no_memory(err);
	for (unsigned i = 0; i < s->ranks; i++) {
		const struct ck_share_list *l = &s->list[i];

		iov[2 * i] =
			(struct iovec){ mine->v, mine->nr * sizeof(*mine->v) };
		iov[2 * i + 1] = (struct iovec){ l->v, l->nr * sizeof(*l->v) };
		all[i] = (struct ck_comm_bytes){ &iov[2 * i], 1,
						 iov[2 * i].iov_len };
		all[s->ranks + i] =
			(struct ck_comm_bytes){ &iov[2 * i + 1], 1,
						iov[2 * i + 1].iov_len };
	}
	ret = ck_comm_swap(s->comm, all, all + s->ranks, err);
	for (unsigned i = 0; i < s->ranks && !ret; i++)
		if (!ck_deal_is_tidy(s->list[i].v, s->list[i].nr,
				     s->in.nr_srcs))
			ret = ck_fail(err, EPROTO,
				      "rank %u of %u wants bytes that there "
				      "cannot be",
				      i, s->ranks);
	return ret;
}

/* Deals what any rank wants; only now may the last deal go. */
static int deal(struct ck_share *s, struct ck_err *err)
{
	ck_auto_free struct ck_deal_range *all = NULL;
	struct ck_deal next;
	size_t nr = 0;
	int ret;

	for (unsigned i = 0; i < s->ranks; i++)
		nr += s->list[i].nr;
	all = calloc(nr + 1, sizeof(*all));
	if (!all)
		return ck_no_memory(err);
	nr = 0;
	for (unsigned i = 0; i < s->ranks; i++) {
		const struct ck_share_list *l = &s->list[i];

		if (l->nr)
			memcpy(all + nr, l->v, l->nr * sizeof(*all));
		nr += l->nr;
	}
	nr = ck_deal_tidy(all, nr, SIZE_MAX);
	ret = ck_deal_make(&next, all, nr, s->used, s->ranks,
			   ck_comm_block(s->comm), err);
	if (ret)
		return ret;
	pthread_mutex_lock(&s->lock);
	ck_deal_free(&s->deal);
	s->deal = next;
	s->nr_read = s->nr_begun = 0;
	s->nr_ready = 0;
	s->may_read = CK_COMM_SLOTS;
	s->dealt = true;
	s->fresh = false;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* 1: nobody wants anything more. */
static int begin_window(struct ck_share *s, struct ck_err *err)
{
	ck_auto_free struct window_word *all = calloc(s->ranks, sizeof(*all));
	struct window_word mine;
	bool more = false;
	int ret;

	if (!all)
		return ck_no_memory(err);
	if (!wait_for_post(s, &mine))
		return ck_fail(err, ECANCELED, "the load was ended");
	ret = ck_comm_gather(s->comm, &mine, all, sizeof(mine), err);
	if (!ret)
		ret = compare(s, all, err);
	if (ret)
		return ret;
	s->nr_windows++;
	for (unsigned i = 0; i < s->ranks; i++)
		more = more || !all[i].ended;
	if (!more)
		return 1;
	ret = make_room(s, all, err);
	if (!ret)
		ret = swap_lists(s, err);
	return ret ? ret : deal(s, err);
}

/* ---- talking: a round ---- */

/* Rounds of which all is copied; under the lock. */
static uint32_t nr_copied(const struct ck_share *s)
{
	if (s->fresh || s->copied || s->ended)
		return s->deal.nr_rounds;
	return ck_deal_round(&s->deal,
			     ck_deal_find(&s->deal, s->at_src, s->at_off));
}

static bool wait_for_read(struct ck_share *s, uint32_t round)
{
	bool go;

	pthread_mutex_lock(&s->lock);
	while (!s->quit && (s->nr_read <= round || nr_copied(s) + LAG <= round))
		pthread_cond_wait(&s->cond, &s->lock);
	go = !s->quit;
	pthread_mutex_unlock(&s->lock);
	return go;
}

static int note_bad(struct ck_share *s, uint32_t round, const char *words,
		    size_t each, struct ck_err *err)
{
	const struct ck_deal *d = &s->deal;
	ck_auto_free unsigned *seen = calloc(s->ranks, sizeof(*seen));

	if (!seen)
		return ck_no_memory(err);
	for (uint32_t i = d->first[round]; i < d->first[round + 1]; i++) {
		struct ck_deal_piece *p = &d->v[i];
		const char *word = words + p->reader * each;
		unsigned k = seen[p->reader]++;
		uint64_t theirs;

		memcpy(&theirs, word, sizeof(theirs));
		if (theirs != round)
			return ck_fail(err, EPROTO,
				       "rank %u of %u is at another round",
				       p->reader, s->ranks);
		word += offsetof(struct ck_share_round, bad);
		p->bad = (unsigned char)word[k / 8] >> k % 8 & 1;
	}
	return 0;
}

struct parts {
	CK_VEC(struct iovec) v;
	uint64_t len;
};

/* What of @p is wanted by @l, where it lies in @slot. */
static bool add_parts(struct parts *to, const struct ck_deal_piece *p,
		      const struct ck_share_list *l, unsigned char *slot)
{
	size_t i = ck_deal_find_range(l->v, l->nr, p->src, p->lo);

	for (;
	     i < l->nr && l->v[i].src == p->src && l->v[i].lo < p->lo + p->len;
	     i++) {
		uint64_t lo = CK_MAX(l->v[i].lo, p->lo);
		uint64_t hi = CK_MIN(l->v[i].hi, p->lo + p->len);
		struct iovec *iov = ck_vec_push(&to->v);

		if (!iov)
			return false;
		*iov = (struct iovec){ slot + p->at + (lo - p->lo), hi - lo };
		to->len += hi - lo;
	}
	return true;
}

/* What goes where, of a piece: from its reader to who wants it. */
static bool add_piece(struct ck_share *s, struct parts *parts,
		      const struct ck_deal_piece *p, unsigned slot)
{
	unsigned char *at =
		(void *)(uintptr_t)ck_comm_place(s->comm, p->reader, slot);

	if (p->bad)
		return true;
	if (p->reader != s->rank)
		return add_parts(&parts[s->ranks + p->reader], p,
				 &s->list[s->rank], at);
	for (unsigned i = 0; i < s->ranks; i++)
		if (i != s->rank && !add_parts(&parts[i], p, &s->list[i], at))
			return false;
	return true;
}

/*
 * Whether every rank wants all that this round has, but for the rest of a page, of
 * slots that are nearly full.
 */
static bool is_whole(const struct ck_share *s, uint32_t round)
{
	const struct ck_deal *d = &s->deal;
	uint64_t all = 0, room = s->ranks * ck_comm_block(s->comm);

	for (uint32_t i = d->first[round]; i < d->first[round + 1]; i++) {
		const struct ck_deal_piece *p = &d->v[i];

		for (unsigned k = 0; k < s->ranks; k++) {
			const struct ck_share_list *l = &s->list[k];
			size_t at = ck_deal_find_range(l->v, l->nr, p->src,
						       p->lo + p->len / 2);

			if (at == l->nr || l->v[at].src != p->src ||
			    l->v[at].lo >= p->lo + CK_DEAL_PAGE ||
			    l->v[at].hi + CK_DEAL_PAGE <= p->lo + p->len)
				return false;
		}
		all += p->len;
	}
	return all >= room / 4 * 3;
}

static int move(struct ck_share *s, uint32_t round, struct ck_err *err)
{
	const struct ck_deal *d = &s->deal;
	struct parts *parts = calloc(s->ranks, 2 * sizeof(*parts));
	ck_auto_free struct ck_comm_bytes *all =
		calloc(s->ranks, 2 * sizeof(*all));
	int ret = parts && all ? 0 : ck_no_memory(err);

	for (uint32_t i = d->first[round]; !ret && i < d->first[round + 1]; i++)
		if (!add_piece(s, parts, &d->v[i], round % CK_COMM_SLOTS))
			ret = ck_no_memory(err);
	for (unsigned i = 0; !ret && i < 2 * s->ranks; i++) {
		all[i] = (struct ck_comm_bytes){ parts[i].v.v,
						 (unsigned)parts[i].v.nr,
						 parts[i].len };
		s->sent += i < s->ranks ? parts[i].len : 0;
	}
	if (!ret)
		ret = ck_comm_move(s->comm, round % CK_COMM_SLOTS, all,
				   all + s->ranks, is_whole(s, round), err);
	for (unsigned i = 0; parts && i < 2 * s->ranks; i++)
		free(parts[i].v.v);
	free(parts);
	return ret;
}

static int one_round(struct ck_share *s, uint32_t round, struct ck_err *err)
{
	size_t each = offsetof(struct ck_share_round, bad) +
		      ck_comm_block(s->comm) / CK_DEAL_PAGE / 8;
	ck_auto_free char *words = calloc(s->ranks, each);
	int64_t begun;
	int ret;

	if (!words)
		return ck_no_memory(err);
	if (!wait_for_read(s, round))
		return ck_fail(err, ECANCELED, "the load was ended");
	begun = ck_now_ns();
	ret = ck_comm_gather(s->comm, &s->word[round % CK_COMM_SLOTS], words,
			     each, err);
	if (!ret)
		ret = note_bad(s, round, words, each, err);
	if (ret)
		return ret;
	pthread_mutex_lock(&s->lock);
	s->may_read = CK_COMM_SLOTS + (round + 1 > LAG ? round + 1 - LAG : 0);
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
	if (!ck_comm_is_shared(s->comm))
		ret = move(s, round, err);
	s->ns += (uint64_t)(ck_now_ns() - begun);
	if (ret)
		return ret;
	s->nr_ready = round + 1;
	s->in.changed(s->in.arg);
	return 0;
}

static int talk_all(struct ck_share *s, struct ck_err *err)
{
	int ret;

	while (!(ret = begin_window(s, err))) {
		s->in.changed(s->in.arg);
		for (uint32_t r = 0; r < s->deal.nr_rounds && !ret; r++)
			ret = one_round(s, r, err);
		if (ret)
			return ret;
	}
	return CK_MIN(ret, 0);
}

void *ck_share_talk(void *arg)
{
	struct ck_share *s = arg;
	struct ck_err err = { 0 };
	int ret = talk_all(s, &err);
	bool refuse = ret && (ret == -ESTALE || s->in.never_alone ||
			      (ret == -ETIMEDOUT && !s->nr_windows));

	pthread_mutex_lock(&s->lock);
	s->refused = ret == -ESTALE;
	pthread_mutex_unlock(&s->lock);
	if (ret && ret != -ESTALE && !s->comm->ended)
		ck_comm_end(s->comm, s->rank);
	if (refuse && ret != -ECANCELED)
		s->in.refused(s->in.arg, &err);
	pthread_mutex_lock(&s->lock);
	s->over = true;
	s->why = err;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
	s->in.changed(s->in.arg);
	return NULL;
}
