/* SPDX-License-Identifier: Apache-2.0 */
/* rank_priv.h - between rank.c, attr.c and tables.c */
#ifndef CK_NNSCALER_RANK_PRIV_H
#define CK_NNSCALER_RANK_PRIV_H

#include "core/format/nnscaler/priv.h"

/* The keys of a state dict, with their values. */
struct ck_nn_key {
	ck_pv value;
	bool used;
};
struct ck_nn_keys {
	struct ck_strmap map;
	CK_VEC(struct ck_nn_key) v; /* same numbers */
};

/* One module of a rank while it is read. */
struct ck_nn_reader {
	struct ck_nn_set *s;
	struct ck_nn_rank *r;
	struct ck_nn_file *f;
	struct ck_nn_module *m;
	struct ck_nn_keys *keys; /* NULL: none of its tensors is in them */
	ck_pv extra, zero3; /* 0: there is none */
	const char *prefix;
	size_t prefix_len;
	const char *kind; /* "model." */
};

enum { CK_NN_MAPPED = 1, CK_NN_LISTED = 2, CK_NN_HELD = 4 };

/* -ENOMEM or 0 */
int ck_nn_mark(struct ck_nn_set *s, uint32_t name, uint8_t bit);
/* "model.PREFIX.NAME" among the names; CK_STRMAP_NONE: no memory. */
uint32_t ck_nn_full_name(struct ck_nn_reader *j, const char *name, size_t len);
int ck_nn_attr_read(struct ck_nn_reader *j, ck_pv key, ck_pv rec,
		    struct ck_err *err);
/* model_idx2opt_idx and opt_idx2ranks of a module that ZeRO shares. */
int ck_nn_tables_read(struct ck_nn_reader *j, struct ck_err *err);
/* A module and its maps, from its extra state. */
int ck_nn_module_read(struct ck_nn_reader *j, struct ck_err *err);

#endif
