/* SPDX-License-Identifier: Apache-2.0 */
/* summary.h - a whole checkpoint in a screenful, for people */
#ifndef SUMMARY_H
#define SUMMARY_H

#include "core/base/str.h"
#include "core/geom/image.h"

/* @path is as the user gave it. */
void summary_put(const struct ck_image *img, const char *path,
		 struct ck_str *out);

#endif
