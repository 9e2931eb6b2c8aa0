/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_fold.c - objects of which there are millions, as numbers
 *
 *	[call][dict][what its values are made of ...][pairs of the dict] <- used
 *
 * All that was made since the call lies behind it.  Nothing but the stack, the memo
 * and itself refers to any of it, for
 *
 *   what is older was not changed since (pv_changes()),
 *   what is newer was not fetched from the memo since (pv_is_used()),
 *   DUP, and memo entries that are not numbered 0, 1, 2, ..., end all folding.
 *
 * So the words can be used again when the memo has no more of it than the call and
 * the dict: the first becomes the number, the other is gone.  Where it has more, such
 * as sizes that others share, only the pairs can.
 */
#include "core/parse/pickle_priv.h"

#include <string.h>

void ck_pickle_fold_begin(struct pickle_vm *vm, ck_pv call)
{
	if (!vm->may_fold)
		return;
	vm->fold_from = pv_at(call);
	vm->fold_memo = vm->nr_memo;
}

static ck_pv *memo_entry(struct pickle_vm *vm, uint64_t i)
{
	return &vm->p->words[vm->p->room - 1 - i];
}

/* Whether the memo has more of what was made since @call than it and @state. */
static bool has_others(struct pickle_vm *vm, ck_pv call, ck_pv state)
{
	for (uint64_t i = vm->fold_memo; i < vm->nr_memo; i++) {
		ck_pv v = *memo_entry(vm, i);

		if (v != call && v != state && pv_has_words(v) &&
		    pv_at(v) >= pv_at(call))
			return true;
	}
	return false;
}

/* The first word of the pairs of @dict, if they are the last that was made; or 0. */
static uint64_t last_pairs(const struct ck_pickle *p, ck_pv dict)
{
	uint64_t list = p->words[pv_at(dict)], tail = list_tail(list);

	return tail && list_tail(p->words[tail]) == tail &&
			       tail + 1 + list_count(list) == p->used ?
		       tail :
		       0;
}

void ck_pickle_fold_end(struct pickle_vm *vm)
{
	struct ck_pickle *p = vm->p;
	ck_pv *top = &vm->stack[vm->sp - 1], call = *top, state, folded;
	uint64_t number, from;

	if (!vm->fold_from || vm->fold_from != pv_at(call))
		return;
	vm->fold_from = 0;
	if (!ck_pv_state(p, call, &state) || pv_kind(state) != CK_P_DICT ||
	    pv_at(state) < pv_at(call))
		return;
	number = vm->opts->fold(vm->opts->ctx, p, call);
	if (number >= CK_PICKLE_KEEP)
		return;
	from = has_others(vm, call, state) ? last_pairs(p, state) : pv_at(call);
	folded = pv_make(CK_P_FOLDED, number);
	for (uint64_t i = vm->fold_memo; i < vm->nr_memo; i++) {
		ck_pv *v = memo_entry(vm, i);

		if (*v == call)
			*v = folded;
		else if (*v == state)
			*v = PV_GONE;
	}
	*top = folded;
	vm->nr_folded++;
	if (!from)
		return;
	/* what is made anew begins as zeros */
	memset(p->words + from, 0, (p->used - from) * sizeof(*p->words));
	p->used = from;
}

bool ck_pv_folded(ck_pv v, uint64_t *number)
{
	*number = pv_at(v);
	return pv_kind(v) == CK_P_FOLDED;
}

bool ck_pv_stays(ck_pv v, ck_pv object)
{
	return !pv_has_words(v) || pv_at(v) < pv_at(object);
}
