/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_value.h - what was saved beside tensors, for model.pt
 *
 * Numbers, texts, None, and tuples, lists and dicts of them: what
 * torch.load(weights_only=True) takes, in every version.  They are read as
 * data and written anew, so that nothing else of a pickle gets into ours.
 */
#ifndef CK_TORCH_VALUE_H
#define CK_TORCH_VALUE_H

#include "core/base/str.h"

#define CK_TORCH_VALUE_MAX ((size_t)1 << 20) /* bytes of one object */

/*
 * Appends the value of the pickle @bytes, as a pickle of its own: 80 02 ... '.'.
 * False, with why in *why and nothing appended: it is not so plain.
 */
bool ck_torch_value(struct ck_str *out, const void *bytes, size_t len,
		    const char **why);
/* The same of @bytes, which are an archive by torch.save. */
bool ck_torch_value_zip(struct ck_str *out, const char *bytes, size_t len,
			const char **why);

#endif
