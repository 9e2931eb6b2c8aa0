// SPDX-License-Identifier: Apache-2.0
/*
 * pickle_ops.c - what each opcode of the pickle machine does
 *
 * Values below the last MARK are out of reach until it is closed (the fence).
 * Every opcode does a bounded amount of work for the bytes it takes up, and
 * none calls anything that the pickle names.
 */
#include "core/parse/pickle_priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static int push(struct pickle_vm *vm, ck_pv v)
{
	if (vm->sp == vm->room)
		return vm_fail(vm, "more than %u values on the stack",
			       vm->room);
	vm->stack[vm->sp++] = v;
	return 0;
}

static int need(struct pickle_vm *vm, uint32_t nr)
{
	if (vm->sp - vm->fence < nr)
		return vm_fail(vm,
			       "opcode 0x%02x takes %u values, there are %u",
			       vm->p->in[vm->op_at], nr, vm->sp - vm->fence);
	return 0;
}

static ck_pv *top(struct pickle_vm *vm)
{
	return &vm->stack[vm->sp - 1];
}

/* By address: in push_made(vm, make(&v), &v) the value comes after the call. */
static int push_made(struct pickle_vm *vm, int ret, const ck_pv *v)
{
	return ret ? ret : push(vm, *v);
}

/* Takes the last mark away; what was above it is stack[*from, *to). */
static int close_mark(struct pickle_vm *vm, uint32_t *from, uint32_t *to)
{
	if (!vm->nr_marks)
		return vm_fail(vm, "opcode 0x%02x without a MARK",
			       vm->p->in[vm->op_at]);
	*from = vm->fence;
	*to = vm->sp;
	vm->sp = vm->fence;
	vm->nr_marks--;
	vm->fence = vm->nr_marks ? vm->marks[vm->nr_marks - 1] : 0;
	return 0;
}

static int op_mark(struct pickle_vm *vm)
{
	if (vm->nr_marks == CK_MAX_PICKLE_DEPTH)
		return vm_fail(vm, "more than %d open marks",
			       CK_MAX_PICKLE_DEPTH);
	vm->marks[vm->nr_marks++] = vm->sp;
	vm->fence = vm->sp;
	return 0;
}

static int op_pop_mark(struct pickle_vm *vm)
{
	uint32_t from, to;

	return close_mark(vm, &from, &to);
}

static int op_pop(struct pickle_vm *vm)
{
	if (vm->sp == vm->fence)
		return op_pop_mark(vm);
	vm->sp--;
	return 0;
}

static int op_dup(struct pickle_vm *vm)
{
	int ret = need(vm, 1);

	ck_pickle_no_fold(vm);
	return ret ? ret : push(vm, *top(vm));
}

static int op_proto(struct pickle_vm *vm)
{
	if (vm->n > 5)
		return vm_fail(vm,
			       "pickle protocol %" PRIu64 "; 0 to 5 are known",
			       vm->n);
	return 0;
}

static int op_frame(struct pickle_vm *vm)
{
	if (vm->n > vm->p->in_len - vm->at)
		return vm_fail(
			vm, "a frame of %" PRIu64 " bytes, %zu bytes are left",
			vm->n, vm->p->in_len - vm->at);
	return 0;
}

static int op_stop(struct pickle_vm *vm)
{
	if (vm->nr_marks || vm->sp != 1)
		return vm_fail(
			vm,
			"STOP with %u values and %u open marks; expected one value",
			vm->sp, vm->nr_marks);
	vm->p->root = *top(vm);
	return PICKLE_STOPPED;
}

/* vm->arg is the value. */
static int op_const(struct pickle_vm *vm)
{
	return push(vm, vm->arg);
}

/* vm->arg is the kind of a value that is its opcode in the input. */
static int op_here(struct pickle_vm *vm)
{
	return push(vm, pv_make(vm->arg, vm->op_at));
}

static int op_uint(struct pickle_vm *vm)
{
	return push(vm, pv_make(CK_P_INT, vm->n));
}

static int op_int32(struct pickle_vm *vm)
{
	int64_t n = (int32_t)(uint32_t)vm->n;

	return push(vm, pv_make(CK_P_INT, (uint64_t)n));
}

static int op_long(struct pickle_vm *vm)
{
	uint64_t n = 0;
	unsigned pad = 64 - 8 * (unsigned)CK_MIN(vm->len, 8);
	ck_pv v;

	if (vm->len > 8)
		return push(vm, pv_make(CK_P_BIGINT, vm->op_at));
	for (size_t i = 0; i < vm->len; i++)
		n |= (uint64_t)(uint8_t)vm->s[i] << 8 * i;
	if (vm->len)
		n = (uint64_t)((int64_t)(n << pad) >> pad);
	return push_made(vm, ck_pickle_int(vm, (int64_t)n, &v), &v);
}

static int op_int_text(struct pickle_vm *vm)
{
	ck_pv v = 0;

	return push_made(vm, ck_pickle_text_int(vm, &v), &v);
}

static int op_float_text(struct pickle_vm *vm)
{
	ck_pv v = 0;

	return push_made(vm, ck_pickle_text_float(vm, &v), &v);
}

static int op_str_text(struct pickle_vm *vm)
{
	ck_pv v = 0;

	return push_made(vm, ck_pickle_text_quoted(vm, &v), &v);
}

static int op_unicode_text(struct pickle_vm *vm)
{
	ck_pv v = 0;

	return push_made(vm, ck_pickle_text_unicode(vm, &v), &v);
}

static int op_short_tuple(struct pickle_vm *vm)
{
	uint32_t nr = vm->arg;
	ck_pv v;
	int ret = need(vm, nr);

	if (!ret)
		ret = ck_pickle_tuple(vm, vm->stack + vm->sp - nr, nr, &v);
	if (ret)
		return ret;
	vm->sp -= nr;
	return push(vm, v);
}

static int op_tuple(struct pickle_vm *vm)
{
	uint32_t from, to;
	ck_pv v = 0;
	int ret = close_mark(vm, &from, &to);

	if (!ret)
		ret = ck_pickle_tuple(vm, vm->stack + from, to - from, &v);
	return push_made(vm, ret, &v);
}

/* vm->arg: LIST, DICT or SET, of stack[from, to). */
static int push_container(struct pickle_vm *vm, uint32_t from, uint32_t to)
{
	uint64_t at;
	int ret = ck_pickle_alloc(vm, 1, &at);

	if (!ret && vm->arg == CK_P_DICT && (to - from) % 2)
		ret = vm_fail(vm, "a key without a value");
	if (!ret)
		ret = ck_pickle_add(vm, at, vm->stack + from, to - from);
	return ret ? ret : push(vm, pv_make(vm->arg, at));
}

static int op_empty(struct pickle_vm *vm)
{
	return push_container(vm, 0, 0);
}

static int op_marked(struct pickle_vm *vm)
{
	uint32_t from, to;
	int ret = close_mark(vm, &from, &to);

	return ret ? ret : push_container(vm, from, to);
}

/* Adds stack[from, to) to the LIST, DICT or SET (vm->arg) right under it. */
static int add_to(struct pickle_vm *vm, uint32_t from, uint32_t to)
{
	ck_pv target = vm->stack[from - 1];
	bool pairs = vm->arg == CK_P_DICT;
	uint64_t at = pv_at(target);
	int ret = 0;

	if (pairs && (to - from) % 2)
		return vm_fail(vm, "a key without a value");
	if (pv_kind(target) == CK_P_CALL) {
		ret = ck_pickle_ext(vm, target, &at);
		at += pairs ? EXT_PAIRS : EXT_ITEMS;
	} else if (pv_kind(target) != vm->arg) {
		return vm_fail(vm, "adds %s to something that holds none",
			       pairs ? "pairs" : "elements");
	}
	pv_changes(vm, target);
	return ret ? ret : ck_pickle_add(vm, at, vm->stack + from, to - from);
}

static int op_add_marked(struct pickle_vm *vm)
{
	uint32_t from, to;
	int ret = close_mark(vm, &from, &to);

	if (!ret)
		ret = need(vm, 1);
	return ret ? ret : add_to(vm, from, to);
}

static int op_add_last(struct pickle_vm *vm)
{
	uint32_t nr = vm->arg == CK_P_DICT ? 2 : 1;
	int ret = need(vm, nr + 1);

	if (!ret)
		ret = add_to(vm, vm->sp - nr, vm->sp);
	if (!ret)
		vm->sp -= nr;
	return ret;
}

static int op_global(struct pickle_vm *vm)
{
	ck_pv v = 0;
	int ret = ck_pickle_global(vm, vm->s, vm->len, vm->s2, vm->len2, &v);

	return push_made(vm, ret, &v);
}

static int op_stack_global(struct pickle_vm *vm)
{
	const char *module, *name;
	size_t module_len, name_len;
	ck_pv v;
	int ret = need(vm, 2);

	if (ret)
		return ret;
	if (pv_kind(top(vm)[-1]) != CK_P_STR || pv_kind(*top(vm)) != CK_P_STR)
		return vm_fail(vm, "a global whose names are not strings");
	ck_pv_str(vm->p, top(vm)[-1], &module, &module_len);
	ck_pv_str(vm->p, *top(vm), &name, &name_len);
	ret = ck_pickle_global(vm, module, module_len, name, name_len, &v);
	if (ret)
		return ret;
	vm->sp -= 2;
	return push(vm, v);
}

/* REDUCE, and NEWOBJ (vm->arg): callable, arguments -> a call. */
static int op_call(struct pickle_vm *vm)
{
	int ret = need(vm, 2);

	if (!ret)
		ret = ck_pickle_call(vm, top(vm)[-1], *top(vm), top(vm) - 1);
	if (ret)
		return ret;
	vm->sp--;
	if (vm->arg)
		ck_pickle_fold_begin(vm, *top(vm));
	return 0;
}

static int op_newobj_ex(struct pickle_vm *vm)
{
	uint64_t at;
	ck_pv call;
	int ret = need(vm, 3);

	if (ret)
		return ret;
	if (pv_kind(*top(vm)) != CK_P_DICT)
		return vm_fail(vm, "keyword arguments that are no dict");
	ret = ck_pickle_call(vm, top(vm)[-2], top(vm)[-1], &call);
	if (!ret)
		ret = ck_pickle_ext(vm, call, &at);
	if (ret)
		return ret;
	vm->p->words[at + EXT_KWARGS] = *top(vm);
	vm->sp -= 3;
	return push(vm, call);
}

/* Python 2: MARK, arguments, then INST's own name of a class. */
static int op_inst(struct pickle_vm *vm)
{
	uint32_t from, to;
	ck_pv class, args, call = 0;
	int ret = close_mark(vm, &from, &to);

	if (!ret)
		ret = ck_pickle_global(vm, vm->s, vm->len, vm->s2, vm->len2,
				       &class);
	if (!ret)
		ret = ck_pickle_tuple(vm, vm->stack + from, to - from, &args);
	if (!ret)
		ret = ck_pickle_call(vm, class, args, &call);
	return push_made(vm, ret, &call);
}

/* Python 2: MARK, class, arguments, OBJ. */
static int op_obj(struct pickle_vm *vm)
{
	uint32_t from, to;
	ck_pv args, call = 0;
	int ret = need(vm, 1);

	if (!ret)
		ret = close_mark(vm, &from, &to);
	if (!ret)
		ret = ck_pickle_tuple(vm, vm->stack + from + 1, to - from - 1,
				      &args);
	if (!ret)
		ret = ck_pickle_call(vm, vm->stack[from], args, &call);
	return push_made(vm, ret, &call);
}

static int op_build(struct pickle_vm *vm)
{
	uint64_t *more;
	ck_pv call;
	int ret = need(vm, 2);

	if (ret)
		return ret;
	call = top(vm)[-1];
	if (pv_kind(call) != CK_P_CALL)
		return vm_fail(vm,
			       "gives a state to something that is no object");
	more = &vm->p->words[pv_at(call) + CALL_MORE];
	if (pv_kind(*more) == K_EXT)
		more = &vm->p->words[pv_at(*more) + EXT_STATE];
	*more = *top(vm);
	vm->sp--;
	pv_changes(vm, call);
	ck_pickle_fold_end(vm);
	return 0;
}

static int push_persid(struct pickle_vm *vm, ck_pv names)
{
	uint64_t at;
	int ret = ck_pickle_alloc(vm, 1, &at);

	if (ret)
		return ret;
	vm->p->words[at] = names;
	return push(vm, pv_make(CK_P_PERSID, at));
}

static int op_persid(struct pickle_vm *vm)
{
	int ret = need(vm, 1);

	return ret ? ret : push_persid(vm, vm->stack[--vm->sp]);
}

static int op_persid_text(struct pickle_vm *vm)
{
	ck_pv v = 0;
	int ret = ck_pickle_text_plain(vm, &v);

	return ret ? ret : push_persid(vm, v);
}

static int op_get(struct pickle_vm *vm)
{
	ck_pv v = 0;

	return push_made(vm, ck_pickle_memo_get(vm, vm->n, &v), &v);
}

static int op_put(struct pickle_vm *vm)
{
	int ret = need(vm, 1);

	return ret ? ret : ck_pickle_memo_put(vm, vm->n, *top(vm));
}

static int op_memoize(struct pickle_vm *vm)
{
	vm->n = vm->nr_memo;
	return op_put(vm);
}

static int op_get_text(struct pickle_vm *vm)
{
	int ret = ck_pickle_text_index(vm, &vm->n);

	return ret ? ret : op_get(vm);
}

static int op_put_text(struct pickle_vm *vm)
{
	int ret = ck_pickle_text_index(vm, &vm->n);

	return ret ? ret : op_put(vm);
}

static int op_ext(struct pickle_vm *vm)
{
	return vm_fail(
		vm, "an extension code, which only its writer's process knows");
}

static int op_buffer(struct pickle_vm *vm)
{
	return vm_fail(vm, "a buffer that is not in the pickle");
}

#define CONST(kind, payload) .arg = (payload) << 5 | (kind)

const struct pickle_op ck_pickle_ops_table[256] = {
	['('] = { .run = op_mark },
	['.'] = { .run = op_stop },
	['0'] = { .run = op_pop },
	['1'] = { .run = op_pop_mark },
	['2'] = { .run = op_dup },
	['F'] = { .run = op_float_text, 0, LINE },
	['I'] = { .run = op_int_text, 0, LINE },
	['J'] = { .run = op_int32, 4 },
	['K'] = { .run = op_uint, 1 },
	['L'] = { .run = op_int_text, 0, LINE },
	['M'] = { .run = op_uint, 2 },
	['N'] = { .run = op_const, CONST(CK_P_NONE, 1) },
	['P'] = { .run = op_persid_text, 0, LINE },
	['Q'] = { .run = op_persid },
	['R'] = { .run = op_call },
	['S'] = { .run = op_str_text, 0, LINE },
	['T'] = { .run = op_here, 4, COUNTED, .arg = CK_P_STR },
	['U'] = { .run = op_here, 1, COUNTED, .arg = CK_P_STR },
	['V'] = { .run = op_unicode_text, 0, LINE },
	['X'] = { .run = op_here, 4, COUNTED, .arg = CK_P_STR },
	['a'] = { .run = op_add_last, .arg = CK_P_LIST },
	['b'] = { .run = op_build },
	['c'] = { .run = op_global, 0, LINES2 },
	['d'] = { .run = op_marked, .arg = CK_P_DICT },
	['}'] = { .run = op_empty, .arg = CK_P_DICT },
	['e'] = { .run = op_add_marked, .arg = CK_P_LIST },
	['g'] = { .run = op_get_text, 0, LINE },
	['h'] = { .run = op_get, 1 },
	['i'] = { .run = op_inst, 0, LINES2 },
	['j'] = { .run = op_get, 4 },
	['l'] = { .run = op_marked, .arg = CK_P_LIST },
	[']'] = { .run = op_empty, .arg = CK_P_LIST },
	['o'] = { .run = op_obj },
	['p'] = { .run = op_put_text, 0, LINE },
	['q'] = { .run = op_put, 1 },
	['r'] = { .run = op_put, 4 },
	['s'] = { .run = op_add_last, .arg = CK_P_DICT },
	['t'] = { .run = op_tuple },
	[')'] = { .run = op_const, CONST(CK_P_TUPLE, EMPTY_TUPLE_AT) },
	['u'] = { .run = op_add_marked, .arg = CK_P_DICT },
	['B'] = { .run = op_here, 4, COUNTED, .arg = CK_P_BYTES },
	['C'] = { .run = op_here, 1, COUNTED, .arg = CK_P_BYTES },
	['G'] = { .run = op_here, 8, .arg = CK_P_FLOAT },
	[0x80] = { .run = op_proto, 1 },
	[0x81] = { .run = op_call, .arg = true },
	[0x82] = { .run = op_ext, 1 },
	[0x83] = { .run = op_ext, 2 },
	[0x84] = { .run = op_ext, 4 },
	[0x85] = { .run = op_short_tuple, .arg = 1 },
	[0x86] = { .run = op_short_tuple, .arg = 2 },
	[0x87] = { .run = op_short_tuple, .arg = 3 },
	[0x88] = { .run = op_const, CONST(CK_P_BOOL, 1) },
	[0x89] = { .run = op_const, CONST(CK_P_BOOL, 0) },
	[0x8a] = { .run = op_long, 1, COUNTED },
	[0x8b] = { .run = op_long, 4, COUNTED },
	[0x8c] = { .run = op_here, 1, COUNTED, .arg = CK_P_STR },
	[0x8d] = { .run = op_here, 8, COUNTED, .arg = CK_P_STR },
	[0x8e] = { .run = op_here, 8, COUNTED, .arg = CK_P_BYTES },
	[0x8f] = { .run = op_empty, .arg = CK_P_SET },
	[0x90] = { .run = op_add_marked, .arg = CK_P_SET },
	[0x91] = { .run = op_marked, .arg = CK_P_SET },
	[0x92] = { .run = op_newobj_ex },
	[0x93] = { .run = op_stack_global },
	[0x94] = { .run = op_memoize },
	[0x95] = { .run = op_frame, 8 },
	[0x96] = { .run = op_here, 8, COUNTED, .arg = CK_P_BYTES },
	[0x97] = { .run = op_buffer },
	[0x98] = { .run = op_buffer },
};
