// SPDX-License-Identifier: Apache-2.0
/*
 * torch_item.c - the zip that torch.save makes of one tensor
 *
 *   TOP/data.pkl | TOP/byteorder | TOP/data/0 | TOP/version | ... | directory
 *
 * The first and the last bytes of an archive, two small reads, usually show
 * all that is needed; an archive that is small is read as a whole.
 */
#include "core/container/torch_item.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/container/torch_tensor.h"
#include "core/geom/catalog.h"
#include "core/parse/zip.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define HEAD_LEN 1024
#define TAIL_LEN 1536

struct item {
	struct ck_source *src;
	uint64_t off, len; /* of the archive, in the source */
	uint64_t head_len, tail_off; /* of what is in buf, in the archive */
	size_t buf_len;
	char buf[2 * (HEAD_LEN + TAIL_LEN)];
	struct ck_zip_end end;
	char *dir; /* owned; NULL while the directory lies in buf */
	struct ck_zip_entry *entries; /* owned */
};

static void free_item(struct item *it)
{
	free(it->dir);
	free(it->entries);
}

static int read_at(struct item *it, void *buf, size_t len, uint64_t at,
		   struct ck_err *err)
{
	return ck_source_read(it->src, buf, len, it->off + at, err);
}

/* One read of a small archive, two of another. */
static int read_ends(struct item *it, struct ck_err *err)
{
	int ret;

	if (it->len <= sizeof(it->buf)) {
		it->head_len = it->buf_len = it->len;
		return read_at(it, it->buf, it->len, 0, err);
	}
	it->head_len = HEAD_LEN;
	it->tail_off = it->len - TAIL_LEN;
	it->buf_len = HEAD_LEN + TAIL_LEN;
	ret = read_at(it, it->buf, HEAD_LEN, 0, err);
	if (ret)
		return ret;
	return read_at(it, it->buf + HEAD_LEN, TAIL_LEN, it->tail_off, err);
}

/* Bytes [at, at+len) of the archive if they have been read, or NULL. */
static const char *seen(const struct item *it, uint64_t at, uint64_t len)
{
	if (ck_range_ok(at, len, it->head_len))
		return it->buf + at;
	if (it->tail_off && at >= it->tail_off && ck_range_ok(at, len, it->len))
		return it->buf + it->head_len + (at - it->tail_off);
	return NULL;
}

/* The same, read if need be into *owned, which the caller frees. */
static int bytes_at(struct item *it, uint64_t at, uint64_t len,
		    const char **out, char **owned, struct ck_err *err)
{
	*out = seen(it, at, len);
	if (*out)
		return 0;
	if (len > CK_MAX_ITEM_META || !ck_range_ok(at, len, it->len))
		return ck_fail(err, EINVAL,
			       "%" PRIu64 " bytes at byte %" PRIu64
			       " of an archive of %" PRIu64,
			       len, at, it->len);
	*owned = malloc(len ? len : 1);
	*out = *owned;
	if (!*owned)
		return ck_no_memory(err);
	return read_at(it, *owned, len, at, err);
}

static int read_directory(struct item *it, struct ck_err *err)
{
	const char *tail = it->tail_off ? it->buf + it->head_len : it->buf;
	size_t tail_len = it->tail_off ? TAIL_LEN : it->buf_len;
	const char *dir;
	int ret = ck_zip_end(tail, tail_len, it->len, &it->end, err);

	if (!ret)
		ret = bytes_at(it, it->end.dir_off, it->end.dir_len, &dir,
			       &it->dir, err);
	if (ret)
		return ret;
	return ck_zip_dir(dir, it->end.dir_len, &it->end, &it->entries, err);
}

/* The record @name, whatever the folder that all records lie in; or NULL. */
static int find_record(const struct item *it, const char *name, size_t len,
		       const struct ck_zip_entry **out, struct ck_err *err)
{
	*out = NULL;
	for (uint64_t i = 0; i < it->end.nr; i++) {
		const struct ck_zip_entry *e = &it->entries[i];
		const char *slash = memchr(e->name, '/', e->name_len);
		size_t top = slash ? (size_t)(slash + 1 - e->name) : 0;

		if (!slash || e->name_len - top != len ||
		    memcmp(slash + 1, name, len) != 0)
			continue;
		if (*out)
			return ck_fail(err, EINVAL, "two records are %.*s",
				       (int)CK_MIN(len, 200), name);
		*out = e;
	}
	return 0;
}

/* Where the bytes of @e begin in the archive, by its local header. */
static int find_payload(struct item *it, const struct ck_zip_entry *e,
			uint64_t *payload, struct ck_err *err)
{
	ck_auto_free char *owned = NULL;
	uint64_t len = CK_MIN(CK_ZIP_LOCAL + e->name_len + CK_ZIP_LOCAL_EXTRA,
			      it->len - e->local_off);
	const char *local;
	int ret = bytes_at(it, e->local_off, len, &local, &owned, err);

	return ret ? ret : ck_zip_local(local, len, e, payload, err);
}

static int record_bytes(struct item *it, const struct ck_zip_entry *e,
			const char **out, char **owned, struct ck_err *err)
{
	uint64_t at;
	int ret = find_payload(it, e, &at, err);

	return ret ? ret : bytes_at(it, at, e->size, out, owned, err);
}

/* Without a record "byteorder" it is little-endian: torch before 2.1. */
static int read_byteorder(struct item *it, bool *big, struct ck_err *err)
{
	const struct ck_zip_entry *e;
	ck_auto_free char *owned = NULL;
	const char *text;
	int ret = find_record(it, "byteorder", 9, &e, err);

	*big = false;
	if (ret || !e)
		return ret;
	ret = record_bytes(it, e, &text, &owned, err);
	if (ret)
		return ret;
	*big = e->size == 3 && !memcmp(text, "big", 3);
	if (!*big && (e->size != 6 || memcmp(text, "little", 6) != 0))
		return ck_fail(err, EINVAL,
			       "expected a byte order, found '%.*s'",
			       (int)CK_MIN(e->size, 20), text);
	return 0;
}

static int set_xform(struct item *it, const struct ck_torch_tensor *t,
		     struct ck_torch_item *out, struct ck_err *err)
{
	bool big;
	int ret = read_byteorder(it, &big, err);

	if (!ret && !ck_torch_xform(t, big, &out->xform))
		ret = ck_fail(
			err, EINVAL,
			"a tensor that is two of big-endian, conjugated and negated");
	return ret;
}

static int set_payload(struct item *it, const struct ck_torch_tensor *t,
		       struct ck_torch_item *out, struct ck_err *err)
{
	char name[64] = "data/";
	const struct ck_zip_entry *e;
	int ret;

	if (t->key_len > sizeof(name) - 5)
		return ck_fail(err, EINVAL, "a storage's key of %zu bytes",
			       t->key_len);
	memcpy(name + 5, t->key, t->key_len);
	ret = find_record(it, name, 5 + t->key_len, &e, err);
	if (!ret && !e)
		ret = ck_fail(err, EINVAL, "no record %.*s",
			      (int)(5 + t->key_len), name);
	if (ret)
		return ret;
	if (e->size != t->storage_len)
		return ck_fail(err, EINVAL,
			       "a storage of %" PRIu64
			       " bytes in a record of %" PRIu64,
			       t->storage_len, e->size);
	out->payload_len = e->size;
	ret = find_payload(it, e, &out->payload_off, err);
	out->payload_off += it->off;
	return ret;
}

static void copy_tensor(const struct ck_torch_tensor *t,
			struct ck_torch_item *out)
{
	*out = (struct ck_torch_item){
		.dtype = t->dtype,
		.rank = t->rank,
		.storage_offset = t->storage_offset,
	};
	memcpy(out->shape, t->shape, t->rank * sizeof(*t->shape));
	memcpy(out->stride, t->stride, t->rank * sizeof(*t->stride));
}

static int read_pickle(struct item *it, struct ck_torch_item *out,
		       struct ck_err *err)
{
	const struct ck_zip_entry *e;
	ck_auto_free char *owned = NULL;
	ck_auto_pickle struct ck_pickle *p = NULL;
	struct ck_torch_tensor t;
	const char *text;
	int ret = find_record(it, "data.pkl", 8, &e, err);

	if (!ret && !e)
		ret = ck_fail(err, EINVAL, "no record data.pkl");
	if (!ret)
		ret = record_bytes(it, e, &text, &owned, err);
	if (!ret)
		ret = ck_pickle_parse(&p, text, e->size, NULL, NULL, err);
	if (!ret)
		ret = ck_torch_tensor_read(p, ck_pickle_root(p), &t, err);
	if (ret)
		return ck_wrap(err, ret, "data.pkl");
	copy_tensor(&t, out);
	ret = set_payload(it, &t, out, err);
	return ret ? ret : set_xform(it, &t, out, err);
}

int ck_torch_item_read(struct ck_source *src, uint64_t off, uint64_t len,
		       struct ck_torch_item *out, struct ck_err *err)
{
	__attribute__((cleanup(free_item))) struct item it;
	uint64_t end;
	int ret;

	it = (struct item){ .src = src, .off = off, .len = len };
	if (!ck_add_ok(off, len, &end))
		return ck_fail(err, EINVAL,
			       "%s: an item of %" PRIu64
			       " bytes at byte %" PRIu64,
			       src->name, len, off);
	ret = read_ends(&it, err);
	if (!ret)
		ret = read_directory(&it, err);
	if (!ret)
		ret = read_pickle(&it, out, err);
	if (ret)
		return ck_wrap(err, ret, "%s: item at byte %" PRIu64, src->name,
			       off);
	return 0;
}
