/* SPDX-License-Identifier: Apache-2.0 */
/* strategy_priv.h - between the files that read strategies */
#ifndef CK_STRATEGY_PRIV_H
#define CK_STRATEGY_PRIV_H

#include "core/mesh/strategy.h"

/* One parsed file, before its names are looked at. */
struct ck_strategy_said {
	struct ck_strategy_layout l;
	const char *why;
	char *name; /* with the stage, if it has one; kept by the strategy */
	size_t len;
};

struct ck_strategy_file {
	struct ck_strategy *s;
	const char *name;
	CK_VEC(struct ck_strategy_said) said;
	bool has_stage; /* of the operators */
	uint64_t stage;
};

#define CK_STRATEGY_ROWS 65536 /* numbers of param_split_shape, at most */

int ck_strategy_proto(struct ck_strategy_file *f, const void *bytes, size_t len,
		      struct ck_err *err);
int ck_strategy_json(struct ck_strategy_file *f, const void *bytes, size_t len,
		     struct ck_err *err);

#endif
