/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c - layers by the names of tensors, and the stages that have them */
#include "core/reshard/words.h"

#include "core/base/check.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

static bool is_word(const char *s, size_t len, const char *const *words)
{
	for (; *words; words++)
		if (strlen(*words) == len && !memcmp(*words, s, len))
			return true;
	return false;
}

static bool has(const char *name, size_t len, const char *const *words)
{
	for (; *words; words++)
		if (memmem(name, len, *words, strlen(*words)))
			return true;
	return false;
}

/* What a list of layers is called, or what its name ends in. */
static const char *const lists[] = { "layers", "layer", "blocks", "block",
				     "stages", "stage", NULL };
static const char *const firsts[] = { "embed_tokens",
				      "word_embeddings",
				      "position_embeddings",
				      "tokentype_embeddings",
				      "tok_embeddings",
				      "embed_positions",
				      "wte.",
				      "wpe.",
				      "embed_in.",
				      NULL };
static const char *const lasts[] = { "lm_head.", "norm.",	  "ln_f.",
				     "output.",	 "output_layer.", "embed_out.",
				     "final_",	 "score.",	  "classifier.",
				     NULL };

/* Those that are too short to be looked for within words. */
static const char *const first_words[] = { "emb", "embed", "embedding",
					   "embeddings", NULL };
static const char *const last_words[] = { "head", NULL };

/* What has layers of its own, that come after those of the model. */
static const char *const after[] = { "mtp", NULL };

bool ck_reshard_has_word(const char *name, size_t len, const char *const *words)
{
	size_t from = 0;

	for (size_t i = 0; i <= len; i++) {
		if (i < len && name[i] != '.' && name[i] != '/')
			continue;
		if (is_word(name + from, i - from, words))
			return true;
		from = i + 1;
	}
	return false;
}

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
	for (const char *const *w = lists; *w; w++) {
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
	int64_t nr = 0;

	if (!digits || digits > 9)
		return -1;
	if (name && !(name == 1 && *s == '_' && listed)) {
		if (!is_list(s, name) || (last && strchr("hH", *s) && name < 3))
			return -1;
	} else if (!listed) {
		return -1;
	}
	for (size_t i = name; i < len; i++)
		nr = 10 * nr + (s[i] - '0');
	return nr;
}

int64_t ck_reshard_layer(const char *name, size_t len)
{
	size_t from = 0;
	bool listed = false;

	if (ck_reshard_has_word(name, len, after))
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
	if (has(name, len, firsts) ||
	    ck_reshard_has_word(name, len, first_words))
		return CK_RESHARD_PP_STAGE_FIRST;
	if (has(name, len, lasts) || ck_reshard_has_word(name, len, last_words))
		return CK_RESHARD_PP_STAGE_LAST;
	return CK_RESHARD_PP_STAGE_ALL;
}

int ck_reshard_pp_stages(uint64_t *begin, unsigned stages,
			 const uint64_t *given, uint64_t layers,
			 struct ck_err *err)
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
