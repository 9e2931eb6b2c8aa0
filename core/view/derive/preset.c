/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preset.c - other names of a model -> Hugging Face's
 *
 * megatron-llama:
 *	embedding.word_embeddings.weight        model.embed_tokens.weight
 *	layers.N.self_attention.linear_qkv      q_proj, k_proj, v_proj: a group of
 *	                                        queries, its key, its value; again
 *	layers.N.mlp.linear_fc1                 gate_proj over up_proj
 *	layers.* with the layers stacked        one slice a layer
 *
 * megatron-gpt2: as well, but queries, keys and values stay in one matrix,
 * each of them together, and matrices are transposed, for GPT-2 has them so.
 *
 * fsdp-llama: what FSDP, DDP, torch.compile and checkpointing of activations
 * put into names, and what a trainer put around the model, are taken out.
 *
 * All of these are runs of rows, so each is a few byte ranges.
 */
#include "core/view/derive/derive.h"

#include "core/base/check.h"
#include "core/base/number.h"
#include "core/base/suffix.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FSDP "fsdp-llama"

enum how { WHOLE, TURNED, VOCABULARY, GATED, QKV, FUSED, COMPUTED };

static const struct rule {
	const char *megatron, *hf;
	enum how how;
} of_model[] = {
	{ "embedding.word_embeddings.weight", "model.embed_tokens.weight",
	  VOCABULARY },
	{ "output_layer.weight", "lm_head.weight", VOCABULARY },
	{ "final_layernorm.weight", "model.norm.weight", WHOLE },
	{ "final_norm.weight", "model.norm.weight", WHOLE },
	{ "rotary_pos_emb.inv_freq", "", COMPUTED },
}, of_layer[] = {
	{ "self_attention.linear_qkv.weight", "weight", QKV },
	{ "self_attention.query_key_value.weight", "weight", QKV },
	{ "self_attention.linear_qkv.bias", "bias", QKV },
	{ "self_attention.query_key_value.bias", "bias", QKV },
	{ "self_attention.linear_proj.weight", "self_attn.o_proj.weight",
	  WHOLE },
	{ "self_attention.dense.weight", "self_attn.o_proj.weight", WHOLE },
	{ "self_attention.linear_proj.bias", "self_attn.o_proj.bias", WHOLE },
	{ "self_attention.dense.bias", "self_attn.o_proj.bias", WHOLE },
	{ "self_attention.q_layernorm.weight", "self_attn.q_norm.weight",
	  WHOLE },
	{ "self_attention.k_layernorm.weight", "self_attn.k_norm.weight",
	  WHOLE },
	{ "self_attention.linear_qkv.layer_norm_weight",
	  "input_layernorm.weight", WHOLE },
	{ "input_layernorm.weight", "input_layernorm.weight", WHOLE },
	{ "input_norm.weight", "input_layernorm.weight", WHOLE },
	{ "mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight",
	  WHOLE },
	{ "pre_mlp_layernorm.weight", "post_attention_layernorm.weight",
	  WHOLE },
	{ "post_attention_layernorm.weight", "post_attention_layernorm.weight",
	  WHOLE },
	{ "post_attention_norm.weight", "post_attention_layernorm.weight",
	  WHOLE },
	{ "mlp.linear_fc1.weight", "weight", GATED },
	{ "mlp.dense_h_to_4h.weight", "weight", GATED },
	{ "mlp.linear_fc2.weight", "mlp.down_proj.weight", WHOLE },
	{ "mlp.dense_4h_to_h.weight", "mlp.down_proj.weight", WHOLE },
	{ "mlp.linear_fc1.bias", "bias", GATED },
	{ "mlp.dense_h_to_4h.bias", "bias", GATED },
	{ "mlp.linear_fc2.bias", "mlp.down_proj.bias", WHOLE },
	{ "mlp.dense_4h_to_h.bias", "mlp.down_proj.bias", WHOLE },
	{ "self_attention.rotary_emb.inv_freq", "", COMPUTED },
};

static const struct rule gpt2_model[] = {
	{ "embedding.word_embeddings.weight", "transformer.wte.weight",
	  VOCABULARY },
	{ "embedding.position_embeddings.weight", "transformer.wpe.weight",
	  WHOLE },
	{ "output_layer.weight", "lm_head.weight", VOCABULARY },
	{ "final_layernorm.weight", "transformer.ln_f.weight", WHOLE },
	{ "final_layernorm.bias", "transformer.ln_f.bias", WHOLE },
}, gpt2_layer[] = {
	{ "self_attention.linear_qkv.weight", "attn.c_attn.weight", FUSED },
	{ "self_attention.linear_qkv.bias", "attn.c_attn.bias", FUSED },
	{ "self_attention.query_key_value.weight", "attn.c_attn.weight",
	  FUSED },
	{ "self_attention.query_key_value.bias", "attn.c_attn.bias", FUSED },
	{ "attention.query_key_value.weight", "attn.c_attn.weight", FUSED },
	{ "attention.query_key_value.bias", "attn.c_attn.bias", FUSED },
	{ "self_attention.linear_proj.weight", "attn.c_proj.weight", TURNED },
	{ "self_attention.linear_proj.bias", "attn.c_proj.bias", WHOLE },
	{ "self_attention.dense.weight", "attn.c_proj.weight", TURNED },
	{ "self_attention.dense.bias", "attn.c_proj.bias", WHOLE },
	{ "attention.dense.weight", "attn.c_proj.weight", TURNED },
	{ "attention.dense.bias", "attn.c_proj.bias", WHOLE },
	{ "self_attention.linear_qkv.layer_norm_weight", "ln_1.weight", WHOLE },
	{ "self_attention.linear_qkv.layer_norm_bias", "ln_1.bias", WHOLE },
	{ "input_layernorm.weight", "ln_1.weight", WHOLE },
	{ "input_layernorm.bias", "ln_1.bias", WHOLE },
	{ "mlp.linear_fc1.layer_norm_weight", "ln_2.weight", WHOLE },
	{ "mlp.linear_fc1.layer_norm_bias", "ln_2.bias", WHOLE },
	{ "pre_mlp_layernorm.weight", "ln_2.weight", WHOLE },
	{ "pre_mlp_layernorm.bias", "ln_2.bias", WHOLE },
	{ "post_attention_layernorm.weight", "ln_2.weight", WHOLE },
	{ "post_attention_layernorm.bias", "ln_2.bias", WHOLE },
	{ "mlp.linear_fc1.weight", "mlp.c_fc.weight", TURNED },
	{ "mlp.linear_fc1.bias", "mlp.c_fc.bias", WHOLE },
	{ "mlp.dense_h_to_4h.weight", "mlp.c_fc.weight", TURNED },
	{ "mlp.dense_h_to_4h.bias", "mlp.c_fc.bias", WHOLE },
	{ "mlp.linear_fc2.weight", "mlp.c_proj.weight", TURNED },
	{ "mlp.linear_fc2.bias", "mlp.c_proj.bias", WHOLE },
	{ "mlp.dense_4h_to_h.weight", "mlp.c_proj.weight", TURNED },
	{ "mlp.dense_4h_to_h.bias", "mlp.c_proj.bias", WHOLE },
};

/* A model's names under Megatron: those of a layer stand behind @layer. */
static const struct family {
	const char *name, *layer;
	const struct rule *of_model, *of_layer;
	size_t nr_model, nr_layer;
} families[] = {
	{ "megatron-llama", "model.layers.", of_model, of_layer,
	  CK_ARRAY_LEN(of_model), CK_ARRAY_LEN(of_layer) },
	{ "megatron-gpt2", "transformer.h.", gpt2_model, gpt2_layer,
	  CK_ARRAY_LEN(gpt2_model), CK_ARRAY_LEN(gpt2_layer) },
};

/* One tensor, or one layer of a stack, on its way. */
struct work {
	struct ck_derivation *d;
	const struct ck_view *v;
	const json_t *preset;
	const struct family *family;
	const char *name; /* as stored */
	uint32_t tensor;
	char prefix[48]; /* "model.layers.7." */
	uint64_t at, rows, row; /* bytes; rows of it; bytes a row */
	unsigned rank;
	uint64_t shape[CK_MAX_RANK];
	struct ck_err *err;
};

static const struct rule *find(const struct rule *rules, size_t nr,
			       const char *name)
{
	for (size_t i = 0; i < nr; i++)
		if (!strcmp(rules[i].megatron, name))
			return &rules[i];
	return NULL;
}

/* Off the front: what wraps the model, in any order. */
static const char *bare(const char *name)
{
	static const char *const wraps[] = {
		"model.",   "module.",	    "encoder.",
		"decoder.", "transformer.", "language_model."
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(wraps); i++)
		if (ck_begins(name, wraps[i])) {
			name += strlen(wraps[i]);
			i = SIZE_MAX; /* from the beginning */
		}
	return name;
}

static int param(const struct work *w, const char *name, uint64_t *out)
{
	if (ck_json_u64(json_object_get(w->preset, name), out) && *out)
		return 0;
	return ck_fail(w->err, EINVAL,
		       "%.200s: expected \"%s\" in the preset, a positive "
		       "integer",
		       w->name, name);
}

/* A tensor of @rows rows, whose ranges follow. */
static int show(struct work *w, const char *name, uint64_t rows)
{
	char full[320];
	struct ck_derived *t;

	snprintf(full, sizeof(full), "%s%s", w->prefix, name);
	t = ck_derive_add(w->d, w->v->img, w->tensor, full);
	if (!t)
		return ck_no_memory(w->err);
	t->rank = w->rank;
	memcpy(t->shape, w->shape, sizeof(t->shape));
	if (t->rank)
		t->shape[0] = rows;
	return 0;
}

static int rows(struct work *w, uint64_t from, uint64_t nr)
{
	if (ck_derive_range(w->d, w->at + from * w->row, nr * w->row))
		return 0;
	return ck_no_memory(w->err);
}

static int run(struct work *w, const char *name, uint64_t from, uint64_t nr)
{
	int ret = show(w, name, nr);

	return ret ? ret : rows(w, from, nr);
}

static int vocabulary(struct work *w, const char *name)
{
	uint64_t nr = w->rows;

	if (json_object_get(w->preset, "vocab") && param(w, "vocab", &nr))
		return -EINVAL;
	if (nr > w->rows)
		return ck_fail(w->err, EINVAL,
			       "%.200s: \"vocab\" is %" PRIu64
			       ", it has %" PRIu64 " rows",
			       w->name, nr, w->rows);
	return run(w, name, 0, nr);
}

static int gated(struct work *w, const char *kind)
{
	char gate[32], up[32];
	int ret;

	if (w->rows % 2)
		return ck_fail(w->err, EINVAL,
			       "%.200s: has %" PRIu64
			       " rows, which are not two halves",
			       w->name, w->rows);
	snprintf(gate, sizeof(gate), "mlp.gate_proj.%s", kind);
	snprintf(up, sizeof(up), "mlp.up_proj.%s", kind);
	ret = run(w, gate, 0, w->rows / 2);
	return ret ? ret : run(w, up, w->rows / 2, w->rows / 2);
}

/* Part @part of each group: @nr rows from @from on of its @group. */
static int part(struct work *w, const char *part, const char *kind,
		uint64_t groups, uint64_t group, uint64_t from, uint64_t nr)
{
	char name[64];
	int ret;

	snprintf(name, sizeof(name), "self_attn.%s.%s", part, kind);
	ret = show(w, name, groups * nr);
	for (uint64_t g = 0; g < groups && !ret; g++)
		ret = rows(w, g * group + from, nr);
	return ret;
}

/* How many queries and keys there are; rows of each. */
struct heads {
	uint64_t queries, keys, rows;
};

static int take_heads(const struct work *w, struct heads *out)
{
	uint64_t heads, kv;
	int ret = param(w, "heads", &heads);

	kv = heads;
	if (!ret && json_object_get(w->preset, "kv_heads"))
		ret = param(w, "kv_heads", &kv);
	if (ret)
		return ret;
	if (heads > w->rows || kv > heads || heads % kv ||
	    w->rows % (heads + 2 * kv))
		return ck_fail(w->err, EINVAL,
			       "%.200s: %" PRIu64 " rows are not %" PRIu64
			       " heads and %" PRIu64 " keys and values",
			       w->name, w->rows, heads, kv);
	*out = (struct heads){ heads, kv, w->rows / (heads + 2 * kv) };
	return 0;
}

static int qkv(struct work *w, const char *kind)
{
	struct heads h;
	uint64_t head, each;
	int ret = take_heads(w, &h);

	if (ret)
		return ret;
	head = h.rows;
	each = h.queries / h.keys * head;
	ret = part(w, "q_proj", kind, h.keys, each + 2 * head, 0, each);
	if (!ret)
		ret = part(w, "k_proj", kind, h.keys, each + 2 * head, each,
			   head);
	if (!ret)
		ret = part(w, "v_proj", kind, h.keys, each + 2 * head,
			   each + head, head);
	return ret;
}

static int turn(const struct work *w)
{
	if (ck_derive_turn(w->d, w->v->img))
		return 0;
	return ck_fail(w->err, EINVAL,
		       "%.200s: expected a matrix, to transpose it", w->name);
}

/* All queries, all keys, all values; the matrix of them transposed. */
static int fused(struct work *w, const char *name)
{
	struct heads h;
	uint64_t at[4], group;
	int ret = take_heads(w, &h);

	if (!ret)
		ret = show(w, name, w->rows);
	if (ret)
		return ret;
	at[0] = 0;
	at[1] = h.queries / h.keys * h.rows;
	at[2] = at[1] + h.rows;
	at[3] = group = at[2] + h.rows;
	for (unsigned i = 0; i < 3; i++)
		for (uint64_t g = 0; g < h.keys && !ret; g++)
			ret = rows(w, g * group + at[i], at[i + 1] - at[i]);
	return ret || w->rank < 2 ? ret : turn(w);
}

static int turned(struct work *w, const char *name)
{
	int ret = run(w, name, 0, w->rows);

	return ret ? ret : turn(w);
}

static int follow(struct work *w, const struct rule *r)
{
	switch (r->how) {
	case VOCABULARY:
		return vocabulary(w, r->hf);
	case GATED:
		return gated(w, r->hf);
	case QKV:
		return qkv(w, r->hf);
	case FUSED:
		return fused(w, r->hf);
	case TURNED:
		return turned(w, r->hf);
	case COMPUTED:
		return 0;
	case WHOLE:
		break;
	}
	return run(w, r->hf, 0, w->rows);
}

/* The tensor without its first @skip dimensions, slice @slice of them. */
static void slice(struct work *w, unsigned skip, uint64_t nr)
{
	const struct ck_tensor *t = &w->v->img->tensors[w->tensor];
	const uint64_t *shape = w->v->img->dims + t->shape;
	uint64_t size = skip ? t->size / CK_MAX(1u, shape[0]) : t->size;

	w->rank = t->rank - skip;
	memcpy(w->shape, shape + skip, w->rank * sizeof(*shape));
	w->rows = w->rank ? w->shape[0] : 1;
	w->row = w->rows ? size / w->rows : 0;
	w->at = nr * size;
}

static int no_rule(const struct work *w)
{
	return ck_fail(w->err, EINVAL,
		       "%.200s: the preset has no rule for it (\"exclude\" "
		       "leaves it out)",
		       w->name);
}

static int of_a_layer(struct work *w, const char *rest)
{
	const struct ck_tensor *t = &w->v->img->tensors[w->tensor];
	uint64_t from, nr = 1;
	size_t digits = ck_digits(rest, SIZE_MAX, &from);
	bool stacked = true;
	const struct rule *r;
	int ret = 0;

	if (digits) {
		if (rest[digits] != '.' || from > UINT32_MAX)
			return no_rule(w);
		rest += digits + 1;
		stacked = false;
	}
	r = find(w->family->of_layer, w->family->nr_layer, rest);
	if (!r || (stacked && !t->rank))
		return no_rule(w);
	if (stacked)
		nr = w->v->img->dims[t->shape];
	for (uint64_t i = 0; i < nr && !ret; i++) {
		snprintf(w->prefix, sizeof(w->prefix), "%s%" PRIu64 ".",
			 w->family->layer, from + i);
		slice(w, stacked, stacked ? i : 0);
		ret = follow(w, r);
	}
	return ret;
}

/* ---- FSDP ---- */

static const char *const inserted[] = {
	"_fsdp_wrapped_module",
	"_checkpoint_wrapped_module",
	"_orig_mod",
	"_fpw_module",
	"_forward_module",
};

/* Copies @name without what wrappers inserted; false: it is too long. */
static bool unwrap(const char *name, char *out, size_t room)
{
	size_t len = 0, n;

	for (; *name; name += n + (name[n] == '.')) {
		size_t i = 0;

		n = strcspn(name, ".");
		while (i < CK_ARRAY_LEN(inserted) &&
		       (n != strlen(inserted[i]) ||
			memcmp(name, inserted[i], n) != 0))
			i++;
		if (i < CK_ARRAY_LEN(inserted))
			continue;
		if (len + n + 2 > room)
			return false;
		if (len)
			out[len++] = '.';
		memcpy(out + len, name, n);
		len += n;
	}
	out[len] = '\0';
	return true;
}

static bool is_llama(const char *name)
{
	return ck_begins(name, "embed_tokens.") || ck_begins(name, "layers.") ||
	       ck_begins(name, "norm.");
}

/* The model's own name at the end of @name, and "model." where it has none. */
static const char *own_name(const char *name, const char **prefix)
{
	static const char *const wraps[] = { "model.", "module.", "state_dict.",
					     "app." };

	*prefix = "";
	for (;;) {
		size_t i = 0;

		if (ck_begins(name, "lm_head.") ||
		    (ck_begins(name, "model.") && is_llama(name + 6)))
			return name;
		if (is_llama(name)) {
			*prefix = "model.";
			return name;
		}
		while (i < CK_ARRAY_LEN(wraps) && !ck_begins(name, wraps[i]))
			i++;
		if (i == CK_ARRAY_LEN(wraps))
			return NULL;
		name += strlen(wraps[i]);
	}
}

static int of_fsdp(struct work *w)
{
	char bare_name[256], full[272];
	const char *own = NULL, *prefix;

	if (unwrap(w->name, bare_name, sizeof(bare_name)))
		own = own_name(bare_name, &prefix);
	if (!own)
		return no_rule(w);
	if (strstr(own, "rotary_emb.inv_freq"))
		return 0; /* computed */
	snprintf(full, sizeof(full), "%s%s", prefix, own);
	slice(w, 0, 0);
	if (strstr(full, "embed_tokens.") || ck_begins(full, "lm_head.weight"))
		return vocabulary(w, full);
	return run(w, full, 0, w->rows);
}

static int of_megatron(struct work *w)
{
	const char *short_name = bare(w->name);
	const struct rule *r;

	if (ck_ends_in(short_name, "._extra_state"))
		return 0; /* TransformerEngine's scales: no weight */
	if (ck_begins(short_name, "layers."))
		return of_a_layer(w, short_name + 7);
	r = find(w->family->of_model, w->family->nr_model, short_name);
	if (!r)
		return no_rule(w);
	slice(w, 0, 0);
	return follow(w, r);
}

static const struct family *family_of(const json_t *preset)
{
	const char *name = json_string_value(json_object_get(preset, "name"));

	for (size_t i = 0; i < CK_ARRAY_LEN(families); i++)
		if (!strcmp(name, families[i].name))
			return &families[i];
	return NULL;
}

/* What a misspelt member would have said is not guessed. */
static int check_member(const char *key, const json_t *value,
			struct ck_err *err)
{
	static const char *const numbers[] = { "heads", "kv_heads", "vocab" };
	size_t i = 0;
	uint64_t n;

	while (i < CK_ARRAY_LEN(numbers) && strcmp(key, numbers[i]) != 0)
		i++;
	if (i == CK_ARRAY_LEN(numbers))
		return ck_fail(err, EINVAL, "preset: unknown member \"%.60s\"",
			       key);
	if (!ck_json_u64(value, &n) || !n)
		return ck_fail(err, EINVAL,
			       "preset.%s: expected a positive integer", key);
	return 0;
}

int ck_preset_check(const json_t *preset, struct ck_err *err)
{
	const char *name = ck_json_text(json_object_get(preset, "name")), *key;
	json_t *value;
	int ret = 0;

	if (!preset)
		return 0;
	if (!name || (strcmp(name, FSDP) != 0 && !family_of(preset)))
		return ck_fail(err, EINVAL,
			       "preset.name: expected megatron-llama, "
			       "megatron-gpt2 or " FSDP);
	json_object_foreach((json_t *)preset, key, value)
	{
		if (strcmp(key, "name") != 0)
			ret = check_member(key, value, err);
		if (ret)
			break;
	}
	return ret;
}

int ck_preset_apply(struct ck_derivation *d, const struct ck_view *v,
		    const json_t *preset, uint32_t tensor, const char *name,
		    struct ck_err *err)
{
	struct work w = { .d = d,
			  .v = v,
			  .preset = preset,
			  .family = family_of(preset),
			  .name = name,
			  .tensor = tensor,
			  .err = err };

	return w.family ? of_megatron(&w) : of_fsdp(&w);
}
