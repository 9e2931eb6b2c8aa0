/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sameheader.h - a safetensors header of the usual form, against the same one
 * read by the JSON library
 *
 * The other one begins with a member whose key is escaped, which is not the
 * usual form.
 */
#ifndef SAMEHEADER_H
#define SAMEHEADER_H

#include "core/parse/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAME_EXTRA "{\"\\u0001\":0,"

static inline bool same_tensor(const struct ck_st_header *a,
			       const struct ck_st_tensor *x,
			       const struct ck_st_header *b,
			       const struct ck_st_tensor *y)
{
	bool why = x->why && y->why && !strcmp(x->why, y->why);

	if (x->name_len != y->name_len ||
	    memcmp(x->name, y->name, x->name_len) != 0 ||
	    strcmp(x->dtype_name, y->dtype_name) != 0 ||
	    (!why && (x->why || y->why)))
		return false;
	return why ||
	       (x->dtype == y->dtype && x->rank == y->rank &&
		!memcmp(x->shape, y->shape, x->rank * sizeof(*x->shape)) &&
		x->begin - a->data_off == y->begin - b->data_off &&
		x->end - a->data_off == y->end - b->data_off);
}

/* NULL, or what differs; the header is refused, or of another form: nothing. */
static inline const char *same_header(const char *bytes, size_t len)
{
	static const char extra[] = SAME_EXTRA;
	const size_t more = sizeof(extra) - 1;
	struct ck_st_header a, b;
	struct ck_st_tensor x, y;
	const char *why = NULL;
	char *other;

	if (ck_st_header_parse(&a, bytes, len, NULL))
		return NULL;
	other = a.names ? malloc(len + more) : NULL; /* NULL: of another form */
	if (!other || !ck_st_next(&a, &x)) { /* or it would end in a comma */
		ck_st_header_free(&a);
		free(other);
		return NULL;
	}
	ck_st_header_free(&a);
	ck_st_header_parse(&a, bytes, len, NULL);
	memcpy(other, extra, more);
	/* blanks may be before the bracket */
	for (len -= 1; *bytes != '{'; len--)
		bytes++;
	memcpy(other + more, bytes + 1, len);
	if (ck_st_header_parse(&b, other, more + len, NULL)) {
		why = "the other one is refused";
	} else {
		ck_st_next(&b, &y); /* the member that is more */
		while (!why && ck_st_next(&a, &x))
			if (!ck_st_next(&b, &y) || !same_tensor(&a, &x, &b, &y))
				why = "an entry";
		if (!why && ck_st_next(&b, &y))
			why = "one has more entries";
		if (!why && a.metadata != b.metadata &&
		    !json_equal(a.metadata, b.metadata))
			why = "metadata";
		ck_st_header_free(&b);
	}
	ck_st_header_free(&a);
	free(other);
	return why;
}

#endif
