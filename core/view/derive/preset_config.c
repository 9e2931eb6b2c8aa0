/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preset_config.c - a Megatron preset against the config.json beside the model
 *
 * Other heads give a file of the same names and shapes, and a model that answers
 * nonsense; what config.json does not say is not compared.
 */
#include "core/view/derive/derive.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* By the names of Llama, and those of GPT-2. */
static bool config_number(const json_t *config, const char *name,
			  const char *other, uint64_t *out)
{
	return ck_json_u64(json_object_get(config, name), out) ||
	       ck_json_u64(json_object_get(config, other), out);
}

static int differs(const char *what, uint64_t here, const char *name,
		   uint64_t there, struct ck_err *err)
{
	return ck_fail(err, EINVAL,
		       "%.200s is %" PRIu64
		       ", but config.json says %s %" PRIu64,
		       what, here, name, there);
}

static int compare_heads(const json_t *preset, const json_t *config,
			 struct ck_err *err)
{
	uint64_t heads = 0, kv, n, of_config = 0;
	bool known = config_number(config, "num_attention_heads", "n_head",
				   &of_config);

	if (!ck_json_u64(json_object_get(preset, "heads"), &heads))
		return 0;
	if (known && heads != of_config)
		return differs("preset.heads", heads, "num_attention_heads",
			       of_config, err);
	if (!ck_json_u64(json_object_get(preset, "kv_heads"), &kv))
		kv = heads;
	if (!config_number(config, "num_key_value_heads", "", &n))
		n = of_config;
	return known && kv != n ? differs("preset.kv_heads", kv,
					  "num_key_value_heads", n, err) :
				  0;
}

/* Without "vocab" all rows are shown, also those that only pad. */
static int compare_rows(const json_t *preset, uint64_t here, uint64_t there,
			struct ck_err *err)
{
	if (json_object_get(preset, "vocab"))
		return differs("preset.vocab", here, "vocab_size", there, err);
	if (here < there)
		return differs("the number of rows of embeddings", here,
			       "vocab_size", there, err);
	return ck_fail(err, EINVAL,
		       "the number of rows of embeddings is %" PRIu64
		       ", but config.json says vocab_size %" PRIu64
		       ": if the others only pad, give \"vocab\": %" PRIu64
		       " in the preset",
		       here, there, there);
}

/* Of the embeddings: rows are the vocabulary, columns the hidden size. */
static int compare_embedding(const json_t *preset, const json_t *config,
			     const struct ck_derived *t, struct ck_err *err)
{
	uint64_t n;

	if (t->rank != 2)
		return 0;
	if (config_number(config, "hidden_size", "n_embd", &n) &&
	    n != t->shape[1])
		return differs("the width of embeddings", t->shape[1],
			       "hidden_size", n, err);
	if (config_number(config, "vocab_size", "", &n) && n != t->shape[0])
		return compare_rows(preset, t->shape[0], n, err);
	return 0;
}

static int compare(const struct ck_derivation *d, const json_t *preset,
		   const json_t *config, struct ck_err *err)
{
	int ret = compare_heads(preset, config, err);

	for (size_t i = 0; i < d->v.nr && !ret; i++)
		if (strstr(d->v.v[i].name, "embed_tokens.weight") ||
		    strstr(d->v.v[i].name, "wte.weight"))
			ret = compare_embedding(preset, config, &d->v.v[i],
						err);
	return ret;
}

int ck_preset_fits(const struct ck_derivation *d, const json_t *preset,
		   const struct ck_extras *e, struct ck_err *err)
{
	ck_auto_json json_t *config = preset ? ck_extras_config(e) : NULL;

	return config ? compare(d, preset, config, err) : 0;
}
