/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.c - one .metadata
 *
 *   Metadata
 *     state_dict_metadata  name -> TensorStorageMetadata | Bytes...
 *     storage_data         MetadataIndex -> _StorageInfo
 *     planner_data         name -> path parts
 *     mcore_data           Megatron: name -> what its flattening hid
 *
 * Objects are a class, then a dictionary of attributes; unknown ones are
 * passed over, for writers add their own.
 */
#include "core/format/dcp/dcp.h"

#include "core/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool ck_dcp_class(const struct ck_pickle *p, ck_pv v, const char **name,
		  size_t *len)
{
	const char *module;
	size_t module_len;

	return ck_pv_kind(v) == CK_P_CALL &&
	       ck_pv_global(p, ck_pv_callee(p, v), &module, &module_len, name,
			    len);
}

bool ck_dcp_size(const struct ck_pickle *p, ck_pv v, uint64_t *out)
{
	int64_t n;

	if (!v || !ck_pv_int(p, v, &n) || n < 0 || (uint64_t)n > CK_SIZE_MAX)
		return false;
	*out = (uint64_t)n;
	return true;
}

static bool is_dict(const struct ck_pickle *p, ck_pv v)
{
	const char *name;
	size_t len;

	if (!v)
		return false;
	if (ck_pv_kind(v) == CK_P_DICT)
		return true;
	return ck_dcp_class(p, v, &name, &len) && len > 3 &&
	       (!memcmp(name + len - 4, "Dict", 4) ||
		!memcmp(name + len - 4, "dict", 4));
}

static int find_dicts(struct ck_dcp_meta *m, struct ck_err *err)
{
	struct ck_pq_fields attrs = { .names = { "state_dict_metadata",
						 "storage_data", "planner_data",
						 "mcore_data" } };
	ck_pv root = ck_pickle_root(m->p);
	ck_pv got[CK_PQ_FIELDS];
	const char *name;
	size_t len;

	if (!ck_dcp_class(m->p, root, &name, &len) || len < 8 ||
	    memcmp(name + len - 8, "Metadata", 8))
		return ck_fail(err, EINVAL,
			       "%s: expected an object of "
			       "torch.distributed.checkpoint's Metadata",
			       m->file);
	ck_pq_fields(&attrs, m->p, root, got);
	m->tensors = got[0];
	m->storage = got[1];
	m->planner = is_dict(m->p, got[2]) ? got[2] : 0;
	m->mcore = is_dict(m->p, got[3]) ? got[3] : 0;
	if (!is_dict(m->p, m->tensors))
		return ck_fail(err, EINVAL,
			       "%s: %.*s has no dictionary "
			       "state_dict_metadata",
			       m->file, (int)len, name);
	if (!is_dict(m->p, m->storage))
		return ck_fail(err, EINVAL,
			       "%s: %.*s has no dictionary "
			       "storage_data",
			       m->file, (int)len, name);
	return 0;
}

int ck_dcp_meta_read(struct ck_dcp_meta *m, const struct ck_dir *dir,
		     const char *file, struct ck_err *err)
{
	struct ck_pickle_opts opts = { .allow = ck_dcp_allow,
				       .fold = ck_dcp_fold };
	int ret;

	*m = (struct ck_dcp_meta){ .file = file };
	opts.ctx = m->items = ck_dcp_items_new(err);
	if (!m->items)
		return -ENOMEM;
	ret = ck_dir_slurp(dir, file, CK_MAX_INDEX, &m->bytes, &m->len, err);
	if (ret)
		return ret;
	ret = ck_pickle_parse(&m->p, m->bytes, m->len, &opts, NULL, err);
	if (ret)
		return ck_wrap(err, ret, "%s", file);
	return find_dicts(m, err);
}

void ck_dcp_meta_free(struct ck_dcp_meta *m)
{
	ck_dcp_items_free(m->items);
	ck_pickle_free(m->p);
	free(m->bytes);
	*m = (struct ck_dcp_meta){ 0 };
}
