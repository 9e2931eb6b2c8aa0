/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tied.c - models whose head is their table of words
 *
 * It stands once in the checkpoint, and both the first stage of a pipeline and
 * the last compute with it.
 */
#include "core/reshard/words.h"

#include "core/base/suffix.h"

static const char *const heads[] = { "lm_head", "output_layer", "embed_out",
				     "output",	"head",		NULL };
static const char *const tables[] = { "embed_tokens",	"word_embeddings",
				      "tok_embeddings", "wte",
				      "embed_in",	NULL };

/* By the flag; or by its class, whose default a config.json leaves out. */
static bool says_tied(const json_t *config)
{
	const json_t *flag = json_object_get(config, "tie_word_embeddings");
	const char *class = json_string_value(
		json_array_get(json_object_get(config, "architectures"), 0));

	if (!flag)
		flag = json_object_get(json_object_get(config, "text_config"),
				       "tie_word_embeddings");
	if (flag || !class)
		return json_is_true(flag);
	return ck_ends_in(class, "ForCausalLM") ||
	       ck_ends_in(class, "LMHeadModel");
}

bool ck_reshard_is_tied(const struct ck_reshard_in *in)
{
	if (!says_tied(in->config))
		return false;
	for (uint32_t i = 0; i < in->nr; i++) {
		size_t len;
		const char *name = ck_catalog_str(
			in->img, in->img->tensors[in->first + i].name, &len);

		if (ck_reshard_has_word(name, len, heads))
			return false;
	}
	return true;
}

bool ck_reshard_is_table(const char *name, size_t len)
{
	return ck_reshard_has_word(name, len, tables);
}
