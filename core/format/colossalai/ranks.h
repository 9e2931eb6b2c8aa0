/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h - which ranks of ColossalAI's distributed saves are not there */
#ifndef CK_COLOSSALAI_RANKS_H
#define CK_COLOSSALAI_RANKS_H

#include "core/base/err.h"
#include "core/format/colossalai/set.h"

/*
 * After records and files were read.  Errors name the numbers that are missing
 * between others, and in the last stage; a warning says where the last stage
 * may be missing as a whole.  0 or -ENOMEM.
 */
int ck_ca_check_ranks(struct ck_ca_set *s, struct ck_err *err);

#endif
