/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_source.c - a pickle that is too large to be read, for what it holds
 *
 *   BINBYTES8 <8: n> <n bytes>   becomes   SHORT_BINBYTES 16 <8: off> <8: n>
 *
 * and so do the other opcodes of bytes; frames go.  Nothing else changes, so
 * that the stack and the memo are what they were.  What is left is parsed.
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/parse/pickle_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define WINDOW 65536
#define NOTE 16
#define FRAME 0x95

struct skim {
	const struct ck_pickle_source *in;
	struct ck_str out;
	uint64_t at, from; /* in the source; of the window */
	size_t have;
	unsigned char *window;
	struct ck_err *err;
};

static int ends_early(const struct skim *s)
{
	return ck_fail(s->err, EINVAL,
		       "%s: byte %" PRIu64 ": the pickle ends in the middle",
		       s->in->name, s->at);
}

/* What of the window lies at @at, at least one byte. */
static int look(struct skim *s, const unsigned char **bytes, size_t *len)
{
	int ret = 0;

	if (s->at == s->in->size)
		return ends_early(s);
	if (s->at < s->from || s->at - s->from >= s->have) {
		s->have = (size_t)CK_MIN(s->in->size - s->at, (uint64_t)WINDOW);
		s->from = s->at;
		ret = s->in->read(s->in->ctx, s->window, s->have, s->from,
				  s->err);
	}
	*bytes = s->window + (s->at - s->from);
	*len = s->have - (size_t)(s->at - s->from);
	return ret;
}

static int put(struct skim *s, const void *bytes, size_t len)
{
	if (s->out.len + len > CK_PICKLE_SOURCE_MAX)
		return ck_fail(s->err, EINVAL,
			       "%s: over %" PRIu64 " MiB beside its tensors",
			       s->in->name, CK_PICKLE_SOURCE_MAX >> 20);
	ck_str_add(&s->out, bytes, len);
	return s->out.failed ? ck_no_memory(s->err) : 0;
}

static int copy(struct skim *s, uint64_t n)
{
	const unsigned char *bytes;
	size_t len;
	int ret = n > s->in->size - s->at ? ends_early(s) : 0;

	while (!ret && n) {
		ret = look(s, &bytes, &len);
		if (ret)
			break;
		len = (size_t)CK_MIN((uint64_t)len, n);
		ret = put(s, bytes, len);
		s->at += len;
		n -= len;
	}
	return ret;
}

static int copy_line(struct skim *s)
{
	const unsigned char *bytes, *end = NULL;
	size_t len;
	int ret = 0;

	while (!ret && !end) {
		ret = look(s, &bytes, &len);
		if (ret)
			break;
		end = memchr(bytes, '\n', len);
		len = end ? (size_t)(end - bytes) + 1 : len;
		ret = put(s, bytes, len);
		s->at += len;
	}
	return ret;
}

/* A little-endian number of @n bytes. */
static int number(struct skim *s, unsigned n, uint64_t *out)
{
	const unsigned char *bytes;
	size_t len;
	int ret = 0;

	*out = 0;
	for (unsigned i = 0; i < n && !ret; i++) {
		ret = look(s, &bytes, &len);
		if (!ret)
			*out |= (uint64_t)*bytes << (8 * i);
		s->at += !ret;
	}
	return ret;
}

static int take_bytes(struct skim *s, unsigned width)
{
	unsigned char note[2 + NOTE] = { 'C', NOTE };
	uint64_t len;
	int ret = number(s, width, &len);

	if (ret)
		return ret;
	if (len > s->in->size - s->at)
		return ends_early(s);
	memcpy(note + 2, &s->at, 8);
	memcpy(note + 10, &len, 8);
	s->at += len;
	return put(s, note, sizeof(note));
}

static int take(struct skim *s, unsigned char code)
{
	const struct pickle_op *op = &ck_pickle_ops_table[code];
	uint64_t n;
	int ret;

	if (!op->run)
		return ck_fail(s->err, EINVAL,
			       "%s: byte %" PRIu64
			       ": 0x%02x is no opcode of a pickle",
			       s->in->name, s->at - 1, code);
	if (code == FRAME)
		return number(s, op->width, &n);
	if (op->follow == COUNTED && op->arg == CK_P_BYTES)
		return take_bytes(s, op->width);
	if (op->follow == COUNTED) {
		ret = number(s, op->width, &n);
		if (!ret)
			ret = put(s, &code, 1);
		if (!ret)
			ret = put(s, &n, op->width);
		return ret ? ret : copy(s, n);
	}
	ret = put(s, &code, 1);
	if (!ret)
		ret = copy(s, op->width);
	for (unsigned lines = op->follow; !ret && lines > COUNTED; lines--)
		ret = copy_line(s);
	return ret;
}

static int skim(struct skim *s)
{
	const unsigned char *bytes;
	unsigned char code = 0;
	size_t len;
	int ret = 0;

	while (!ret && code != '.') {
		ret = look(s, &bytes, &len);
		if (ret)
			break;
		code = *bytes;
		s->at++;
		ret = take(s, code);
	}
	return ret;
}

int ck_pickle_parse_source(struct ck_pickle **out,
			   const struct ck_pickle_source *in, uint64_t *used,
			   struct ck_err *err)
{
	ck_auto_free unsigned char *window = malloc(WINDOW);
	struct skim s = { .in = in, .window = window, .err = err };
	int ret = window ? skim(&s) : ck_no_memory(err);

	*used = s.at;
	if (!ret)
		ret = ck_wrap(err,
			      ck_pickle_parse(out, s.out.v, s.out.len, NULL,
					      NULL, err),
			      "%s, without its tensors", in->name);
	if (!ret)
		(*out)->own = ck_steal(s.out.v);
	ck_str_free(&s.out);
	return ret;
}

bool ck_pv_extent(const struct ck_pickle *p, ck_pv v, uint64_t *off,
		  uint64_t *len)
{
	const char *note;
	size_t n;

	if (!p->own || ck_pv_kind(v) != CK_P_BYTES ||
	    !ck_pv_str(p, v, &note, &n))
		return false;
	memcpy(off, note, 8);
	memcpy(len, note + 8, 8);
	return true;
}
