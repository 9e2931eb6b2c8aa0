/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turned.h - bytes of a span CK_SPAN_TURNED; see view.h
 *
 * Few columns are short runs of every row, and reads in order want ever the
 * next few.  So what is read in order is read in bands of many columns, of
 * which the last are kept for a second, in bounded memory.  Any thread.
 */
#ifndef CK_TURNED_H
#define CK_TURNED_H

#include "core/view/view.h"

/* The bands of one file's matrices. */
struct ck_bands *ck_bands_new(void); /* NULL: no memory */
void ck_bands_free(struct ck_bands *b);

/* Bytes [span->off, + len) of what it shows: all of them or -errno. */
int ck_turned_read(const struct ck_view *v, const struct ck_span *span,
		   void *buf, uint64_t len, struct ck_err *err);

#endif
