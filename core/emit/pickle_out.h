/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_out.h - writes the few pickle opcodes that torch's files need
 *
 * Protocol 2.
 */
#ifndef CK_PICKLE_OUT_H
#define CK_PICKLE_OUT_H

#include "core/base/str.h"

#include <stddef.h>
#include <stdint.h>

void ck_po_begin(struct ck_str *s);
void ck_po_end(struct ck_str *s);
void ck_po_str(struct ck_str *s, const char *text, size_t len);
void ck_po_int(struct ck_str *s, uint64_t v);
/* Any integer, below 0 too. */
void ck_po_signed(struct ck_str *s, int64_t v);
void ck_po_float(struct ck_str *s, double v);
/* A tuple of integers. */
void ck_po_ints(struct ck_str *s, const uint64_t *v, unsigned nr);
void ck_po_global(struct ck_str *s, const char *module, const char *name);
void ck_po_op(struct ck_str *s, char opcode);
/* Keeps what is on top as number @slot; puts number @slot there. */
void ck_po_keep(struct ck_str *s, uint8_t slot);
void ck_po_kept(struct ck_str *s, uint8_t slot);

/* Opcodes that callers of ck_po_op() use. */
enum {
	CK_PO_MARK = '(',
	CK_PO_TUPLE = 't',
	CK_PO_EMPTY_TUPLE = ')',
	CK_PO_EMPTY_DICT = '}',
	CK_PO_SETITEMS = 'u',
	CK_PO_EMPTY_LIST = ']',
	CK_PO_APPENDS = 'e',
	CK_PO_REDUCE = 'R',
	CK_PO_PERSID = 'Q',
	CK_PO_TRUE = '\x88',
	CK_PO_FALSE = '\x89',
	CK_PO_NONE = 'N',
	CK_PO_POP = '0',
	CK_PO_SETITEM = 's',
	CK_PO_APPEND = 'a',
	CK_PO_NEWOBJ = '\x81',
	CK_PO_BUILD = 'b',
	CK_PO_TUPLE1 = '\x85',
};

#endif
