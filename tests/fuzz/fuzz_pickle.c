/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_pickle.c - any bytes as a pickle; then every accessor on every value
 *
 * Values may be shared endlessly or hold themselves: the walk has a budget.
 */
#include "core/parse/pickle.h"
#include "tests/lib/pickles.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_VISITS 20000
#define MAX_PENDING 4096

struct walk {
	const struct ck_pickle *p;
	ck_pv pending[MAX_PENDING];
	unsigned nr;
	unsigned visits;
	volatile uint8_t sum; /* so that every byte is read */
};

static void later(struct walk *w, ck_pv v)
{
	if (v && w->nr < MAX_PENDING)
		w->pending[w->nr++] = v;
}

static void touch(struct walk *w, const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		w->sum = (uint8_t)(w->sum + s[i]);
}

static void visit_scalars(struct walk *w, ck_pv v)
{
	const char *s, *name;
	size_t len, name_len;
	int64_t n;
	double f;

	if (ck_pv_str(w->p, v, &s, &len))
		touch(w, s, len);
	if (ck_pv_global(w->p, v, &s, &len, &name, &name_len)) {
		touch(w, s, len);
		touch(w, name, name_len);
	}
	if (ck_pv_int(w->p, v, &n) == ck_pv_float(w->p, v, &f) &&
	    (ck_pv_kind(v) == CK_P_INT || ck_pv_kind(v) == CK_P_FLOAT))
		abort();
}

static void visit_parts(struct walk *w, ck_pv v)
{
	struct ck_piter it;
	ck_pv a, b;
	uint64_t nr = 0, len = ck_pv_len(w->p, v);

	ck_piter_init(&it, w->p, v);
	while (nr < MAX_PENDING && ck_piter_next(&it, &a)) {
		later(w, a);
		nr++;
	}
	if (ck_pv_kind(v) != CK_P_DICT && nr < MAX_PENDING && nr != len)
		abort();
	if (ck_pv_kind(v) != CK_P_DICT && len &&
	    (!ck_pv_at(w->p, v, len - 1, &a) || ck_pv_at(w->p, v, len, &a)))
		abort();
	ck_piter_init_pairs(&it, w->p, v);
	for (nr = 0; nr < MAX_PENDING && ck_piter_next2(&it, &a, &b); nr++) {
		later(w, a);
		later(w, b);
	}
	if (ck_pv_key(w->p, v, "a", &a) || ck_pv_attr(w->p, v, "a", &a) ||
	    ck_pv_state(w->p, v, &a))
		later(w, a);
	if (ck_pv_kwargs(w->p, v, &a))
		later(w, a);
	later(w, ck_pv_callee(w->p, v));
	later(w, ck_pv_args(w->p, v));
	later(w, ck_pv_persid(w->p, v));
}

static bool allow(void *ctx, const char *module, size_t module_len,
		  const char *name, size_t name_len)
{
	(void)ctx;
	(void)name;
	return module_len != 2 || memcmp(module, "os", 2) != 0 || !name_len;
}

/* Every other one, so that objects lie in numbers' places and the other way round. */
static uint64_t fold(void *ctx, const struct ck_pickle *p, ck_pv object)
{
	ck_pv state;
	uint64_t *nr = ctx;

	if (!ck_pv_state(p, object, &state))
		abort();
	return ++*nr % 2 ? *nr : CK_PICKLE_KEEP;
}

static void walk(const struct ck_pickle *p)
{
	static struct walk w;

	w = (struct walk){ .p = p };
	later(&w, ck_pickle_root(p));
	while (w.nr && w.visits++ < MAX_VISITS) {
		ck_pv v = w.pending[--w.nr];

		visit_scalars(&w, v);
		visit_parts(&w, v);
	}
}

struct pairs {
	ck_pv x[MAX_PENDING], y[MAX_PENDING];
	unsigned nr, visits;
};

static void both(struct pairs *w, ck_pv x, ck_pv y)
{
	if (!x != !y)
		abort();
	if (!x || w->nr == MAX_PENDING)
		return;
	w->x[w->nr] = x;
	w->y[w->nr++] = y;
}

/* What @y of @q was folded from is somewhere in @p; all else is the same. */
static void same(const struct ck_pickle *p, const struct ck_pickle *q)
{
	static struct pairs w;
	struct ck_piter a, b;

	w.nr = w.visits = 0;
	both(&w, ck_pickle_root(p), ck_pickle_root(q));
	while (w.nr && w.visits++ < MAX_VISITS) {
		ck_pv x = w.x[--w.nr], y = w.y[w.nr], i, j;
		uint64_t number, left = MAX_PENDING;

		if (ck_pv_folded(y, &number)) {
			if (ck_pv_kind(x) != CK_P_CALL)
				abort();
			continue;
		}
		if (ck_pv_kind(x) != ck_pv_kind(y) ||
		    ck_pv_len(p, x) != ck_pv_len(q, y))
			abort();
		both(&w, ck_pv_callee(p, x), ck_pv_callee(q, y));
		both(&w, ck_pv_args(p, x), ck_pv_args(q, y));
		both(&w, ck_pv_state(p, x, &i) ? i : 0,
		     ck_pv_state(q, y, &j) ? j : 0);
		ck_piter_init(&a, p, x);
		ck_piter_init(&b, q, y);
		while (left-- && ck_piter_next(&a, &i) && ck_piter_next(&b, &j))
			both(&w, i, j);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t nr = 0;
	struct ck_pickle_opts opts = { .allow = size % 2 ? allow : NULL,
				       .ctx = &nr };
	struct ck_pickle *p = NULL, *folded = NULL;
	struct ck_err err = { 0 };
	size_t used = 0, used_folded = 0;
	int ret = ck_pickle_parse(&p, data, size, &opts, &used, &err);

	if (ret && (!err.msg[0] || err.code != -ret))
		abort();
	opts.fold = fold;
	if (ck_pickle_parse(&folded, data, size, &opts, &used_folded, NULL) !=
		    ret ||
	    used_folded != used)
		abort();
	if (ret)
		return 0;
	if (used > size || pickle_memory(p) > 8 * size + (1 << 20))
		abort();
	walk(p);
	walk(folded);
	same(p, folded);
	ck_pickle_free(p);
	ck_pickle_free(folded);
	return 0;
}
