/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity.c - what the files of one save agree on, and those of another
 * save or run do not
 */
#include "core/format/nnscaler/priv.h"

#include "core/container/torch_walk.h"

#include <errno.h>

#define FNV_PRIME UINT64_C(0x100000001b3)

void ck_nn_config_read(const struct ck_pickle *p, ck_pv extra,
		       struct ck_nn_identity *id)
{
	ck_pv cc;

	if (!ck_nn_field(p, extra, "compute_config", &cc))
		cc = 0;
	id->world = ck_nn_int(p, cc, "runtime_ngpus", 0);
	id->plan = ck_nn_int(p, cc, "plan_ngpus", 0);
	id->zero = ck_nn_int(p, cc, "use_zero", 0);
	id->groups = ck_nn_int(p, cc, "zero_ngroups", 1);
	id->zero = ck_nn_int(p, extra, "zero", id->zero);
}

struct hash {
	const struct ck_pickle *p;
	uint64_t sum;
};

static void hash_bytes(struct hash *h, const void *bytes, size_t len)
{
	const unsigned char *at = bytes;

	for (size_t i = 0; i < len; i++)
		h->sum = (h->sum ^ at[i]) * FNV_PRIME;
}

/* Numbers and strings: enough to tell one run's arguments from another's. */
static int hash_leaf(void *ctx, const struct ck_torch_leaf *leaf,
		     struct ck_err *err)
{
	struct hash *h = ctx;
	const char *s;
	size_t len;
	int64_t n;
	double f;

	(void)err;
	hash_bytes(h, leaf->name, leaf->name_len);
	if (ck_pv_str(h->p, leaf->value, &s, &len))
		hash_bytes(h, s, len);
	else if (ck_pv_int(h->p, leaf->value, &n))
		hash_bytes(h, &n, sizeof(n));
	else if (ck_pv_float(h->p, leaf->value, &f))
		hash_bytes(h, &f, sizeof(f));
	return 0;
}

static int hash_of(const struct ck_pickle *p, ck_pv v, uint64_t *sum)
{
	struct hash h = { p, UINT64_C(0xcbf29ce484222325) };
	/* too deep or too long: the same for all, as far as it went */
	int ret = ck_torch_walk(p, v, hash_leaf, &h, NULL);

	*sum = h.sum ? h.sum : 1;
	return ret == -ENOMEM ? ret : 0;
}

int ck_nn_identity_read(const struct ck_nn_file *f, struct ck_nn_identity *id,
			int64_t *rank)
{
	ck_pv model, optimizer, extra, v, args;

	*id = (struct ck_nn_identity){ .steps = -1 };
	if (!ck_nn_parts(f, &model, &optimizer) ||
	    !ck_nn_extra(f->p, model, &extra))
		return -EINVAL;
	*rank = ck_nn_int(f->p, extra, "rank", -1);
	*rank = ck_nn_int(f->p, f->root, "rank", *rank);
	ck_nn_config_read(f->p, extra, id);
	if (ck_pv_key(f->p, f->root, "train_status", &v))
		id->steps = ck_nn_int(f->p, v, "finished_train_steps", -1);
	if (ck_pv_key(f->p, f->root, "train_args", &args) &&
	    ck_nn_field(f->p, args, "model", &v))
		return hash_of(f->p, v, &id->model);
	return 0;
}
