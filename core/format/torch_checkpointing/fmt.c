/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt.c - checkpoints by torch_checkpointing, which have a metadata.pkl
 *
 * Items without a resharder are not in it: each rank's file ITEM_RANK.pt of
 * such a one is read as torch.save's files of ranks are.
 */
#include "core/format/torch_checkpointing/tc.h"

#include "core/assemble/pattern.h"
#include "core/base/auto.h"
#include "core/container/torch_file.h"
#include "core/format/format.h"
#include "core/format/slice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A key that each item has, and no pickle of others: in the first bytes. */
#define TOLD_BY "nested_path_to_metadata"
#define HEAD 4096

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_source struct ck_source *src = NULL;
	struct ck_err why = { 0 };
	char head[HEAD];
	size_t len;
	int ret;

	if (dir->only || !ck_dir_has(dir, TC_METADATA))
		return CK_MATCH_NONE;
	ret = ck_dir_open(dir, TC_METADATA, &src, &why);
	if (ret == -ENOMEM)
		return ck_no_memory(err);
	if (ret)
		return CK_MATCH_NONE;
	len = src->st.st_size < HEAD ? (size_t)src->st.st_size : HEAD;
	ret = ck_source_read(src, head, len, 0, &why);
	if (ret == -ENOMEM)
		return ck_no_memory(err);
	return !ret && memmem(head, len, TOLD_BY, strlen(TOLD_BY)) ?
		       CK_MATCH_INDEX :
		       CK_MATCH_NONE;
}

static int note(struct ck_asm_join *j, struct ck_err *err)
{
	const struct tc *s = j->a->ctx;
	const struct ck_problem_in at = { .severity = CK_NOTE,
					  .tensor = j->t->name,
					  .tensor_len = j->t->len };
	const struct tc_path *path = &s->paths.v[j->t->user - 1];
	int ret = ck_builder_path(j->a->b, 0, j->t->name, j->t->len, path->v,
				  path->nr, err);

	return ret || j->placed ?
		       ret :
		       ck_builder_problem(j->a->b, &at, err,
					  "%s has no record of it: taken as "
					  "whole, and the same in each file "
					  "that has it",
					  TC_METADATA);
}

static const struct ck_asm_reader reader = {
	.words = {
		[CK_ASM_BOXLESS] = "{file} has it, and " TC_METADATA
				   " does not say so",
		[CK_ASM_LENGTHS] = "its shape in {file} is not what " TC_METADATA
				   " says",
		[CK_ASM_NOT_IN] = "{file} does not have it, as " TC_METADATA
				  " says",
		[CK_ASM_RANK] = "its shape differs between the records of "
				"{file} and {other}",
		[CK_ASM_SHAPE] = "its shape differs between the records of "
				 "{file} and {other}",
		[CK_ASM_DTYPE] = "its dtype in {other} is not that of {file}",
		[CK_ASM_COPIES] = "its copies in {file} and {other} differ "
				  "(unshard heal)",
		[CK_ASM_UNPLACED] = "its copies in {file} and {other} differ, "
				    "or are parts, of which no record tells",
		[CK_ASM_UNREAD] = "no record says which part of it each file "
				  "has",
	},
	.key = ck_tc_key,
	.note = note,
};

/* ---- items without a record ---- */

struct plain {
	const struct tc *s;
	const char *item;
	size_t len;
	bool first; /* file of the item: objects are shown of that one alone */
	struct ck_str name;
};

/* The name and the path, with the item before both. */
static int pick(void *ctx, const struct ck_pickle *p,
		struct ck_torch_leaf *leaf, bool *take, struct ck_err *err)
{
	struct plain *x = ctx;

	*take = x->first || ck_torch_is_rebuild(p, leaf->value);
	if (leaf->depth == CK_TORCH_MAX_DEPTH)
		return ck_fail(err, EINVAL, "%.*s: nested too deeply",
			       (int)x->len, x->item);
	x->name.len = 0;
	ck_str_add(&x->name, x->item, x->len);
	ck_str_puts(&x->name, leaf->name_len ? "." : "");
	ck_str_add(&x->name, leaf->name, leaf->name_len);
	memmove(leaf->path + 1, leaf->path, leaf->depth * sizeof(*leaf->path));
	leaf->path[0] = (struct ck_path_part){ .key = x->item,
					       .key_len = x->len,
					       .index = -1 };
	leaf->depth++;
	leaf->name = x->name.v;
	leaf->name_len = x->name.len;
	return x->name.failed ? ck_no_memory(err) : 0;
}

static int load_plain(struct plain *x, const struct ck_dir_list *l,
		      struct ck_err *err)
{
	static const struct ck_pattern names[] = { { "*_#.pt", 0 } };
	struct ck_torch_load ld = { .dir = x->s->a.dir,
				    .b = x->s->a.b,
				    .ranks = true,
				    .several = true,
				    .pick = pick,
				    .ctx = x,
				    .check = ck_slice_report };
	struct ck_pattern_found f;
	int ret = 0;

	for (size_t i = 0; !ret && i < l->nr; i++) {
		const char *name = l->v[i].name;

		if (l->v[i].is_dir || !ck_pattern_find(names, 1, name, &f) ||
		    f.n[0] >= x->s->world)
			continue;
		x->first = !x->item || x->len != f.from[0] - 1 ||
			   strncmp(x->item, name, x->len) != 0;
		x->item = name;
		x->len = f.from[0] - 1;
		if (x->len && !ck_strmap_has(&x->s->items, name, x->len))
			ret = ck_torch_file_load(&ld, name, err);
	}
	ck_torch_load_free(&ld);
	return ret;
}

static int load_all(struct tc *s, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	struct plain x = { .s = s };
	int ret = ck_tc_read_metadata(s, err);

	for (uint32_t i = 0; !ret && i < s->a.files.nr; i++)
		ret = ck_asm_read(&s->a, i, err);
	if (!ret)
		ret = ck_asm_join(&s->a, err);
	if (!ret)
		ret = ck_dir_list(s->a.dir, "", &l, err);
	if (!ret)
		ret = load_plain(&x, &l, err);
	ck_str_free(&x.name);
	return ret;
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	struct tc s = { .a = { .dir = dir, .b = b, .how = &reader } };
	int ret;

	s.a.ctx = &s;
	ret = load_all(&s, err);
	ck_asm_free(&s.a);
	ck_strmap_free(&s.items);
	free(s.paths.v);
	free(s.locals.v);
	ck_str_free(&s.name);
	return ret;
}

static const struct ck_format_sign signs[] = {
	{ TC_METADATA, CK_SIGN_STRONG },
	{ NULL, 0 },
};

const struct ck_format ck_format_torch_checkpointing = {
	.name = "torch_checkpointing",
	.summary = "torch_checkpointing (metadata.pkl, a file a rank and item)",
	.covers = "torch hf safetensors",
	.indexed = true,
	.signs = signs,
	.probe = probe,
	.load = load,
};
