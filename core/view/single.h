/* SPDX-License-Identifier: Apache-2.0 */
/*
 * single.h - what views of one lazily composed file have in common
 *
 * Begin the view's struct with a ck_single and name these in its ops; ops->name
 * is the file's name.
 */
#ifndef CK_SINGLE_H
#define CK_SINGLE_H

#include "core/view/lazy.h"
#include "core/view/view.h"

struct ck_single {
	struct ck_view base;
	struct ck_lazy file;
};

uint32_t ck_single_nr(const struct ck_view *v);
bool ck_single_file(const struct ck_view *v, uint32_t i, struct ck_vfile *out);
void ck_single_label(const struct ck_view *v, uint32_t i,
		     char name[CK_VIEW_NAME]);
uint32_t ck_single_find(const struct ck_view *v, const char *name, size_t len);
void ck_single_at(const struct ck_view *v, uint32_t i, uint64_t off,
		  struct ck_span *out);
int ck_single_made(const struct ck_view *v, uint32_t i, void *buf, uint64_t len,
		   uint64_t off, struct ck_err *err);

#endif
