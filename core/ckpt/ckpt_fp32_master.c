/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_fp32_master.c - the float32 copy that an optimizer keeps of a 16-bit
 * weight
 *
 * A trainer that resumes casts it down over the 16-bit weight, so that an edit
 * of that one alone is undone without a word.  Which tensor is the copy of
 * which, the names say:
 *
 *	DeepSpeed	module.NAME	fp32.NAME
 *	Megatron	NAME		optimizer.state.fp32_param.NAME, or .param.
 *	nnScaler	model.NAME	optimizer.NAME.fp32_params
 *
 * Where an optimizer keeps its copies in one long vector, its names say only
 * that there are some.
 */
#include "core/ckpt/ckpt_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/le.h"
#include "core/catalog/catalog.h"
#include "core/geom/cast.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (UINT64_C(128) << 10) /* elements converted at once */

/* A weight's name is @head and NAME, its copy's @before NAME @after. */
static const struct rule {
	const char *head, *before, *after;
} rules[] = {
	{ "module.", "fp32.", "" },
	{ "model.", "optimizer.", ".fp32_params" },
	{ "", "optimizer.state.fp32_param.", "" },
	{ "", "optimizer.state.param.", "" },
	{ "", "chained_0.optimizer.state.fp32_param.", "" },
	{ "", "chained_1.optimizer.state.fp32_param.", "" },
};

/* What the names of long vectors hold. */
static const char *const vectors[] = { "fp32_from_fp16",
				       ".gbuf_idx_",
				       "bucket_idx_",
				       "fp32_flat_groups",
				       "single_partition_of_fp32",
				       ".distrib_optim." };

static bool is_half(const struct ck_tensor *t)
{
	return t->dtype == CK_DT_BF16 || t->dtype == CK_DT_F16;
}

static uint32_t by_rule(const struct ck_catalog *img, const struct ck_tensor *t,
			const struct rule *rule)
{
	ck_auto_str struct ck_str name = { 0 };
	size_t len, head = strlen(rule->head);
	const char *own = ck_catalog_str(img, t->name, &len);
	uint32_t m;

	if (len <= head || memcmp(own, rule->head, head) != 0)
		return CK_NONE;
	ck_str_puts(&name, rule->before);
	ck_str_add(&name, own + head, len - head);
	ck_str_puts(&name, rule->after);
	if (name.failed)
		return CK_NONE;
	m = ck_catalog_find_name(img, t->tree, name.v, name.len);
	if (m == CK_NONE || img->tensors[m].dtype != CK_DT_F32 ||
	    img->tensors[m].size != 2 * t->size)
		return CK_NONE;
	return m;
}

/* Whether the two are the same elements of the same bytes, piece by piece. */
static bool same_bytes(const struct ck_catalog *img, uint32_t a, uint32_t b)
{
	const struct ck_tensor *x = &img->tensors[a], *y = &img->tensors[b];

	if (x->dtype != y->dtype || x->size != y->size ||
	    x->nr_all != y->nr_all)
		return false;
	for (uint32_t i = 0; i < x->nr_all; i++) {
		const struct ck_chunk *p = &img->chunks[x->first + i];
		const struct ck_chunk *q = &img->chunks[y->first + i];

		if (p->src != q->src || p->off != q->off ||
		    p->layout != q->layout)
			return false;
	}
	return true;
}

static bool any_vector(const struct ck_catalog *img)
{
	for (uint32_t i = 0; i < img->nr_tensors; i++)
		for (size_t k = 0; k < CK_ARRAY_LEN(vectors); k++)
			if (img->tensors[i].dtype == CK_DT_F32 &&
			    strstr(ck_catalog_str(img, img->tensors[i].name,
						  NULL),
				   vectors[k]))
				return true;
	return false;
}

void ck_fp32_master_init(struct ck_fp32_master *m, const struct ck_catalog *img,
			 const char *how)
{
	m->how = how && !strcmp(how, "also")   ? CK_FP32_MASTER_ALSO :
		 how && !strcmp(how, "ignore") ? CK_FP32_MASTER_IGNORE :
						 CK_FP32_MASTER_REFUSE;
	m->vector = any_vector(img);
}

/* An optimizer's own state is not a weight that it has a copy of. */
static bool is_state(const struct ck_catalog *img, const struct ck_tensor *t)
{
	const char *name = ck_catalog_str(img, t->name, NULL);

	return !strncmp(name, "optimizer", 9);
}

static uint32_t named_copy(const struct ck_catalog *img, uint32_t tensor)
{
	const struct ck_tensor *t = &img->tensors[tensor];
	uint32_t m = CK_NONE;

	for (size_t i = 0;
	     is_half(t) && m == CK_NONE && i < CK_ARRAY_LEN(rules); i++)
		m = by_rule(img, t, &rules[i]);
	return m;
}

uint32_t ck_fp32_master_same(const struct ck_ckpt *ck, uint32_t tensor)
{
	uint32_t group = ck_ckpt_shared_storage(ck, tensor);

	for (uint32_t i = 0; group != CK_NONE && i < tensor; i++)
		if (ck_ckpt_shared_storage(ck, i) == group &&
		    same_bytes(&ck->img, tensor, i))
			return i;
	return tensor;
}

/*
 * The copy of @tensor, or of one that is stored in the same bytes: of tied
 * weights the optimizer knows one name.  *partly: of one that shares some of
 * its bytes, in another way.
 */
static uint32_t copy_of(const struct ck_ckpt *ck, uint32_t tensor, bool *partly)
{
	const struct ck_catalog *img = &ck->img;
	uint32_t copy = named_copy(img, tensor);
	uint32_t group = ck_ckpt_shared_storage(ck, tensor);

	*partly = false;
	for (uint32_t i = 0;
	     copy == CK_NONE && group != CK_NONE && i < img->nr_tensors; i++) {
		if (i == tensor || ck_ckpt_shared_storage(ck, i) != group)
			continue;
		copy = named_copy(img, i);
		if (copy != CK_NONE && !same_bytes(img, tensor, i)) {
			*partly = true;
			return CK_NONE;
		}
	}
	return copy;
}

uint32_t ck_fp32_master_of(const struct ck_ckpt *ck, uint32_t tensor)
{
	bool partly;

	return copy_of(ck, tensor, &partly);
}

/* Where "mp_rank_NN" of a file of optimizers says which it is; NULL: nothing. */
static const char *mp_rank_of(const struct ck_catalog *img, uint32_t src)
{
	const char *name = ck_catalog_str(img, img->srcs[src].name, NULL);

	return strstr(name, "optim_states") ? strstr(name, "mp_rank_") : NULL;
}

static bool has_bytes_of(const struct ck_catalog *img,
			 const struct ck_tensor *t, const char *mp_rank)
{
	size_t len = strlen("mp_rank_");

	len += strspn(mp_rank + len, "0123456789");
	for (uint32_t i = 0; i < t->nr_all; i++) {
		const char *own =
			mp_rank_of(img, img->chunks[t->first + i].src);

		if (own && !strncmp(own, mp_rank, len))
			return true;
	}
	return false;
}

/*
 * What a pipeline of DeepSpeed's ties has a copy in the optimizer of each stage
 * that has it, of which that of one is shown.
 */
static bool is_half_shown(const struct ck_catalog *img, uint32_t tensor)
{
	const struct ck_tensor *t = &img->tensors[tensor];

	if (!strstr(ck_catalog_str(img, t->name, NULL), "tied_modules."))
		return false;
	for (uint32_t i = 0; i < img->nr_srcs; i++) {
		const char *at = mp_rank_of(img, i);

		if (at && !has_bytes_of(img, t, at))
			return true;
	}
	return false;
}

/* Whether what is written of @tensor can be of all copies, of which @copy is. */
static int may_follow(const struct ck_catalog *img, uint32_t tensor,
		      uint32_t copy, struct ck_err *err)
{
	if (!is_half_shown(img, copy))
		return 0;
	return ck_fail(err, EPERM,
		       "%s: the optimizer of each stage that is tied has a "
		       "copy of it, and one is shown: the others would not "
		       "follow; -o master=ignore writes this one alone",
		       ck_catalog_str(img, img->tensors[tensor].name, NULL));
}

int ck_fp32_master_may(const struct ck_ckpt *ck, uint32_t tensor,
		       struct ck_err *err)
{
	const struct ck_fp32_master *m = &ck->fp32_master;
	const struct ck_catalog *img = &ck->img;
	const struct ck_tensor *t = &img->tensors[tensor];
	const char *name = ck_catalog_str(img, t->name, NULL);
	uint32_t copy;
	bool partly;

	if (m->how == CK_FP32_MASTER_IGNORE)
		return 0;
	if (!is_half(t))
		return may_follow(img, tensor, tensor, err);
	copy = copy_of(ck, tensor, &partly);
	if (partly)
		return ck_fail(err, EPERM,
			       "%s: shares bytes with a weight of which there "
			       "is a float32 copy, from which training goes "
			       "on; -o master=ignore writes this one alone",
			       name);
	if (copy != CK_NONE && m->how == CK_FP32_MASTER_REFUSE)
		return ck_fail(
			err, EPERM,
			"%s: training goes on from its float32 copy %s "
			"and would undo the write; -o master=also "
			"writes both, -o master=ignore this one alone",
			name,
			ck_catalog_str(img, img->tensors[copy].name, NULL));
	if (copy != CK_NONE)
		return may_follow(img, tensor, copy, err);
	if (m->vector && !is_state(img, t))
		return ck_fail(err, EPERM,
			       "%s: the optimizer's files hold float32 copies "
			       "of weights, perhaps of this one too, from "
			       "which training goes on; -o master=ignore "
			       "writes this one alone",
			       name);
	return 0;
}

/* ---- the same values, wider ---- */

static uint32_t wider(uint16_t v, bool brain)
{
	uint32_t sign = (uint32_t)(v & 0x8000) << 16;
	uint32_t exp = v >> 10 & 31, frac = v & 1023;

	if (brain)
		return (uint32_t)v << 16;
	if (exp == 31)
		return sign | 0x7f800000 | frac << 13;
	if (exp)
		return sign | (exp + 112) << 23 | frac << 13;
	if (!frac)
		return sign;
	for (exp = 113; !(frac & 1024); exp--)
		frac <<= 1;
	return sign | exp << 23 | (frac & 1023) << 13;
}

/* What a copy follows. */
struct follow {
	struct ck_ckpt *ck;
	struct ck_edit *e;
	uint32_t tensor, copy;
};

/* Elements [first, first+nr) of the tensor, of which there was @was before. */
static int write_piece(const struct follow *f, const unsigned char *was,
		       uint64_t first, uint64_t nr, struct ck_err *err)
{
	struct ck_ckpt *ck = f->ck;
	uint32_t tensor = f->tensor, copy = f->copy;
	enum ck_dtype half = ck->img.tensors[tensor].dtype;
	ck_auto_free unsigned char *wide = malloc(8 * nr);
	unsigned char *now, *cast;
	uint64_t from = nr, to = 0;
	int ret;

	if (!wide)
		return ck_no_memory(err);
	now = wide + 4 * nr;
	cast = now + 2 * nr;
	ret = ck_reader_read(ck->reader, tensor, now, 2 * nr, 2 * first, err);
	if (!ret)
		ret = ck_reader_read(ck->reader, copy, wide, 4 * nr, 4 * first,
				     err);
	if (ret)
		return ret;
	ck_cast(CK_DT_F32, wide, half, cast, nr);
	for (uint64_t i = 0; i < nr; i++) {
		uint16_t v = ck_le16(now + 2 * i);

		if (v == ck_le16(cast + 2 * i) ||
		    (was && v == ck_le16(was + 2 * i)))
			continue;
		ck_le32_put(wide + 4 * i, wider(v, half == CK_DT_BF16));
		from = CK_MIN(from, i);
		to = i + 1;
	}
	return to ? ck_writer_write(ck->writer, f->e, copy, wide + 4 * from,
				    4 * (to - from), 4 * (first + from), err) :
		    0;
}

int ck_fp32_master_follow(struct ck_ckpt *ck, struct ck_edit *e,
			  uint32_t tensor, uint32_t copy,
			  const unsigned char *was, uint64_t len, uint64_t off,
			  struct ck_err *err)
{
	const struct follow f = {
		.ck = ck, .e = e, .tensor = tensor, .copy = copy
	};
	uint64_t at = off / 2, end = CK_DIV_UP(off + len, 2);
	int ret = 0;

	for (; !ret && len && at < end; at += PIECE)
		ret = write_piece(&f, was ? was + 2 * (at - off / 2) : NULL, at,
				  CK_MIN(PIECE, end - at), err);
	return ret;
}
