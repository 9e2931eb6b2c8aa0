/* SPDX-License-Identifier: Apache-2.0 */
/*
 * joined.c - states whose shapes are those of fused layers
 */
#include "core/format/colossalai/colossalai.h"

#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/base/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

size_t ck_colossalai_state_id(const char *name, size_t len, uint64_t *id)
{
	size_t at = ck_digits(name, len, id);

	return at <= 18 && at < len && name[at] == '.' ? at : 0;
}

static bool is_thrice(uint64_t a, uint64_t b)
{
	return b && a / 3 == b && a % 3 == 0;
}

int ck_colossalai_joined_see(struct colossalai_joined *j, const char *name,
			     size_t len, const uint64_t *shape, unsigned rank,
			     struct ck_err *err)
{
	struct colossalai_state *s;
	uint64_t id;

	if (rank < 1 || rank > 2 || !ck_colossalai_state_id(name, len, &id) ||
	    (rank == 2 && !is_thrice(shape[0], shape[1]) &&
	     !is_thrice(shape[1], shape[0])))
		return 0;
	s = ck_vec_push(&j->seen);
	if (!s)
		return ck_no_memory(err);
	*s = (struct colossalai_state){
		.name = ck_arena_copy(&j->mem, name, len),
		.id = id,
		.length = rank == 1 ? shape[0] : CK_MAX(shape[0], shape[1]),
		.matrix = rank == 2,
	};
	return s->name ? 0 : ck_no_memory(err);
}

static int by_id(const void *pa, const void *pb)
{
	const struct colossalai_state *a = pa, *b = pb;

	if (a->id != b->id)
		return a->id < b->id ? -1 : 1;
	return strcmp(a->name, b->name);
}

static int say(const struct colossalai_state *s, struct ck_builder *b,
	       struct ck_err *err)
{

	return ck_builder_report_tensor(
		b, CK_NOTE, s->name, strlen(s->name), NULL, err,
		"shown as stored: if it is of query, key and "
		"value in one, and was saved with tensor "
		"parallelism, ColossalAI has put its parts "
		"in the order of ranks");
}

/* Whether the parameter @id has a state of such a shape. */
static bool has_matrix(const struct colossalai_joined *j, size_t from,
		       uint64_t id)
{
	for (size_t i = from; i < j->seen.nr && j->seen.v[i].id <= id; i++)
		if (j->seen.v[i].id == id && j->seen.v[i].matrix)
			return true;
	return false;
}

int ck_colossalai_joined_report(struct colossalai_joined *j,
				struct ck_builder *b, struct ck_err *err)
{
	uint64_t matrix = UINT64_MAX,
		 length = 0; /* the last parameter that is */
	bool alone = false;
	int ret = 0;

	if (j->seen.nr)
		qsort(j->seen.v, j->seen.nr, sizeof(*j->seen.v), by_id);
	for (size_t i = 0; !ret && i < j->seen.nr; i++) {
		const struct colossalai_state *s = &j->seen.v[i];

		if (s->matrix && s->id != matrix) {
			alone = (matrix == UINT64_MAX || matrix + 1 < s->id) &&
				!has_matrix(j, i, s->id + 1);
			matrix = s->id;
			length = s->length;
		}
		if (alone &&
		    (s->matrix || (matrix + 1 == s->id && s->length == length)))
			ret = say(s, b, err);
	}
	return ret;
}

void ck_colossalai_joined_free(struct colossalai_joined *j)
{
	ck_arena_free(&j->mem);
	free(j->seen.v);
	*j = (struct colossalai_joined){ 0 };
}
