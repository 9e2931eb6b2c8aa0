/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_value.h - what an object is that stands among others in one pickle
 *
 * A torch.save file keeps all its objects in one pickle, together with the
 * places of its tensors.  Here one of them is found by its path and written
 * as a pickle of its own: numbers, strings, containers of them, OrderedDict,
 * torch.Size and dtypes.  Nothing is run; instances of other classes, and
 * whatever is too large to be such an object, are refused.
 *
 * One thread.
 */
#ifndef CK_OBJECT_VALUE_H
#define CK_OBJECT_VALUE_H

#include "core/base/str.h"
#include "core/view/view.h"

struct ck_pickle;

struct ck_object_values {
	struct ck_ckpt *ck;
	/* the pickle that the last object was in: */
	char *bytes;
	uint64_t off, len;
	uint32_t src; /* CK_NONE: none yet */
	struct ck_pickle *p; /* NULL: it is none */
	uint64_t steps; /* taken, over all objects */
};

#define CK_OBJECT_VALUE_MAX ((size_t)1 << 20) /* bytes of one */

void ck_object_values_init(struct ck_object_values *v, struct ck_ckpt *ck);
void ck_object_values_free(struct ck_object_values *v);
/*
 * Appends a pickle of object @i.  1; 0 where it has none that can be shown,
 * with the reason in *why; -errno where it cannot be read.
 */
int ck_object_value(struct ck_object_values *v, uint32_t i, struct ck_str *out,
		    const char **why, struct ck_err *err);

#endif
