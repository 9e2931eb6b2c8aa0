// SPDX-License-Identifier: Apache-2.0
/*
 * safetensors.c - the entries of a safetensors header, each checked by itself
 *
 * A fault of one entry is that entry's, so that the other tensors stay
 * readable; only a header that is no JSON object refuses the file.
 */
#include "core/parse/safetensors.h"

#include "core/base/check.h"
#include "core/base/le.h"
#include "core/base/strmap.h"
#include "core/base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LEN_BYTES 8

static const char long_name[] = "its name is longer than 64 KiB";

int ck_st_header_len(const void *first8, uint64_t file_size, uint64_t *len,
		     struct ck_err *err)
{
	uint64_t n;

	if (file_size < LEN_BYTES)
		return ck_fail(err, EINVAL,
			       "safetensors: a file of %" PRIu64 " bytes",
			       file_size);
	n = ck_le64(first8);
	if (!n || n > CK_MAX_HEADER)
		return ck_fail(err, EINVAL,
			       "safetensors: a header of %" PRIu64
			       " bytes; 1 to %" PRIu64 " are allowed",
			       n, CK_MAX_HEADER);
	if (n > file_size - LEN_BYTES)
		return ck_fail(err, EINVAL,
			       "safetensors: a header of %" PRIu64
			       " bytes in a file of %" PRIu64,
			       n, file_size);
	*len = n;
	return 0;
}

/* ---- the usual form, which writers have ---- */

/*
 * Strings without escapes, numbers without sign, point or exponent, and an entry
 * of nothing but its three members.  jansson takes thirty times as long for it,
 * and several hundred bytes of memory a tensor.  Whatever is not of this form,
 * good or bad, is jansson's to judge.
 */

static const char *blanks(const char *at, const char *end)
{
	while (at < end &&
	       (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r'))
		at++;
	return at;
}

/* Past @c and the blanks around it; NULL: something else is there. */
static const char *past(const char *at, const char *end, char c)
{
	at = blanks(at, end);
	return at < end && *at == c ? blanks(at + 1, end) : NULL;
}

/* Past a string, which is [*s, *s + *len). */
static const char *string(const char *at, const char *end, const char **s,
			  size_t *len)
{
	if (at == end || *at != '"')
		return NULL;
	for (*s = ++at; at < end && *at != '"';) {
		unsigned char c = (unsigned char)*at;
		size_t n = 1;

		if (c >= 0x80)
			n = ck_utf8_len((const unsigned char *)at,
					(size_t)(end - at));
		if (c < 0x20 || c == '\\' || !n)
			return NULL;
		at += n;
	}
	*len = (size_t)(at - *s);
	return at < end ? at + 1 : NULL;
}

static const char *number(const char *at, const char *end, uint64_t *out)
{
	const char *first = at;

	*out = 0;
	for (; at < end && *at >= '0' && *at <= '9'; at++) {
		if (at - first == 18)
			return NULL;
		*out = *out * 10 + (uint64_t)(*at - '0');
	}
	return at == first || (*first == '0' && at > first + 1) ? NULL : at;
}

static const char *numbers(const char *at, const char *end, uint64_t *out,
			   unsigned max, unsigned *nr)
{
	const char *next;

	*nr = 0;
	at = past(at, end, '[');
	if (!at || (next = past(at, end, ']')))
		return at ? next : NULL;
	for (;; at = next) {
		if (*nr == max || !(at = number(at, end, &out[(*nr)++])))
			return NULL;
		next = past(at, end, ',');
		if (!next)
			return past(at, end, ']');
	}
}

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

/* One member of an entry, which *has has afterwards. */
static const char *member(const char *at, const char *end,
			  struct ck_st_tensor *t, uint64_t off[2],
			  unsigned *has)
{
	const char *key, *dtype;
	size_t len, dtype_len;
	unsigned nr, is;

	at = string(at, end, &key, &len);
	at = at ? past(at, end, ':') : NULL;
	if (!at)
		return NULL;
	if (len == 5 && !memcmp(key, "dtype", len)) {
		is = HAS_DTYPE;
		at = string(at, end, &dtype, &dtype_len);
		t->dtype = at ? ck_dtype_by_safetensors(dtype, dtype_len) :
				CK_DT_NONE;
	} else if (len == 5 && !memcmp(key, "shape", len)) {
		is = HAS_SHAPE;
		at = numbers(at, end, t->shape, CK_MAX_RANK, &t->rank);
	} else if (len == 12 && !memcmp(key, "data_offsets", len)) {
		is = HAS_OFFSETS;
		at = numbers(at, end, off, 2, &nr);
		at = at && nr == 2 ? at : NULL;
	} else {
		return NULL;
	}
	if (*has & is)
		return NULL;
	*has |= is;
	return at;
}

static const char *entry(const char *at, const char *end,
			 struct ck_st_tensor *t, uint64_t off[2])
{
	unsigned has = 0;

	at = past(at, end, '{');
	while (at) {
		const char *next;

		at = member(at, end, t, off, &has);
		if (!at || !(next = past(at, end, ',')))
			break;
		at = next;
	}
	at = at && has == HAS_ALL && t->dtype ? past(at, end, '}') : NULL;
	if (at)
		t->dtype_name = ck_dtype_info(t->dtype)->safetensors;
	return at;
}

/* Past the object at @at, in which brackets are counted; NULL: it has no end. */
static const char *object(const char *at, const char *end)
{
	unsigned depth = 0;
	bool quoted = false;

	for (; at < end; at++) {
		if (quoted && *at == '\\')
			at++;
		else if (*at == '"')
			quoted = !quoted;
		else if (!quoted && *at == '{')
			depth++;
		else if (!quoted && *at == '}' && !--depth)
			return at + 1;
	}
	return NULL;
}

static bool is_metadata(const char *name, size_t len)
{
	return len == 12 && !memcmp(name, "__metadata__", len);
}

/* The tensor at @at, or __metadata__, which *is_meta then says. */
static const char *pair(const char *at, const char *end, struct ck_st_tensor *t,
			uint64_t off[2], bool *is_meta)
{
	at = string(at, end, &t->name, &t->name_len);
	at = at ? past(at, end, ':') : NULL;
	if (!at)
		return NULL;
	*is_meta = is_metadata(t->name, t->name_len);
	if (!*is_meta)
		return entry(at, end, t, off);
	return at < end && *at == '{' ? object(at, end) : NULL;
}

/* 0; -EINVAL: it is not of the usual form; -ENOMEM. */
static int take_metadata(struct ck_st_header *h, const char *at,
			 const char *end)
{
	const char *begin = memchr(at, '{', (size_t)(end - at));
	int ret;

	/* whether a NUL can be read depends on all strings, see json.c */
	if (!begin || memmem(begin, (size_t)(end - begin), "\\u0000", 6))
		return -EINVAL;
	ret = ck_json_parse(&h->metadata, begin, (size_t)(end - begin), NULL);
	return ret || json_is_object(h->metadata) ? ret : -EINVAL;
}

static int take_pair(struct ck_st_header *h, struct ck_strmap *names,
		     const char **at)
{
	struct ck_st_tensor t = { 0 };
	const char *from = *at;
	size_t nr = names->nr;
	uint64_t off[2];
	bool is_meta;
	uint32_t put;

	*at = pair(from, h->end, &t, off, &is_meta);
	if (!*at)
		return -EINVAL;
	put = ck_strmap_put(names, t.name, t.name_len);
	if (put == CK_STRMAP_NONE)
		return -ENOMEM;
	if (put != nr)
		return -EINVAL;
	return is_meta ? take_metadata(h, from, *at) : 0;
}

/*
 * 0: all of it is of the usual form, and no name occurs twice; -EINVAL: it is
 * of another; -ENOMEM.
 */
static int check_usual(struct ck_st_header *h)
{
	ck_auto_strmap struct ck_strmap names = { 0 };
	const char *at = past(h->at, h->end, '{');
	int ret;

	h->at = at;
	while (at) {
		const char *next;

		ret = take_pair(h, &names, &at);
		if (ret)
			return ret;
		next = past(at, h->end, ',');
		if (!next)
			return past(at, h->end, '}') == h->end ? 0 : -EINVAL;
		at = next;
	}
	return -EINVAL;
}

/* ---- any form ---- */

static int parse_any(struct ck_st_header *h, const char *bytes, size_t len,
		     struct ck_err *err)
{
	int ret = ck_json_parse(&h->json, bytes, len, err);

	if (ret)
		return ck_wrap(err, ret, "safetensors header");
	h->metadata = json_incref(json_object_get(h->json, "__metadata__"));
	if (!json_is_object(h->json) ||
	    (h->metadata && !json_is_object(h->metadata)))
		return ck_fail(err, EINVAL,
			       "safetensors header: expected a JSON object");
	h->iter = json_object_iter(h->json);
	return 0;
}

int ck_st_header_parse(struct ck_st_header *h, const char *bytes, size_t len,
		       struct ck_err *err)
{
	uint64_t data_off = LEN_BYTES + (uint64_t)len;
	int ret;

	*h = (struct ck_st_header){ .data_off = data_off,
				    .at = bytes,
				    .end = bytes + len };
	ret = check_usual(h);
	if (!ret && (h->names = malloc(len + 1)))
		return 0;
	ck_st_header_free(h);
	if (ret != -EINVAL)
		return ck_no_memory(err);
	h->data_off = data_off;
	ret = parse_any(h, bytes, len, err);
	if (ret)
		ck_st_header_free(h);
	return ret;
}

void ck_st_header_free(struct ck_st_header *h)
{
	json_decref(h->metadata);
	json_decref(h->json);
	free(h->names);
	*h = (struct ck_st_header){ 0 };
}

/* Bits of one element, in safetensors' own count; 0: unknown. */
static unsigned element_bits(enum ck_dtype dt)
{
	switch (dt) {
	case CK_DT_F4_E2M1FN_X2:
		return 4;
	case CK_DT_F6_E2M3:
	case CK_DT_F6_E3M2:
		return 6;
	default:
		return ck_dtype_info(dt)->size * 8u;
	}
}

/* The product of the shape and @bits; false: too large. */
static bool tensor_bits(const struct ck_st_tensor *t, uint64_t *out)
{
	uint64_t bits = element_bits(t->dtype);

	for (unsigned d = 0; d < t->rank; d++)
		if (!t->shape[d])
			bits = 0;
	for (unsigned d = 0; d < t->rank; d++)
		if (!ck_mul_ok(bits, t->shape[d], &bits))
			return false;
	*out = bits;
	return true;
}

/* The file counts 4-bit elements, our dtype is a byte of two of them. */
static const char *pair_nibbles(struct ck_st_tensor *t)
{
	if (t->dtype != CK_DT_F4_E2M1FN_X2)
		return NULL;
	if (!t->rank || t->shape[t->rank - 1] % 2)
		return "its rows of 4-bit elements are not whole bytes";
	t->shape[t->rank - 1] /= 2;
	return NULL;
}

static const char *check_size(struct ck_st_tensor *t)
{
	uint64_t bits;

	if (!tensor_bits(t, &bits))
		return "its shape is too large";
	if (bits % 8 || bits / 8 != t->end - t->begin)
		return "its shape and dtype do not fill its data_offsets";
	return pair_nibbles(t);
}

static const char *check_entry(const struct ck_st_header *h,
			       const uint64_t off[2], struct ck_st_tensor *t)
{
	if (off[0] > off[1])
		return "its data_offsets run backwards";
	if (!ck_add_ok(h->data_off, off[0], &t->begin) ||
	    !ck_add_ok(h->data_off, off[1], &t->end))
		return "its data_offsets are too large";
	if (t->dtype == CK_DT_NONE)
		return "its dtype is unknown";
	return check_size(t);
}

static const char *read_entry(const struct ck_st_header *h, const json_t *j,
			      struct ck_st_tensor *t)
{
	const json_t *dtype = json_object_get(j, "dtype");
	uint64_t off[2];
	unsigned nr;

	if (json_is_string(dtype))
		t->dtype_name = json_string_value(dtype);
	if (memchr(t->name, '\0', t->name_len))
		return "its name holds a NUL byte";
	if (t->name_len > CK_MAX_NAME)
		return long_name;
	if (!json_is_object(j))
		return "its entry is no JSON object";
	if (!json_is_string(dtype))
		return "its dtype is no string";
	t->dtype = ck_dtype_by_safetensors(t->dtype_name,
					   json_string_length(dtype));
	if (!ck_json_dims(json_object_get(j, "shape"), t->shape, CK_MAX_RANK,
			  &t->rank))
		return "its shape is no list of at most 64 sizes below 2^62";
	if (!ck_json_dims(json_object_get(j, "data_offsets"), off, 2, &nr) ||
	    nr != 2)
		return "its data_offsets are no pair of offsets";
	return check_entry(h, off, t);
}

/* Of a header that was found to be of the usual form. */
static bool next_usual(struct ck_st_header *h, struct ck_st_tensor *t)
{
	bool is_meta = true;
	uint64_t off[2];
	char *name;

	while (is_meta) {
		if (!h->at)
			return false;
		*t = (struct ck_st_tensor){ 0 };
		h->at = pair(h->at, h->end, t, off, &is_meta);
		h->at = past(h->at, h->end, ',');
	}
	name = h->names + h->names_len;
	memcpy(name, t->name, t->name_len);
	name[t->name_len] = '\0';
	t->name = name;
	h->names_len += t->name_len + 1;
	t->why = t->name_len > CK_MAX_NAME ? long_name : check_entry(h, off, t);
	return true;
}

bool ck_st_next(struct ck_st_header *h, struct ck_st_tensor *out)
{
	const json_t *entry;

	if (h->names)
		return next_usual(h, out);
	if (h->iter && json_object_iter_value(h->iter) == h->metadata)
		h->iter = json_object_iter_next(h->json, h->iter);
	if (!h->iter)
		return false;
	*out = (struct ck_st_tensor){
		.name = json_object_iter_key(h->iter),
		.name_len = json_object_iter_key_len(h->iter),
		.dtype_name = "none",
	};
	entry = json_object_iter_value(h->iter);
	out->why = read_entry(h, entry, out);
	h->iter = json_object_iter_next(h->json, h->iter);
	return true;
}
