/* SPDX-License-Identifier: Apache-2.0 */
/* files.c - the files of ranks: what they are, their tensors, their sums */
#include "core/format/mindspore/mindspore.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/crc32.h"
#include "core/base/le.h"
#include "core/base/suffix.h"
#include "core/container/container.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SMALL UINT64_C(65536) /* bytes that are compared as a whole */
#define SAMPLE 2048 /* bytes at each of three places of larger ones */
#define MAX_HASHED (UINT64_C(64) << 20) /* in all files together */
#define MAX_SUMMED (UINT64_C(256) << 20) /* the same, for -o crc=auto */

void ck_mindspore_set_free(struct mindspore_set *s)
{
	free(s->name.v);
	free(s->file.v);
	ck_arena_free(&s->mem);
	ck_strmap_free(&s->names);
	ck_strategy_free(&s->strategy);
	*s = (struct mindspore_set){ .dir = NULL };
}

int ck_mindspore_problem(struct mindspore_set *s, enum ck_severity severity,
			 const struct mindspore_source *file, uint64_t off,
			 uint64_t len, const char *reason, struct ck_err *err)
{
	const struct ck_problem_in p = {
		.severity = severity,
		.file = file->name,
		.off = off,
		.len = len,
	};

	s->missing |= severity == CK_ERROR;
	return ck_builder_problem(s->b, &p, err, "%s", reason);
}

/* ---- tensors ---- */

/* Bytes [off, off + len) of the tensor, wherever its runs are. */
static int read_bytes(const struct mindspore_tensor *t, struct ck_source *in,
		      unsigned char *buf, uint64_t off, uint64_t len,
		      struct ck_err *err)
{
	for (uint32_t i = 0; i < t->nr_runs && len; i++) {
		const struct mindspore_run *r = &t->run[i];
		uint64_t n;
		int ret;

		if (off >= r->len) {
			off -= r->len;
			continue;
		}
		n = CK_MIN(len, r->len - off);
		if (!ck_range_ok(r->off + off, n, (uint64_t)in->st.st_size))
			return -EIO; /* torn: the builder says so */
		ret = ck_source_read(in, buf, n, r->off + off, err);
		if (ret)
			return ret;
		buf += n;
		len -= n;
		off = 0;
	}
	return 0;
}

/* What is small is compared between ranks; of others, whether it differs. */
static int hash_tensor(struct mindspore_set *s, struct mindspore_tensor *t,
		       struct ck_source *in, struct ck_err *err)
{
	uint64_t elem = ck_dtype_info(t->dtype)->size, whole = t->bytes;
	bool small = whole <= SMALL;
	uint64_t len = small ? whole : 3 * SAMPLE;
	const uint64_t at[3] = { 0, whole / 2 / 16 * 16,
				 (whole - SAMPLE) / 16 * 16 };
	ck_auto_free unsigned char *buf = NULL;
	int ret = 0;

	if (!s->compares || t->fault || !whole || s->hashed + len > MAX_HASHED)
		return 0;
	buf = malloc(len);
	if (!buf)
		return ck_no_memory(err);
	if (small)
		ret = read_bytes(t, in, buf, 0, whole, err);
	for (int i = 0; i < 3 && !ret && !small; i++)
		ret = read_bytes(t, in, buf + i * SAMPLE, at[i], SAMPLE, err);
	if (ret)
		return ret == -EIO ? 0 : ret; /* who reads it will see */
	s->hashed += len;
	t->hash = XXH3_64bits(buf, len);
	t->flags |= small ? MINDSPORE_HASHED : MINDSPORE_SAMPLED;
	if (elem && len >= elem && !memcmp(buf, buf + elem, len - elem))
		t->flags |= MINDSPORE_CONSTANT;
	return 0;
}

int ck_mindspore_add(struct mindspore_set *s,
		     const struct mindspore_tensor *in_t, const char *name,
		     size_t len, const uint64_t *dims, struct ck_source *in,
		     struct ck_err *err)
{
	struct mindspore_tensor *t =
		ck_arena_copy(&s->mem, in_t, sizeof(*in_t));
	struct mindspore_source *file = in_t->file;
	struct mindspore_name *n;
	uint32_t at;
	int ret;

	at = ck_vec_reserve(&s->name, 1) ?
		     ck_strmap_keep(&s->names, &s->mem, name, len) :
		     CK_STRMAP_NONE;
	if (at == CK_STRMAP_NONE || !t)
		return ck_no_memory(err);
	if (at == s->name.nr)
		s->name.v[s->name.nr++] = (struct mindspore_name){ NULL, NULL };
	n = &s->name.v[at];
	if (s->nr_tensors++ >= CK_MAX_CHUNKS)
		return ck_fail(err, E2BIG, "more than %u pieces of tensors",
			       CK_MAX_CHUNKS);
	if (n->last && n->last->file == file && !t->fault)
		t->fault =
			ck_arena_fmt(&s->mem, "it is twice in %s", file->name);
	t->name = at;
	t->dims = ck_arena_copy(&s->mem, dims, t->rank * sizeof(*dims));
	if (s->mem.failed)
		return ck_no_memory(err);
	ret = hash_tensor(s, t, in, err);
	if (ret)
		return ret;
	if (s->strategy.devices)
		t->item = ck_strategy_find(&s->strategy, s->names.v[at].s,
					   s->names.v[at].len, file->stage);
	t->beside = file->tensors;
	file->tensors = t;
	if (n->last)
		n->last->next = t;
	else
		n->first = t;
	n->last = t;
	return 0;
}

/* ---- checksums ---- */

int ck_mindspore_wants_sum(struct mindspore_set *s,
			   const struct mindspore_source *file, uint64_t size,
			   struct ck_err *err)
{
	const char *how = ck_opts_use(s->dir->opts, "crc");

	if (how && !strcmp(how, "check"))
		return 1;
	if ((!how || strcmp(how, "ignore")) && s->summed + size <= MAX_SUMMED) {
		s->summed += size;
		return 1;
	}
	return ck_mindspore_problem(
		s, CK_NOTE, file, 0, 0,
		"its CRC-32 was not checked (-o crc=check reads all of it)",
		err);
}

int ck_mindspore_sum(struct ck_source *in, uint64_t off, uint64_t len,
		     uint32_t *crc, struct ck_err *err)
{
	ck_auto_free unsigned char *buf = malloc(65536);

	if (!buf)
		return ck_no_memory(err);
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

int ck_mindspore_sum_wrong(struct mindspore_set *s,
			   const struct mindspore_source *file, uint64_t have,
			   uint64_t want, const char *excuse,
			   struct ck_err *err)
{
	if (excuse)
		return mindspore_report(s->b, CK_WARNING, file->name, err,
					"its CRC-32 is %08" PRIx64
					", it says %08" PRIx64
					"; that may be no damage: %s",
					have, want, excuse);
	s->missing = true;
	for (struct mindspore_tensor *t = file->tensors; t; t = t->beside)
		t->flags |= MINDSPORE_DAMAGED;
	return mindspore_report(
		s->b, CK_ERROR, file->name, err,
		"its CRC-32 is %08" PRIx64 ", it says %08" PRIx64
		": it is damaged somewhere, so none of it is used (-o crc=ignore uses it)",
		have, want);
}

/* ---- first bytes ---- */

int ck_mindspore_kind(const struct ck_dir *dir, const char *name,
		      struct ck_err *err)
{
	ck_auto_source struct ck_source *in = NULL;
	unsigned char head[64] = { 0 };
	size_t len;
	uint32_t magic;
	int ret = ck_dir_open(dir, name, &in, err);

	if (ret)
		return ret == -ENOMEM ? ret : MINDSPORE_OTHER;
	if (ck_has_suffix(name, ".safetensors"))
		return MINDSPORE_SAFETENSORS;
	len = (size_t)CK_MIN((uint64_t)in->st.st_size, sizeof(head));
	if (!len || ck_source_read(in, head, len, 0, NULL))
		return MINDSPORE_OTHER;
	magic = ck_le32(head);
	if (magic >= 0x7f3a5ed8 && magic <= 0x7f3a5eda)
		return MINDSPORE_ENCRYPTED;
	if (head[0] == 0x0a)
		return ck_mindspore_is_ckpt(in) ? MINDSPORE_CKPT :
						  MINDSPORE_OTHER;
	return head[0] == 0x08 && ck_strategy_is(name, head, len) ?
		       MINDSPORE_STRATEGY :
		       MINDSPORE_OTHER;
}

static struct mindspore_source *add_source(struct mindspore_set *s,
					   const char *name, uint32_t rank)
{
	struct mindspore_source *f = ck_arena_alloc(&s->mem, sizeof(*f));
	struct mindspore_source **slot = ck_vec_push(&s->file);

	if (!f || !slot)
		return NULL;
	*slot = f;
	f->name = ck_arena_copy(&s->mem, name, strlen(name));
	f->rank = rank;
	if (s->strategy.devices)
		f->stage = (uint32_t)(rank / s->strategy.devices);
	return f->name ? f : NULL;
}

int ck_mindspore_read(struct mindspore_set *s, const char *name, uint32_t rank,
		      struct ck_err *err)
{
	ck_auto_source struct ck_source *in = NULL;
	int kind = ck_mindspore_kind(s->dir, name, err), ret;
	struct mindspore_source *file;

	if (kind < 0)
		return kind;
	if (kind == MINDSPORE_ENCRYPTED)
		return ck_fail(
			err, EINVAL,
			"%s: it is encrypted (AES-GCM, AES-CBC or SM4-CBC, by MindSpore's enc_key): load it with the key and save it again without",
			name);
	file = add_source(s, name, rank);
	if (!file)
		return ck_no_memory(err);
	ret = ck_dir_source(s->dir, s->b, name, &file->src, &in, err);
	if (!ret && s->compares)
		ret = ck_builder_unlabelled_rank(s->b, file->src, name, err);
	if (ret || !in) {
		s->missing = true;
		return ret;
	}
	if (kind == MINDSPORE_SAFETENSORS)
		return ck_mindspore_read_safetensors(s, file, in, err);
	if (kind == MINDSPORE_CKPT)
		return ck_mindspore_read_ckpt(s, file, in, err);
	return ck_mindspore_problem(
		s, CK_ERROR, file, 0, (uint64_t)in->st.st_size,
		"expected a checkpoint of MindSpore, which begins with a record",
		err);
}
