/* SPDX-License-Identifier: Apache-2.0 */
/*
 * root_same_file.c - whether two joined directories mean the same by one name
 *
 * Compared is what says where tensors lie: a small file and an index whole, of
 * a safetensors file its header.  The bytes of tensors are verify's to compare:
 * they may be terabytes, and this is done at each open.  Any threads.
 */
#include "core/root/root_priv.h"

#include "core/base/auto.h"
#include "core/base/limits.h"
#include "core/base/suffix.h"
#include "core/base/whole.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define SMALL (UINT64_C(1) << 20) /* bytes; of any file, all are compared */
#define INDEX_MAX (UINT64_C(64) << 20) /* bytes; of an index, so many */
#define CHUNK 16384

/* How many of the first @size bytes of @name, open at @fd, are an index. */
static uint64_t index_bytes(const char *name, int fd, uint64_t size)
{
	unsigned char len[8];
	uint64_t n = 0;

	if (ck_ends_in(name, ".safetensors")) {
		if (size < sizeof(len) ||
		    ck_pread_whole(fd, len, sizeof(len), 0))
			return size < SMALL ? size : SMALL;
		for (unsigned i = sizeof(len); i--;)
			n = n << 8 | len[i];
		if (n > CK_MAX_HEADER)
			n = 0; /* refused by its reader */
		n += sizeof(len);
		return n < size ? n : size;
	}
	if (size <= SMALL)
		return size;
	if (!ck_ends_in(name, ".json") && !ck_ends_in(name, ".metadata"))
		return 0;
	return size < INDEX_MAX ? size : INDEX_MAX;
}

int ck_root_compare(const char *name, const struct ck_root_same_file *a,
		    const struct ck_root_same_file *b, struct ck_err *err)
{
	unsigned char x[CHUNK], y[CHUNK];
	uint64_t end = index_bytes(name, a->fd, (uint64_t)a->st->st_size);

	if (a->st->st_dev == b->st->st_dev && a->st->st_ino == b->st->st_ino)
		return 0;
	for (uint64_t off = 0; off < end; off += CHUNK) {
		size_t n = end - off < CHUNK ? (size_t)(end - off) : CHUNK;
		size_t i = 0;

		if (ck_pread_whole(a->fd, x, n, off) ||
		    ck_pread_whole(b->fd, y, n, off))
			return 0;
		while (i < n && x[i] == y[i])
			i++;
		if (i < n)
			return ck_fail(
				err, EINVAL,
				"%s/%s has 0x%02x at byte %" PRIu64
				", %s/%s has 0x%02x: joined sources must agree",
				a->root->path, name, x[i], off + i,
				b->root->path, name, y[i]);
	}
	return 0;
}
