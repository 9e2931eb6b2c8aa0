/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h - files that say what a model's tensors are called, and by whom
 *
 * Lines of words; "#" begins a comment.  Those about one kind of model:
 *
 *	model ARCHITECTURE ...       up to the next model or source: of these, as
 *	                             config.json calls them; all that fit count
 *	number NAME EXPR[|EXPR ...]  the first whose members config.json has
 *	has NAME SHAPE [if NUMBER]   it has a tensor called so, EXPR,EXPR in shape
 *	may NAME SHAPE [if NUMBER]   it may have it
 *	unproven [SOURCE ...]        nobody has compared what such a model answers,
 *	                             under names whose source line begins so
 *
 * and those about one framework that trains them:
 *
 *	source WORDS                 whose names: "Megatron's"
 *	names PATTERN ...            a tensor called so is of theirs; * is any text
 *	off TEXT ...                 taken off the front of names, in any order
 *	skip PATTERN ...             no weight, and left out
 *	take NAME HF[|HF ...] [rows EXPR,EXPR ...] [at AXIS:FROM:LENGTH ...]
 *	     [order AXIS,AXIS ...] [cut EXPR] [turned] [part K:OF] [stack]
 *	     [if NUMBER | unless NUMBER]
 *
 * In names {l} is a number, of the layer, and {e} that of the expert.  Where a
 * number that HF has is not in NAME ("{l}." may be left out), it counts along
 * the tensor's first dimension.  HF is the first that the model has.  All lines
 * of the first file in which one fits a tensor are followed, each for a tensor:
 *
 *	cut      the first rows alone: the others pad
 *	rows     its rows are a box of these sizes,
 *	at       of which those are taken along an axis, one after the other,
 *	order    and which axis of it comes first
 *	turned   rows and columns exchanged
 *	part     of OF tensors this is number K, from 0, along the dimension that
 *	         its rows are in HF
 *	stack    of one expert, and HF has them all, along its first dimension
 *
 * EXPR is numbers, members of config.json and what "number" lines have named,
 * joined by * and /, and these by + and -; true is 1.  A line with a number that
 * nothing says is none.  One thread.
 */
#ifndef CK_TRANSLATE_RULES_H
#define CK_TRANSLATE_RULES_H

#include "core/base/limits.h"
#include "core/base/opts.h"
#include "core/base/vec.h"
#include "core/mesh/rules_line.h"
#include "core/parse/json.h"

#define CK_RULE_AXES 4
#define CK_RULE_VARS 2

struct ck_name_has {
	struct ck_tp_word name;
	unsigned rank;
	uint64_t shape[CK_MAX_RANK];
	uint64_t nr, want; /* begun; to be found, if it has to be there */
};

struct ck_name_take {
	struct ck_tp_word source;
	unsigned file; /* in which it stands */
	unsigned has; /* index of what it becomes */
	unsigned nr_rows, nr_at;
	uint64_t rows[CK_RULE_AXES];
	struct ck_name_at {
		unsigned axis;
		uint64_t from, len;
	} at[CK_RULE_AXES];
	unsigned order[CK_RULE_AXES];
	bool turned, cut, stack;
	uint64_t cut_to;
	uint64_t part, parts; /* parts: at least 1 */
};

struct ck_name_rules {
	CK_VEC(struct ck_name_number {
		struct ck_tp_word name;
		uint64_t value;
	})
	number;
	CK_VEC(struct ck_name_has) has;
	CK_VEC(struct ck_name_take) take;
	CK_VEC(struct ck_name_words {
		unsigned file;
		struct ck_tp_word text;
	})
	names, off, skip, own, /* own: that "has" and "may" lines name */
		unproven; /* words of sources; an empty one is any */
	struct ck_tp_word
		source[8]; /* words of the last source line, by file */
	struct ck_tp_word model; /* the architecture; none is known: len 0 */
};

/*
 * Reads -o names=FILE, if it is given, and what is built in, for the model that
 * @config, which may be NULL, describes; it borrows them.  -EINVAL with a line.
 */
int ck_name_rules_read(struct ck_name_rules *r, const json_t *config,
		       const struct ck_opts *opts, struct ck_err *err);
void ck_name_rules_free(struct ck_name_rules *r);

/* What stood for {l} and {e} in a name; CK_SIZE_MAX: nothing did. */
struct ck_name_vars {
	uint64_t v[CK_RULE_VARS];
};
/* Whether @pattern fits; "{l}." may be missing if @loose. */
bool ck_name_fits(struct ck_tp_word pattern, const char *name, size_t len,
		  bool loose, struct ck_name_vars *vars);
/* Which of the numbers, as bits, @pattern has. */
unsigned ck_name_bits(struct ck_tp_word pattern);

#endif
