/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_save.c - the zip container, and what both containers share
 */
#include "core/container/torch_save.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/base/match.h"
#include "core/base/suffix.h"
#include "core/container/torch_save_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Known by a record that only it has; others of its records are packed. */
static const char torchscript[] =
	"a TorchScript archive holds a program; expected a state dict by torch.save";

/*
 * The pickle of torch's number: an opcode that says the protocol, from
 * protocol 4 on a frame around the rest, whose length is not of interest, and
 * the number; in protocol 1 the number alone, in decimal.
 */
static bool is_legacy(const char *head, size_t len)
{
	static const char binary[] = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20"
				     "\x6a\xa8\x50\x19.";
	static const char decimal[] = "L119547037146038801333356L\n.";
	size_t n = sizeof(binary) - 1, at = 2;

	if (len >= sizeof(decimal) - 1 &&
	    !memcmp(head, decimal, sizeof(decimal) - 1))
		return true;
	if (len > 11 && head[2] == '\x95')
		at += 9;
	return len >= at + n && head[0] == '\x80' &&
	       !memcmp(head + at, binary, n);
}

bool ck_torch_save_magic(const void *head, size_t len)
{
	return (len >= 16 && !memcmp(head, "PK\3\4", 4)) ||
	       is_legacy(head, len);
}

bool ck_torch_save_is_name(const char *name)
{
	static const char *const suffix[] = { ".pt", ".pth", ".bin", ".ckpt" };
	for (size_t i = 0; i < CK_ARRAY_LEN(suffix); i++)
		if (ck_has_suffix(name, suffix[i]))
			return true;
	return false;
}

bool ck_torch_save_is(struct ck_source *src)
{
	char head[CK_TORCH_SAVE_HEAD];
	size_t len = (size_t)CK_MIN(src->st.st_size, (off_t)sizeof(head));

	return !ck_source_read(src, head, len, 0, NULL) &&
	       ck_torch_save_magic(head, len);
}

static int storage_order(const void *pa, const void *pb)
{
	const struct ck_torch_storage *a = pa, *b = pb;

	return ck_text_order(a->key, a->key_len, b->key, b->key_len);
}

void ck_torch_save_sort(struct ck_torch_save *ts)
{
	if (ts->storages.nr)
		qsort(ts->storages.v, ts->storages.nr, sizeof(*ts->storages.v),
		      storage_order);
}

struct ck_torch_storage *ck_torch_save_find(struct ck_torch_save *ts,
					    const char *key, size_t len)
{
	const struct ck_torch_storage want = { .key = key, .key_len = len };

	if (!ts->storages.nr)
		return NULL;
	return bsearch(&want, ts->storages.v, ts->storages.nr,
		       sizeof(*ts->storages.v), storage_order);
}

/* The last bytes of the file, up to a comment's length before the records. */
static int read_tail(struct ck_torch_save *ts, uint64_t size,
		     struct ck_err *err)
{
	size_t len = CK_MIN(size, CK_ZIP_TAIL + 65535u);
	ck_auto_free char *tail = malloc(len);
	int ret;

	if (!tail)
		return ck_no_memory(err);
	ret = ck_source_read(ts->src, tail, len, size - len, err);
	return ret ? ret : ck_zip_end(tail, len, size, &ts->end, err);
}

static int read_directory(struct ck_torch_save *ts, struct ck_err *err)
{
	uint64_t size = (uint64_t)ts->src->st.st_size;
	int ret = read_tail(ts, size, err);

	if (ret)
		return ret;
	if (ts->end.dir_len > CK_MAX_INDEX)
		return ck_fail(err, E2BIG, "a directory of %" PRIu64 " bytes",
			       ts->end.dir_len);
	ts->dir = malloc(ts->end.dir_len + 1);
	if (!ts->dir)
		return ck_no_memory(err);
	ret = ck_source_read(ts->src, ts->dir, ts->end.dir_len, ts->end.dir_off,
			     err);
	if (!ret && memmem(ts->dir, ts->end.dir_len, "/constants.pkl", 14))
		return ck_fail(err, EINVAL, "%s", torchscript);
	return ret ? ret :
		     ck_zip_dir(ts->dir, ts->end.dir_len, &ts->end,
				&ts->entries, err);
}

/* The rest of an entry's name behind the folder that all records lie in. */
static const char *record_name(const struct ck_zip_entry *e, size_t *len)
{
	const char *slash = memchr(e->name, '/', e->name_len);
	const char *name = slash ? slash + 1 : e->name;

	*len = e->name_len - (size_t)(name - e->name);
	return name;
}

static const struct ck_zip_entry *find(const struct ck_torch_save *ts,
				       const char *want)
{
	for (uint64_t i = 0; i < ts->end.nr; i++) {
		size_t len;
		const char *name = record_name(&ts->entries[i], &len);

		if (ck_text_is(name, len, want))
			return &ts->entries[i];
	}
	return NULL;
}

const char *ck_torch_save_top(const struct ck_torch_save *ts, size_t *len)
{
	const struct ck_zip_entry *e = find(ts, "data.pkl");
	const char *slash = e ? memchr(e->name, '/', e->name_len) : NULL;

	*len = slash ? (size_t)(slash - e->name) : 0;
	return slash ? e->name : NULL;
}

bool ck_torch_save_called(const struct ck_torch_save *ts, const char *suffix,
			  char *room, size_t size)
{
	size_t len;
	const char *top = ck_torch_save_top(ts, &len);

	if (!top || len + strlen(suffix) >= size || memchr(top, 0, len))
		return false;
	memcpy(room, top, len);
	strcpy(room + len, suffix);
	return true;
}

static int place_entry(struct ck_torch_save *ts, const struct ck_zip_entry *e,
		       uint64_t *off, struct ck_err *err)
{
	uint64_t len = CK_MIN(CK_ZIP_LOCAL + e->name_len + CK_ZIP_LOCAL_EXTRA,
			      (uint64_t)ts->src->st.st_size - e->local_off);
	ck_auto_free char *head = malloc(len + 1);
	int ret;

	if (!head)
		return ck_no_memory(err);
	ret = ck_source_read(ts->src, head, len, e->local_off, err);
	return ret ? ret : ck_zip_local(head, len, e, off, err);
}

static int read_byteorder(struct ck_torch_save *ts, struct ck_err *err)
{
	const struct ck_zip_entry *e = find(ts, "byteorder");
	char text[8] = "";
	uint64_t off;
	int ret;

	if (!e)
		return 0; /* little: torch before 2.1 */
	if (e->size >= sizeof(text))
		return ck_fail(err, EINVAL, "a byteorder of %" PRIu64 " bytes",
			       e->size);
	ret = place_entry(ts, e, &off, err);
	if (!ret)
		ret = ck_source_read(ts->src, text, e->size, off, err);
	if (ret)
		return ret;
	ts->big_endian = !strcmp(text, "big");
	if (!ts->big_endian && strcmp(text, "little") != 0)
		return ck_fail(err, EINVAL, "expected a byte order, found '%s'",
			       text);
	return 0;
}

static int read_pickle(struct ck_torch_save *ts, struct ck_err *err)
{
	const struct ck_zip_entry *e = find(ts, "data.pkl");
	int ret;

	if (!e)
		return ck_fail(err, EINVAL, "a zip without a record data.pkl");
	if (e->size > CK_MAX_INDEX)
		return ck_fail(err, E2BIG, "data.pkl of %" PRIu64 " bytes",
			       e->size);
	ret = place_entry(ts, e, &ts->pickle_off, err);
	if (ret)
		return ret;
	ts->pickle_len = e->size;
	ts->bytes = malloc(e->size + 1);
	if (!ts->bytes)
		return ck_no_memory(err);
	ret = ck_source_read(ts->src, ts->bytes, e->size, ts->pickle_off, err);
	if (!ret)
		ret = ck_pickle_parse(&ts->pickle, ts->bytes, e->size, NULL,
				      NULL, err);
	return ret ? ck_wrap(err, ret, "data.pkl") : 0;
}

static int list_storages(struct ck_torch_save *ts, struct ck_err *err)
{
	for (uint64_t i = 0; i < ts->end.nr; i++) {
		size_t len;
		const char *name = record_name(&ts->entries[i], &len);
		struct ck_torch_storage *s;

		if (len <= 5 || memcmp(name, "data/", 5) != 0)
			continue;
		s = ck_vec_push(&ts->storages);
		if (!s)
			return ck_no_memory(err);
		*s = (struct ck_torch_storage){ .key = name + 5,
						.key_len = len - 5,
						.off = i,
						.len = ts->entries[i].size };
	}
	ck_torch_save_sort(ts);
	return 0;
}

static int open_zip(struct ck_torch_save *ts, struct ck_err *err)
{
	int ret = read_directory(ts, err);

	if (!ret)
		ret = read_byteorder(ts, err);
	if (!ret)
		ret = read_pickle(ts, err);
	return ret ? ret : list_storages(ts, err);
}

int ck_torch_save_open(struct ck_torch_save *ts, struct ck_source *src,
		       struct ck_err *err)
{
	char head[CK_TORCH_SAVE_HEAD];
	size_t len = (size_t)CK_MIN(src->st.st_size, (off_t)sizeof(head));
	int ret = ck_source_read(src, head, len, 0, err);

	*ts = (struct ck_torch_save){ .src = src };
	if (!ret && !ck_torch_save_magic(head, len))
		ret = ck_fail(err, EINVAL,
			      "byte 0: neither a zip nor torch's old form");
	if (!ret)
		ret = head[0] == 'P' ? open_zip(ts, err) :
				       ck_torch_save_open_legacy(ts, err);
	return ret ? ck_wrap(err, ret, "%s", src->name) : 0;
}

void ck_torch_save_close(struct ck_torch_save *ts)
{
	ck_pickle_free(ts->pickle);
	free(ts->bytes);
	free(ts->storages.v);
	free(ts->entries);
	free(ts->dir);
	*ts = (struct ck_torch_save){ 0 };
}

int ck_torch_save_place(struct ck_torch_save *ts,
			const struct ck_torch_tensor *t, uint64_t *off,
			struct ck_err *err)
{
	struct ck_torch_storage *s = ck_torch_save_find(ts, t->key, t->key_len);
	int ret;

	if (!s)
		return ck_fail(err, EINVAL, "no storage %.*s in the file",
			       (int)CK_MIN(t->key_len, 100), t->key);
	if (s->len != t->storage_len)
		return ck_fail(err, EINVAL,
			       "storage %.*s: expected %" PRIu64
			       " bytes, the file has %" PRIu64,
			       (int)CK_MIN(t->key_len, 100), t->key,
			       t->storage_len, s->len);
	if (!s->placed) {
		uint64_t at;

		ret = place_entry(ts, &ts->entries[s->off], &at, err);
		if (ret)
			return ret;
		s->off = at;
		s->placed = true;
	}
	*off = s->off;
	return 0;
}
