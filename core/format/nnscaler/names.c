/* SPDX-License-Identifier: Apache-2.0 */
/* names.c - numbers for names that outlive the pickles they came from */
#include "core/format/nnscaler/priv.h"

#include <stdlib.h>
#include <string.h>

uint32_t ck_nn_name(struct ck_nn_names *n, const char *s, size_t len)
{
	uint32_t at = ck_strmap_get(&n->map, s, len);
	char *copy, **to;

	if (at != CK_STRMAP_NONE)
		return at;
	copy = malloc(len + 1);
	to = copy ? ck_vec_push(&n->v) : NULL;
	if (!to) {
		free(copy);
		return CK_STRMAP_NONE;
	}
	memcpy(copy, s, len);
	copy[len] = '\0';
	*to = copy;
	return ck_strmap_put(&n->map, copy, len);
}

uint32_t ck_nn_name2(struct ck_nn_names *n, const char *a, size_t a_len,
		     const char *b, size_t b_len)
{
	struct ck_str s = { 0 };
	uint32_t at = CK_STRMAP_NONE;

	ck_str_add(&s, a, a_len);
	if (a_len)
		ck_str_puts(&s, ".");
	ck_str_add(&s, b, b_len);
	if (!s.failed)
		at = ck_nn_name(n, s.v ? s.v : "", s.len);
	ck_str_free(&s);
	return at;
}

void ck_nn_names_free(struct ck_nn_names *n)
{
	for (size_t i = 0; i < n->v.nr; i++)
		free(n->v.v[i]);
	free(n->v.v);
	ck_strmap_free(&n->map);
	*n = (struct ck_nn_names){ 0 };
}
