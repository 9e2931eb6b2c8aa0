/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.h - the tensors that the files of MindSpore's ranks hold
 *
 * Everything is kept by number: a file belongs to a rank, a tensor to a file
 * and a name, a segment is a stretch of a file.
 */
#ifndef CK_MINDSPORE_SET_H
#define CK_MINDSPORE_SET_H

#include "core/base/err.h"
#include "core/base/vec.h"
#include "core/catalog/builder.h"
#include "core/format/mindspore/layout.h"
#include "core/format/mindspore/mindspore.h"
#include "core/base/strmap.h"

struct ck_ms_seg {
	uint64_t off, len;
};

enum {
	CK_MS_WIDE = 1, /* bfloat16 as the upper halves of float32 */
	CK_MS_HASHED = 2, /* @hash is of all its bytes */
	CK_MS_SAMPLED = 4, /* @hash is of some of its bytes */
	CK_MS_ALIKE = 8, /* all elements that were hashed are the same */
	CK_MS_OPAQUE = 16, /* no tensor: an object */
	CK_MS_SPOILED = 32, /* its file is damaged: say only that it is */
};

struct ck_ms_tensor {
	const char *why; /* not NULL: unusable, and why */
	uint64_t bytes, hash;
	uint32_t name, file, next; /* the next of that name, or NONE */
	uint32_t dims, seg, nr_segs;
	uint8_t dtype, rank, flags;
};

struct ck_ms_part_file {
	const char *name;
	uint32_t src, rank;
	bool bad; /* not all of it could be read */
};

struct ck_ms_name {
	uint32_t first, last; /* tensors */
};

struct ck_ms_set {
	const struct ck_dir *dir;
	struct ck_builder *b;
	struct ck_strmap names;
	CK_VEC(struct ck_ms_name) name;
	CK_VEC(struct ck_ms_part_file) file;
	CK_VEC(struct ck_ms_tensor) tensor;
	CK_VEC(uint64_t) dims;
	CK_VEC(struct ck_ms_seg) seg;
	CK_VEC(void *) kept;
	struct ck_strategy strategy;
	uint32_t nr_ranks; /* that a strategy speaks of; 1: there is none */
	uint64_t hashed, summed; /* bytes read to compare, to check sums */
	bool compares; /* files of several ranks: hash what is small */
	bool missing; /* a rank has no file, or a damaged one */
	bool smaller; /* as if of fewer ranks: anything that does not fit ends it */
};

/* Reads one file's descriptions; damage becomes a problem. */
int ck_ms_read_ckpt(struct ck_ms_set *s, struct ck_source *in, uint32_t file,
		    struct ck_err *err);
int ck_ms_read_safetensors(struct ck_ms_set *s, struct ck_source *in,
			   uint32_t file, struct ck_err *err);
/* Whichever of the two @name is, as the file of @rank. */
int ck_ms_read_file(struct ck_ms_set *s, const char *name, uint32_t rank,
		    struct ck_err *err);
/* Says all tensors to the builder. */
int ck_ms_merge(struct ck_ms_set *s, struct ck_err *err);
/* -EINVAL where the optimizer's shards are none, by their bytes; or warns. */
int ck_ms_check_shards(const struct ck_ms_set *s, struct ck_err *err);
/* How @t, which has the layout @l, was stored, where layouts were used. */
int ck_ms_how_of(const struct ck_ms_set *s, const struct ck_ms_tensor *t,
		 const struct ck_strategy_layout *l, enum ck_ms_how *how,
		 struct ck_err *why);
/*
 * Writes to @why what the files hold that no run with this strategy would have
 * left, or nothing.  -ENOMEM.
 */
int ck_ms_against(const struct ck_ms_set *s, char *why, size_t room,
		  struct ck_err *err);
/* Whether what should be shards of @name are copies, and not of one value. */
int ck_ms_shards_are_copies(const struct ck_ms_set *s, uint32_t name, bool *are,
			    struct ck_err *err);
#define CK_MS_SHARDS_ALIKE \
	"the strategy says that the optimizer's shards of it differ, and each is the same as another, as copies are: it may be another run's strategy (-o integrated=no takes them as shards)"
/* Says which tensors of the strategy no file held; for who merged. */
int ck_ms_report_absent(struct ck_ms_set *s, struct ck_err *err);
void ck_ms_set_free(struct ck_ms_set *s);

/* What a file is, by its first bytes. */
enum ck_ms_kind {
	CK_MS_OTHER,
	CK_MS_CKPT,
	CK_MS_STRATEGY,
	CK_MS_ENCRYPTED,
	CK_MS_SAFETENSORS,
};
/* Or -errno; files that cannot be opened are CK_MS_OTHER. */
int ck_ms_kind(const struct ck_dir *dir, const char *name, struct ck_err *err);

/* The strategy is of a run on more ranks than there are; @sign may be NULL. */
int ck_ms_other_world(const struct ck_ms_set *s, uint64_t world, size_t ranks,
		      const char *sign, struct ck_err *err);

/* For those who read files. */
const char *ck_ms_say(struct ck_ms_set *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/*
 * Adds @t, whose name is not yet known, with its dims and the segments from
 * @first_seg on.  Hashes it where that is wanted.
 */
int ck_ms_add(struct ck_ms_set *s, struct ck_ms_tensor *t, const char *name,
	      size_t len, const uint64_t *dims, struct ck_source *in,
	      struct ck_err *err);
int ck_ms_problem(struct ck_ms_set *s, enum ck_severity severity, uint32_t file,
		  uint64_t off, uint64_t len, const char *reason,
		  struct ck_err *err);
/* The CRC-32 of a file is to be checked: -o crc= and its size say. */
bool ck_ms_wants_crc(struct ck_ms_set *s, uint64_t size);
int ck_ms_crc_of(struct ck_source *in, uint64_t off, uint64_t len,
		 uint32_t *crc, struct ck_err *err);
/* Says that a sum is wrong; @excuse: why that may be no damage, or NULL. */
int ck_ms_crc_wrong(struct ck_ms_set *s, uint32_t file, uint64_t have,
		    uint64_t want, const char *excuse, struct ck_err *err);
int ck_ms_crc_unchecked(struct ck_ms_set *s, uint32_t file, struct ck_err *err);

#endif
