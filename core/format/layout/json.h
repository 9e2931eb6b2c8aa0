/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - strict reading of members; each fault with its JSON path
 */
#ifndef CK_LAYOUT_JSON_H
#define CK_LAYOUT_JSON_H

#include "core/format/layout/doc.h"

/* Where in the document one is: "tensors[3].placement.tp". */
struct ck_lay_in {
	struct ck_lay_doc *doc;
	struct ck_err *err;
	char path[192];
};

/* The position of a member, or with @key NULL of element @i. */
struct ck_lay_in ck_lay_below(const struct ck_lay_in *in, const char *key,
			      size_t i);
/* -EINVAL: "FILE: PATH: expected WHAT, found ...". */
int ck_lay_expected(const struct ck_lay_in *in, const json_t *j,
		    const char *what);
int ck_lay_bad(const struct ck_lay_in *in, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
int ck_lay_no_memory(const struct ck_lay_in *in);

/* @j is an object with no members but those named, up to a NULL. */
int ck_lay_object(const struct ck_lay_in *in, const json_t *j,
		  const char *const *names);
int ck_lay_array(const struct ck_lay_in *in, const json_t *j);
/*
 * Members: absent ones leave *out alone, and return 0 all the same.  Texts
 * are not empty and hold no NUL.
 */
int ck_lay_text(const struct ck_lay_in *in, const json_t *j, const char *key,
		const char **out);
int ck_lay_u64(const struct ck_lay_in *in, const json_t *j, const char *key,
	       uint64_t *out);
int ck_lay_bool(const struct ck_lay_in *in, const json_t *j, const char *key,
		bool *out);
int ck_lay_dtype(const struct ck_lay_in *in, const json_t *j, const char *key,
		 uint8_t *out);
int ck_lay_dims(const struct ck_lay_in *in, const json_t *j, const char *key,
		struct ck_lay_dims *out);
int ck_lay_kind(const struct ck_lay_in *in, const json_t *j, const char *key,
		enum ck_lay_kind *out, bool *given);
/* {"tp": 1, ...}, axes of the mesh; at[] is filled by the caller before. */
int ck_lay_at(const struct ck_lay_in *in, const json_t *j, const char *key,
	      uint64_t *at, uint64_t *rank);
/* Whether a template is well formed; *used as of ck_lay_expand(). */
int ck_lay_check_text(const struct ck_lay_in *in, const char *text,
		      unsigned nr_cap, bool key, uint32_t *used);

/* "tensors" of the document. */
int ck_lay_parse_tensors(const struct ck_lay_in *in, const json_t *j);
/* Once nothing is added to the document's dims any more. */
void ck_lay_fix_sizes(struct ck_lay_doc *d);
int ck_lay_parse_boxes(const struct ck_lay_in *in, const json_t *j,
		       struct ck_lay_rule *r);
int ck_lay_parse_placement(const struct ck_lay_in *in, const json_t *j,
			   struct ck_lay_rule *r);

#endif
