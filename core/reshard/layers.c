/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c - layers by the names of tensors, and the stages that have them */
#include "core/reshard/words.h"

#include "core/base/check.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

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

/* What lists of layers are called. */
static const char *const lists[] = { "layers", "layer",	    "h", "blocks",
				     "block",  "resblocks", NULL };
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

/* Some word between dots is one of @words. */
static bool has_word(const char *name, size_t len, const char *const *words)
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

int64_t ck_rs_layer(const char *name, size_t len)
{
	size_t from = 0;
	bool listed = false;

	for (size_t i = 0; i <= len; i++) {
		size_t n = i - from, digits = 0;
		int64_t nr = 0;

		if (i < len && name[i] != '.' && name[i] != '/')
			continue;
		while (digits < n && digits < 9 &&
		       isdigit((unsigned char)name[from + digits]))
			nr = 10 * nr + (name[from + digits++] - '0');
		if (listed && n && digits == n)
			return nr;
		listed = is_word(name + from, n, lists);
		from = i + 1;
	}
	if (has(name, len, firsts) || has_word(name, len, first_words))
		return CK_RS_STAGE_FIRST;
	if (has(name, len, lasts) || has_word(name, len, last_words))
		return CK_RS_STAGE_LAST;
	return CK_RS_STAGE_ALL;
}

int ck_rs_stages(uint64_t *begin, unsigned stages, const uint64_t *given,
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
