/* SPDX-License-Identifier: Apache-2.0 */
/* summary.h - a whole checkpoint in a screenful, for people */
#ifndef SUMMARY_H
#define SUMMARY_H

#include "core/base/opts.h"
#include "core/base/str.h"
#include "core/geom/catalog.h"

/* @path is as the user gave it. */
void summary_put(const struct ck_catalog *img, const char *path,
		 struct ck_str *out);

/*
 * How many tensors are the model's, what hf/ takes off their names, and which
 * names would collide.
 */
void summary_model(const struct ck_catalog *img, const struct ck_opts *opts,
		   struct ck_str *out);

#endif
