/* SPDX-License-Identifier: Apache-2.0 */
/* absent.c - what the strategy describes and no file has */
#include "core/format/mindspore/set.h"

#include <inttypes.h>

#define MAX_ABSENT 8

/* Of many it is said once: it was not meant to be saved, as of adapters. */
static int report_few(struct ck_ms_set *s, uint64_t absent, struct ck_err *err)
{
	const struct ck_strategy *st = &s->strategy;
	const struct ck_problem_in p = { .severity = CK_WARNING };
	size_t i = 0;

	while (st->item.v[i].seen)
		i++;
	return ck_builder_problem(
		s->b, &p, err,
		"the strategy describes %" PRIu64
		" tensors, of which no file holds %" PRIu64
		" (such as %s): a save of some of them only, as of an adapter, or files are lost",
		(uint64_t)st->item.nr, absent,
		st->names.v[st->item.v[i].name].s);
}

int ck_ms_report_absent(struct ck_ms_set *s, struct ck_err *err)
{
	struct ck_strategy *st = &s->strategy;
	uint64_t absent = 0;
	int ret = 0;

	for (size_t i = 0; i < st->item.nr; i++)
		absent += !st->item.v[i].seen;
	if (absent > MAX_ABSENT && !s->missing)
		return report_few(s, absent, err);
	for (size_t i = 0; i < st->item.nr && !ret; i++) {
		const struct ck_strmap_key *k =
			&st->names.v[st->item.v[i].name];
		const struct ck_problem_in p = {
			.severity = s->missing ? CK_ERROR : CK_WARNING,
			.tensor = k->s,
			.tensor_len = k->len,
		};

		if (!st->item.v[i].seen)
			ret = ck_builder_problem(
				s->b, &p, err,
				"the strategy describes it, and no file of stage %u holds it",
				st->item.v[i].l.stage);
	}
	return ret;
}
