/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tp_rules.h - how tensor-parallel ranks share a tensor, by its name
 *
 * core/mesh/megatron.rules says what a file of rules looks like, and is the
 * one that is built in.  One thread.
 */
#ifndef CK_TP_RULES_H
#define CK_TP_RULES_H

#include "core/base/err.h"
#include "core/base/vec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_TP_MAX_PARTS 16

enum ck_tp_how { CK_TP_SAME, CK_TP_SPLIT, CK_TP_GATED, CK_TP_PARTS, CK_TP_QKV };

/* Bytes of the file of rules; not NUL-terminated. */
struct ck_tp_word {
	const char *s;
	size_t len;
};

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
	bool has_default;
};

/* The built-in files; NUL-terminated. */
extern const char ck_tp_megatron_rules[]; /* what "default" in a file is */
extern const char ck_tp_hf_rules[]; /* for models with Hugging Face's names */

/*
 * Adds the rules in @bytes, which it borrows; @name is the file's, for
 * messages.  -EINVAL with "NAME: line N: ...".
 */
int ck_tp_rules_parse(struct ck_tp_rules *r, const char *name,
		      const char *bytes, size_t len, struct ck_err *err);
void ck_tp_rules_free(struct ck_tp_rules *r);

#endif
