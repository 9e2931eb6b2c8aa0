/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st_file.h - the tensors that one safetensors header lists, for readers
 *
 * The header may stand at the beginning of a file or, as in DCP's SAFETENSORS
 * form, anywhere in it.  One thread.
 */
#ifndef CK_ST_FILE_H
#define CK_ST_FILE_H

#include "core/base/err.h"
#include "core/base/vec.h"
#include "core/catalog/builder.h"
#include "core/root/source.h"
#include "core/parse/safetensors.h"

struct ck_st_entry {
	const char *name;
	size_t name_len;
	const char *why; /* not NULL: unusable, and why */
	const char *dtype_name;
	uint64_t begin, end; /* bytes of the source */
	size_t shape; /* index into dims, rank values */
	uint8_t rank, dtype;
};

struct ck_st_file {
	const char *name; /* borrowed */
	uint32_t src;
	uint64_t base, size; /* where the header begins; of the source */
	char *bytes; /* the header's JSON */
	size_t len;
	struct ck_st_header h;
	json_t *sharding; /* of DCP_SHARDING_INFO; else NULL */
	CK_VEC(struct ck_st_entry) tensors;
	CK_VEC(uint64_t) dims;
	uint64_t meta_off, meta_len; /* __metadata__ in @src; len 0: none */
	bool moved; /* sharding names an offset that is not all zero */
};

/*
 * Reads the header at byte @base of @s.  -EINVAL with a line that begins with
 * @name where it is no usable header; others: the system's fault.  Free it in
 * either case.
 */
int ck_st_file_read(struct ck_st_file *f, const char *name, uint32_t src,
		    struct ck_source *s, uint64_t base, struct ck_err *err);
void ck_st_file_free(struct ck_st_file *f);

static inline const uint64_t *ck_st_file_shape(const struct ck_st_file *f,
					       const struct ck_st_entry *e)
{
	return f->dims.v + e->shape;
}

/*
 * Where DCP says that the entry's box begins (rank values); zeros where it
 * says nothing.  False: it says something that cannot be.
 */
bool ck_st_file_corner(const struct ck_st_file *f, const struct ck_st_entry *e,
		       uint64_t *at);
/* Whether DCP says anything of where it begins. */
bool ck_st_file_placed(const struct ck_st_file *f, const struct ck_st_entry *e);
/*
 * Gives the entry to @b as the box of a tensor of @shape at @at; both NULL:
 * it is the whole tensor.  Unusable entries are refused by name.
 */
int ck_st_file_add(const struct ck_st_file *f, const struct ck_st_entry *e,
		   const uint64_t *shape, const uint64_t *at,
		   struct ck_builder *b, struct ck_err *err);
/*
 * Says what no writer leaves, and costs no tensor: that the file goes on after
 * its tensors, to which bytes were added then, perhaps in the midst of them; and
 * that __metadata__ has something else than strings.
 */
int ck_st_file_say_faults(const struct ck_st_file *f, struct ck_builder *b,
			  struct ck_err *err);
/* __metadata__, where there is one, as an object called @name. */
int ck_st_file_add_metadata(const struct ck_st_file *f, const char *name,
			    struct ck_builder *b, struct ck_err *err);

#endif
