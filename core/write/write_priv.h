/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_priv.h - the writer and its parts
 *
 *	writer.c    the public calls; edits and their files
 *	scatter.c   a byte range to all that hold it
 *	sums.c      the checksums that files keep of it
 *	range_lock.c    one writer of a byte at a time
 */
#ifndef CK_WRITE_PRIV_H
#define CK_WRITE_PRIV_H

#include "core/io/read_priv.h"
#include "core/write/writer.h"

struct ck_edit {
	struct ck_writer *w;
	_Atomic uint64_t *touched; /* a bit a source */
};

/* See ck_writer_write_ranges(). */
int ck_scatter(struct ck_writer *w, struct ck_edit *e,
	       const struct ck_wrange *v, size_t nr, size_t *done,
	       struct ck_err *err);
/* Whether @chunk of @tensor can be written, as far as the catalog says. */
int ck_scatter_may(const struct ck_writer *w, uint32_t tensor, uint32_t chunk,
		   struct ck_err *err);

#endif
