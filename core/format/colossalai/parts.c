/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parts.c - by their names, and by what lies beside them
 */
#include "core/format/colossalai/parts.h"

#include "core/base/check.h"
#include "core/assemble/index_map.h"

#include <string.h>

#define SCHEDULER "lr_scheduler"

static const char *const suffixes[] = { ".bin", ".safetensors" };

static const struct {
	const char *stem;
	enum ck_ca_part part;
} parts[] = { { "model", CK_CA_MODEL }, { "optimizer", CK_CA_OPTIMIZER } };

enum ck_ca_part ck_ca_part_of_file(const char *name)
{
	size_t len = ck_ca_part_stem(name);

	for (size_t i = 0; i < CK_ARRAY_LEN(parts); i++)
		if (strlen(parts[i].stem) == len &&
		    !memcmp(parts[i].stem, name, len))
			return parts[i].part;
	return strcmp(name, SCHEDULER) ? CK_CA_NO_PART : CK_CA_SCHEDULER;
}

size_t ck_ca_part_stem(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < CK_ARRAY_LEN(suffixes); i++) {
		size_t n = strlen(suffixes[i]);

		if (len > n && !strcmp(name + len - n, suffixes[i]))
			return len - n;
	}
	return len;
}

static bool has_file(ck_ca_has_fn has, const void *ctx, const char *a,
		     const char *b)
{
	return has(ctx, a) || has(ctx, b);
}

/* What other frameworks put beside files of these names. */
static bool has_others(ck_ca_has_fn has, const void *ctx)
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

bool ck_ca_parts_are_files(ck_ca_has_fn has, const void *ctx)
{
	return (has_file(has, ctx, "model.bin", "model.safetensors") ||
		has_file(has, ctx, "optimizer.bin", "optimizer.safetensors")) &&
	       ck_ca_parts_are_save(has, ctx);
}

bool ck_ca_parts_are_save(ck_ca_has_fn has, const void *ctx)
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

static bool begins(const char *name, const char *with)
{
	return !strncmp(name, with, strlen(with));
}

enum ck_ca_part ck_ca_part_in_one(const char *name)
{
	if (begins(name, "pytorch_optim") || begins(name, "optimizer.") ||
	    begins(name, "optimizer-"))
		return CK_CA_OPTIMIZER;
	if (begins(name, "pytorch_model") || begins(name, "model.") ||
	    begins(name, "model-"))
		return CK_CA_MODEL;
	return strcmp(name, SCHEDULER) ? CK_CA_NO_PART : CK_CA_SCHEDULER;
}

/* No other framework writes an index of an optimizer. */
void ck_ca_together_add(struct ck_ca_together *t, const char *name)
{
	t->optimizer |= ck_index_is(name, "pytorch_optim.bin.index") ||
			ck_index_is(name, "optimizer.safetensors.index");
	t->model |= ck_ca_part_in_one(name) == CK_CA_MODEL;
}

static const char *const part_names[] = { [CK_CA_MODEL] = "model",
					  [CK_CA_OPTIMIZER] = "optimizer",
					  [CK_CA_SCHEDULER] = SCHEDULER };

const char *ck_ca_part_name(enum ck_ca_part part)
{
	return part_names[part];
}

enum ck_ca_part ck_ca_part_named(const char *key)
{
	for (enum ck_ca_part i = CK_CA_MODEL; i <= CK_CA_SCHEDULER; i++)
		if (!strcmp(part_names[i], key))
			return i;
	return CK_CA_NO_PART;
}

bool ck_ca_part_hides(const char *key, const char *path)
{
	enum ck_ca_part want = ck_ca_part_named(key);
	enum ck_ca_part is = ck_ca_part_in_one(path);

	return want != CK_CA_NO_PART && !strchr(path, '/') && is != want &&
	       (is != CK_CA_NO_PART || want != CK_CA_MODEL);
}
