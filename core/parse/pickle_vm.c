// SPDX-License-Identifier: Apache-2.0
/*
 * pickle_vm.c - the pickle machine: reads opcodes and operands, runs to STOP
 *
 * One opcode is one byte, then an operand of the form that its table entry
 * names; every operand is known to lie inside the input before it is used.
 */
#include "core/parse/pickle_priv.h"

#include "core/base/le.h"

#include <errno.h>
#include <string.h>

static int cut_short(struct pickle_vm *vm)
{
	return vm_fail(vm, "the pickle is cut short inside opcode 0x%02x",
		       vm->p->in[vm->op_at]);
}

static int fetch_line(struct pickle_vm *vm, const char **s, size_t *len)
{
	const char *from = (const char *)vm->p->in + vm->at;
	const char *nl = memchr(from, '\n', vm->p->in_len - vm->at);

	if (!nl)
		return cut_short(vm);
	*s = from;
	*len = (size_t)(nl - from);
	vm->at += *len + 1;
	return 0;
}

static int fetch_bytes(struct pickle_vm *vm, uint64_t len)
{
	if (len > vm->p->in_len - vm->at)
		return cut_short(vm);
	vm->s = (const char *)vm->p->in + vm->at;
	vm->len = len;
	vm->at += len;
	return 0;
}

/* Little endian, 0 to 8 bytes; the usual case without a branch on @width. */
static int fetch_uint(struct pickle_vm *vm, unsigned width)
{
	static const uint64_t mask[] = { 0, 0xff, 0xffff, 0,	     UINT32_MAX,
					 0, 0,	  0,	  UINT64_MAX };
	size_t left = vm->p->in_len - vm->at;
	uint8_t last[8] = { 0 };
	const uint8_t *from = vm->p->in + vm->at;

	if (left < sizeof(last)) {
		if (left < width)
			return cut_short(vm);
		memcpy(last, from, left);
		from = last;
	}
	vm->n = ck_le64(from) & mask[width];
	vm->at += width;
	return 0;
}

static int fetch(struct pickle_vm *vm, const struct pickle_op *op)
{
	int ret = fetch_uint(vm, op->width);

	if (ret || op->follow == NOTHING)
		return ret;
	if (op->follow == COUNTED)
		return fetch_bytes(vm, vm->n);
	ret = fetch_line(vm, &vm->s, &vm->len);
	if (ret || op->follow == LINE)
		return ret;
	return fetch_line(vm, &vm->s2, &vm->len2);
}

int ck_pickle_run(struct pickle_vm *vm)
{
	const struct pickle_op *op;
	int ret = 0;

	while (!ret) {
		vm->op_at = vm->at;
		if (vm->at == vm->p->in_len)
			return vm_fail(vm, "the pickle ends without STOP");
		op = &ck_pickle_ops_table[vm->p->in[vm->at++]];
		if (!op->run)
			return vm_fail(vm, "0x%02x is no pickle opcode",
				       vm->p->in[vm->op_at]);
		vm->arg = op->arg;
		ret = fetch(vm, op);
		if (!ret)
			ret = op->run(vm);
		vm->p->nr_ops++;
	}
	return ret == PICKLE_STOPPED ? 0 : ret;
}
