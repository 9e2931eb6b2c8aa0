/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.h - a layout, read as what a new checkpoint is to be
 *
 * The member "write" says which tensors there will be; the members of
 * "tensors" that match their names say how each is cut, as for reading.
 * docs/man/unshard-layout.5.scd has the members.  Pure; one thread.
 */
#ifndef CK_LAYOUT_WRITE_H
#define CK_LAYOUT_WRITE_H

#include "core/layout/doc.h"

#define CK_LAYOUT_ALIGN 4096 /* where tensors begin in a file, in bytes */
/* Keys of what lies between tensors, so that these begin aligned. */
#define CK_LAYOUT_FILLER "__unshard_pad."

/* A tensor that will be written. */
struct ck_layout_target {
	const char *name; /* of the JSON value */
	const struct ck_layout_rule *rule;
	uint8_t dtype;
	struct ck_layout_dims shape;
	struct ck_layout_dims grid; /* that it is cut in: "view", or shape */
	uint64_t at[CK_LAYOUT_AXES]; /* the only coordinates, or .._FREE */
};

/* How new checkpoints can be written. */
struct ck_layout_form {
	const char *name; /* that "format" gives it */
	const char *path; /* of a rank's file, where nobody says it */
	const char *suffix; /* that the path must have */
	/* One more file says what is where, as torch.distributed.checkpoint's */
	bool indexed;
};

struct ck_layout_out {
	struct ck_layout_doc doc;
	CK_VEC(struct ck_layout_target) targets;
	const char *path; /* of a rank's file; with {rank} or axes */
	const struct ck_layout_form *form;
	uint64_t align; /* bytes; a power of 2, 1: packed */
	struct ck_layout_index index; /* private: by name */
};

/*
 * Whether the document has a "write" at all, and whether that is all that it
 * is for: without "files" it says nothing of a checkpoint that is there.
 * Neither where it is no JSON.
 */
bool ck_layout_out_wanted(const char *bytes, size_t len);
bool ck_layout_out_only(const char *bytes, size_t len);
/*
 * @name: for messages; borrowed.  @forms: all that there are, up to a NULL,
 * @format: where the layout says none, or NULL: the first.  -EINVAL with a
 * line.
 */
int ck_layout_out_parse(struct ck_layout_out *out, const char *name,
			const char *bytes, size_t len,
			const struct ck_layout_form *const *forms,
			const char *format, struct ck_err *err);
void ck_layout_out_free(struct ck_layout_out *out);

/* The name of the file of the rank at mesh position @pos. */
int ck_layout_out_file(const struct ck_layout_out *out, uint64_t pos,
		       struct ck_str *to, struct ck_err *err);
/*
 * What position @pos holds of @t: 1, 0: nothing, -EINVAL.  Positions of the
 * same *group, below ck_layout_out_groups(), hold the same.
 */
int ck_layout_out_place(const struct ck_layout_out *out,
			const struct ck_layout_target *t, uint64_t pos,
			struct ck_placed *place, uint64_t *group,
			struct ck_err *err);
uint64_t ck_layout_out_groups(const struct ck_layout_target *t);

#endif
