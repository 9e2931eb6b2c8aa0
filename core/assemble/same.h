/* SPDX-License-Identifier: Apache-2.0 */
/* same.h - whether two catalogs describe the same tensors */
#ifndef CK_SAME_H
#define CK_SAME_H

#include "core/base/err.h"

#include <stdbool.h>

/* Names, shapes and dtypes; where the bytes are does not count. */
int ck_same_tensors(int a_fd, int b_fd, bool *same, struct ck_err *err);

#endif
