/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h - which tensors an optimizer's numbered entries belong to
 *
 *	tensors   conv.weight  conv.bias  bn.weight  bn.running_mean  bn.bias
 *	entries   0            1          2                           3
 *
 * Tensors are in the order of a state dict, of which the parameters, and they
 * only, are numbered in order.  Pure but for its memory; any thread.
 */
#ifndef CK_OPTIM_ORDER_H
#define CK_OPTIM_ORDER_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_OPTIM_NONE UINT32_MAX

struct ck_optim_tensor {
	const char *name;
	size_t name_len;
	const uint64_t *shape;
	uint8_t rank;
	bool tied; /* another name of a tensor before it */
	bool buffer; /* no parameter, for sure */
};

struct ck_optim_id {
	int64_t number; /* the optimizer's; for who asks */
	const uint64_t *shape; /* of its states; NULL: it has none */
	uint8_t rank;
	/* out */
	uint32_t tensor; /* CK_OPTIM_NONE: several, or none */
	bool convention; /* only as modules are usually written */
};

/* @gaps: parameters may be missing among the tensors. */
int ck_optim_order(const struct ck_optim_tensor *t, size_t nr,
		   struct ck_optim_id *id, size_t nr_ids, bool gaps,
		   struct ck_err *err);
/* The same from the user's list (-o params=): a name a line. */
int ck_optim_order_given(const struct ck_optim_tensor *t, size_t nr,
			 struct ck_optim_id *id, size_t nr_ids,
			 const char *text, size_t len, struct ck_err *err);

#endif
