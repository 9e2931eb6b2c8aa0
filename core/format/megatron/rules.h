/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h - how tensor-parallel ranks share a tensor, by its name
 *
 * core/format/megatron/megatron.rules says what a file of rules looks like, and is the
 * one that is built in.  One thread.
 */
#ifndef CK_MEGATRON_RULES_H
#define CK_MEGATRON_RULES_H

#include "core/base/err.h"
#include "core/base/vec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_MG_MAX_PARTS 16

enum ck_mg_how { CK_MG_SAME, CK_MG_SPLIT, CK_MG_GATED, CK_MG_PARTS, CK_MG_QKV };

/* Bytes of the file of rules; not NUL-terminated. */
struct ck_mg_word {
	const char *s;
	size_t len;
};

struct ck_mg_rule {
	struct ck_mg_word pattern;
	enum ck_mg_how how;
	unsigned axis, nr_parts, nr_of, nr_conds, nr_heads;
	uint64_t parts[CK_MG_MAX_PARTS]; /* rows in the whole */
	struct ck_mg_word of[CK_MG_MAX_PARTS]; /* arguments, to be summed */
	struct ck_mg_word conds[CK_MG_MAX_PARTS]; /* one of them is true */
	/* of config.json: the first that is there says how many heads it has */
	struct ck_mg_word heads[CK_MG_MAX_PARTS];
	bool copied; /* more ranks than heads share each */
};

struct ck_mg_rules {
	CK_VEC(struct ck_mg_rule) v;
	bool has_default;
};

/* The built-in file; NUL-terminated. */
extern const char ck_mg_default_rules[];

/*
 * Adds the rules in @bytes, which it borrows; @name is the file's, for
 * messages.  -EINVAL with "NAME: line N: ...".
 */
int ck_mg_rules_parse(struct ck_mg_rules *r, const char *name,
		      const char *bytes, size_t len, struct ck_err *err);
void ck_mg_rules_free(struct ck_mg_rules *r);
/* Whether the rule's pattern fits @name. */
bool ck_mg_rule_fits(const struct ck_mg_rule *rule, const char *name,
		     size_t len);

#endif
