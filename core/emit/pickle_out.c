/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_out.c - pickle opcodes, protocol 2
 */
#include "core/emit/pickle_out.h"

#include <endian.h>
#include <string.h>

void ck_po_op(struct ck_str *s, char opcode)
{
	ck_str_add(s, &opcode, 1);
}

void ck_po_begin(struct ck_str *s)
{
	ck_str_add(s, "\x80\x02", 2);
}

void ck_po_end(struct ck_str *s)
{
	ck_po_op(s, '.');
}

void ck_po_str(struct ck_str *s, const char *text, size_t len)
{
	ck_po_op(s, 'X'); /* BINUNICODE */
	ck_str_le32(s, (uint32_t)len);
	ck_str_add(s, text, len);
}

void ck_po_int(struct ck_str *s, uint64_t v)
{
	uint64_t le = htole64(v);

	if (v < 256) {
		ck_po_op(s, 'K'); /* BININT1 */
		ck_str_add(s, &le, 1);
	} else if (v <= INT32_MAX) {
		ck_po_op(s, 'J'); /* BININT */
		ck_str_add(s, &le, 4);
	} else {
		ck_str_add(s, "\x8a\x08", 2); /* LONG1 of 8 bytes; v < 2^63 */
		ck_str_add(s, &le, 8);
	}
}

void ck_po_signed(struct ck_str *s, int64_t v)
{
	if (v >= 0) {
		ck_po_int(s, (uint64_t)v);
		return;
	}
	ck_str_add(s, "\x8a\x08", 2); /* LONG1 of 8 bytes */
	ck_str_le64(s, (uint64_t)v);
}

void ck_po_float(struct ck_str *s, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	bits = htobe64(bits);
	ck_po_op(s, 'G'); /* BINFLOAT */
	ck_str_add(s, &bits, sizeof(bits));
}

void ck_po_ints(struct ck_str *s, const uint64_t *v, unsigned nr)
{
	ck_po_op(s, CK_PO_MARK);
	for (unsigned i = 0; i < nr; i++)
		ck_po_int(s, v[i]);
	ck_po_op(s, CK_PO_TUPLE);
}

void ck_po_global(struct ck_str *s, const char *module, const char *name)
{
	ck_str_fmt(s, "c%s\n%s\n", module, name);
}

void ck_po_keep(struct ck_str *s, uint8_t slot)
{
	ck_po_op(s, 'q'); /* BINPUT */
	ck_str_add(s, &slot, 1);
}

void ck_po_kept(struct ck_str *s, uint8_t slot)
{
	ck_po_op(s, 'h'); /* BINGET */
	ck_str_add(s, &slot, 1);
}
