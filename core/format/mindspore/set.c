/* SPDX-License-Identifier: Apache-2.0 */
/* set.c - what all files of a set share; first bytes; checksums */
#include "core/format/mindspore/set.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/crc32.h"
#include "core/base/le.h"
#include "core/base/suffix.h"
#include "core/parse/protobuf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SMALL UINT64_C(65536) /* bytes that are compared as a whole */
#define SAMPLE 2048 /* bytes at each of three places of larger ones */
#define MAX_HASHED (UINT64_C(64) << 20) /* in all files together */
#define MAX_SUMMED (UINT64_C(256) << 20) /* the same, for -o crc=auto */

int ck_mindspore_no_memory(struct ck_err *err)
{
	return ck_fail(err, ENOMEM, "no memory for the tensors' descriptions");
}

static void *keep(struct ck_ms_set *s, void *bytes)
{
	void **slot = bytes ? ck_vec_push(&s->kept) : NULL;

	if (!slot) {
		free(bytes);
		return NULL;
	}
	*slot = bytes;
	return bytes;
}

const char *ck_ms_say(struct ck_ms_set *s, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	return n < 0 ? NULL : keep(s, text);
}

void ck_ms_set_free(struct ck_ms_set *s)
{
	for (size_t i = 0; i < s->kept.nr; i++)
		free(s->kept.v[i]);
	free(s->kept.v);
	free(s->name.v);
	free(s->file.v);
	free(s->tensor.v);
	free(s->dims.v);
	free(s->seg.v);
	ck_strmap_free(&s->names);
	ck_strategy_free(&s->strategy);
	*s = (struct ck_ms_set){ .dir = NULL };
}

int ck_ms_problem(struct ck_ms_set *s, enum ck_severity severity, uint32_t file,
		  uint64_t off, uint64_t len, const char *reason,
		  struct ck_err *err)
{
	const struct ck_problem_in p = {
		.severity = severity,
		.file = s->file.v[file].name,
		.off = off,
		.len = len,
	};

	if (severity == CK_ERROR)
		s->file.v[file].bad = s->missing = true;
	return ck_builder_problem(s->b, &p, err, "%s", reason);
}

/* ---- names and tensors ---- */

static uint32_t number_of(struct ck_ms_set *s, const char *name, size_t len)
{
	uint32_t at = s->names.nr ? ck_strmap_get(&s->names, name, len) :
				    CK_STRMAP_NONE;
	char *copy;

	if (at != CK_STRMAP_NONE)
		return at;
	copy = malloc(len + 1);
	if (copy) {
		memcpy(copy, name, len);
		copy[len] = '\0';
	}
	copy = keep(s, copy);
	if (!copy || !ck_vec_reserve(&s->name, 1))
		return CK_STRMAP_NONE;
	at = ck_strmap_put(&s->names, copy, len);
	if (at != CK_STRMAP_NONE)
		s->name.v[s->name.nr++] =
			(struct ck_ms_name){ CK_STRATEGY_NONE,
					     CK_STRATEGY_NONE };
	return at;
}

/* Bytes [off, off + len) of the tensor, wherever its segments are. */
static int read_bytes(const struct ck_ms_set *s, const struct ck_ms_tensor *t,
		      struct ck_source *in, unsigned char *buf, uint64_t off,
		      uint64_t len, struct ck_err *err)
{
	for (uint32_t i = 0; i < t->nr_segs && len; i++) {
		const struct ck_ms_seg *g = &s->seg.v[t->seg + i];
		uint64_t n;
		int ret;

		if (off >= g->len) {
			off -= g->len;
			continue;
		}
		n = CK_MIN(len, g->len - off);
		if (!ck_range_ok(g->off + off, n, (uint64_t)in->st.st_size))
			return -EIO; /* torn: the builder says so */
		ret = ck_source_read(in, buf, n, g->off + off, err);
		if (ret)
			return ret;
		buf += n;
		len -= n;
		off = 0;
	}
	return 0;
}

static bool is_alike(const unsigned char *buf, uint64_t len, uint64_t elem)
{
	return elem && len >= elem &&
	       !memcmp(buf, buf + elem, (size_t)(len - elem));
}

/* What is small is compared between ranks; of others, whether it differs. */
static int hash(struct ck_ms_set *s, struct ck_ms_tensor *t,
		struct ck_source *in, struct ck_err *err)
{
	uint64_t elem = ck_dtype_info(t->dtype)->size, whole = t->bytes;
	uint64_t middle = whole / 2 / 16 * 16, at[3] = { 0, middle, 0 };
	uint64_t len = whole <= SMALL ? whole : 3 * SAMPLE;
	ck_auto_free unsigned char *buf = NULL;
	int ret = 0;

	if (!s->compares || t->why || !t->bytes || s->hashed + len > MAX_HASHED)
		return 0;
	buf = malloc(len);
	if (!buf)
		return ck_mindspore_no_memory(err);
	at[2] = (whole - SAMPLE) / 16 * 16;
	if (whole <= SMALL)
		ret = read_bytes(s, t, in, buf, 0, whole, err);
	else
		for (int i = 0; i < 3 && !ret; i++)
			ret = read_bytes(s, t, in, buf + i * SAMPLE, at[i],
					 SAMPLE, err);
	if (ret == -EIO)
		return 0; /* who reads it will see */
	if (ret)
		return ret;
	s->hashed += len;
	t->hash = XXH3_64bits(buf, len);
	t->flags |= whole <= SMALL ? CK_MS_HASHED : CK_MS_SAMPLED;
	if (is_alike(buf, len, elem))
		t->flags |= CK_MS_ALIKE;
	return 0;
}

int ck_ms_add(struct ck_ms_set *s, struct ck_ms_tensor *t, const char *name,
	      size_t len, const uint64_t *dims, struct ck_source *in,
	      struct ck_err *err)
{
	struct ck_ms_name *n;
	uint32_t at = (uint32_t)s->tensor.nr;
	int ret;

	t->name = number_of(s, name, len);
	if (t->name == CK_STRMAP_NONE || !ck_vec_reserve(&s->tensor, 1) ||
	    !ck_vec_reserve(&s->dims, t->rank + 1u))
		return ck_mindspore_no_memory(err);
	if (s->tensor.nr >= CK_MAX_CHUNKS || s->dims.nr > UINT32_MAX - 256)
		return ck_fail(err, E2BIG, "more than %u pieces of tensors",
			       CK_MAX_CHUNKS);
	n = &s->name.v[t->name];
	if (n->last != CK_STRATEGY_NONE &&
	    s->tensor.v[n->last].file == t->file && !t->why) {
		t->why = ck_ms_say(s, "it is twice in %s",
				   s->file.v[t->file].name);
		if (!t->why)
			return ck_mindspore_no_memory(err);
	}
	t->dims = (uint32_t)s->dims.nr;
	for (unsigned d = 0; d < t->rank; d++)
		s->dims.v[s->dims.nr++] = dims[d];
	ret = hash(s, t, in, err);
	if (ret)
		return ret;
	t->next = CK_STRATEGY_NONE;
	s->tensor.v[s->tensor.nr++] = *t;
	if (n->last == CK_STRATEGY_NONE)
		n->first = at;
	else
		s->tensor.v[n->last].next = at;
	n->last = at;
	return 0;
}

/* ---- checksums ---- */

bool ck_ms_wants_crc(struct ck_ms_set *s, uint64_t size)
{
	const char *how = ck_opts_use(s->dir->opts, "crc");

	if (how && !strcmp(how, "check"))
		return true;
	if ((how && !strcmp(how, "ignore")) || s->summed + size > MAX_SUMMED)
		return false;
	s->summed += size;
	return true;
}

int ck_ms_crc_of(struct ck_source *in, uint64_t off, uint64_t len,
		 uint32_t *crc, struct ck_err *err)
{
	ck_auto_free unsigned char *buf = malloc(65536);

	if (!buf)
		return ck_mindspore_no_memory(err);
	while (len) {
		size_t n = (size_t)CK_MIN(len, UINT64_C(65536));
		int ret = ck_source_read(in, buf, n, off, err);

		if (ret)
			return ret;
		*crc = ck_crc32(*crc, buf, n);
		off += n;
		len -= n;
	}
	return 0;
}

int ck_ms_crc_wrong(struct ck_ms_set *s, uint32_t file, uint64_t have,
		    uint64_t want, const char *excuse, struct ck_err *err)
{
	const struct ck_problem_in p = {
		.severity = excuse ? CK_WARNING : CK_ERROR,
		.file = s->file.v[file].name,
	};

	if (excuse)
		return ck_builder_problem(s->b, &p, err,
					  "its CRC-32 is %08" PRIx64
					  ", it says %08" PRIx64
					  "; that may be no damage: %s",
					  have, want, excuse);
	s->missing = true;
	return ck_builder_problem(
		s->b, &p, err,
		"its CRC-32 is %08" PRIx64 ", it says %08" PRIx64
		": it is damaged somewhere, so none of it is used (-o crc=ignore uses it)",
		have, want);
}

int ck_ms_crc_unchecked(struct ck_ms_set *s, uint32_t file, struct ck_err *err)
{
	return ck_ms_problem(
		s, CK_NOTE, file, 0, 0,
		"its CRC-32 was not checked (-o crc=check reads all of it)",
		err);
}

/* ---- first bytes ---- */

static int read_source(void *ctx, void *buf, size_t len, uint64_t off,
		       struct ck_err *err)
{
	return ck_source_read(ctx, buf, len, off, err);
}

/*
 * A record's tensor has a type, field 2; what looks like a record in a file
 * of device groups has only numbers.
 */
static bool is_record(struct ck_source *in)
{
	const struct ck_pb_in pin = { .read = read_source,
				      .ctx = in,
				      .size = (uint64_t)in->st.st_size };
	struct ck_pb_field f;
	struct ck_pb pb;

	ck_pb_init(&pb, &pin, CK_SIZE_MAX);
	if (ck_pb_next(&pb, &f, NULL) <= 0 || f.number != 1 ||
	    f.wire != CK_PB_LEN || ck_pb_enter(&pb, &f, NULL) ||
	    ck_pb_next(&pb, &f, NULL) <= 0 || f.number != 1 ||
	    f.wire != CK_PB_LEN || ck_pb_next(&pb, &f, NULL) <= 0 ||
	    f.wire != CK_PB_LEN || (f.number != 2 && f.number != 3))
		return false;
	if (f.number == 3)
		return true;
	if (ck_pb_enter(&pb, &f, NULL))
		return false;
	for (unsigned n = 0; n <= CK_MAX_RANK; n++) {
		if (ck_pb_next(&pb, &f, NULL) <= 0)
			return false;
		if (f.number == 2)
			return f.wire == CK_PB_LEN;
		if (f.number != 1)
			return false;
	}
	return false;
}

int ck_ms_kind(const struct ck_dir *dir, const char *name, struct ck_err *err)
{
	ck_auto_source struct ck_source *in = NULL;
	unsigned char head[64] = { 0 };
	size_t len;
	uint32_t magic;
	int ret = ck_dir_open(dir, name, &in, err);

	if (ret)
		return ret == -ENOMEM ? ret : CK_MS_OTHER;
	if (ck_has_suffix(name, ".safetensors"))
		return CK_MS_SAFETENSORS;
	len = (size_t)CK_MIN((uint64_t)in->st.st_size, sizeof(head));
	if (!len || ck_source_read(in, head, len, 0, NULL))
		return CK_MS_OTHER;
	magic = ck_le32(head);
	if (magic >= 0x7f3a5ed8 && magic <= 0x7f3a5eda)
		return CK_MS_ENCRYPTED;
	if (head[0] == 0x0a)
		return is_record(in) ? CK_MS_CKPT : CK_MS_OTHER;
	return head[0] == 0x08 && ck_strategy_is(name, head, len) ?
		       CK_MS_STRATEGY :
		       CK_MS_OTHER;
}
