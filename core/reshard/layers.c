/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.c - layers by the names of tensors, and the stages that have them
 *
 *	numbers in names    model.layers.7.mlp.up_proj.weight, layer7.norm
 *	stacks              dimension 0 of decoder.layers.mlp.linear_fc1.weight,
 *	                    as Megatron's torch_dist saves them
 *	sequences           numbers alone, as nn.Sequential has: model.12.bias
 *
 * Of two sequences nothing says which comes first, nor of two stacks.  What is
 * called as a stack and is none is told by its shapes: a stack has no vector,
 * for what is one in a layer is a matrix in it, and all of it has the same
 * number of layers.  A head that is the table of words stands once in the
 * checkpoint, and both the first stage and the last compute with it.
 */
#include "core/reshard/spec.h"

#include "core/base/check.h"
#include "core/base/number.h"
#include "core/base/suffix.h"
#include "core/mesh/names.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- numbers in names ---- */

/* One that is too short to be an end: "path.0" is no layer. */
static bool is_h(const char *s, size_t len)
{
	return len == 1 && (*s == 'h' || *s == 'H');
}

/* "layers", "h", "decoder_layer", "TransformerBlock", "layer_" */
static bool is_list(const char *s, size_t len)
{
	if (len > 1 && (s[len - 1] == '_' || s[len - 1] == '-'))
		len--;
	for (const char *const *w = ck_names_list; *w; w++) {
		size_t n = strlen(*w);

		if (len >= n && !strncasecmp(s + len - n, *w, n))
			return true;
	}
	return is_h(s, len);
}

/* How many of the last bytes are digits. */
static size_t last_digits(const char *s, size_t len)
{
	size_t n = 0;

	while (n < len && isdigit((unsigned char)s[len - 1 - n]))
		n++;
	return n;
}

/*
 * The number that the word @s of @len ends in: it is all of it ("7", "_7")
 * behind the name of a list (@listed), or the name is in the word ("layer7",
 * "layers_7"), but not a whole tensor's "h0".  -1: there is none.
 */
static int64_t number_in(const char *s, size_t len, bool listed, bool last)
{
	size_t digits = last_digits(s, len), name = len - digits;
	uint64_t nr;

	if (!digits || digits > 9)
		return -1;
	if (name && !(name == 1 && *s == '_' && listed)) {
		if (!is_list(s, name) || (last && strchr("hH", *s) && name < 3))
			return -1;
	} else if (!listed) {
		return -1;
	}
	ck_digits(s + name, digits, &nr);
	return (int64_t)nr;
}

/* The number of the layer that @name is in, or one of CK_RESHARD_PP_STAGE_*. */
static int64_t layer_of(const char *name, size_t len)
{
	size_t from = 0;
	bool listed = false;

	if (ck_name_has_word(name, len, ck_names_after))
		return CK_RESHARD_PP_STAGE_LAST;
	for (size_t i = 0; i <= len; i++) {
		int64_t nr;

		if (i < len && name[i] != '.' && name[i] != '/')
			continue;
		nr = number_in(name + from, i - from, listed, i == len);
		if (nr >= 0)
			return nr;
		listed = is_list(name + from, i - from);
		from = i + 1;
	}
	if (ck_name_has(name, len, ck_names_first) ||
	    ck_name_has_word(name, len, ck_names_first_word))
		return CK_RESHARD_PP_STAGE_FIRST;
	if (ck_name_has(name, len, ck_names_last) ||
	    ck_name_has_word(name, len, ck_names_last_word))
		return CK_RESHARD_PP_STAGE_LAST;
	return CK_RESHARD_PP_STAGE_ALL;
}

/*
 * Layers of each stage: the numbers of @given, which must make @layers, or
 * with @given NULL equal ones, those left over to the stages from the middle
 * on.  @begin has @stages + 1 values.
 */
static int share_layers(uint64_t *begin, unsigned stages, const uint64_t *given,
			uint64_t layers, struct ck_err *err)
{
	uint64_t each = layers / stages, more = layers % stages;
	uint64_t from = stages / 2 - more / 2;

	begin[0] = 0;
	for (unsigned i = 0; i < stages; i++) {
		uint64_t n = given ? given[i] :
				     each + (i >= from && i < from + more);

		if (!ck_add_ok(begin[i], n, &begin[i + 1]))
			return ck_fail(err, EINVAL, "layers= are too many");
	}
	if (begin[stages] == layers)
		return 0;
	return ck_fail(err, EINVAL,
		       "layers= make %" PRIu64 ", the checkpoint has %" PRIu64,
		       begin[stages], layers);
}

/* ---- stacks ---- */

/* Where the word "layers" begins whose layers are stacked; NULL: nowhere. */
static const char *stacked_at(const char *name, size_t len)
{
	static const char layers[] = "layers.";
	const char *end = name + len, *at = name;
	size_t n = strlen(layers);

	while ((at = memmem(at, (size_t)(end - at), layers, n))) {
		size_t left = (size_t)(end - at) - n;

		for (const char *const *k = ck_names_stacked; *k; k++)
			if ((at == name || at[-1] == '.') &&
			    left > strlen(*k) &&
			    !memcmp(at + n, *k, strlen(*k)))
				return at;
		at += n;
	}
	return NULL;
}

static bool is_stacked(const char *name, size_t len)
{
	return stacked_at(name, len) && layer_of(name, len) < 0;
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

static bool add_stack(struct ck_reshard_stack *s, const char *owner, size_t len,
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

static void find_stacks(struct ck_reshard_stack *out,
			const struct ck_reshard_in *in)
{
	bool matrices = false, ok = true;

	*out = (struct ck_reshard_stack){ 0 };
	for (uint32_t i = 0; i < in->nr && ok; i++) {
		const struct ck_tensor *t = &in->img->tensors[in->first + i];
		const char *owner, *layers, *name;
		size_t len;

		name = ck_reshard_name(in, i, &len);
		layers = stacked_at(name, len);
		if (!layers || layer_of(name, len) >= 0)
			continue;
		len = owner_of(name, layers, &owner);
		matrices = matrices || t->rank > 2;
		ok = t->rank > 1 &&
		     add_stack(out, owner, len, in->img->dims[t->shape]);
	}
	if (!ok || !matrices)
		*out = (struct ck_reshard_stack){ 0 };
}

/* ---- sequences ---- */

#define HINT "OneFlow's rules in -o reshard=FILE say which ranks have what"

/* The first word that is a number: where it begins, or @len. */
static size_t number_at(const char *name, size_t len, int64_t *nr)
{
	size_t from = 0;

	for (size_t i = 0; i <= len; i++) {
		if (i < len && name[i] != '.' && name[i] != '/')
			continue;
		if (i < len && i - from <= 9 &&
		    ck_decimal(name + from, i - from, INT64_MAX,
			       (uint64_t *)nr))
			return from;
		from = i + 1;
	}
	return len;
}

static int several(const struct ck_reshard_sequence *s, const char *name,
		   size_t at, struct ck_err *err)
{
	return ck_fail(err, EINVAL,
		       "pp=: no name says a layer, as in layers.0. or layer0., "
		       "and numbers stand behind \"%.*s\" and \"%.*s\": " HINT,
		       (int)CK_MIN(s->len, 80u), s->prefix,
		       (int)CK_MIN(at, 80u), name);
}

static int take_name(struct ck_reshard_sequence *s, const char *name,
		     size_t len, struct ck_err *err)
{
	int64_t nr;
	size_t at = number_at(name, len, &nr);

	if (at == len || ck_reshard_is_state(name, len))
		return 0;
	if (!s->found) {
		s->prefix = name;
		s->len = at;
		s->lowest = s->last = nr;
		s->found = true;
	}
	if (s->len != at || memcmp(s->prefix, name, at))
		return several(s, name, at, err);
	s->lowest = CK_MIN(s->lowest, nr);
	s->last = CK_MAX(s->last, nr);
	return ck_strmap_put(&s->tails, name + at, len - at) == CK_STRMAP_NONE ?
		       ck_no_memory(err) :
		       0;
}

static int find_sequence(struct ck_reshard_sequence *out,
			 const struct ck_reshard_in *in, struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < in->nr && !ret; i++) {
		size_t len;
		const char *name = ck_reshard_name(in, i, &len);

		ret = take_name(out, name, len, err);
	}
	return ret || (out->found && out->lowest != out->last) ?
		       ret :
		       ck_fail(err, EINVAL,
			       "pp=: no name says a layer, as in layers.0. or "
			       "layer0.: " HINT);
}

/* A number, or CK_RESHARD_PP_STAGE_ALL. */
static int64_t sequence_layer(const struct ck_reshard_sequence *s,
			      const char *name, size_t len)
{
	int64_t nr;
	size_t at = number_at(name, len, &nr);

	if (!s->found || at == len)
		return CK_RESHARD_PP_STAGE_ALL;
	if (!ck_reshard_is_state(name, len))
		return nr; /* all of those have the prefix */
	for (size_t end = len; end > at; end--)
		if ((end == len || name[end] == '.' || name[end] == '/') &&
		    ck_strmap_get(&s->tails, name + at, end - at) !=
			    CK_STRMAP_NONE)
			return nr;
	return CK_RESHARD_PP_STAGE_ALL;
}

/* ---- a head that is the table of words ---- */

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

static bool is_tied(const struct ck_reshard_in *in)
{
	if (!says_tied(in->config))
		return false;
	for (uint32_t i = 0; i < in->nr; i++) {
		size_t len;
		const char *name = ck_reshard_name(in, i, &len);

		if (ck_name_has_word(name, len, ck_names_head))
			return false;
	}
	return true;
}

/* ---- stages ---- */

/* Where no name has a layer's number. */
static int count_others(struct ck_reshard_layers *l,
			const struct ck_reshard_in *in, uint64_t *layers,
			struct ck_err *err)
{
	int ret;

	if (l->stack.nr == 1) {
		*layers = l->stack.of[0].layers;
		l->each = calloc(l->pp, sizeof(*l->each));
		return l->each ? 0 : ck_no_memory(err);
	}
	if (l->stack.nr)
		return ck_fail(err, EINVAL,
			       "pp=: layers are stacked in %.*s and in %.*s: "
			       "nothing says which come first",
			       (int)CK_MIN(l->stack.of[0].owner_len, 80u),
			       l->stack.of[0].owner,
			       (int)CK_MIN(l->stack.of[1].owner_len, 80u),
			       l->stack.of[1].owner);
	ret = find_sequence(&l->seq, in, err);
	l->lowest = l->seq.lowest == 1;
	*layers = (uint64_t)l->seq.last + 1 - l->lowest;
	return ret;
}

static int count_layers(struct ck_reshard_layers *l,
			const struct ck_reshard_in *in, const uint64_t *given,
			struct ck_err *err)
{
	int64_t last = -1, lowest = INT64_MAX;
	uint64_t layers = 0;
	int ret = 0;

	for (uint32_t i = 0; i < in->nr; i++) {
		size_t len;
		const char *name = ck_reshard_name(in, i, &len);
		int64_t layer = layer_of(name, len);

		last = CK_MAX(last, layer);
		if (layer >= 0)
			lowest = CK_MIN(lowest, layer);
	}
	if (last < 0) {
		ret = count_others(l, in, &layers, err);
	} else {
		l->lowest = lowest == 1;
		layers = (uint64_t)last + 1 - l->lowest;
	}
	if (!ret)
		ret = share_layers(l->begin, l->pp, given, layers, err);
	for (unsigned i = 0; l->each && !ret && i < l->pp; i++)
		l->each[i] = l->begin[i + 1] - l->begin[i];
	return ret;
}

int ck_reshard_layers_find(struct ck_reshard_layers *l,
			   const struct ck_reshard_in *in,
			   const uint64_t *given, struct ck_err *err)
{
	find_stacks(&l->stack, in);
	if (l->pp <= 1 && !given)
		return 0;
	l->tied = l->pp > 1 && is_tied(in);
	l->begin = calloc(l->pp + 1, sizeof(*l->begin));
	return l->begin ? count_layers(l, in, given, err) : ck_no_memory(err);
}

void ck_reshard_layers_free(struct ck_reshard_layers *l)
{
	free(l->begin);
	free(l->each);
	ck_strmap_free(&l->seq.tails);
}

bool ck_reshard_is_stacked(const struct ck_reshard_layers *l, const char *name,
			   size_t len)
{
	return l->stack.nr && is_stacked(name, len);
}

bool ck_reshard_is_tied(const struct ck_reshard_layers *l, const char *name,
			size_t len)
{
	return l->tied && ck_name_has_word(name, len, ck_names_table);
}

int64_t ck_reshard_stage_of(const struct ck_reshard_layers *l, const char *name,
			    size_t len)
{
	int64_t layer = layer_of(name, len), stage = 0;
	int64_t nr = sequence_layer(&l->seq, name, len);

	if (nr >= 0)
		layer = nr;
	if (!l->begin || layer == CK_RESHARD_PP_STAGE_ALL)
		return CK_RESHARD_PP_STAGE_ALL;
	if (layer == CK_RESHARD_PP_STAGE_LAST)
		return l->pp - 1;
	while (layer >= 0 && stage + 1 < l->pp &&
	       (uint64_t)layer - l->lowest >= l->begin[stage + 1])
		stage++;
	return stage;
}
