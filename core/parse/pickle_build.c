// SPDX-License-Identifier: Apache-2.0
/*
 * pickle_build.c - makes the nodes of pickle_priv.h, inside the memory limit
 */
#include "core/parse/pickle_priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static int over_memory(struct pickle_vm *vm)
{
	return vm_fail(vm,
		       "needs more than %" PRIu64
		       " bytes of memory for a pickle of %zu bytes",
		       vm->p->room * sizeof(uint64_t), vm->p->in_len);
}

int ck_pickle_alloc(struct pickle_vm *vm, uint64_t nr, uint64_t *at)
{
	struct ck_pickle *p = vm->p;

	if (nr > p->room - p->used - p->memo)
		return over_memory(vm);
	*at = p->used;
	p->used += nr;
	return 0;
}

/* More elements right behind the last slice, if nothing was put there yet. */
static bool extends_tail(const struct ck_pickle *p, uint64_t tail)
{
	return tail && tail + 1 + list_count(p->words[tail]) == p->used;
}

int ck_pickle_add(struct pickle_vm *vm, uint64_t list_at, const ck_pv *v,
		  uint32_t nr)
{
	uint64_t *w = vm->p->words;
	uint64_t tail = list_tail(w[list_at]);
	bool extend = extends_tail(vm->p, tail);
	uint64_t at = 0;
	int ret;

	if (!nr)
		return 0;
	ret = ck_pickle_alloc(vm, extend ? nr : nr + UINT64_C(1), &at);
	if (ret)
		return ret;
	if (extend) {
		w[tail] += nr;
		memcpy(w + at, v, nr * sizeof(*v));
	} else {
		uint64_t head = tail ? list_tail(w[tail]) : at;

		w[at] = list_word(head, nr);
		if (tail)
			w[tail] = list_word(at, list_count(w[tail]));
		memcpy(w + at + 1, v, nr * sizeof(*v));
		tail = at;
	}
	w[list_at] = list_word(tail, list_count(w[list_at]) + nr);
	return 0;
}

int ck_pickle_tuple(struct pickle_vm *vm, const ck_pv *v, uint32_t nr,
		    ck_pv *out)
{
	uint64_t at = EMPTY_TUPLE_AT;
	int ret;

	if (nr) {
		ret = ck_pickle_alloc(vm, nr + UINT64_C(1), &at);
		if (ret)
			return ret;
		vm->p->words[at] = nr;
		memcpy(vm->p->words + at + 1, v, nr * sizeof(*v));
	}
	*out = pv_make(CK_P_TUPLE, at);
	return 0;
}

int ck_pickle_global(struct pickle_vm *vm, const char *module,
		     size_t module_len, const char *name, size_t name_len,
		     ck_pv *out)
{
	uint64_t at = 0, *w;
	int ret;

	if (module_len > CK_MAX_PICKLE_STR || name_len > CK_MAX_PICKLE_STR)
		return vm_fail(vm,
			       "a global's name of %zu bytes; the limit is %u",
			       CK_MAX(module_len, name_len),
			       (unsigned)CK_MAX_PICKLE_STR);
	ret = ck_pickle_alloc(vm, GLOBAL_WORDS, &at);
	if (ret)
		return ret;
	w = vm->p->words + at;
	w[GLOBAL_MODULE] = (uintptr_t)module;
	w[GLOBAL_NAME] = (uintptr_t)name;
	w[GLOBAL_LENS] = (uint64_t)module_len << 32 | name_len;
	w[GLOBAL_BYTE] = (uint64_t)vm->op_at << 1;
	*out = pv_make(CK_P_GLOBAL, at);
	return 0;
}

/* Asks once for each global, not for each use. */
static int check_allowed(struct pickle_vm *vm, ck_pv global)
{
	uint64_t *w = vm->p->words + pv_at(global);
	const char *module, *name;
	size_t module_len, name_len;

	if (!vm->opts || !vm->opts->allow || w[GLOBAL_BYTE] & 1)
		return 0;
	ck_pv_global(vm->p, global, &module, &module_len, &name, &name_len);
	if (!vm->opts->allow(vm->opts->ctx, module, module_len, name, name_len))
		return ck_fail(vm->err, EINVAL,
			       "pickle names %.*s.%.*s at byte %" PRIu64,
			       (int)CK_MIN(module_len, 256), module,
			       (int)CK_MIN(name_len, 256), name,
			       w[GLOBAL_BYTE] >> 1);
	w[GLOBAL_BYTE] |= 1;
	return 0;
}

int ck_pickle_call(struct pickle_vm *vm, ck_pv callee, ck_pv args, ck_pv *out)
{
	uint64_t at = 0, *w;
	int ret = 0;

	if (pv_kind(callee) == CK_P_GLOBAL)
		ret = check_allowed(vm, callee);
	else if (pv_kind(callee) != CK_P_CALL && pv_kind(callee) != CK_P_PERSID)
		ret = vm_fail(vm,
			      "calls something that is no class or function");
	if (!ret && pv_kind(args) != CK_P_TUPLE)
		ret = vm_fail(vm, "arguments of a call are not a tuple");
	if (!ret)
		ret = ck_pickle_alloc(vm, CALL_WORDS, &at);
	if (ret)
		return ret;
	w = vm->p->words + at;
	w[CALL_WHAT] = call_word(callee, args);
	*out = pv_make(CK_P_CALL, at);
	return 0;
}

int ck_pickle_ext(struct pickle_vm *vm, ck_pv call, uint64_t *at)
{
	uint64_t *more = &vm->p->words[pv_at(call) + CALL_MORE];
	int ret;

	if (pv_kind(*more) == K_EXT) {
		*at = pv_at(*more);
		return 0;
	}
	ret = ck_pickle_alloc(vm, EXT_WORDS, at);
	if (ret)
		return ret;
	vm->p->words[*at + EXT_STATE] = *more;
	*more = pv_make(K_EXT, *at);
	return 0;
}

/*
 * A writer numbers its entries 0, 1, 2, ... and each costs at least a byte, so
 * an index beyond the bytes read so far is a lie; refusing it bounds the memo.
 */
int ck_pickle_memo_put(struct pickle_vm *vm, uint64_t i, ck_pv v)
{
	struct ck_pickle *p = vm->p;
	uint64_t *slot;

	if (i >= vm->at)
		return vm_fail(vm,
			       "memo entry %" PRIu64
			       " where at most %zu can have been stored",
			       i, vm->at);
	if (i != vm->nr_memo)
		ck_pickle_no_fold(vm);
	if (i >= p->memo) {
		if (i >= p->room - p->used)
			return over_memory(vm);
		p->memo = i + 1;
	}
	slot = &p->words[p->room - 1 - i];
	vm->nr_memo += !*slot;
	*slot = v;
	return 0;
}

int ck_pickle_memo_get(struct pickle_vm *vm, uint64_t i, ck_pv *out)
{
	const struct ck_pickle *p = vm->p;

	*out = i < p->memo ? p->words[p->room - 1 - i] : 0;
	if (!*out || *out == PV_GONE)
		return vm_fail(vm, "memo entry %" PRIu64 " was never stored",
			       i);
	pv_is_used(vm, *out);
	return 0;
}
