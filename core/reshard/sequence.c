/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sequence.c - layers that are numbers alone, as nn.Sequential names them:
 * "0.weight", "model.12.norm.bias"
 *
 * The numbers of one sequence are layers, and only where there is no other:
 * of two, nothing says which comes first.  An optimizer may have numbers of
 * its own, which are layers where a parameter is so called.
 */
#include "core/reshard/words.h"

#include "core/base/check.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define HINT "OneFlow's rules in -o reshard=FILE say which ranks have what"

/* The first word that is a number: where it begins, or @len. */
static size_t number_at(const char *name, size_t len, int64_t *nr)
{
	size_t from = 0, digits;

	for (size_t i = 0; i <= len; i++) {
		if (i < len && name[i] != '.' && name[i] != '/')
			continue;
		*nr = 0;
		for (digits = from;
		     digits < i && isdigit((unsigned char)name[digits]);
		     digits++)
			*nr = digits - from < 9 ?
				      10 * *nr + (name[digits] - '0') :
				      -1;
		if (i > from && digits == i && *nr >= 0 && i < len)
			return from;
		from = i + 1;
	}
	return len;
}

static int several(const struct ck_reshard_sequence *s, const char *name,
		   size_t at, struct ck_err *err)
{
	return ck_fail(err, EINVAL,
		       "pp=: no name says a layer, as in layers.0. or layer0., "
		       "and numbers stand behind \"%.*s\" and \"%.*s\": " HINT,
		       (int)CK_MIN(s->len, 80u), s->prefix,
		       (int)CK_MIN(at, 80u), name);
}

static int take(struct ck_reshard_sequence *s, const char *name, size_t len,
		struct ck_err *err)
{
	int64_t nr;
	size_t at = number_at(name, len, &nr);

	if (at == len || ck_reshard_is_state(name, len))
		return 0;
	if (!s->found) {
		s->prefix = name;
		s->len = at;
		s->lowest = s->last = nr;
		s->found = true;
	}
	if (s->len != at || memcmp(s->prefix, name, at))
		return several(s, name, at, err);
	s->lowest = CK_MIN(s->lowest, nr);
	s->last = CK_MAX(s->last, nr);
	return ck_strmap_put(&s->tails, name + at, len - at) == CK_STRMAP_NONE ?
		       ck_fail(err, ENOMEM, "no memory for a mesh") :
		       0;
}

int ck_reshard_sequence_find(struct ck_reshard_sequence *out,
			     const struct ck_reshard_in *in, struct ck_err *err)
{
	int ret = 0;

	*out = (struct ck_reshard_sequence){ 0 };
	for (uint32_t i = 0; i < in->nr && !ret; i++) {
		size_t len;
		const char *name = ck_catalog_str(
			in->img, in->img->tensors[in->first + i].name, &len);

		ret = take(out, name, len, err);
	}
	if (!ret && (!out->found || out->lowest == out->last))
		ret = ck_fail(err, EINVAL,
			      "pp=: no name says a layer, as in layers.0. or "
			      "layer0.: " HINT);
	if (ret)
		ck_reshard_sequence_free(out);
	return ret;
}

void ck_reshard_sequence_free(struct ck_reshard_sequence *s)
{
	ck_strmap_free(&s->tails);
	*s = (struct ck_reshard_sequence){ 0 };
}

int64_t ck_reshard_sequence_layer(const struct ck_reshard_sequence *s,
				  const char *name, size_t len)
{
	int64_t nr;
	size_t at = number_at(name, len, &nr);

	if (!s->found || at == len)
		return CK_RESHARD_PP_STAGE_ALL;
	if (!ck_reshard_is_state(name, len))
		return nr; /* all of those have the prefix */
	for (size_t end = len; end > at; end--)
		if ((end == len || name[end] == '.' || name[end] == '/') &&
		    ck_strmap_get(&s->tails, name + at, end - at) !=
			    CK_STRMAP_NONE)
			return nr;
	return CK_RESHARD_PP_STAGE_ALL;
}
