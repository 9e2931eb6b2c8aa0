/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stack.c - layers that are one tensor of each kind, as Megatron's
 * torch_dist saves them: dimension 0 of decoder.layers.mlp.linear_fc1.weight
 * is the layers, and the rest is what one layer has
 *
 * What is so called and is no stack is told by its shapes: a stack has no
 * vector, for what is one in a layer is a matrix in it, and all of it has the
 * same number of layers.
 */
#include "core/reshard/words.h"

#include "core/base/check.h"

#include <string.h>

/* What stands behind "layers" in Megatron's names. */
static const char *const kinds[] = { "self_attention.",
				     "cross_attention.",
				     "inter_attention.",
				     "mlp.",
				     "mixer.",
				     "input_layernorm.",
				     "pre_mlp_layernorm.",
				     "pre_cross_attn_layernorm.",
				     "post_attention_layernorm.",
				     NULL };

/* Where the word "layers" begins whose layers are stacked; NULL: nowhere. */
static const char *stacked_at(const char *name, size_t len)
{
	static const char layers[] = "layers.";
	const char *end = name + len, *at = name;
	size_t n = strlen(layers);

	while ((at = memmem(at, (size_t)(end - at), layers, n))) {
		size_t left = (size_t)(end - at) - n;

		for (const char *const *k = kinds; *k; k++)
			if ((at == name || at[-1] == '.') &&
			    left > strlen(*k) &&
			    !memcmp(at + n, *k, strlen(*k)))
				return at;
		at += n;
	}
	return NULL;
}

bool ck_reshard_is_stacked(const char *name, size_t len)
{
	return stacked_at(name, len) && ck_reshard_layer(name, len) < 0;
}

/* "decoder" of "optimizer.state.exp_avg.decoder.layers.mlp.linear_fc1.weight" */
static size_t owner_of(const char *name, const char *layers, const char **owner)
{
	const char *end = layers > name ? layers - 1 : layers, *from = end;

	while (from > name && from[-1] != '.')
		from--;
	*owner = from;
	return (size_t)(end - from);
}

static bool add(struct ck_reshard_stack *s, const char *owner, size_t len,
		uint64_t layers)
{
	unsigned i = 0;

	while (i < s->nr && (s->of[i].owner_len != len ||
			     memcmp(s->of[i].owner, owner, len)))
		i++;
	if (i == s->nr && i == CK_RESHARD_STACKS)
		return false;
	if (i < s->nr)
		return s->of[i].layers == layers;
	s->of[s->nr++] = (struct ck_reshard_stack_of){ owner, len, layers };
	return true;
}

void ck_reshard_stack_find(struct ck_reshard_stack *out,
			   const struct ck_reshard_in *in)
{
	bool matrices = false, ok = true;

	*out = (struct ck_reshard_stack){ 0 };
	for (uint32_t i = 0; i < in->nr && ok; i++) {
		const struct ck_tensor *t = &in->img->tensors[in->first + i];
		const char *owner, *layers, *name;
		size_t len;

		name = ck_catalog_str(in->img, t->name, &len);
		layers = stacked_at(name, len);
		if (!layers || ck_reshard_layer(name, len) >= 0)
			continue;
		len = owner_of(name, layers, &owner);
		matrices = matrices || t->rank > 2;
		ok = t->rank > 1 &&
		     add(out, owner, len, in->img->dims[t->shape]);
	}
	if (!ok || !matrices)
		*out = (struct ck_reshard_stack){ 0 };
}
