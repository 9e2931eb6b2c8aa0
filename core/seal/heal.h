/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heal.h - which of several replicas counts, and writing it over the others
 *
 * Where a write broke off between the copies of its bytes, nothing in them says
 * which are meant: the user does, by files, or the manifest, whose blocks are
 * what the files held when they were last all right.
 */
#ifndef CK_HEAL_H
#define CK_HEAL_H

#include "core/seal/verify.h"

struct ck_heal;

/*
 * For @ck.  Those members count whose file has a name among the options "from"
 * of @opts, with a * for any characters; where there are none, those whose
 * blocks are as they were sealed.  -ENOMEM; -EINVAL: such a manifest cannot be
 * read; -ENOENT: no file of @ck has such a name.
 */
int ck_heal_new(struct ck_heal **out, struct ck_ckpt *ck,
		const struct ck_opts *opts, struct ck_err *err);
void ck_heal_free(struct ck_heal *h);
bool ck_heal_has_manifest(const struct ck_heal *h);

/* For struct ck_replicas.  Any thread. */
enum ck_as_sealed ck_heal_sealed(struct ck_heal *h, uint32_t t, uint32_t chunk,
				 uint64_t off, uint64_t len);

/* What became of a tensor, in stretches that are not alike. */
struct ck_healed {
	uint64_t decided; /* written, unless it was only to be looked at */
	uint64_t none, several; /* no member counts, or some that differ */
};
/*
 * Tensor @t: what is decided is written through @e to all members; NULL: it is
 * counted only.  One thread.
 */
int ck_heal_tensor(struct ck_heal *h, uint32_t t, struct ck_edit *e,
		   struct ck_healed *out, struct ck_err *err);

#endif
