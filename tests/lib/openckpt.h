/* SPDX-License-Identifier: Apache-2.0 */
/* openckpt.h - a checkpoint by its path, parsed by a child of the test */
#ifndef OPENCKPT_H
#define OPENCKPT_H

#include "core/base/auto.h"
#include "core/ckpt/ckpt.h"

static inline int open_ckpt(struct ck_ckpt **out, const char *path,
			    const struct ck_opts *opts, struct ck_err *err)
{
	ck_auto_fd int catalog_fd = -1;
	struct ck_root root;
	int ret = ck_root_open(&root, path, opts, err);

	if (ret)
		return ret;
	ret = ck_ckpt_describe(&root, opts, &catalog_fd, err);
	if (!ret)
		ret = ck_ckpt_serve(out, &root, opts, catalog_fd, err);
	if (ret)
		ck_root_close(&root);
	return ret;
}

#endif
