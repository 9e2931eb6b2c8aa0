/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derive.h - tensors under other names, of other types, cut and joined
 *
 * What one view of -o views= asks for, worked out: each tensor shown is a
 * sequence of byte ranges of stored ones, whose elements may be cast.  Nothing
 * is read.  docs/views.md describes the document.
 */
#ifndef CK_DERIVE_H
#define CK_DERIVE_H

#include "core/base/vec.h"
#include "core/geom/range.h"
#include "core/parse/json.h"
#include "core/view/extras.h"
#include "core/view/view.h"

/*
 * Bytes [at, at + len) of a tensor: whole elements.  Where they are turned and @step
 * is not 0, its rows are columns to, to + step and so on of their matrix; else those
 * behind the range before.
 */
struct ck_derived_range {
	uint32_t tensor;
	uint64_t at, len, to, step;
};

struct ck_derived {
	char *name; /* UTF-8 */
	uint32_t origin; /* the tensor that its first bytes come from */
	uint8_t stored, dtype; /* of the ranges; as shown */
	unsigned rank;
	uint64_t shape[CK_MAX_RANK];
	uint32_t first, nr; /* ranges */
	bool saturate; /* what is too large for @dtype, see cast.h */
	/*
	 * Not 0: the ranges are rows of so many elements, shown as columns, the
	 * last dimension of them a matrix, and matrix after matrix.
	 */
	uint64_t turned;
	/*
	 * Not 0: all of it is that many of these, @each of them a slice along its
	 * first dimension, and this is number @part.
	 */
	uint64_t parts, each, part;
};

struct ck_derivation {
	CK_VEC(struct ck_derived) v;
	CK_VEC(struct ck_derived_range) range;
	struct ck_str
		unused; /* "keep[0], rows[1]": patterns that fit no name */
};

/* -EINVAL with a line where @spec would be none for any tensors. */
int ck_derive_check(const json_t *spec, struct ck_err *err);
/*
 * What @spec, an object of the document, makes of the tensors of @v.  -EINVAL
 * with a line that names the member, or the tensor, that cannot be followed;
 * what safetensors cannot hold is left out, as @v's problems say.
 */
int ck_derive(struct ck_derivation *out, const struct ck_view *v,
	      const json_t *spec, const struct ck_opts *opts,
	      struct ck_err *err);
void ck_derivation_free(struct ck_derivation *d);

/* For presets and rules: the next tensor that is shown; its ranges are added after. */
struct ck_derived *ck_derive_add(struct ck_derivation *d,
				 const struct ck_catalog *img, uint32_t tensor,
				 const char *name);
/* Shows what is the last one, a matrix, transposed; false: it is none. */
bool ck_derive_turn(struct ck_derivation *d, const struct ck_catalog *img);
/* Bytes [at, at + len) of the last one's origin. */
bool ck_derive_range(struct ck_derivation *d, uint64_t at, uint64_t len);

/* -EINVAL with a line where @preset, which may be NULL, is not as it should be. */
int ck_preset_check(const json_t *preset, struct ck_err *err);
/*
 * Adds what tensor @tensor, called @name, is in the names of preset @preset (an
 * object with "name"); nothing where the other side computes it anew.
 */
int ck_preset_apply(struct ck_derivation *d, const struct ck_view *v,
		    const json_t *preset, uint32_t tensor, const char *name,
		    struct ck_err *err);

/*
 * -EINVAL with a line where the config.json among @e says other heads, another
 * hidden size or vocabulary than @preset, which may be NULL, and @d have.
 */
int ck_preset_fits(const struct ck_derivation *d, const json_t *preset,
		   const struct ck_extras *e, struct ck_err *err);

#endif
