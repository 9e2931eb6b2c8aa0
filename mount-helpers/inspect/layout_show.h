/* SPDX-License-Identifier: Apache-2.0 */
/* layout_show.h - a checkpoint of any format as an unshard-layout.json */
#ifndef LAYOUT_SHOW_H
#define LAYOUT_SHOW_H

#include "core/base/str.h"
#include "core/geom/catalog.h"
#include "core/geom/resolved.h"

#include <stdbool.h>

struct layout_show {
	const struct ck_catalog *img;
	const struct ck_resolved *resolved; /* all items of @img are resolved */
	uint64_t left_out; /* pieces and tensors that no layout can say */
	struct ck_str out;
};

/* Writes to stdout, a tensor at a time; false: it did not take it. */
bool layout_show(struct layout_show *s);

#endif
