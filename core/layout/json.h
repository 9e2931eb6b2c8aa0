/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - strict reading of members; each fault with its JSON path
 *
 * The first fault is kept in doc->failed and said in doc->err; what is read
 * after it means nothing.  Members that are absent leave *out alone.
 */
#ifndef CK_LAYOUT_JSON_H
#define CK_LAYOUT_JSON_H

#include "core/layout/doc.h"

/* Where in the document one is: "tensors[3].placement.tp". */
struct ck_layout_in {
	struct ck_layout_doc *doc;
	const struct ck_layout_in *up; /* NULL: the whole of it */
	const char *key; /* NULL: element @i */
	size_t i;
};

static inline struct ck_layout_in ck_layout_below(const struct ck_layout_in *up,
						  const char *key, size_t i)
{
	return (struct ck_layout_in){ up->doc, up, key, i };
}

/* -EINVAL: "FILE: PATH: expected WHAT, found ...". */
void ck_layout_expected(const struct ck_layout_in *in, const json_t *j,
			const char *what);
void ck_layout_bad(const struct ck_layout_in *in, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void ck_layout_no_memory(const struct ck_layout_in *in);

/* @j is an object with no members but "those, named, so". */
void ck_layout_object(const struct ck_layout_in *in, const json_t *j,
		      const char *names);
/* @j is a list: room for as many of @size bytes, zeros. */
void *ck_layout_list(const struct ck_layout_in *in, const json_t *j,
		     size_t size, size_t *nr);
/* Texts are not empty, but for "name", and hold no NUL. */
void ck_layout_string(const struct ck_layout_in *in, const json_t *j,
		      const char *key, const char **out);
void ck_layout_u64(const struct ck_layout_in *in, const json_t *j,
		   const char *key, uint64_t *out);
void ck_layout_bool(const struct ck_layout_in *in, const json_t *j,
		    const char *key, bool *out);
void ck_layout_dtype(const struct ck_layout_in *in, const json_t *j,
		     const char *key, uint8_t *out);
void ck_layout_dims(const struct ck_layout_in *in, const json_t *j,
		    const char *key, struct ck_layout_dims *out);
void ck_layout_kind(const struct ck_layout_in *in, const json_t *j,
		    enum ck_layout_kind *out);
/* {"tp": 1, ...}, axes of the mesh; at[] is filled by the caller before. */
void ck_layout_at(const struct ck_layout_in *in, const json_t *j, uint64_t *at,
		  uint64_t *rank);
/* Which of the names @v is, or @nr. */
size_t ck_layout_choice(const json_t *v, const char *const *names, size_t nr);
/* Whether a template is well formed; *used as of ck_layout_expand(). */
void ck_layout_template(const struct ck_layout_in *in, const char *text,
			unsigned nr_cap, bool key, uint32_t *used);

/* "tensors" of the document. */
void ck_layout_parse_tensors(const struct ck_layout_in *in, const json_t *j);

#endif
