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

#include "core/format/layout/doc.h"
#include "core/base/strmap.h"

#define CK_LAY_ALIGN 4096 /* where tensors begin in a file, in bytes */
/* Keys of what lies between tensors, so that these begin aligned. */
#define CK_LAY_FILLER "__unshard_pad."

/* A tensor that will be written. */
struct ck_lay_target {
	const char *name; /* of the JSON value */
	uint32_t rule; /* of doc.rules */
	uint8_t dtype;
	struct ck_lay_dims shape;
	uint64_t at[CK_LAY_AXES]; /* the only coordinates, or CK_LAY_FREE */
};

struct ck_lay_out {
	struct ck_lay_doc doc;
	CK_VEC(struct ck_lay_target) targets;
	const char *path; /* of a rank's file; with {rank} or axes */
	bool dcp; /* what torch.distributed.checkpoint loads; else safetensors */
	uint64_t align; /* bytes; a power of 2, 1: packed */
	/* private: the first rule of each exact name; rules that are patterns */
	struct ck_strmap exact;
	CK_VEC(uint32_t) exact_rule, patterns;
};

/*
 * Whether the document has a "write" at all, and whether that is all that it
 * is for: without "files" it says nothing of a checkpoint that is there.
 * Neither where it is no JSON.
 */
bool ck_lay_out_wanted(const char *bytes, size_t len);
bool ck_lay_out_only(const char *bytes, size_t len);
/*
 * @name: for messages; borrowed.  @format: where the layout says none, or
 * NULL.  -EINVAL with a line.
 */
int ck_lay_out_parse(struct ck_lay_out *out, const char *name,
		     const char *bytes, size_t len, const char *format,
		     struct ck_err *err);
void ck_lay_out_free(struct ck_lay_out *out);
#define ck_auto_lay_out __attribute__((cleanup(ck_lay_out_free)))

/* The number of the rank at mesh position @pos. */
uint64_t ck_lay_out_rank(const struct ck_lay_out *out, uint64_t pos);
/* The name of its file. */
int ck_lay_out_file(const struct ck_lay_out *out, uint64_t pos,
		    struct ck_str *to, struct ck_err *err);
/* Dimensions that @t is cut in: its "view", else its shape. */
void ck_lay_out_grid(const struct ck_lay_out *out,
		     const struct ck_lay_target *t, const uint64_t **grid,
		     unsigned *rank);
/*
 * What position @pos holds of @t: 1, 0: nothing, -EINVAL.  Positions of the
 * same *group, below ck_lay_out_groups(), hold the same.
 */
int ck_lay_out_place(const struct ck_lay_out *out,
		     const struct ck_lay_target *t, uint64_t pos,
		     struct ck_placed *place, uint64_t *group,
		     struct ck_err *err);
uint64_t ck_lay_out_groups(const struct ck_lay_out *out,
			   const struct ck_lay_target *t);

#endif
