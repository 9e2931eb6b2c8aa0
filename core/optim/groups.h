/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.h - the param_groups of an optimizer, value by value
 *
 *	[{"lr": 0.1, "params": [0, 1]}]   param_groups.0.lr, param_groups.0.params
 *
 * Each value becomes an object whose path ends in param_groups/NUMBER/KEY, so
 * that views have them in the form of torch.optim.  One thread.
 */
#ifndef CK_OPTIM_GROUPS_H
#define CK_OPTIM_GROUPS_H

#include "core/base/err.h"
#include "core/catalog/builder.h"
#include "core/parse/pickle_query.h"

#include <stdbool.h>

#define CK_OPTIM_GROUPS "param_groups"
#define CK_OPTIM_PARAMS "params"
#define CK_OPTIM_STATE "state"

/*
 * Whether @groups is a list of dicts that list their parameters, by keys that
 * can be parts of names, and with values that are no tensors.
 */
bool ck_optim_groups_ok(const struct ck_pickle *p, ck_pv groups);

/* Whether a key of a group is that of its list of parameters. */
bool ck_optim_is_params(const char *key, size_t len);

/* Where values are said: below the key @dict of the checkpoint, or NULL. */
struct ck_optim_groups {
	struct ck_builder *b;
	const char *dict;
	const char *prefix; /* of names; NULL: @dict and a dot */
};

/* Value @key of group @nr, which is found in @in by its name or its path. */
int ck_optim_groups_add(const struct ck_optim_groups *g, int64_t nr,
			const char *key, size_t len,
			const struct ck_object_in *in, struct ck_err *err);
/* The parameters of group @nr: numbers [first, first + count). */
int ck_optim_groups_params(const struct ck_optim_groups *g, int64_t nr,
			   uint64_t first, uint64_t count, struct ck_err *err);
/*
 * All values of @groups, as they are in @in, a pickle of that list; with @count
 * the parameters of each are numbers [0, *count) instead.
 */
int ck_optim_groups_report(const struct ck_optim_groups *g,
			   const struct ck_pickle *p, ck_pv groups,
			   const struct ck_object_in *in, const uint64_t *count,
			   struct ck_err *err);
/* The path of @name, a state of parameter number @id. */
int ck_optim_state_path(const struct ck_optim_groups *g, const char *name,
			size_t len, uint64_t id, const char *state,
			size_t state_len, struct ck_err *err);

/* A state of parameter number @id that is an object, found in @in by its name. */
int ck_optim_state_add(const struct ck_optim_groups *g, uint64_t id,
		       const char *state, size_t len,
		       const struct ck_object_in *in, struct ck_err *err);

#endif
