/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - pieces and records as parts of tensors
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/format/colossalai/fused.h"
#include "core/format/colossalai/ranks.h"
#include "core/format/colossalai/set.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ONE (UINT64_C(1) << 20) /* copies up to this size are compared */
#define MAX_ALL (UINT64_C(64) << 20)

/* The tensor at hand. */
struct join {
	struct ck_ca_set *s;
	const struct ck_ca_tensor *t;
	const struct ck_ca_entry *one; /* of any piece: the type */
	unsigned rank;
	const uint64_t *shape;
	const struct ck_ca_fused *fused; /* NULL: it is not */
	const struct ck_ca_piece *held; /* whose bytes @bytes begin with */
	char *bytes;
};

#define for_each_piece(p, s, t)                                  \
	for (uint32_t i_ = (t)->first;                           \
	     i_ != CK_STRMAP_NONE && ((p) = &(s)->pieces.v[i_]); \
	     i_ = (p)->next)

static const uint64_t *offsets(const struct ck_ca_piece *p)
{
	return p->box;
}

static const uint64_t *lengths(const struct ck_ca_piece *p)
{
	return p->box + p->rank;
}

static const uint64_t *global(const struct ck_ca_piece *p)
{
	return p->box + 2 * p->rank;
}

static const char *file_of(const struct join *j, const struct ck_ca_piece *p)
{
	return j->s->files.v[p->file].name;
}

static bool same_dims(const uint64_t *a, const uint64_t *b, unsigned nr)
{
	return !nr || !memcmp(a, b, nr * sizeof(*a));
}

/*
 * A tied name without a record, that shares the bytes of one with a record,
 * is that record's box too.
 */
static int adopt_box(struct ck_ca_set *s, struct ck_ca_piece *p,
		     const uint32_t *of_file, size_t nr, struct ck_err *err)
{
	const struct ck_ca_entry *e = p->entry;

	for (size_t i = 0; e && e->storage && i < nr; i++) {
		const struct ck_ca_piece *o = &s->pieces.v[of_file[i]];

		if (!o->box || !o->entry || o->entry->off != e->off ||
		    o->rank != e->rank ||
		    !same_dims(o->entry->dims, e->dims, 2 * e->rank) ||
		    o->entry->dtype != e->dtype)
			continue;
		p->box = malloc(3 * o->rank * sizeof(*p->box) + 1);
		if (!p->box)
			return ck_fail(err, ENOMEM, "no memory for records");
		memcpy(p->box, o->box, 3 * o->rank * sizeof(*p->box));
		return 0;
	}
	return 0;
}

/* Piece numbers, those of a file together: @begin has where each begins. */
static uint32_t *by_file(const struct ck_ca_set *s, uint32_t *begin)
{
	uint32_t *order = calloc(s->pieces.nr + 1, sizeof(*order));

	if (!order)
		return NULL;
	for (size_t i = 0; i < s->pieces.nr; i++)
		begin[s->pieces.v[i].file + 1]++;
	for (size_t f = 1; f <= s->files.nr; f++)
		begin[f] += begin[f - 1];
	for (size_t i = s->pieces.nr; i-- > 0;)
		order[--begin[s->pieces.v[i].file + 1]] = (uint32_t)i;
	return order;
}

static int adopt_boxes(struct ck_ca_set *s, struct ck_err *err)
{
	ck_auto_free uint32_t *begin = calloc(s->files.nr + 2, sizeof(*begin));
	ck_auto_free uint32_t *order = begin ? by_file(s, begin) : NULL;
	int ret = 0;

	if (!order)
		return ck_fail(err, ENOMEM, "no memory for records");
	for (size_t i = 0; !ret && i < s->pieces.nr; i++) {
		struct ck_ca_piece *p = &s->pieces.v[i];
		uint32_t from = begin[p->file + 1];
		uint32_t to = p->file + 2 <= s->files.nr ?
				      begin[p->file + 2] :
				      (uint32_t)s->pieces.nr;

		if (!p->box)
			ret = adopt_box(s, p, order + from, to - from, err);
	}
	return ret;
}

static int check_pieces(struct join *j, struct ck_err *why)
{
	const struct ck_ca_piece *p, *first = NULL;

	for_each_piece(p, j->s, j->t)
	{
		if (p->entry && p->entry->fault)
			return ck_fail(why, EINVAL, "%s: %s", file_of(j, p),
				       p->entry->fault);
		if (first && !first->box != !p->box)
			return ck_fail(why, EINVAL,
				       "%s has it without a record of its "
				       "place, %s with one",
				       file_of(j, p->box ? first : p),
				       file_of(j, p->box ? p : first));
		if (p->box && p->entry &&
		    (p->entry->rank != p->rank ||
		     !same_dims(p->entry->dims, lengths(p), p->rank)))
			return ck_fail(why, EINVAL,
				       "its shape in %s is not the lengths of "
				       "its record",
				       file_of(j, p));
		if (p->box && !p->entry && j->s->files.v[p->file].usable)
			return ck_fail(why, EINVAL,
				       "%s does not have it, as its record "
				       "says",
				       file_of(j, p));
		if (first &&
		    (first->rank != p->rank ||
		     (p->box && !same_dims(global(first), global(p), p->rank))))
			return ck_fail(why, EINVAL,
				       "its global shape differs between the "
				       "records of %s and %s",
				       file_of(j, first), file_of(j, p));
		if (j->one && p->entry && j->one->dtype != p->entry->dtype)
			return ck_fail(why, EINVAL,
				       "its dtype in %s is not that of the "
				       "files before",
				       file_of(j, p));
		first = first ? first : p;
		j->one = j->one ? j->one : p->entry;
	}
	if (!j->one)
		return ck_fail(why, EINVAL,
			       "%s, which has it, is missing or damaged",
			       file_of(j, first));
	j->rank = first->rank;
	j->shape = first->box ? global(first) : j->one->dims;
	return 0;
}

/* What ColossalAI pads: the embedding, and the layer that it is tied to. */
static bool is_vocabulary(const struct ck_ca_tensor *t)
{
	static const char *const words[] = { "embed",  "wte",  "vocab",
					     "head",   "word", "output_layer",
					     "decoder" };

	for (size_t i = 0; i < CK_ARRAY_LEN(words); i++)
		if (memmem(t->name, t->len, words[i], strlen(words[i])))
			return true;
	return false;
}

/* Only rows are padded, and never all of them. */
static int check_padding(const struct join *j,
			 const struct ck_ca_piece **padded, struct ck_err *why)
{
	const struct ck_ca_piece *p;

	*padded = NULL;
	for_each_piece(p, j->s, j->t)
	{
		for (unsigned d = 0; p->box && d < p->rank; d++) {
			uint64_t n = global(p)[d], end;

			if (ck_add_ok(offsets(p)[d], lengths(p)[d], &end) &&
			    (end <= n || !lengths(p)[d]))
				continue;
			if (d || !n)
				return ck_fail(
					why, EINVAL,
					"its record in %s ends past its global shape along dimension %u",
					file_of(j, p), d);
			*padded = p;
		}
	}
	return 0;
}

static int say_padding(const struct join *j, const struct ck_ca_piece *p,
		       struct ck_err *err)
{
	const struct ck_problem_in at = {
		.severity = is_vocabulary(j->t) ? CK_NOTE : CK_WARNING,
		.tensor = j->t->name,
		.tensor_len = j->t->len,
	};

	return ck_builder_problem(
		j->s->b, &at, err,
		"rows past the %" PRIu64
		" of its global shape, as %s has them, are padding and left out",
		global(p)[0], file_of(j, p));
}

static bool same_box(const struct ck_ca_piece *a, const struct ck_ca_piece *b)
{
	return !a->box || same_dims(a->box, b->box, 2 * a->rank);
}

static int slurp(const struct join *j, const struct ck_ca_piece *p,
		 uint64_t size, char *to, struct ck_err *err)
{
	ck_auto_source struct ck_source *src = NULL;
	int ret = ck_dir_open(j->s->dir, file_of(j, p), &src, err);

	return ret ? ret : ck_source_read(src, to, size, p->entry->off, err);
}

/* Whether the bytes of @p are few enough to be compared. */
static bool are_few(const struct join *j, const struct ck_ca_piece *p,
		    uint64_t *size)
{
	uint64_t *all = &j->s->compared[!p->box];

	*size = ck_dtype_info((enum ck_dtype)p->entry->dtype)->size;
	for (unsigned d = 0; d < p->entry->rank; d++)
		if (!ck_mul_ok(*size, p->entry->dims[d], size))
			return false;
	if (*size > MAX_ONE || *all + *size > MAX_ALL)
		return false;
	*all += *size;
	return true;
}

/* *same: as far as both can be read; *compared: they were. */
static int compare(struct join *j, const struct ck_ca_piece *a,
		   const struct ck_ca_piece *b, bool *same, bool *compared,
		   struct ck_err *err)
{
	struct ck_err why = { 0 };
	uint64_t size;
	int ret = 0;

	*same = true;
	*compared = false;
	if (!same_dims(a->entry->dims, b->entry->dims, 2 * a->entry->rank) ||
	    !are_few(j, b, &size))
		return 0;
	if (j->held != a) { /* most have copies of one piece only */
		char *grown = realloc(j->bytes, 2 * size + 1);

		if (!grown)
			return ck_fail(err, ENOMEM, "no memory for copies");
		j->bytes = grown;
		j->held = NULL;
		ret = slurp(j, a, size, j->bytes, &why);
		if (!ret)
			j->held = a;
	}
	if (!ret)
		ret = slurp(j, b, size, j->bytes + size, &why);
	if (ret)
		return ret == -ENOMEM ? ck_fail(err, ENOMEM, "%s", why.msg) : 0;
	*compared = true;
	*same = !memcmp(j->bytes, j->bytes + size, size);
	return 0;
}

/* Each piece against the first of the same box. */
static int check_copies(struct join *j, struct ck_err *why, struct ck_err *err)
{
	const struct ck_ca_piece *p, *o;
	bool same, compared;
	int ret;

	for_each_piece(p, j->s, j->t)
	{
		uint32_t k = j->t->first;

		for (o = &j->s->pieces.v[k];
		     o != p && !(o->entry && same_box(o, p));
		     o = &j->s->pieces.v[k])
			k = o->next;
		if (o == p || !p->entry)
			continue;
		ret = compare(j, o, p, &same, &compared, err);
		if (ret)
			return ret;
		if (!same && !(p->box && ck_dir_any_copy(j->s->dir)))
			return ck_fail(why, EINVAL,
				       "its copies in %s and %s differ%s",
				       file_of(j, o), file_of(j, p),
				       p->box ? " (unshard heal)" :
						", or are parts, of which no "
						"record tells: -o layout=FILE "
						"does");
		if (!p->box && !compared)
			return ck_fail(why, EINVAL,
				       "no record says which part of it each "
				       "file has");
	}
	return 0;
}

static int add_box(const struct join *j, const struct ck_ca_piece *p,
		   const uint64_t *start, const uint64_t *len, uint64_t skip,
		   struct ck_err *err)
{
	struct ck_part part = {
		.name = j->t->name,
		.name_len = j->t->len,
		.src = j->s->files.v[p->file].src,
		.dtype = j->one->dtype,
		.rank = j->rank,
		.shape = j->shape,
		.start = start,
		.len = len,
	};

	for (unsigned d = 0; len && d < j->rank; d++)
		if (!len[d])
			return 0; /* the tensor was declared */
	if (p->entry) {
		part.stride = (const int64_t *)(p->entry->dims + j->rank);
		part.off = p->entry->off + skip;
	}
	return ck_builder_add(j->s->b, &part, err);
}

/* The padding of a vocabulary lies past the end of the tensor: it is cut. */
static int add_clipped(const struct join *j, const struct ck_ca_piece *p,
		       struct ck_err *err)
{
	uint64_t len[CK_MAX_RANK];

	if (!p->box)
		return add_box(j, p, NULL, NULL, 0, err);
	for (unsigned d = 0; d < j->rank; d++) {
		uint64_t left =
			j->shape[d] - CK_MIN(j->shape[d], offsets(p)[d]);

		len[d] = CK_MIN(left, lengths(p)[d]);
	}
	return add_box(j, p, offsets(p), len, 0, err);
}

/* Each rank has its share of every projection, one after the other. */
static int add_fused(const struct join *j, const struct ck_ca_piece *p,
		     struct ck_err *why, struct ck_err *err)
{
	uint64_t start[CK_MAX_RANK], len[CK_MAX_RANK], skip = 0, base = 0;
	unsigned d = 0;
	struct ck_ca_share share;
	int ret = 0;

	while (d < j->rank && lengths(p)[d] == j->shape[d])
		d++;
	if (d == j->rank || !p->entry)
		return add_clipped(j, p, err);
	memcpy(start, offsets(p), j->rank * sizeof(*start));
	memcpy(len, lengths(p), j->rank * sizeof(*len));
	for (unsigned i = 0; !ret && i < j->fused->nr; i++) {
		ret = ck_ca_fused_share(j->fused, i, j->shape[d], lengths(p)[d],
					offsets(p)[d], &share, why);
		if (ret)
			return ret;
		start[d] = base + share.start;
		len[d] = share.len;
		ret = add_box(
			j, p, start, len,
			skip * p->entry->dims[j->rank + d] *
				ck_dtype_info((enum ck_dtype)j->one->dtype)
					->size,
			err);
		base += share.all;
		skip += share.len;
	}
	return ret;
}

static int declare(const struct join *j, struct ck_err *err)
{
	const struct ck_part part = { .name = j->t->name,
				      .name_len = j->t->len,
				      .dtype = j->one->dtype,
				      .rank = j->rank,
				      .shape = j->shape };

	return ck_builder_declare(j->s->b, &part, err);
}

static bool is_split(const struct join *j)
{
	const struct ck_ca_piece *p;

	for_each_piece(p, j->s, j->t)
	{
		if (p->box && !same_dims(lengths(p), j->shape, j->rank))
			return true;
	}
	return false;
}

static int say_whole(const struct join *j, struct ck_err *err)
{
	const struct ck_problem_in note = { .severity = CK_NOTE,
					    .tensor = j->t->name,
					    .tensor_len = j->t->len };

	if (j->s->pieces.v[j->t->first].box)
		return 0;
	return ck_builder_problem(j->s->b, &note, err,
				  "it has no record of its place: taken as "
				  "whole, and the same in each file that has "
				  "it");
}

static int place(struct join *j, const struct ck_ca_fused *fused,
		 struct ck_err *why, struct ck_err *err)
{
	const struct ck_ca_piece *p, *padded;
	int ret = check_pieces(j, why);

	if (!ret)
		ret = check_padding(j, &padded, why);
	if (ret)
		return ret;
	if (ck_ca_is_fused(j->t->name, j->t->len) && is_split(j)) {
		if (!fused->given)
			return ck_fail(why, EINVAL,
				       "it seems fused, query, key and value "
				       "in one: the boxes of its records are "
				       "not where its rows are; -o fused= says "
				       "how many rows each has");
		ck_opts_use(j->s->dir->opts, "fused");
		j->fused = fused->nr ? fused : NULL;
	}
	ret = check_copies(j, why, err);
	if (!ret)
		ret = declare(j, err);
	if (!ret)
		ret = say_whole(j, err);
	if (!ret && padded)
		ret = say_padding(j, padded, err);
	for_each_piece(p, j->s, j->t)
	{
		if (ret)
			break;
		if (!p->entry && j->s->files.v[p->file].present)
			continue; /* damaged, as was said: a hole */
		ret = j->fused ? add_fused(j, p, why, err) :
				 add_clipped(j, p, err);
	}
	return ret;
}

int ck_ca_join(struct ck_ca_set *s, struct ck_err *err)
{
	struct ck_ca_fused fused;
	int ret = ck_ca_fused_get(&fused, s->dir->opts, err);

	if (!ret)
		ret = adopt_boxes(s, err);
	if (!ret)
		ret = ck_ca_check_ranks(s, err);
	for (size_t i = 0; !ret && i < s->tensors.nr; i++) {
		struct join j = { .s = s, .t = &s->tensors.v[i] };
		struct ck_err why = { 0 };

		ret = place(&j, &fused, &why, err);
		free(j.bytes);
		if (ret == -EINVAL && why.code)
			ret = ck_builder_refuse(s->b, 0, j.t->name, j.t->len,
						err, "%s", why.msg);
	}
	return ret;
}
