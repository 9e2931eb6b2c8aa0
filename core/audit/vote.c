/* SPDX-License-Identifier: Apache-2.0 */
/* vote.c - what most files say, and who says otherwise */
#include "core/audit/audit.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The first fact in which they differ; a->facts: none. */
static unsigned difference(const struct ck_audit *a, size_t i, size_t k)
{
	unsigned n = 0;

	while (n < a->facts && a->v[i].fact[n] == a->v[k].fact[n])
		n++;
	return n;
}

static bool is_beyond(const struct ck_audit *a, size_t i, size_t meant)
{
	return a->world >= 0 &&
	       (int64_t)a->v[i].rank >= a->v[meant].fact[a->world];
}

bool ck_audit_is_other(const struct ck_audit *a, size_t i, size_t meant)
{
	return a->v[i].counts &&
	       (difference(a, i, meant) < a->facts || is_beyond(a, i, meant));
}

static size_t count_like(const struct ck_audit *a, size_t i)
{
	size_t nr = 0;

	for (size_t k = 0; k < a->nr; k++)
		nr += a->v[k].counts && !ck_audit_is_other(a, k, i);
	return nr;
}

static void count(const struct ck_audit *a, size_t i, size_t all,
		  struct ck_audit_vote *out, bool *two)
{
	size_t nr = count_like(a, i);
	uint64_t world = a->world < 0 ? 0 : (uint64_t)a->v[i].fact[a->world];

	if (nr && nr == world) {
		if (out->whole == CK_AUDIT_NONE)
			out->whole = i;
		*two |= difference(a, i, out->whole) < a->facts;
	}
	if (2 * nr > all && 2 * nr > world && out->most == CK_AUDIT_NONE)
		out->most = i;
}

void ck_audit_vote(const struct ck_audit *a, struct ck_audit_vote *out)
{
	size_t all = a->all;
	bool two = false;

	*out = (struct ck_audit_vote){ CK_AUDIT_NONE, CK_AUDIT_NONE,
				       CK_AUDIT_NONE, CK_AUDIT_NONE,
				       CK_AUDIT_NONE };
	for (size_t i = 0; i < a->nr && !a->all; i++)
		all += a->v[i].counts;
	for (size_t i = 0, before = CK_AUDIT_NONE; i < a->nr; i++) {
		if (!a->v[i].counts)
			continue;
		if (out->first == CK_AUDIT_NONE)
			out->first = i;
		if (out->other == CK_AUDIT_NONE &&
		    difference(a, i, out->first) < a->facts)
			out->other = i;
		if (out->named == CK_AUDIT_NONE && a->named &&
		    a->v[i].fact[0] == *a->named)
			out->named = i;
		if (before == CK_AUDIT_NONE ||
		    difference(a, i, before) < a->facts)
			count(a, i, all, out, &two);
		before = i;
	}
	if (two)
		out->whole = CK_AUDIT_NONE;
}

/* Whether @words begin with @slot, "{mine}"; they are past it then. */
static bool take_slot(const char **words, const char *slot)
{
	size_t len = strlen(slot);

	if (strncmp(*words, slot, len) != 0)
		return false;
	*words += len;
	return true;
}

void ck_audit_text(struct ck_str *out, const char *words,
		   const struct ck_audit *a, size_t i, size_t meant,
		   const struct ck_audit_words *w)
{
	bool known = meant != CK_AUDIT_NONE;
	unsigned n = known ? difference(a, i, meant) : 0, k;

	n -= n == a->facts; /* of a rank that there was not */
	for (k = n; k && !w->fact[k];)
		k--;
	while (*words)
		if (take_slot(&words, "{mine}"))
			ck_str_fmt(out, "%" PRIi64, a->v[i].fact[n]);
		else if (known && take_slot(&words, "{meant}"))
			ck_str_fmt(out, "%" PRIi64, a->v[meant].fact[n]);
		else if (known && take_slot(&words, "{file}"))
			ck_str_puts(out, a->v[meant].name);
		else if (w->fact[k] && take_slot(&words, "{difference}"))
			ck_audit_text(out, w->fact[k], a, i, meant, w);
		else
			ck_str_add(out, words++, 1);
}

int ck_audit_say(const struct ck_audit *a, size_t i, size_t meant,
		 const struct ck_audit_words *w, struct ck_builder *b,
		 struct ck_err *err)
{
	bool known = meant != CK_AUDIT_NONE;
	const struct ck_problem_in p = {
		.severity = known && is_beyond(a, i, meant) ? w->beyond :
							      w->severity,
		.file = a->v[i].name,
	};
	ck_auto_str struct ck_str text = { 0 };

	ck_audit_text(&text, known ? w->other : w->unclear, a, i, meant, w);
	return text.failed ? ck_no_memory(err) :
			     ck_builder_problem(b, &p, err, "%s", text.v);
}

int ck_audit_report(struct ck_audit *a, size_t meant,
		    const struct ck_audit_words *w, struct ck_builder *b,
		    struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < a->nr && !ret; i++) {
		if (!a->v[i].counts ||
		    (meant != CK_AUDIT_NONE && !ck_audit_is_other(a, i, meant)))
			continue;
		ret = ck_audit_say(a, i, meant, w, b, err);
		a->v[i].counts = false;
	}
	return ret;
}
