/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leftovers.c - files of a trainer beside what was read, and whether they are
 * whole
 *
 *	optimizer.bin, scheduler.pt, rng_state_0.pth, ...    torch.save
 *	random_states_0.pkl                                  that, or a pickle
 *	optimizer.safetensors                                safetensors
 *	trainer_state.json                                   JSON
 *
 * No reader takes them for the weights, so nobody else would notice that one
 * of them was emptied or cut and training cannot go on from here.
 */
#include "core/format/explain.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/catalog/builder.h"
#include "core/container/st_file.h"
#include "core/container/torch_save.h"
#include "core/parse/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef int (*check_fn)(struct ck_source *s, struct ck_err *why);

static int check_torch(struct ck_source *s, struct ck_err *why)
{
	ck_auto_torch_save struct ck_torch_save ts = { 0 };

	return ck_torch_save_open(&ts, s, why);
}

static int check_pickle(struct ck_source *s, struct ck_err *why)
{
	uint64_t size = (uint64_t)s->st.st_size;
	unsigned char first, last;
	int ret;

	if (ck_torch_save_is(s))
		return check_torch(s, why);
	ret = size > 2 ? ck_source_read(s, &first, 1, 0, why) : 0;
	if (!ret && size > 2)
		ret = ck_source_read(s, &last, 1, size - 1, why);
	if (!ret && (size <= 2 || first != 0x80 || last != '.'))
		ret = ck_fail(why, EINVAL,
			      "%s: expected a pickle from its first byte to "
			      "its last",
			      s->name);
	return ret;
}

static int check_safetensors(struct ck_source *s, struct ck_err *why)
{
	struct ck_st_file f = { 0 };
	int ret = ck_st_file_read(&f, s->name, 0, s, 0, why);

	for (size_t i = 0; !ret && i < f.tensors.nr; i++)
		if (f.tensors.v[i].end > (uint64_t)s->st.st_size)
			ret = ck_fail(why, EINVAL,
				      "%s: ends at byte %lld, inside of a "
				      "tensor",
				      s->name, (long long)s->st.st_size);
	ck_st_file_free(&f);
	return ret;
}

static int check_json(struct ck_source *s, struct ck_err *why)
{
	ck_auto_free char *text = NULL;
	size_t len = (size_t)s->st.st_size;
	json_t *json = NULL;
	int ret;

	if (s->st.st_size > (off_t)CK_MAX_HEADER)
		return 0;
	text = malloc(len + 1);
	if (!text)
		return ck_no_memory(why);
	ret = ck_source_read(s, text, len, 0, why);
	ret = ret ? ret : ck_json_parse(&json, text, len, why);
	json_decref(json);
	return ret ? ck_wrap(why, ret, "%s", s->name) : 0;
}

/* As transformers, accelerate, ColossalAI and others call them. */
static check_fn check_of(const char *name)
{
	static const struct {
		const char *begin, *end;
		check_fn check;
	} kinds[] = {
		{ "optimizer", ".safetensors", check_safetensors },
		{ "optimizer", ".bin", check_torch },
		{ "optimizer", ".pt", check_torch },
		{ "optimizer", ".pth", check_torch },
		{ "scheduler", ".bin", check_torch },
		{ "scheduler", ".pt", check_torch },
		{ "scheduler", ".pth", check_torch },
		{ "lr_scheduler", "", check_torch },
		{ "rng_state", ".pth", check_torch },
		{ "random_states_", ".pkl", check_pickle },
		{ "scaler", ".pt", check_torch },
		{ "sampler", ".bin", check_torch },
		{ "training_args", ".bin", check_torch },
		{ "custom_checkpoint_", ".pkl", check_pickle },
		{ "trainer_state", ".json", check_json },
		{ "distrib_optim", ".pt", check_torch },
	};
	size_t len = strlen(name);

	for (size_t i = 0; i < CK_ARRAY_LEN(kinds); i++) {
		size_t b = strlen(kinds[i].begin), e = strlen(kinds[i].end);

		if (len >= b + e && !memcmp(name, kinds[i].begin, b) &&
		    !strcmp(name + len - e, kinds[i].end) && (e || len == b))
			return kinds[i].check;
	}
	return NULL;
}

bool ck_leftover_is_name(const char *name)
{
	return check_of(name) != NULL;
}

static int say(const struct ck_dir *dir, struct ck_builder *b, const char *name,
	       check_fn check, struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	struct ck_err why = { 0 };
	int ret = ck_dir_open(dir, name, &s, &why);

	if (!ret && !s->st.st_size)
		return ck_builder_report_file(
			b, CK_ERROR, name, err,
			"torn: it is empty; the weights are "
			"not touched by that");
	ret = ret ? ret : check(s, &why);
	if (ret == -ENOMEM)
		return ck_fail(err, ENOMEM, "%s", why.msg);
	if (!ret)
		return 0;
	return ck_builder_report_file(
		b, CK_ERROR, name, err,
		"torn: %s; the weights are not touched by "
		"that",
		why.msg);
}

/* It only describes the weights, and goes into views as it is. */
static int check_config(const struct ck_dir *dir, struct ck_builder *b,
			struct ck_err *err)
{
	static const char name[] = "config.json";
	ck_auto_source struct ck_source *s = NULL;
	struct ck_err why = { 0 };
	int ret = ck_dir_open(dir, name, &s, &why);

	ret = ret ? ret : check_json(s, &why);
	if (ret == -ENOMEM)
		return ck_fail(err, ENOMEM, "%s", why.msg);
	return ret ? ck_builder_report_file(
			     b, CK_NOTE, name, err,
			     "no JSON, so that nothing loads the "
			     "model by it: %s",
			     why.msg) :
		     0;
}

int ck_leftover_check(const struct ck_dir *dir, const struct ck_dir_list *l,
		      struct ck_builder *b, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < l->nr; i++) {
		check_fn check = l->v[i].is_dir ? NULL : check_of(l->v[i].name);

		if (!l->v[i].is_dir && !strcmp(l->v[i].name, "config.json"))
			ret = check_config(dir, b, err);
		else if (check && !ck_builder_has_file(b, l->v[i].name))
			ret = say(dir, b, l->v[i].name, check, err);
	}
	return ret;
}
