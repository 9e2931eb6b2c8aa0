/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parts.c - by their names, and by what lies beside them
 */
#include "core/format/colossalai/colossalai.h"

#include "core/base/check.h"
#include "core/base/suffix.h"

#include <string.h>

#define MODEL "model"
#define OPTIMIZER "optimizer"
#define SCHEDULER "lr_scheduler"

static size_t stem(const char *name)
{
	static const char *const suffixes[] = { ".bin", ".safetensors" };
	size_t len = strlen(name);

	for (size_t i = 0; i < CK_ARRAY_LEN(suffixes); i++)
		if (ck_has_suffix(name, suffixes[i]))
			return len - strlen(suffixes[i]);
	return len;
}

bool ck_colossalai_part_is_optimizer(const char *name)
{
	return stem(name) == strlen(OPTIMIZER) && ck_begins(name, OPTIMIZER);
}

static bool has_file(ck_has_fn has, const void *ctx, const char *a,
		     const char *b)
{
	return has(ctx, a) || has(ctx, b);
}

/* What other frameworks put beside files of these names. */
static bool has_others(ck_has_fn has, const void *ctx)
{
	static const char *const names[] = {
		"config.json",
		"trainer_state.json",
		"training_args.bin",
		"random_states_0.pkl",
		"scheduler.bin",
		"scheduler.pt",
		"rng_state.pth",
		".metadata",
		"pytorch_model.bin",
		"latest",
		"model_index.json",
		"unshard-layout.json",
		"adapter_model.safetensors",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(names); i++)
		if (has(ctx, names[i]))
			return true;
	return false;
}

static bool are_save(ck_has_fn has, const void *ctx)
{
	bool model = has_file(has, ctx, "model.bin", "model.safetensors");
	bool states =
		has_file(has, ctx, "optimizer.bin", "optimizer.safetensors");
	bool files = model || states;

	model = model || has(ctx, "model");
	states = states || has(ctx, "optimizer");
	/* folders of these names alone are anybody's */
	return (has(ctx, SCHEDULER) ? model || states :
				      model && states && files) &&
	       !has_others(has, ctx);
}

bool ck_colossalai_parts_are_files(ck_has_fn has, const void *ctx)
{
	return (has_file(has, ctx, "model.bin", "model.safetensors") ||
		has_file(has, ctx, "optimizer.bin", "optimizer.safetensors")) &&
	       are_save(has, ctx);
}

/* The part that a file is of; NULL: of any (config.json). */
static const char *part_of(const char *name)
{
	if (ck_begins(name, "pytorch_optim") || ck_begins(name, "optimizer.") ||
	    ck_begins(name, "optimizer-"))
		return OPTIMIZER;
	if (ck_begins(name, "pytorch_model") || ck_begins(name, "model.") ||
	    ck_begins(name, "model-"))
		return MODEL;
	return strcmp(name, SCHEDULER) ? NULL : SCHEDULER;
}

static bool has(const char *part, const char *name)
{
	const char *is = part_of(name);

	return is && !strcmp(is, part);
}

/* No other framework writes an index of an optimizer. */
static unsigned seen(const char *name)
{
	unsigned optimizer = ck_index_is(name, "pytorch_optim.bin.index") ||
			     ck_index_is(name, "optimizer.safetensors.index");

	return has(MODEL, name) | optimizer << 1;
}

static const char *const names[] = { MODEL, OPTIMIZER, SCHEDULER, NULL };

static bool is_part(const char *key)
{
	for (const char *const *n = names; *n; n++)
		if (!strcmp(*n, key))
			return true;
	return false;
}

static bool hides(const char *part, const char *name)
{
	const char *is = part_of(name);

	if (!is_part(part) || strchr(name, '/'))
		return false;
	return is ? strcmp(is, part) != 0 : strcmp(part, MODEL) != 0;
}

const struct ck_format_parts ck_colossalai_parts = {
	.names = names,
	.file = SCHEDULER,
	.are_save = are_save,
	.files = (const char *const[]){ "model.bin", "model.safetensors",
					"optimizer.bin",
					"optimizer.safetensors", NULL },
	.stem = stem,
	.seen = seen,
	.all = 3,
	.has = has,
	.hides = hides,
};
