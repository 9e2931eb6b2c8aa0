/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rename.h - rules of a views document that give tensors other names
 *
 *	"rename": [{"from": "^model\\.(.*)", "to": "\\1"}, ...]
 *
 * Made once; applying does not change it, so that any thread may.
 */
#ifndef CK_RENAME_H
#define CK_RENAME_H

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/parse/json.h"

#include <stdbool.h>

struct ck_rename;

/*
 * The rules of @rules, which lasts; NULL: none.  -EINVAL with a line that names
 * the rule that is not as it should be.
 */
int ck_rename_new(struct ck_rename **out, const json_t *rules,
		  struct ck_err *err);
void ck_rename_free(struct ck_rename *r);
/*
 * Puts in place of *name, from malloc(), what the rules make of it.  *changed:
 * whether a rule fitted.  -EINVAL where that is no name for a tensor.
 */
int ck_rename_apply(struct ck_rename *r, char **name, bool *changed,
		    struct ck_err *err);
/* Appends the rules that have fitted no name: "rename[2], ". */
void ck_rename_unused(const struct ck_rename *r, struct ck_str *out);

#endif
