/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog_write.c - sections to a file, front to back
 *
 * Small records are gathered, large ones go out as they lie in memory.  The
 * head is written last: what was left half done is no catalog.
 */
#include "core/catalog/builder_priv.h"
#include "core/catalog/catalog_priv.h"

#include <unistd.h>

#define BUF_SIZE (256u << 10)

/* A file may be no larger than the caller's limit says, as a quota would. */
static int failed(int code, struct ck_err *err)
{
	return ck_fail(err, code == EFBIG ? EDQUOT : code,
		       "cannot write the catalog: %s%s", strerror(code),
		       code == EFBIG ? ", by the caller's limit (ulimit -f)" :
				       "");
}

static int write_all(struct ck_catalog_out *o, const void *bytes, size_t len,
		     uint64_t off, struct ck_err *err)
{
	const unsigned char *at = bytes;

	while (len) {
		ssize_t n = pwrite(o->fd, at, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return failed(n ? errno : EIO, err);
		at += n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	return 0;
}

static int flush(struct ck_catalog_out *o, struct ck_err *err)
{
	int ret = write_all(o, o->buf, o->fill, o->off - o->fill, err);

	o->fill = 0;
	return ret;
}

int ck_catalog_out_begin(struct ck_catalog_out *o, int fd, struct ck_err *err)
{
	*o = (struct ck_catalog_out){ .fd = fd,
				      .off = sizeof(struct ck_catalog_head) };
	o->buf = reallocarray(NULL, BUF_SIZE, 1);
	return o->buf ? 0 : ck_no_memory(err);
}

int ck_catalog_out_put(struct ck_catalog_out *o, const void *bytes, size_t len,
		       struct ck_err *err)
{
	int ret = 0;

	if (len > BUF_SIZE - o->fill)
		ret = flush(o, err);
	if (!ret && len > BUF_SIZE)
		ret = write_all(o, bytes, len, o->off, err);
	else if (!ret && len) {
		memcpy(o->buf + o->fill, bytes, len);
		o->fill += len;
	}
	o->off += len;
	return ret;
}

static int align(struct ck_catalog_out *o, struct ck_err *err)
{
	static const char zeros[8];

	return ck_catalog_out_put(o, zeros, -o->off % sizeof(zeros), err);
}

int ck_catalog_out_section(struct ck_catalog_out *o, unsigned sec,
			   const void *records, size_t nr, struct ck_err *err)
{
	int ret = align(o, err);

	o->head.sec[sec].off = o->off;
	o->head.sec[sec].nr = nr;
	o->head.sec[sec].elem = ck_catalog_elem(sec);
	if (ret || !records)
		return ret;
	return ck_catalog_out_put(o, records, nr * ck_catalog_elem(sec), err);
}

int ck_catalog_out_end(struct ck_catalog_out *o, uint32_t format,
		       struct ck_err *err)
{
	int ret = align(o, err);

	if (!ret)
		ret = flush(o, err);
	if (!ret && ftruncate(o->fd, (off_t)o->off))
		ret = failed(errno, err);
	if (ret)
		return ret;
	o->head.magic = CK_CATALOG_MAGIC;
	o->head.version = CK_CATALOG_VERSION;
	o->head.format = format;
	o->head.size = o->off;
	return write_all(o, &o->head, sizeof(o->head), 0, err);
}

void ck_catalog_out_free(struct ck_catalog_out *o)
{
	free(o->buf);
	o->buf = NULL;
}
