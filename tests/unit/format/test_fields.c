/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each format's constant says of itself: a field that goes by mistake is
 * missed by what is far from the reader, such as a write that keeps sums right.
 */
#include "core/format/format.h"

#include <criterion/criterion.h>
#include <string.h>

/* The fields that are there, by name, in the order of struct ck_format. */
static void put_fields(const struct ck_format *f, char *out, size_t room)
{
	const struct {
		const char *name;
		bool is;
	} field[] = {
		{ "options", f->options },
		{ "reads", f->reads },
		{ "names_file", f->names_file },
		{ "asked_by", f->asked_by },
		{ "preferred", f->preferred },
		{ "covers", f->covers },
		{ "join", f->join },
		{ "check_one", f->check_one },
		{ "is_layout", f->is_layout },
		{ "signs", f->signs },
		{ "is_rank_dir", f->is_rank_dir },
		{ "saves", f->saves },
		{ "parts", f->parts },
		{ "marker", f->marker },
		{ "ranks", f->ranks },
		{ "ranks_file", f->ranks_file },
		{ "ranks_are_files", f->ranks_are_files },
		{ "ends", f->ends },
		{ "begun", f->begun },
		{ "indexed", f->indexed },
		{ "sums", f->sums },
		{ "copies", f->copies },
		{ "flat", f->flat },
		{ "inner", f->inner },
		{ "reports_aside", f->reports_aside },
		{ "claims", f->claims },
		{ "is_piece", f->is_piece },
		{ "unfinished", f->unfinished },
		{ "aux_is", f->aux_is },
		{ "aux", f->aux },
		{ "is_slice", f->is_slice },
		{ "is_slice_by", f->is_slice_by },
		{ "slice", f->slice },
		{ "check_beside", f->check_beside },
		{ "apart", f->apart },
	};

	*out = '\0';
	for (size_t i = 0; i < sizeof(field) / sizeof(*field); i++)
		if (field[i].is) {
			strncat(out, *out ? " " : "", room - strlen(out) - 1);
			strncat(out, field[i].name, room - strlen(out) - 1);
		}
}

static void check(const char *name, const char *want)
{
	const struct ck_format *const *f = ck_formats;
	char have[1024];

	while (*f && strcmp((*f)->name, name) != 0)
		f++;
	cr_assert(*f);
	put_fields(*f, have, sizeof(have));
	cr_expect_str_eq(have, want, "%s: %s", name, have);
}

Test(format_fields, none_is_lost)
{
	static const struct {
		const char *name, *want;
	} v[] = {
		{ "colossalai",
		  "options reads names_file covers check_one parts "
		  "is_piece unfinished" },
		{ "dcp", "options signs indexed is_piece apart" },
		{ "deepspeed",
		  "options signs marker copies claims is_slice slice "
		  "check_beside" },
		{ "hf", "options reads names_file preferred signs ranks "
			"ranks_file indexed flat inner apart" },
		{ "layout", "asked_by signs ranks_file indexed reports_aside "
			    "apart" },
		{ "megatron", "reads signs marker is_slice slice" },
		{ "mindspore",
		  "options reads covers join signs is_rank_dir saves "
		  "ranks ranks_file sums aux_is aux" },
		{ "nnscaler",
		  "options reads covers is_slice is_slice_by slice" },
		{ "oneflow",
		  "options join is_layout signs ranks ranks_are_files "
		  "ends begun" },
		{ "safetensors", "preferred signs ranks indexed flat apart" },
		{ "torch", "reads names_file signs ranks flat reports_aside" },
	};

	for (size_t i = 0; i < sizeof(v) / sizeof(*v); i++)
		check(v[i].name, v[i].want);
}
