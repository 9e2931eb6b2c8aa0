/* SPDX-License-Identifier: Apache-2.0 */
/*
 * translate.h - from names of whoever trained a model to Hugging Face's
 *
 * A loader that finds none of its names takes random weights, and says nothing
 * that a program would see.  So hf/ is shown where the names are the loader's;
 * where they are known to be somebody else's and a config.json says which model
 * it is, translated; and else not at all.  What is called how is in files of
 * rules (rules.h): those beside this one, and -o names=FILE.
 *
 * -o names=asis shows hf/ with the names as they are.  Pure; any thread.
 */
#ifndef CK_TRANSLATE_H
#define CK_TRANSLATE_H

#include "core/base/opts.h"
#include "core/base/str.h"
#include "core/mesh/rules_line.h"
#include "core/parse/json.h"
#include "core/view/derive/derive.h"
#include "core/view/model_names.h"

/* The files of rules that are built in, by name, up to a NULL name. */
extern const struct ck_rules_builtin ck_translations[];

struct ck_translation {
	struct ck_str why; /* in one line, why hf/ is not there; empty: it is */
	struct ck_str rule; /* in one line, what was done; empty: nothing */
	struct ck_derivation d; /* then: what hf/ has */
	bool unproven; /* nobody has compared what such a model answers */
};

/*
 * What becomes of @names, tensors of @img, in hf/; @config, which may be NULL, is
 * the config.json that is shown.  -errno where -o names= is wrong, or memory is
 * short.  Free @out in any case.
 */
int ck_translate(struct ck_translation *out, const struct ck_catalog *img,
		 const struct ck_model_names *names, const json_t *config,
		 const struct ck_opts *opts, struct ck_err *err);
void ck_translation_free(struct ck_translation *t);

#endif
