/* SPDX-License-Identifier: Apache-2.0 */
/* strategy.c - layouts of several files as one table */
#include "core/mesh/strategy.h"

#include "core/base/check.h"
#include "core/base/number.h"
#include "core/mesh/strategy_priv.h"
#include "core/parse/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STAGES 65536

void ck_strategy_free(struct ck_strategy *s)
{
	ck_arena_free(&s->mem);
	free(s->files.v);
	free(s->first.v);
	free(s->item.v);
	ck_strmap_free(&s->names);
	*s = (struct ck_strategy){ 0 };
}

bool ck_strategy_is(const char *name, const void *bytes, size_t len)
{
	const unsigned char *b = bytes;
	size_t n = strlen(name), at = 0;

	if (n > 5 && !strcmp(name + n - 5, ".json"))
		return len &&
		       memmem(bytes, len, "\"parallel_layout_item\"", 22);
	if (!len || b[0] != 0x08)
		return false;
	for (at = 1; at < len && at < 6 && b[at] & 0x80;)
		at++;
	at++;
	return at == len || (at < len && (b[at] == 2 << 3 || b[at] >> 3 == 2 ||
					  b[at] >> 3 == 3));
}

static bool same_layout(const struct ck_strategy_layout *a,
			const struct ck_strategy_layout *b)
{
	return a->nr_dev == b->nr_dev && a->nr_map == b->nr_map &&
	       a->nr_dims == b->nr_dims && a->shards == b->shards &&
	       a->field == b->field && a->nr_rows == b->nr_rows &&
	       !memcmp(a->dev, b->dev, a->nr_dev * sizeof(*a->dev)) &&
	       !memcmp(a->dim, b->dim, a->nr_map) &&
	       !memcmp(a->axis, b->axis, a->nr_map) &&
	       (!a->nr_rows ||
		!memcmp(a->rows, b->rows, a->nr_rows * sizeof(*a->rows)));
}

/* The nested and the expanded form of one layout agree on this much. */
static bool may_be_same(const struct ck_strategy_layout *a,
			const struct ck_strategy_layout *b)
{
	uint64_t a_dev, b_dev, a_slices, b_slices, a_shards, b_shards;

	return ck_strategy_devices(a, &a_dev) &&
	       ck_strategy_devices(b, &b_dev) && a_dev == b_dev &&
	       a->field == b->field &&
	       !ck_strategy_cuts(a, &a_slices, &a_shards, NULL) &&
	       !ck_strategy_cuts(b, &b_slices, &b_shards, NULL) &&
	       a_slices == b_slices && a_shards == b_shards;
}

static void take_shape(struct ck_strategy_layout *to,
		       const struct ck_strategy_layout *from)
{
	to->has_shape = from->has_shape;
	to->shape_rank = from->shape_rank;
	memcpy(to->shape, from->shape, sizeof(to->shape));
}

/* Two files on one parameter of one stage: false, they contradict. */
static bool unite(struct ck_strategy_item *it,
		  const struct ck_strategy_said *said, bool json)
{
	struct ck_strategy_layout *a = &it->l;
	struct ck_strategy_layout b = said->l;

	if (!it->why != !said->why)
		return false;
	if (said->why)
		return true;
	if (it->from_json == json)
		return same_layout(a, &b) &&
		       (!json || (a->shape_rank == b.shape_rank &&
				  !memcmp(a->shape, b.shape,
					  a->shape_rank * sizeof(*a->shape))));
	if (!same_layout(a, &b) && !may_be_same(a, &b))
		return false;
	if (json) {
		take_shape(a, &b);
	} else {
		take_shape(&b, a);
		b.expanded = a->expanded;
		*a = b;
		it->from_json = false;
	}
	return true;
}

static int contradict(const struct ck_strategy_file *f,
		      const struct ck_strategy_item *it, const char *name,
		      struct ck_err *err)
{
	return ck_fail(
		err, EINVAL,
		"%s and %s contradict each other about %s: they are of different runs; choose with -o strategy=FILE",
		f->s->files.v[it->file], f->name, name);
}

static int add_item(struct ck_strategy_file *f,
		    const struct ck_strategy_said *said, const char *name,
		    size_t len, uint64_t stage, bool json, struct ck_err *err)
{
	struct ck_strategy *s = f->s;
	struct ck_strategy_item *it =
		ck_strategy_find(s, name, len, (uint32_t)stage);
	uint32_t at;

	if (stage >= MAX_STAGES)
		return ck_fail(err, EINVAL, "%s: %s: stage %" PRIu64, f->name,
			       name, stage);
	if (it)
		return unite(it, said, json) ? 0 : contradict(f, it, name, err);
	at = ck_strmap_put(&s->names, name, len);
	if (at == CK_STRMAP_NONE || !ck_vec_reserve(&s->first, 1) ||
	    !ck_vec_reserve(&s->item, 1))
		return ck_no_memory(err);
	if (at == s->first.nr)
		s->first.v[s->first.nr++] = CK_STRATEGY_NONE;
	s->item.v[s->item.nr] = (struct ck_strategy_item){
		.l = said->l,
		.why = said->why,
		.name = at,
		.next = s->first.v[at],
		.file = (uint32_t)s->files.nr - 1,
		.from_json = json,
	};
	s->item.v[s->item.nr].l.stage = (uint32_t)stage;
	s->first.v[at] = (uint32_t)s->item.nr++;
	s->nr_stages = CK_MAX(s->nr_stages, (uint32_t)stage + 1);
	return 0;
}

/* "12-layer.weight": all names of a merged file begin so. */
static size_t stage_prefix(const struct ck_strategy_said *said, uint64_t *stage)
{
	size_t n = ck_digits(said->name, CK_MIN(said->len, 9), stage);

	return n && n < said->len && said->name[n] == '-' ? n + 1 : 0;
}

static int check_devices(struct ck_strategy_file *f,
			 const struct ck_strategy_said *said,
			 struct ck_err *err)
{
	struct ck_strategy *s = f->s;
	uint64_t nr;

	if (said->why || !ck_strategy_devices(&said->l, &nr))
		return 0;
	if (!s->devices)
		s->devices = nr;
	if (s->devices == nr)
		return 0;
	return ck_fail(err, EINVAL,
		       "%s: %s is laid out on %" PRIu64
		       " devices, others on %" PRIu64,
		       f->name, said->name, nr, s->devices);
}

static int add_all(struct ck_strategy_file *f, bool json, struct ck_err *err)
{
	bool merged = f->said.nr;
	uint64_t stage;
	int ret = 0;

	for (size_t i = 0; i < f->said.nr; i++)
		merged = merged && stage_prefix(&f->said.v[i], &stage);
	for (size_t i = 0; i < f->said.nr && !ret; i++) {
		struct ck_strategy_said *said = &f->said.v[i];
		size_t skip = merged ? stage_prefix(said, &stage) : 0;

		ret = check_devices(f, said, err);
		if (!ret)
			ret = add_item(f, said, said->name + skip,
				       said->len - skip,
				       merged ? stage : f->stage, json, err);
	}
	return ret;
}

int ck_strategy_add(struct ck_strategy *s, const char *name, const void *bytes,
		    size_t len, struct ck_err *err)
{
	struct ck_strategy_file f = { .s = s };
	bool json = ck_json_is_text(bytes, len);
	char **slot;
	int ret;

	f.name = ck_arena_copy(&s->mem, name, strlen(name));
	slot = f.name ? ck_vec_push(&s->files) : NULL;
	if (!slot)
		return ck_no_memory(err);
	*slot = (char *)f.name;
	ret = json ? ck_strategy_json(&f, bytes, len, err) :
		     ck_strategy_proto(&f, bytes, len, err);
	if (ret)
		ret = ck_wrap(err, ret, "strategy file %s", name);
	else if (!f.said.nr)
		ret = ck_fail(
			err, EINVAL,
			"strategy file %s: it describes no parameters, so it cannot say how they were cut",
			name);
	else
		ret = add_all(&f, json, err);
	free(f.said.v);
	return ret;
}

struct ck_strategy_item *ck_strategy_find(const struct ck_strategy *s,
					  const char *name, size_t len,
					  uint32_t stage)
{
	uint32_t at = s->names.nr ? ck_strmap_get(&s->names, name, len) :
				    CK_STRMAP_NONE;

	if (at == CK_STRMAP_NONE || at >= s->first.nr)
		return NULL;
	for (uint32_t i = s->first.v[at]; i != CK_STRATEGY_NONE;
	     i = s->item.v[i].next)
		if (s->item.v[i].l.stage == stage)
			return &s->item.v[i];
	return NULL;
}
