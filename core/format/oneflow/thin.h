/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thin.h - a pickle without the bytes that it holds
 *
 * OneFlow's single file is one pickle with every tensor inside.  What says
 * which tensors there are is a few KiB of it; the rest is left in the file.
 */
#ifndef CK_ONEFLOW_THIN_H
#define CK_ONEFLOW_THIN_H

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/root/source.h"
#include "core/parse/pickle.h"

#include <stdbool.h>
#include <stdint.h>

#define CK_OF_THIN_MAX (UINT64_C(256) << 20)

/*
 * Writes the pickle that begins @src to @out, without frames, and with a note
 * of where they are in place of all bytes objects; *len is how long the pickle
 * is in the file.  -EINVAL with a line where it ends early, holds no opcode of
 * a pickle, or is over CK_OF_THIN_MAX without its bytes.
 */
int ck_of_thin(struct ck_source *src, struct ck_str *out, uint64_t *len,
	       struct ck_err *err);
/* Where in the file bytes object @v is; false: it is none. */
bool ck_of_thin_bytes(const struct ck_pickle *p, ck_pv v, uint64_t *off,
		      uint64_t *len);

#endif
