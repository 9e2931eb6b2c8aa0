/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h - tensor parallelism by rules: those of Megatron's reader, applied
 * to whole tensors
 */
#ifndef CK_RS_RULES_H
#define CK_RS_RULES_H

#include "core/base/opts.h"
#include "core/format/mg_rules.h"
#include "core/reshard/cut.h"

#define CK_RS_RULES_OPTION "rules"

/* Built-in rules for models with Hugging Face's names; NUL-terminated. */
extern const char ck_rs_hf_rules[];

struct ck_rs_rules {
	struct ck_mg_rules mg;
	bool asked; /* what is true was said, if only that nothing is */
	char *truths; /* "A+B", arguments that rules may ask for; or NULL */
	uint32_t groups; /* of queries; 0: not said */
};

/*
 * The rules called @name: "hf", "megatron", or a file of -o rules= by its name
 * without folder and suffix; @name NULL: the first such file, and *given is
 * false where there is none.  The bytes are borrowed from @opts.
 */
int ck_rs_rules_get(struct ck_rs_rules *r, const char *name,
		    const struct ck_opts *opts, bool *given,
		    struct ck_err *err);
void ck_rs_rules_free(struct ck_rs_rules *r);
/* Adds the step that cuts @tensor_name along grid axis @axis; -EINVAL. */
int ck_rs_rules_cut(const struct ck_rs_rules *r, const char *tensor_name,
		    size_t len, const uint64_t *shape, unsigned rank,
		    unsigned axis, struct ck_rs_cut *out, struct ck_err *err);

#endif
