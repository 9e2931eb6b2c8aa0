/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec.h - a mesh that words or a file say, parsed
 *
 * It knows nothing of a checkpoint until begin(), and then says for each
 * tensor how it is cut.  One thread; all of it ends with the ck_reshard, for
 * cuts may point into it.
 */
#ifndef CK_RESHARD_SPEC_H
#define CK_RESHARD_SPEC_H

#include "core/base/str.h"
#include "core/base/strmap.h"
#include "core/geom/catalog.h"
#include "core/mesh/mesh.h"
#include "core/mesh/tp_rules.h"
#include "core/reshard/reshard.h"

struct ck_reshard_spec;

struct ck_reshard_spec_ops {
	/* Looks at all tensors of @in; may be NULL. */
	int (*begin)(struct ck_reshard_spec *s, const struct ck_reshard_in *in,
		     struct ck_err *err);
	/* @out is zeroed; -EINVAL with the reason, without the name. */
	int (*cut)(const struct ck_reshard_spec *s,
		   const struct ck_catalog *img, uint32_t tensor,
		   struct ck_placement *out, struct ck_err *err);
	/*
	 * Other ranks may hold it otherwise cut: for @i from 1 on the cut for
	 * more of them; -ENOENT without a line: that was all.  May be NULL.
	 */
	int (*further)(const struct ck_reshard_spec *s,
		       const struct ck_catalog *img, uint32_t tensor,
		       uint32_t i, struct ck_placement *out,
		       struct ck_err *err);
	/*
	 * After the cuts: appends what one may want to know, such as what of it
	 * fits no tensor; may be NULL.
	 */
	void (*note)(const struct ck_reshard_spec *s, struct ck_str *out);
	/* After the cuts: it has entries, and none fits a tensor; may be NULL. */
	bool (*unused_options)(const struct ck_reshard_spec *s);
	void (*free)(struct ck_reshard_spec *s);
};

struct ck_reshard_spec {
	const struct ck_reshard_spec_ops *ops;
	uint32_t ranks;
};

/* "dim0=8", "pp=2,tp=4,rules=llama"; @opts may be NULL. */
int ck_reshard_words(struct ck_reshard_spec **out, const char *text,
		     const struct ck_opts *opts, struct ck_err *err);
/* {"mesh": ..., "partition_spec": ...}; @bytes is what @j was parsed from. */
int ck_reshard_placement(struct ck_reshard_spec **out, json_t *j,
			 const char *bytes, size_t len, struct ck_err *err);
/* {"rules": [{"key": ..., "placement": ..., "sbp": ...}]} */
int ck_reshard_sbp(struct ck_reshard_spec **out, json_t *j, struct ck_err *err);
/* MindSpore's strategy file. */
int ck_reshard_strategy(struct ck_reshard_spec **out, const char *name,
			const char *bytes, size_t len, struct ck_err *err);

/*
 * For notes: one more entry of a file, after @nr others, that fits no tensor;
 * and the end of that, of @nr.
 */
void ck_reshard_note_unused(struct ck_str *out, size_t nr, const char *which,
			    const char *name, size_t len);
void ck_reshard_note_end(struct ck_str *out, size_t nr);

/* A grid of one axis that is all @nr ranks, and no cuts. */
void ck_reshard_cut_none(struct ck_placement *out, uint32_t nr);

/* The name of tensor @i of @in. */
static inline const char *ck_reshard_name(const struct ck_reshard_in *in,
					  uint32_t i, size_t *len)
{
	return ck_catalog_str(in->img, in->img->tensors[in->first + i].name,
			      len);
}

/* ---- source.c: how the source itself was split ---- */

enum ck_reshard_how {
	CK_RESHARD_WHOLE, /* nothing splits it */
	CK_RESHARD_SPLIT,
	CK_RESHARD_UNKNOWN, /* it is, but along no one dimension */
};

struct ck_reshard_split {
	enum ck_reshard_how how;
	unsigned dim;
	/* it is blocks, each split by itself; rows of each */
	unsigned nr_blocks;
	uint64_t block[CK_MESH_BLOCKS];
};
/* Not along the first @skip dimensions, which are no business of a tensor's. */
void ck_reshard_split_of(const struct ck_catalog *img, uint32_t tensor,
			 unsigned skip, struct ck_reshard_split *out);

/* ---- layers.c: which pipeline stage a tensor belongs to ---- */

#define CK_RESHARD_STACKS 4

enum {
	CK_RESHARD_PP_STAGE_FIRST = -1,
	CK_RESHARD_PP_STAGE_LAST = -2,
	CK_RESHARD_PP_STAGE_ALL = -3
};

struct ck_reshard_layers {
	uint32_t pp; /* stages; 0: not said */
	/* private */
	uint64_t *begin; /* first layer of each stage, and the end */
	uint64_t lowest; /* 1: names count layers from 1 on, else 0 */
	uint64_t *each; /* of stacked layers: how many each stage has */
	bool tied; /* the last stage has the table of words, too */
	struct ck_reshard_sequence {
		bool found;
		const char *prefix; /* before the numbers; of the catalog */
		size_t len;
		int64_t lowest, last;
		struct ck_strmap tails; /* names without it */
	} seq;
	struct ck_reshard_stack {
		unsigned nr; /* 0: nothing is stacked */
		struct ck_reshard_stack_of {
			const char *owner; /* "decoder"; of the catalog */
			size_t owner_len;
			uint64_t layers;
		} of[CK_RESHARD_STACKS];
	} stack;
};
/*
 * Where there are stages: which layers each has, of @given ones or equal.
 * -EINVAL with a line for people where nothing says a layer.
 */
int ck_reshard_layers_find(struct ck_reshard_layers *l,
			   const struct ck_reshard_in *in,
			   const uint64_t *given, struct ck_err *err);
void ck_reshard_layers_free(struct ck_reshard_layers *l);
/* Dimension 0 of a tensor so called is layers. */
bool ck_reshard_is_stacked(const struct ck_reshard_layers *l, const char *name,
			   size_t len);
/* It is a table of words that the last stage has, too. */
bool ck_reshard_is_tied(const struct ck_reshard_layers *l, const char *name,
			size_t len);
/* The stage, or CK_RESHARD_PP_STAGE_ALL. */
int64_t ck_reshard_stage_of(const struct ck_reshard_layers *l, const char *name,
			    size_t len);

/* ---- owners.c: optimizers' tensors, and the parameters that they are of ---- */

struct ck_reshard_owners {
	uint32_t first;
	uint32_t *of; /* of each tensor: a parameter, or the tensor itself */
};
int ck_reshard_owners_find(struct ck_reshard_owners *out,
			   const struct ck_reshard_in *in, struct ck_err *err);
void ck_reshard_owners_free(struct ck_reshard_owners *o);
/* Names that an optimizer gives to what it keeps. */
bool ck_reshard_is_state(const char *name, size_t len);

/* ---- rules.c: tensor parallelism by rules, applied to whole tensors ---- */

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

void ck_reshard_heads_report(const struct ck_reshard_heads *h,
			     struct ck_str *out);

#endif
