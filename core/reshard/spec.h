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
#include "core/geom/catalog.h"
#include "core/parse/json.h"
#include "core/mesh/mesh.h"
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

#endif
