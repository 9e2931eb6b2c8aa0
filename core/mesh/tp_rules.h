/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tp_rules.h - how tensor-parallel ranks share a tensor, by its name
 *
 * docs/formats/megatron.md says what a file of rules looks like.  One thread.
 */
#ifndef CK_TP_RULES_H
#define CK_TP_RULES_H

#include "core/base/err.h"
#include "core/base/vec.h"
#include "core/mesh/mesh.h"
#include "core/mesh/rules_line.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_TP_MAX_PARTS 16

enum ck_tp_how { CK_TP_SAME, CK_TP_SPLIT, CK_TP_GATED, CK_TP_PARTS, CK_TP_QKV };

struct ck_tp_rule {
	struct ck_tp_word pattern;
	enum ck_tp_how how;
	unsigned axis, nr_parts, nr_of, nr_conds, nr_heads;
	uint64_t parts[CK_TP_MAX_PARTS]; /* rows in the whole */
	struct ck_tp_word of[CK_TP_MAX_PARTS]; /* arguments, to be summed */
	struct ck_tp_word conds[CK_TP_MAX_PARTS]; /* one of them is true */
	/* of config.json: the first that is there says how many heads it has */
	struct ck_tp_word heads[CK_TP_MAX_PARTS];
	bool copied; /* more ranks than heads share each */
};

struct ck_tp_rules {
	CK_VEC(struct ck_tp_rule) v;
	CK_VEC(struct ck_tp_word)
	names; /* patterns of whose models these are */
	bool has_default;
};

/* The files core/.../NAME.rules, by name, up to a NULL name. */
extern const struct ck_rules_builtin ck_tp_builtins[];
/* The text of that name; NULL: there is none. */
const char *ck_tp_builtin(const char *name);

/*
 * Adds the rules in @bytes, which it borrows; @name is the file's, for
 * messages.  -EINVAL with "NAME: line N: ...".
 */
int ck_tp_rules_parse(struct ck_tp_rules *r, const char *name,
		      const char *bytes, size_t len, struct ck_err *err);
/*
 * What @rule, unless it is SAME, does along an axis of the mesh; its arguments
 * and heads are not looked at.  NULL: there are too many steps.
 */
struct ck_mesh_step *ck_tp_step(const struct ck_tp_rule *rule,
				struct ck_placement *p, unsigned axis);
void ck_tp_rules_free(struct ck_tp_rules *r);
/* Whether a tensor so called is of a model that these rules are for. */
bool ck_tp_rules_name(const struct ck_tp_rules *r, const char *name,
		      size_t len);

#endif
