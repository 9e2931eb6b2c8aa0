/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thin.c - goes through a pickle's opcodes by their lengths, in one pass
 *
 *   BINBYTES8 <8: n> <n bytes>   becomes   SHORT_BINBYTES 16 <8: off> <8: n>
 *
 * and so do the other three opcodes of bytes.  Nothing else changes, so that
 * the stack and the memo are what they were.
 */
#include "core/format/oneflow/thin.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define WINDOW 65536
#define NOTE 16

enum kind { NO_OP, PLAIN, LINES, LENGTH, BYTES, FRAME, STOP };

struct op {
	uint8_t kind, n; /* bytes of argument, lines, or bytes of a length */
};

static const struct op ops[256] = {
	['('] = { PLAIN, 0 },	['.'] = { STOP, 0 },	['0'] = { PLAIN, 0 },
	['1'] = { PLAIN, 0 },	['2'] = { PLAIN, 0 },	['F'] = { LINES, 1 },
	['I'] = { LINES, 1 },	['J'] = { PLAIN, 4 },	['K'] = { PLAIN, 1 },
	['L'] = { LINES, 1 },	['M'] = { PLAIN, 2 },	['N'] = { PLAIN, 0 },
	['P'] = { LINES, 1 },	['Q'] = { PLAIN, 0 },	['R'] = { PLAIN, 0 },
	['S'] = { LINES, 1 },	['T'] = { LENGTH, 4 },	['U'] = { LENGTH, 1 },
	['V'] = { LINES, 1 },	['X'] = { LENGTH, 4 },	['a'] = { PLAIN, 0 },
	['b'] = { PLAIN, 0 },	['c'] = { LINES, 2 },	['d'] = { PLAIN, 0 },
	['}'] = { PLAIN, 0 },	['e'] = { PLAIN, 0 },	['g'] = { LINES, 1 },
	['h'] = { PLAIN, 1 },	['i'] = { LINES, 2 },	['j'] = { PLAIN, 4 },
	['l'] = { PLAIN, 0 },	[']'] = { PLAIN, 0 },	['o'] = { PLAIN, 0 },
	['p'] = { LINES, 1 },	['q'] = { PLAIN, 1 },	['r'] = { PLAIN, 4 },
	['s'] = { PLAIN, 0 },	['t'] = { PLAIN, 0 },	[')'] = { PLAIN, 0 },
	['u'] = { PLAIN, 0 },	['G'] = { PLAIN, 8 },	[0x80] = { PLAIN, 1 },
	[0x81] = { PLAIN, 0 },	[0x82] = { PLAIN, 1 },	[0x83] = { PLAIN, 2 },
	[0x84] = { PLAIN, 4 },	[0x85] = { PLAIN, 0 },	[0x86] = { PLAIN, 0 },
	[0x87] = { PLAIN, 0 },	[0x88] = { PLAIN, 0 },	[0x89] = { PLAIN, 0 },
	[0x8a] = { LENGTH, 1 }, [0x8b] = { LENGTH, 4 }, ['B'] = { BYTES, 4 },
	['C'] = { BYTES, 1 },	[0x8c] = { LENGTH, 1 }, [0x8d] = { LENGTH, 8 },
	[0x8e] = { BYTES, 8 },	[0x8f] = { PLAIN, 0 },	[0x90] = { PLAIN, 0 },
	[0x91] = { PLAIN, 0 },	[0x92] = { PLAIN, 0 },	[0x93] = { PLAIN, 0 },
	[0x94] = { PLAIN, 0 },	[0x95] = { FRAME, 8 },	[0x96] = { BYTES, 8 },
	[0x97] = { PLAIN, 0 },	[0x98] = { PLAIN, 0 },
};

struct thin {
	struct ck_source *src;
	struct ck_str *out;
	uint64_t at, size; /* position in the file */
	uint64_t from; /* of the window */
	size_t have;
	unsigned char *window;
};

static int ends_early(const struct thin *t, struct ck_err *err)
{
	return ck_fail(err, EINVAL,
		       "%s: byte %" PRIu64 ": the pickle ends in the middle",
		       t->src->name, t->at);
}

/* The next byte; it is not yet in the window after each WINDOW of them. */
static int next(struct thin *t, unsigned char *c, struct ck_err *err)
{
	int ret;

	if (t->at == t->size)
		return ends_early(t, err);
	if (t->at < t->from || t->at - t->from >= t->have) {
		t->have = (size_t)CK_MIN(t->size - t->at, (uint64_t)WINDOW);
		t->from = t->at;
		ret = ck_source_read(t->src, t->window, t->have, t->from, err);
		if (ret)
			return ret;
	}
	*c = t->window[t->at++ - t->from];
	return 0;
}

static int put(struct thin *t, const void *bytes, size_t len,
	       struct ck_err *err)
{
	if (t->out->len + len > CK_OF_THIN_MAX)
		return ck_fail(err, EINVAL,
			       "%s: over %" PRIu64 " MiB beside its tensors",
			       t->src->name, CK_OF_THIN_MAX >> 20);
	ck_str_add(t->out, bytes, len);
	return t->out->failed ? ck_fail(err, ENOMEM, "no memory for a pickle") :
				0;
}

static int copy(struct thin *t, uint64_t n, struct ck_err *err)
{
	unsigned char c;
	int ret = n > t->size - t->at ? ends_early(t, err) : 0;

	while (!ret && n--) {
		ret = next(t, &c, err);
		if (!ret)
			ret = put(t, &c, 1, err);
	}
	return ret;
}

static int copy_lines(struct thin *t, unsigned n, struct ck_err *err)
{
	unsigned char c = 0;
	int ret = 0;

	while (!ret && n) {
		ret = next(t, &c, err);
		if (!ret)
			ret = put(t, &c, 1, err);
		n -= !ret && c == '\n';
	}
	return ret;
}

/* A little-endian number of @n bytes. */
static int number(struct thin *t, unsigned n, uint64_t *out, struct ck_err *err)
{
	unsigned char c;
	int ret;

	*out = 0;
	for (unsigned i = 0; i < n; i++) {
		ret = next(t, &c, err);
		if (ret)
			return ret;
		*out |= (uint64_t)c << (8 * i);
	}
	return 0;
}

static int take_bytes(struct thin *t, unsigned n, struct ck_err *err)
{
	unsigned char note[2 + NOTE] = { 'C', NOTE };
	uint64_t len;
	int ret = number(t, n, &len, err);

	if (ret)
		return ret;
	if (len > t->size - t->at)
		return ends_early(t, err);
	memcpy(note + 2, &t->at, 8);
	memcpy(note + 10, &len, 8);
	t->at += len;
	return put(t, note, sizeof(note), err);
}

static int take_length(struct thin *t, unsigned char code, unsigned n,
		       struct ck_err *err)
{
	uint64_t len;
	int ret = number(t, n, &len, err);

	if (!ret)
		ret = put(t, &code, 1, err);
	if (!ret)
		ret = put(t, &len, n, err);
	return ret ? ret : copy(t, len, err);
}

static int take(struct thin *t, unsigned char code, struct ck_err *err)
{
	const struct op *op = &ops[code];
	uint64_t skipped;

	switch (op->kind) {
	case BYTES:
		return take_bytes(t, op->n, err);
	case LENGTH:
		return take_length(t, code, op->n, err);
	case FRAME:
		return number(t, op->n, &skipped, err);
	case LINES:
		return put(t, &code, 1, err) ?: copy_lines(t, op->n, err);
	case PLAIN:
	case STOP:
		return put(t, &code, 1, err) ?: copy(t, op->n, err);
	default:
		return ck_fail(err, EINVAL,
			       "%s: byte %" PRIu64
			       ": 0x%02x is no opcode of a pickle",
			       t->src->name, t->at - 1, code);
	}
}

int ck_of_thin(struct ck_source *src, struct ck_str *out, uint64_t *len,
	       struct ck_err *err)
{
	ck_auto_free unsigned char *window = malloc(WINDOW);
	struct thin t = { .src = src,
			  .out = out,
			  .size = (uint64_t)src->st.st_size,
			  .window = window };
	unsigned char code = 0;
	int ret = window ? 0 : ck_fail(err, ENOMEM, "no memory for a pickle");

	while (!ret && code != '.') {
		ret = next(&t, &code, err);
		if (!ret)
			ret = take(&t, code, err);
	}
	*len = t.at;
	return ret;
}

bool ck_of_thin_bytes(const struct ck_pickle *p, ck_pv v, uint64_t *off,
		      uint64_t *len)
{
	const char *note;
	size_t n;

	if (ck_pv_kind(v) != CK_P_BYTES || !ck_pv_str(p, v, &note, &n) ||
	    n != NOTE)
		return false;
	memcpy(off, note, 8);
	memcpy(len, note + 8, 8);
	return true;
}
