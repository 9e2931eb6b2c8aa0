/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h - tensor parallelism by rules: those of Megatron's reader, applied
 * to whole tensors
 */
#ifndef CK_RESHARD_RULES_H
#define CK_RESHARD_RULES_H

#include "core/base/opts.h"
#include "core/base/str.h"
#include "core/mesh/tp_rules.h"
#include "core/parse/json.h"
#include "core/mesh/mesh.h"
#include "core/reshard/reshard.h"

#define CK_RESHARD_RULES_OPTION "rules"

/* Tensors of heads that were cut otherwise than one may expect. */
struct ck_reshard_heads {
	struct ck_reshard_heads_said {
		const char *first; /* its name, of the catalog */
		uint32_t nr;
	} unknown, copied;
	uint64_t nr, ranks; /* of the first that was copied */
};

struct ck_reshard_rules {
	struct ck_tp_rules mg;
	bool built_in;
	bool asked; /* what is true was said, if only that nothing is */
	char *truths; /* "A+B", arguments that rules may ask for; or NULL */
	uint32_t groups; /* of queries; 0: not said */
	const json_t *config; /* of the model, or NULL; borrowed */
	struct ck_reshard_heads *heads; /* filled; borrowed */
};

/*
 * The rules called @name: built-in ones, or a file of -o rules= by its name
 * without folder and suffix; @name NULL: the first such file, and *given is
 * false where there is none.  The bytes are borrowed from @opts.
 */
int ck_reshard_rules_get(struct ck_reshard_rules *r, const char *name,
			 const struct ck_opts *opts, bool *given,
			 struct ck_err *err);
/*
 * Which built-in rules are for the tensors of @in: those that name one of them,
 * else those for anybody's.
 */
int ck_reshard_rules_for(const struct ck_reshard_in *in, const char **out,
			 struct ck_err *err);
/*
 * Whether Megatron's layers are gated, which is all that the built-in rules ask:
 * the rows of all linear_fc1 tell, beside the columns of linear_fc2.
 */
int ck_reshard_rules_infer(struct ck_reshard_rules *r,
			   const struct ck_reshard_in *in, struct ck_err *err);
void ck_reshard_rules_free(struct ck_reshard_rules *r);
/* Adds the step that cuts @tensor_name along grid axis @axis; -EINVAL. */
int ck_reshard_rules_cut(const struct ck_reshard_rules *r,
			 const char *tensor_name, size_t len,
			 const uint64_t *shape, unsigned rank, unsigned axis,
			 struct ck_placement *out, struct ck_err *err);

/*
 * The same for a tensor whose step along @axis, the last one, is made: only
 * what the first rule that fits says of heads.
 */
int ck_reshard_rules_heads(const struct ck_reshard_rules *r,
			   const char *tensor_name, size_t len,
			   const uint64_t *shape, struct ck_mesh_step *s,
			   struct ck_placement *out, struct ck_err *err);

/*
 * heads.c: refines step @s along the last axis of @out, whose parts are to be
 * whole heads; -EINVAL where they cannot.
 */
int ck_reshard_heads_cut(const struct ck_reshard_rules *r,
			 const struct ck_tp_rule *rule, const char *tensor_name,
			 const uint64_t *shape, struct ck_mesh_step *s,
			 struct ck_placement *out, struct ck_err *err);
void ck_reshard_heads_report(const struct ck_reshard_heads *h,
			     struct ck_str *out);

#endif
