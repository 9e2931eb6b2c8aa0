/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args.c - what the rank files say of the run: args, an argparse.Namespace
 */
#include "core/format/megatron/priv.h"

#include <ctype.h>
#include <string.h>

static bool digits(const char **s, unsigned least, unsigned *out)
{
	const char *from = *s;

	*out = 0;
	for (; isdigit((unsigned char)**s); ++*s)
		if (*out >= CK_MG_MAX_RANKS)
			return false;
		else
			*out = 10 * *out + (unsigned)(**s - '0');
	return (size_t)(*s - from) >= least;
}

bool ck_mg_is_rank(const char *name, unsigned at[3], unsigned *nr)
{
	static const char begin[] = "mp_rank_";

	if (strncmp(name, begin, sizeof(begin) - 1) != 0)
		return false;
	name += sizeof(begin) - 1;
	if (!digits(&name, 2, &at[0]))
		return false;
	for (*nr = 1; *name == '_' && *nr < 3; ++*nr) {
		name++;
		if (!digits(&name, 3, &at[*nr]))
			return false;
	}
	return !*name;
}

bool ck_mg_arg(const struct ck_pickle *p, ck_pv args, struct ck_tp_word name,
	       int64_t *out)
{
	char text[256];
	ck_pv v;

	if (name.len >= sizeof(text))
		return false;
	memcpy(text, name.s, name.len);
	text[name.len] = '\0';
	return ck_pv_attr(p, args, text, &v) && ck_pv_int(p, v, out);
}

static int64_t count(const struct ck_pickle *p, ck_pv args, const char *name)
{
	int64_t n;

	return ck_mg_arg(p, args, (struct ck_tp_word){ name, strlen(name) },
			 &n) && n >= 0 &&
			       n <= INT32_MAX ?
		       n :
		       -1;
}

static bool is_set(const struct ck_pickle *p, ck_pv args, const char *name)
{
	return count(p, args, name) > 0;
}

void ck_mg_args_read(struct ck_mg_args *a, const struct ck_pickle *p,
		     ck_pv root)
{
	int64_t n;
	double version;
	ck_pv v, args;

	*a = (struct ck_mg_args){ .iteration = -1, .version = -1 };
	a->there = ck_pv_key(p, root, "args", &args) &&
		   ck_pv_kind(args) == CK_P_CALL;
	if (!a->there)
		args = 0;
	if (ck_pv_key(p, root, "iteration", &v) && ck_pv_int(p, v, &n))
		a->iteration = n;
	if (ck_pv_key(p, root, "checkpoint_version", &v)) {
		if (ck_pv_int(p, v, &n))
			a->version = n;
		else if (ck_pv_float(p, v, &version) && version >= 0 &&
			 version < 1000)
			a->version = (int64_t)version;
	}
	a->tp = count(p, args, "tensor_model_parallel_size");
	if (a->tp < 0)
		a->tp = count(p, args, "model_parallel_size");
	a->pp = count(p, args, "pipeline_model_parallel_size");
	a->ep = count(p, args, "expert_model_parallel_size");
	a->etp = count(p, args, "expert_tensor_parallel_size");
	a->layers = count(p, args, "num_layers");
	a->experts = count(p, args, "num_experts");
	a->rank = count(p, args, "rank");
	a->dp = count(p, args, "data_parallel_size");
	a->heads = count(p, args, "num_attention_heads");
	a->groups = count(p, args, "num_query_groups");
	a->kv_channels = count(p, args, "kv_channels");
	a->first = count(p, args, "decoder_first_pipeline_num_layers");
	a->last = count(p, args, "decoder_last_pipeline_num_layers");
	a->grouped = is_set(p, args, "group_query_attention");
	a->untied = is_set(p, args, "untie_embeddings_and_output_weights");
	a->with_embedding =
		is_set(p, args, "account_for_embedding_in_pipeline_split");
	a->with_loss = is_set(p, args, "account_for_loss_in_pipeline_split");
	a->distributed = is_set(p, args, "use_distributed_optimizer") &&
			 ck_pv_key(p, root, "optimizer", &v) &&
			 ck_pv_kind(v) != CK_P_NONE;
	a->apart = is_set(p, args, "use_distributed_optimizer") &&
		   !is_set(p, args, "no_save_optim");
	a->custom = ck_pv_attr(p, args, "pipeline_model_parallel_layout", &v) &&
		    ck_pv_kind(v) != CK_P_NONE;
}
