/* SPDX-License-Identifier: Apache-2.0 */
/* verify_show.h - what unshard verify found, as text or as JSON */
#ifndef VERIFY_SHOW_H
#define VERIFY_SHOW_H

#include "core/publish/sparse_check.h"
#include "core/seal/verify.h"

#include "core/base/str.h"

struct verify_show {
	const struct ck_catalog *img;
	bool json;
	struct ck_str *out;
	size_t nr; /* items of the list that is being written */
	size_t nr_tensors, nr_objects; /* of the damage being written */
};

/* Around each kind of finding; a list in JSON, nothing in text. */
void verify_list_begin(struct verify_show *s, const char *name);
void verify_list_end(struct verify_show *s);

/* A damage, then its tensors and objects, then its end. */
void verify_damage(struct verify_show *s, const struct ck_damage *d);
void verify_corrupt(void *show, const struct ck_corrupt_elements *sp);
void verify_object(struct verify_show *s, uint32_t i);
void verify_damage_end(struct verify_show *s, const struct ck_damage *d);

/* A line, or an item of a list, for unshard overlay diff. */
void verify_edit(struct verify_show *s, const struct ck_corrupt_elements *sp);

void verify_quarrel(struct verify_show *s, const struct ck_quarrel *q);
void verify_duplicate(struct verify_show *s, const char *a, const char *b,
		      uint64_t pieces);
void verify_extra(struct verify_show *s, const char *file);
void verify_hole(struct verify_show *s, const struct ck_hole *h);

#endif
