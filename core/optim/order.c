/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.c - which tensor an optimizer's entry belongs to, by order and shape
 *
 * A state dict lists, module by module, its parameters and then its buffers,
 * and does not say which is which; an optimizer numbers the parameters in the
 * same order.  All ways to lay the numbers along the tensors are searched at
 * once: a cell (t, j) can be reached if the tensors before t and the numbers
 * before j fit each other.  A number is told where it has one tensor only.
 */
#include "core/optim/order.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <string.h>

#define MAX_CELLS (UINT64_C(1) << 26)

/*
 * Of a cell: reached before a buffer of the module at t, or behind one.  Loops
 * count from CLEAN to BEHIND.
 */
enum { CLEAN = 1, BEHIND = 2, TO_CLEAN = 4, TO_BEHIND = 8 };

struct grid {
	const struct ck_optim_tensor *t;
	size_t nr;
	const struct ck_optim_id *id;
	size_t nr_ids;
	bool gaps;
	uint8_t *cell, *must; /* must: of tensors; 1 parameter, 2 buffer */
};

static size_t module_len(const struct ck_optim_tensor *t)
{
	const char *dot = memrchr(t->name, '.', t->name_len);

	return dot ? (size_t)(dot - t->name) : 0;
}

static bool same_module(const struct ck_optim_tensor *a,
			const struct ck_optim_tensor *b)
{
	size_t n = module_len(a);

	return n == module_len(b) && !memcmp(a->name, b->name, n);
}

static bool leaf_is(const struct ck_optim_tensor *t, const char *leaf)
{
	size_t skip = module_len(t), len = strlen(leaf);

	skip += skip > 0;
	return t->name_len - skip == len && !memcmp(t->name + skip, leaf, len);
}

/* As modules are usually written: weight, with bias beside it. */
static void use_convention(struct grid *g)
{
	static const char *const buffers[] = { "running_mean", "running_var",
					       "num_batches_tracked" };

	for (size_t i = 0; i < g->nr; i++) {
		const struct ck_optim_tensor *t = &g->t[i];

		if (g->must[i])
			continue;
		if (leaf_is(t, "weight") ||
		    (leaf_is(t, "bias") && i && same_module(t - 1, t) &&
		     leaf_is(t - 1, "weight")))
			g->must[i] = 1;
		for (size_t k = 0; k < CK_ARRAY_LEN(buffers); k++)
			if (leaf_is(t, buffers[k]))
				g->must[i] = 2;
	}
}

static bool fits(const struct grid *g, size_t t, size_t j)
{
	const struct ck_optim_tensor *a = &g->t[t];
	const struct ck_optim_id *b = &g->id[j];

	return !a->tied && g->must[t] != 2 &&
	       (!b->shape ||
		(a->rank == b->rank &&
		 !memcmp(a->shape, b->shape, a->rank * sizeof(*a->shape))));
}

static uint8_t *cell_at(struct grid *g, size_t t, size_t j)
{
	return &g->cell[t * (g->nr_ids + 1) + j];
}

/* The state behind tensor @t, which was (or was not) a buffer. */
static uint8_t step_state(const struct grid *g, size_t t, uint8_t state,
			  bool buffer)
{
	if (t + 1 >= g->nr || !same_module(&g->t[t], &g->t[t + 1]))
		return CLEAN;
	return buffer ? BEHIND : state;
}

/* Where a way may go on from a cell: at most three others. */
struct step {
	size_t t, j;
	uint8_t state;
};

static unsigned steps_from(const struct grid *g, size_t t, size_t j,
			   uint8_t state, struct step step[3])
{
	unsigned nr = 0;

	if (j < g->nr_ids && g->gaps && !g->id[j].shape)
		step[nr++] = (struct step){ t, j + 1, state };
	if (t == g->nr)
		return nr;
	if (g->t[t].tied || g->must[t] != 1)
		step[nr++] =
			(struct step){ t + 1, j,
				       step_state(g, t, state, !g->t[t].tied) };
	if (state == CLEAN && j < g->nr_ids && fits(g, t, j))
		step[nr++] = (struct step){ t + 1, j + 1,
					    step_state(g, t, state, false) };
	return nr;
}

static bool leads(struct grid *g, size_t t, size_t j, uint8_t state)
{
	return *cell_at(g, t, j) & (state << 2);
}

/* Marks what can be reached, or from which the end can be. */
static void walk_cell(struct grid *g, size_t t, size_t j, bool back)
{
	struct step step[3];

	for (uint8_t state = CLEAN; state <= BEHIND; state++) {
		unsigned nr = steps_from(g, t, j, state, step);
		bool ends = t == g->nr && j == g->nr_ids;

		for (unsigned i = 0; i < nr; i++) {
			uint8_t *to = cell_at(g, step[i].t, step[i].j);

			ends |= *to & (step[i].state << 2);
			if (!back && (*cell_at(g, t, j) & state))
				*to |= step[i].state;
		}
		if (back && ends)
			*cell_at(g, t, j) |= (uint8_t)(state << 2);
	}
}

static void walk(struct grid *g)
{
	memset(g->cell, 0, (g->nr + 1) * (g->nr_ids + 1));
	*cell_at(g, 0, 0) = CLEAN;
	for (size_t t = 0; t <= g->nr; t++)
		for (size_t j = 0; j <= g->nr_ids; j++)
			walk_cell(g, t, j, false);
	for (size_t t = g->nr + 1; t-- > 0;)
		for (size_t j = g->nr_ids + 1; j-- > 0;)
			walk_cell(g, t, j, true);
}

/* The only tensor that number @j can have; CK_OPTIM_NONE: none or several. */
static uint32_t only_one(struct grid *g, size_t j)
{
	uint32_t found = CK_OPTIM_NONE;

	for (size_t t = 0; t < g->nr; t++) {
		if (!(*cell_at(g, t, j) & CLEAN) || !fits(g, t, j) ||
		    !leads(g, t + 1, j + 1, step_state(g, t, CLEAN, false)))
			continue;
		if (found != CK_OPTIM_NONE)
			return CK_OPTIM_NONE;
		found = (uint32_t)t;
	}
	return found;
}

/*
 * As many tensors as numbers, each with a state: there is one way.  If one does
 * not fit, none does.
 */
static bool one_each(const struct grid *g, struct ck_optim_id *id)
{
	bool fit = true;
	size_t j = 0;

	for (size_t t = 0; t < g->nr; t++)
		j += !g->t[t].tied && g->must[t] != 2;
	if (j != g->nr_ids)
		return false;
	for (j = 0; j < g->nr_ids; j++)
		if (g->gaps && !id[j].shape)
			return false;
	j = 0;
	for (size_t t = 0; t < g->nr; t++) {
		if (g->t[t].tied || g->must[t] == 2)
			continue;
		fit = fit && fits(g, t, j);
		id[j++].tensor = (uint32_t)t;
	}
	for (j = 0; !fit && j < g->nr_ids; j++)
		id[j].tensor = CK_OPTIM_NONE;
	return true;
}

static void search(struct grid *g, struct ck_optim_id *id)
{
	bool again = false;

	walk(g);
	for (size_t j = 0; j < g->nr_ids; j++)
		if (id[j].shape) {
			id[j].tensor = only_one(g, j);
			again |= id[j].tensor == CK_OPTIM_NONE;
		}
	if (!again)
		return;
	use_convention(g);
	walk(g);
	for (size_t j = 0; j < g->nr_ids; j++)
		if (id[j].shape && id[j].tensor == CK_OPTIM_NONE) {
			id[j].tensor = only_one(g, j);
			id[j].convention = id[j].tensor != CK_OPTIM_NONE;
		}
}

int ck_optim_order(const struct ck_optim_tensor *t, size_t nr,
		   struct ck_optim_id *id, size_t nr_ids, bool gaps,
		   struct ck_err *err)
{
	ck_auto_free uint8_t *must = calloc(nr + 1, 1);
	ck_auto_free uint8_t *cell = NULL;
	struct grid g = { .t = t,
			  .nr = nr,
			  .id = id,
			  .nr_ids = nr_ids,
			  .gaps = gaps,
			  .must = must };
	uint64_t cells;

	for (size_t j = 0; j < nr_ids; j++) {
		id[j].tensor = CK_OPTIM_NONE;
		id[j].convention = false;
	}
	if (!must)
		return ck_no_memory(err);
	for (size_t i = 0; i < nr; i++)
		must[i] = t[i].buffer ? 2 : 0;
	if (!nr_ids || one_each(&g, id))
		return 0;
	if (!ck_mul_ok(nr + 1, nr_ids + 1, &cells) || cells > MAX_CELLS)
		return 0;
	cell = malloc(cells);
	if (!cell)
		return ck_no_memory(err);
	g.cell = cell;
	search(&g, id);
	return 0;
}

static uint32_t tensor_named(const struct ck_optim_tensor *t, size_t nr,
			     const char *name, size_t len)
{
	for (size_t i = 0; i < nr; i++)
		if (t[i].name_len == len && !memcmp(t[i].name, name, len))
			return (uint32_t)i;
	return CK_OPTIM_NONE;
}

int ck_optim_order_given(const struct ck_optim_tensor *t, size_t nr,
			 struct ck_optim_id *id, size_t nr_ids,
			 const char *text, size_t len, struct ck_err *err)
{
	const char *end = text + len;
	size_t j = 0;

	for (; text < end; j++) {
		const char *eol = memchr(text, '\n', (size_t)(end - text));
		size_t n = (size_t)((eol ? eol : end) - text);
		uint32_t at;

		n -= n && text[n - 1] == '\r';
		if (j >= nr_ids)
			return ck_fail(
				err, EINVAL,
				"-o params=: line %zu, where the optimizer has %zu parameters",
				j + 1, nr_ids);
		at = tensor_named(t, nr, text, n);
		id[j].tensor = at;
		id[j].convention = false;
		if (id[j].shape &&
		    (at == CK_OPTIM_NONE || t[at].rank != id[j].rank ||
		     memcmp(t[at].shape, id[j].shape,
			    id[j].rank * sizeof(*id[j].shape)) != 0))
			return ck_fail(
				err, EINVAL,
				"-o params=: line %zu: the states of parameter %zu are not of the shape of %.*s",
				j + 1, j, (int)CK_MIN(n, 100), text);
		text = eol ? eol + 1 : end;
	}
	if (j < nr_ids)
		return ck_fail(
			err, EINVAL,
			"-o params=: %zu names, where the optimizer has %zu parameters",
			j, nr_ids);
	return 0;
}
