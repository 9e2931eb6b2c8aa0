/* SPDX-License-Identifier: Apache-2.0 */
/* model_config.c - config.json beside the weights, which nobody has to trust */
#include "core/view/extras.h"

#include "core/base/auto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST (UINT64_C(1) << 20) /* bytes of a config.json */

json_t *ck_extras_config(const struct ck_extras *e)
{
	struct ck_vfile f;
	json_t *j = NULL;

	for (uint32_t i = 0; !j && ck_extras_file(e, i, &f); i++) {
		ck_auto_free char *bytes = NULL;

		if (strcmp(e->v[i].name, "config.json") != 0 || f.size > MOST)
			continue;
		bytes = malloc(f.size + 1);
		if (!bytes || ck_extras_made(e, i, bytes, f.size, 0, NULL) ||
		    ck_json_parse(&j, bytes, f.size, NULL))
			return NULL;
	}
	return j;
}

int ck_model_config(json_t **out, const struct ck_root *root,
		    const struct ck_opts *opts, struct ck_err *err)
{
	struct ck_extras *e = calloc(1, sizeof(*e));
	int ret = e ? ck_extras_take(e, root, opts, err) : ck_no_memory(err);

	*out = NULL;
	if (!ret)
		*out = ck_extras_config(e);
	if (e)
		ck_extras_free(e);
	free(e);
	return ret == -ENOMEM || ck_opts_get(opts, "config") ? ret : 0;
}
