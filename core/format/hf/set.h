/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.h - the headers of several safetensors files, by tensor name
 */
#ifndef CK_HF_SET_H
#define CK_HF_SET_H

#include "core/assemble/assemble.h"
#include "core/assemble/st_folder.h"

struct ck_hf_set {
	struct ck_st_folder files;
	/*
	 * Files by the same numbers, whose user is not 0 where they have some of
	 * what the index says of them.
	 */
	struct ck_asm a;
	const struct ck_st_file *st; /* of the file that is being read */
};

/* Reads all headers; a file without a usable one becomes a problem. */
int ck_hf_set_read(struct ck_hf_set *s, const struct ck_dir *dir,
		   struct ck_builder *b, struct ck_err *err);
void ck_hf_set_free(struct ck_hf_set *s);

/*
 * What a sharded save lacks.  Its full shapes are written nowhere, so a tensor
 * that a lost file may have had more of has no known shape.
 */
struct ck_hf_gap {
	unsigned file; /* K of model-K-of-N */
	enum { CK_HF_WHOLE, CK_HF_DAMAGED, CK_HF_ABSENT, CK_HF_HOLE } what;
	unsigned rank; /* DAMAGED, ABSENT: whose shard */
	const char *name; /* HOLE: of a tensor; borrowed */
	size_t name_len;
};

struct ck_hf_gaps {
	struct ck_hf_gap *v; /* by file, one for each K that there is */
	size_t nr;
	unsigned of;
	bool told; /* -o shards= said how many files there were */
};

/* Looks at names and at what could be read; -EINVAL: two saves are mixed. */
int ck_hf_gaps_find(struct ck_hf_gaps *g, const struct ck_hf_set *s,
		    struct ck_err *err);
void ck_hf_gaps_free(struct ck_hf_gaps *g);
#define ck_auto_hf_gaps __attribute__((cleanup(ck_hf_gaps_free)))
/* The entry of what the file of number @i is one of. */
struct ck_hf_gap *ck_hf_gaps_of(const struct ck_hf_gaps *g,
				const struct ck_hf_set *s, size_t i);
/* Says what is known to be missing or cannot be. */
int ck_hf_gaps_say(const struct ck_hf_gaps *g, const struct ck_hf_set *s,
		   struct ck_err *err);
/* Refuses a tensor because of @gap. */
int ck_hf_gap_refuse(const struct ck_hf_gap *gap, const struct ck_hf_gaps *g,
		     struct ck_hf_set *s, struct ck_asm_tensor *t,
		     struct ck_err *err);

/* Whole tensors: each name from one file. */
int ck_hf_set_add_whole(struct ck_hf_set *s, struct ck_err *err);
/* DCP's sharded files: each entry is a box, the shape is what they span. */
int ck_hf_set_add_sharded(struct ck_hf_set *s, struct ck_err *err);

#endif
