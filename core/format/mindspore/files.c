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

void ck_mindspore_begin(struct mindspore_set *s, const struct ck_dir *dir,
			const struct mindspore_found *found,
			struct ck_builder *b)
{
	*s = (struct mindspore_set){
		.a = { .dir = dir, .b = b, .how = &ck_mindspore_reader },
		.found = found,
	};
	s->a.ctx = s;
}

void ck_mindspore_end(struct mindspore_set *s)
{
	ck_asm_free(&s->a);
	free(s->held.v);
	ck_strategy_free(&s->strategy);
}

int ck_mindspore_damaged(struct mindspore_set *s, uint32_t file, uint64_t off,
			 uint64_t len, const char *reason, struct ck_err *err)
{
	const struct ck_problem_in p = {
		.severity = CK_ERROR,
		.file = s->a.files.v[file].name,
		.off = off,
		.len = len,
	};

	s->missing = true;
	return ck_builder_problem(s->a.b, &p, err, "%s", reason);
}

/* ---- tensors ---- */

/* Bytes [off, off + len) of the tensor, wherever its runs are. */
static int read_bytes(const struct mindspore_set *s,
		      const struct mindspore_held *h, unsigned char *buf,
		      uint64_t off, uint64_t len, struct ck_err *err)
{
	for (uint32_t i = 0; i < h->nr_runs && len; i++) {
		const struct mindspore_run *r = &h->run[i];
		uint64_t n;
		int ret;

		if (off >= r->len) {
			off -= r->len;
			continue;
		}
		n = CK_MIN(len, r->len - off);
		if (!ck_range_ok(r->off + off, n, (uint64_t)s->in->st.st_size))
			return -EIO; /* torn: the builder says so */
		ret = ck_source_read(s->in, buf, n, r->off + off, err);
		if (ret)
			return ret;
		buf += n;
		len -= n;
		off = 0;
	}
	return 0;
}

/* What is small is compared between ranks; of others, whether it differs. */
static int look_at(struct mindspore_set *s, struct ck_asm_piece *p,
		   struct ck_err *err)
{
	struct mindspore_held *h = mindspore_held(s, p);
	uint64_t elem = ck_dtype_info(p->x.dtype)->size, whole = h->bytes;
	bool small = whole <= SMALL;
	uint64_t len = small ? whole : 3 * SAMPLE;
	const uint64_t at[3] = { 0, whole / 2 / 16 * 16,
				 (whole - SAMPLE) / 16 * 16 };
	ck_auto_free unsigned char *buf = NULL;
	int ret = 0;

	if (!s->compares || p->x.fault || !whole ||
	    s->hashed + len > MAX_HASHED)
		return 0;
	buf = malloc(len);
	if (!buf)
		return ck_no_memory(err);
	if (small)
		ret = read_bytes(s, h, buf, 0, whole, err);
	for (int i = 0; i < 3 && !ret && !small; i++)
		ret = read_bytes(s, h, buf + i * SAMPLE, at[i], SAMPLE, err);
	if (ret)
		return ret == -EIO ? 0 : ret; /* who reads it will see */
	s->hashed += len;
	p->like = XXH3_64bits(buf, len);
	p->like += !p->like;
	if (elem && len >= elem && !memcmp(buf, buf + elem, len - elem))
		h->flags |= MINDSPORE_CONSTANT;
	return 0;
}

int ck_mindspore_add(struct mindspore_set *s, uint32_t file, const char *name,
		     size_t len, const struct ck_extent *x,
		     const struct mindspore_held *h, struct ck_err *err)
{
	const struct ck_asm_file *f = &s->a.files.v[file];
	struct ck_asm_tensor *t = ck_asm_tensor(&s->a, 0, name, len);
	struct mindspore_held *to = ck_vec_push(&s->held);
	struct ck_extent own = *x;
	struct ck_asm_piece *p;

	if (!t || !to)
		return ck_no_memory(err);
	if (s->a.pieces.nr >= CK_MAX_CHUNKS)
		return ck_fail(err, E2BIG, "more than %u pieces of tensors",
			       CK_MAX_CHUNKS);
	*to = *h;
	if (s->strategy.devices)
		to->item = ck_strategy_find(&s->strategy, t->name, t->len,
					    f->user);
	if (to->item)
		to->item->seen++;
	if (!own.fault && t->last != CK_NONE &&
	    s->a.pieces.v[t->last].file == file)
		own.fault =
			ck_arena_fmt(&s->a.mem, "it is twice in %s", f->name);
	p = ck_asm_piece(&s->a, t, file);
	if (!p || ck_asm_set_extent(&s->a, p, &own))
		return ck_no_memory(err);
	t->fault = t->fault ? t->fault : p->x.fault;
	p->lost = s->lost;
	return look_at(s, p, err);
}

/* ---- checksums ---- */

int ck_mindspore_wants_sum(struct mindspore_set *s, uint32_t file,
			   uint64_t size, struct ck_err *err)
{
	const char *how = ck_opts_use(s->a.dir->opts, "crc");

	if (how && !strcmp(how, "check"))
		return 1;
	if ((!how || strcmp(how, "ignore")) && s->summed + size <= MAX_SUMMED) {
		s->summed += size;
		return 1;
	}
	return ck_builder_report_file(
		s->a.b, CK_NOTE, s->a.files.v[file].name, err,
		"its CRC-32 was not checked (-o crc=check reads all of it)");
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

int ck_mindspore_sum_wrong(struct mindspore_set *s, uint32_t file,
			   uint64_t have, uint64_t want, const char *excuse,
			   struct ck_err *err)
{
	const char *name = s->a.files.v[file].name;

	if (excuse)
		return ck_builder_report_file(s->a.b, CK_WARNING, name, err,
					      "its CRC-32 is %08" PRIx64
					      ", it says %08" PRIx64
					      "; that may be no damage: %s",
					      have, want, excuse);
	s->missing = s->lost = true;
	for (size_t i = 0; i < s->a.pieces.nr; i++)
		s->a.pieces.v[i].lost |= s->a.pieces.v[i].file == file;
	return ck_builder_report_file(
		s->a.b, CK_ERROR, name, err,
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

int ck_mindspore_read(struct mindspore_set *s,
		      const struct mindspore_file *which, struct ck_err *err)
{
	ck_auto_source struct ck_source *in = NULL;
	struct ck_asm_file *f;
	uint32_t file;
	int ret;

	if (which->kind == MINDSPORE_ENCRYPTED)
		return ck_fail(
			err, EINVAL,
			"%s: it is encrypted (AES-GCM, AES-CBC or SM4-CBC, by MindSpore's enc_key): load it with the key and save it again without",
			which->name);
	file = ck_asm_file(&s->a, which->name, which->rank);
	if (file == CK_NONE)
		return ck_no_memory(err);
	f = &s->a.files.v[file];
	if (s->strategy.devices)
		f->user = (uint32_t)(which->rank / s->strategy.devices);
	s->lost = false;
	if (which->kind == MINDSPORE_SAFETENSORS) {
		ret = ck_asm_read(&s->a, file, err);
		s->missing |= !s->a.files.v[file].usable;
		return ret;
	}
	ret = ck_dir_source(s->a.dir, s->a.b, f->name, &f->src, &in, err);
	if (!ret && s->compares)
		ret = ck_builder_unlabelled_rank(s->a.b, f->src, f->name, err);
	f->present = f->usable = in;
	s->in = in;
	if (ret || !in) {
		s->missing = true;
		return ret;
	}
	if (which->kind == MINDSPORE_CKPT)
		return ck_mindspore_read_ckpt(s, file, in, err);
	return ck_mindspore_damaged(
		s, file, 0, (uint64_t)in->st.st_size,
		"expected a checkpoint of MindSpore, which begins with a record",
		err);
}
