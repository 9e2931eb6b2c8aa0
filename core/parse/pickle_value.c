// SPDX-License-Identifier: Apache-2.0
/*
 * pickle_value.c - reading the nodes; every accessor takes any value
 */
#include "core/parse/pickle_priv.h"

#include "core/base/le.h"
#include "core/base/match.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t *words_of(const struct ck_pickle *p, ck_pv v)
{
	return p->words + pv_at(v);
}

enum ck_pkind ck_pv_kind(ck_pv v)
{
	return (enum ck_pkind)pv_kind(v);
}

bool ck_pv_int(const struct ck_pickle *p, ck_pv v, int64_t *out)
{
	if (pv_kind(v) == CK_P_BOOL)
		*out = (int64_t)pv_at(v);
	else if (pv_kind(v) != CK_P_INT)
		return false;
	else if (pv_in_arena(v))
		*out = (int64_t)*words_of(p, v);
	else
		*out = (int64_t)v >> 5;
	return true;
}

/* The parser has seen that a text float ends with a newline and is one. */
static double text_float(const char *s)
{
	char text[64];
	size_t n;

	for (n = 0; n < sizeof(text) - 1 && s[n] != '\n'; n++)
		text[n] = s[n];
	text[n] = '\0';
	return strtod(text, NULL);
}

bool ck_pv_float(const struct ck_pickle *p, ck_pv v, double *out)
{
	const uint8_t *op = p->in + pv_at(v);
	uint64_t bits;

	if (pv_kind(v) != CK_P_FLOAT)
		return false;
	if (*op == 'F') {
		*out = text_float((const char *)op + 1);
		return true;
	}
	memcpy(&bits, op + 1, sizeof(bits));
	bits = be64toh(bits);
	memcpy(out, &bits, sizeof(bits));
	return true;
}

/* The count in front of a string's bytes, as wide as its opcode says. */
static size_t string_len(const uint8_t *op, size_t *width)
{
	switch (*op) {
	case 'B':
	case 'T':
	case 'X':
		*width = 4;
		return ck_le32(op + 1);
	case 0x8d:
	case 0x8e:
	case 0x96:
		*width = 8;
		return ck_le64(op + 1);
	default:
		*width = 1;
		return op[1];
	}
}

bool ck_pv_str(const struct ck_pickle *p, ck_pv v, const char **s, size_t *len)
{
	const uint8_t *op;
	size_t width;

	if (pv_kind(v) != CK_P_STR && pv_kind(v) != CK_P_BYTES)
		return false;
	if (pv_in_arena(v)) {
		*len = *words_of(p, v);
		*s = (const char *)(words_of(p, v) + 1);
		return true;
	}
	op = p->in + pv_at(v);
	*len = string_len(op, &width);
	*s = (const char *)op + 1 + width;
	return true;
}

bool ck_pv_key_text(const struct ck_pickle *p, ck_pv key, char number[24],
		    const char **text, size_t *len)
{
	int64_t n;

	if (ck_pv_str(p, key, text, len))
		return true;
	if (!ck_pv_int(p, key, &n))
		return false;
	*len = (size_t)snprintf(number, 24, "%" PRId64, n);
	*text = number;
	return true;
}

bool ck_pv_is_str(const struct ck_pickle *p, ck_pv v, const char *literal)
{
	const char *s;
	size_t len;

	return ck_pv_str(p, v, &s, &len) && ck_text_is(s, len, literal);
}

bool ck_pv_global(const struct ck_pickle *p, ck_pv v, const char **module,
		  size_t *module_len, const char **name, size_t *name_len)
{
	const uint64_t *w = words_of(p, v);

	if (pv_kind(v) != CK_P_GLOBAL)
		return false;
	*module = (const char *)(uintptr_t)w[GLOBAL_MODULE];
	*name = (const char *)(uintptr_t)w[GLOBAL_NAME];
	*module_len = w[GLOBAL_LENS] >> 32;
	*name_len = w[GLOBAL_LENS] & UINT32_MAX;
	return true;
}

bool ck_pv_is_global(const struct ck_pickle *p, ck_pv v, const char *module,
		     const char *name)
{
	const char *m, *n;
	size_t m_len, n_len;

	return ck_pv_global(p, v, &m, &m_len, &n, &n_len) &&
	       ck_text_is(n, n_len, name) &&
	       (!module || ck_text_is(m, m_len, module));
}

/* The list of slices at the heart of @v; 0: there is none. */
static uint64_t elements(const struct ck_pickle *p, ck_pv v, bool pairs)
{
	ck_pv more;

	switch (pv_kind(v)) {
	case CK_P_LIST:
	case CK_P_SET:
		return pairs ? 0 : *words_of(p, v);
	case CK_P_DICT:
		return pairs ? *words_of(p, v) : 0;
	case CK_P_CALL:
		more = words_of(p, v)[CALL_MORE];
		if (pv_kind(more) != K_EXT)
			return 0;
		return words_of(p, more)[pairs ? EXT_PAIRS : EXT_ITEMS];
	default:
		return 0;
	}
}

uint64_t ck_pv_len(const struct ck_pickle *p, ck_pv v)
{
	if (pv_kind(v) == CK_P_TUPLE)
		return *words_of(p, v);
	if (pv_kind(v) == CK_P_DICT)
		return list_count(elements(p, v, true)) / 2;
	return list_count(elements(p, v, false));
}

static void start_list(struct ck_piter *it, const struct ck_pickle *p,
		       uint64_t list)
{
	uint64_t tail = list_tail(list);

	*it = (struct ck_piter){ .p = p, .left = list_count(list) };
	if (!tail)
		return;
	it->slice = list_tail(p->words[tail]);
	it->at = it->slice + 1;
}

void ck_piter_init(struct ck_piter *it, const struct ck_pickle *p, ck_pv v)
{
	if (pv_kind(v) != CK_P_TUPLE) {
		start_list(it, p, elements(p, v, pv_kind(v) == CK_P_DICT));
		return;
	}
	*it = (struct ck_piter){ .p = p,
				 .slice = pv_at(v),
				 .at = pv_at(v) + 1,
				 .left = *words_of(p, v) };
}

void ck_piter_init_pairs(struct ck_piter *it, const struct ck_pickle *p,
			 ck_pv v)
{
	start_list(it, p, elements(p, v, true));
}

/* A tuple's first word is its count; so its one slice never runs out. */
bool ck_piter_next(struct ck_piter *it, ck_pv *value)
{
	const uint64_t *w = it->p->words;

	if (!it->left)
		return false;
	if (it->at == it->slice + 1 + list_count(w[it->slice])) {
		it->slice = list_tail(w[it->slice]);
		it->at = it->slice + 1;
	}
	it->left--;
	*value = w[it->at++];
	return true;
}

bool ck_piter_next2(struct ck_piter *it, ck_pv *key, ck_pv *value)
{
	return ck_piter_next(it, key) && ck_piter_next(it, value);
}

bool ck_pv_at(const struct ck_pickle *p, ck_pv v, uint64_t i, ck_pv *out)
{
	uint64_t list = elements(p, v, false);
	uint64_t slice;

	if (pv_kind(v) == CK_P_TUPLE) {
		if (i >= *words_of(p, v))
			return false;
		*out = words_of(p, v)[1 + i];
		return true;
	}
	if (i >= list_count(list))
		return false;
	slice = list_tail(p->words[list_tail(list)]);
	while (i >= list_count(p->words[slice])) {
		i -= list_count(p->words[slice]);
		slice = list_tail(p->words[slice]);
	}
	*out = p->words[slice + 1 + i];
	return true;
}

bool ck_pv_key(const struct ck_pickle *p, ck_pv v, const char *key, ck_pv *out)
{
	struct ck_piter it;
	ck_pv k, value;
	bool found = false;

	ck_piter_init_pairs(&it, p, v);
	while (ck_piter_next2(&it, &k, &value)) {
		if (pv_kind(k) != CK_P_STR || !ck_pv_is_str(p, k, key))
			continue;
		*out = value;
		found = true;
	}
	return found;
}

ck_pv ck_pv_callee(const struct ck_pickle *p, ck_pv call)
{
	if (pv_kind(call) != CK_P_CALL)
		return 0;
	return call_callee(words_of(p, call)[CALL_WHAT]);
}

ck_pv ck_pv_args(const struct ck_pickle *p, ck_pv call)
{
	if (pv_kind(call) != CK_P_CALL)
		return 0;
	return call_args(words_of(p, call)[CALL_WHAT]);
}

bool ck_pv_state(const struct ck_pickle *p, ck_pv call, ck_pv *out)
{
	ck_pv state;

	if (pv_kind(call) != CK_P_CALL)
		return false;
	state = words_of(p, call)[CALL_MORE];
	if (pv_kind(state) == K_EXT)
		state = words_of(p, state)[EXT_STATE];
	if (state)
		*out = state;
	return state;
}

bool ck_pv_kwargs(const struct ck_pickle *p, ck_pv call, ck_pv *out)
{
	ck_pv more;

	if (pv_kind(call) != CK_P_CALL)
		return false;
	more = words_of(p, call)[CALL_MORE];
	if (pv_kind(more) != K_EXT || !words_of(p, more)[EXT_KWARGS])
		return false;
	*out = words_of(p, more)[EXT_KWARGS];
	return true;
}

bool ck_pv_attr(const struct ck_pickle *p, ck_pv call, const char *key,
		ck_pv *out)
{
	ck_pv state, part;

	if (!ck_pv_state(p, call, &state))
		return false;
	if (pv_kind(state) == CK_P_DICT)
		return ck_pv_key(p, state, key, out);
	if (pv_kind(state) != CK_P_TUPLE || ck_pv_len(p, state) != 2)
		return false;
	for (uint64_t i = 0; i < 2; i++)
		if (ck_pv_at(p, state, i, &part) &&
		    pv_kind(part) == CK_P_DICT && ck_pv_key(p, part, key, out))
			return true;
	return false;
}

ck_pv ck_pv_persid(const struct ck_pickle *p, ck_pv v)
{
	return pv_kind(v) == CK_P_PERSID ? *words_of(p, v) : 0;
}
