/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.c - reads VariableMetaInfo as protobuf prints it
 *
 *	shape {
 *	  dim: 3
 *	  dim: 4
 *	}
 *	data_type: kFloat
 */
#include "core/format/oneflow/oneflow.h"

#include "core/base/check.h"
#include "core/base/match.h"
#include "core/base/number.h"
#include "core/geom/dtype.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* The place is the number. */
static const struct {
	const char *name;
	int dtype;
} types[] = {
	{ "kInvalidDataType", CK_DT_NONE },
	{ "kChar", CK_DT_I8 },
	{ "kFloat", CK_DT_F32 },
	{ "kDouble", CK_DT_F64 },
	{ "kInt8", CK_DT_I8 },
	{ "kInt32", CK_DT_I32 },
	{ "kInt64", CK_DT_I64 },
	{ "kUInt8", CK_DT_U8 },
	{ "kOFRecord", CK_DT_NONE },
	{ "kFloat16", CK_DT_F16 },
	{ "kTensorBuffer", CK_DT_NONE },
	{ "kBFloat16", CK_DT_BF16 },
	{ "kBool", CK_DT_BOOL },
	{ "kUInt16", CK_DT_U16 },
	{ "kUInt32", CK_DT_U32 },
	{ "kUInt64", CK_DT_U64 },
	{ "kUInt128", CK_DT_NONE },
	{ "kInt16", CK_DT_I16 },
	{ "kInt128", CK_DT_NONE },
	{ "kComplex32", CK_DT_C32 },
	{ "kComplex64", CK_DT_C64 },
	{ "kComplex128", CK_DT_C128 },
};

int ck_oneflow_dtype(int type)
{
	return type >= 0 && type < (int)CK_ARRAY_LEN(types) ?
		       types[type].dtype :
		       CK_DT_NONE;
}

const char *ck_oneflow_type_name(int type)
{
	return type >= 0 && type < (int)CK_ARRAY_LEN(types) ? types[type].name :
							      "an unknown type";
}

struct text {
	const char *s;
	size_t at, len;
};

static void skip_space(struct text *t)
{
	while (t->at < t->len) {
		char c = t->s[t->at];

		if (c == '#') {
			while (t->at < t->len && t->s[t->at] != '\n')
				t->at++;
		} else if (isspace((unsigned char)c) || c == ',' || c == ';') {
			t->at++;
		} else {
			return;
		}
	}
}

/* A letter of punctuation that may stand here. */
static bool taken(struct text *t, char c)
{
	skip_space(t);
	if (t->at == t->len || t->s[t->at] != c)
		return false;
	t->at++;
	return true;
}

/* A name or a number; empty where there is none. */
static size_t word(struct text *t, const char **out)
{
	size_t from;

	skip_space(t);
	from = t->at;
	while (t->at < t->len &&
	       (isalnum((unsigned char)t->s[t->at]) || t->s[t->at] == '_'))
		t->at++;
	*out = t->s + from;
	return t->at - from;
}

static int unexpected(const struct text *t, const char *want,
		      struct ck_err *err)
{
	return ck_fail(err, EINVAL, "byte %zu: expected %s", t->at, want);
}

static int number(struct text *t, uint64_t *out, struct ck_err *err)
{
	const char *w;
	size_t len = word(t, &w);

	return ck_decimal(w, len, UINT64_MAX - 1, out) ?
		       0 :
		       unexpected(t, "a number", err);
}

static int add_dim(struct oneflow_meta *m, struct text *t, struct ck_err *err)
{
	if (m->rank == CK_MAX_RANK)
		return ck_fail(err, EINVAL, "byte %zu: over %d dimensions",
			       t->at, CK_MAX_RANK);
	return number(t, &m->shape[m->rank++], err);
}

/* dim: 3, or dim: [3, 4] */
static int dims(struct oneflow_meta *m, struct text *t, struct ck_err *err)
{
	const char *w;
	size_t len = word(t, &w);
	int ret = 0;

	if (!ck_text_is(w, len, "dim") || !taken(t, ':'))
		return unexpected(t, "\"dim:\" or \"}\"", err);
	if (!taken(t, '['))
		return add_dim(m, t, err);
	while (!ret && !taken(t, ']'))
		ret = add_dim(m, t, err);
	return ret;
}

static int shape(struct oneflow_meta *m, struct text *t, struct ck_err *err)
{
	int ret = 0;

	taken(t, ':');
	if (!taken(t, '{'))
		return unexpected(t, "\"{\"", err);
	while (!ret && !taken(t, '}'))
		ret = dims(m, t, err);
	return ret;
}

static int type(struct oneflow_meta *m, struct text *t, struct ck_err *err)
{
	const char *w;
	size_t len;
	struct text again;
	uint64_t n;

	if (!taken(t, ':'))
		return unexpected(t, "\":\"", err);
	again = *t;
	len = word(t, &w);
	for (size_t i = 0; i < CK_ARRAY_LEN(types); i++)
		if (ck_text_is(w, len, types[i].name)) {
			m->type = (int)i;
			return 0;
		}
	*t = again;
	if (number(t, &n, NULL) || n >= CK_ARRAY_LEN(types))
		return ck_fail(err, EINVAL,
			       "byte %zu: data_type %.*s is unknown", again.at,
			       (int)CK_MIN(len, 40), w);
	m->type = (int)n;
	return 0;
}

int ck_oneflow_meta_parse(struct oneflow_meta *out, const char *text,
			  size_t len, struct ck_err *err)
{
	struct text t = { .s = text, .len = len };
	bool have_shape = false, have_type = false;
	int ret = 0;

	*out = (struct oneflow_meta){ 0 };
	for (skip_space(&t); !ret && t.at < t.len; skip_space(&t)) {
		const char *w;
		size_t n = word(&t, &w);

		if (ck_text_is(w, n, "shape") && !have_shape) {
			have_shape = true;
			ret = shape(out, &t, err);
		} else if (ck_text_is(w, n, "data_type") && !have_type) {
			have_type = true;
			ret = type(out, &t, err);
		} else {
			ret = unexpected(&t, "shape or data_type, once", err);
		}
	}
	if (!ret && !(have_shape && have_type))
		ret = unexpected(&t, "both shape and data_type", err);
	return ret;
}
