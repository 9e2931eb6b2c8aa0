/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nested.h - the views of what a folder of views/ shows
 *
 *	views/NAME/dcp views/NAME/reshard/tp=2 ...
 *
 * Nothing lists them: each is made when somebody looks it up.  They are
 * numbered behind the mounted checkpoint's own: those of folder d from (d + 1)
 * x FS_MAX_VIEWS on, so that a number means the same for good.
 *
 * Threads: any; making and ending, one.
 */
#ifndef FS_NESTED_H
#define FS_NESTED_H

#include "core/view/view.h"

struct fs_nested;

/*
 * Of @v, whose ops nest; borrows both.  NULL: no memory.
 */
struct fs_nested *fs_nested_new(struct ck_view *v, const struct ck_opts *opts);
void fs_nested_free(struct fs_nested *n);
/* View number @nr >= FS_MAX_VIEWS; NULL: there is none. */
const struct ck_view *fs_nested_view(struct fs_nested *n, uint64_t nr);
/* The file of the view below that view number @nr is made of. */
void fs_nested_below(const struct fs_nested *n, uint64_t nr,
		     const struct ck_view **v, uint32_t *file);
/* The number of view @name of folder @d; 0: there is none. */
uint64_t fs_nested_find(struct fs_nested *n, uint32_t d, const char *name);
/* Whether folders were made for who asked, in FS_MAX_VIEWS views; and in all of them. */
bool fs_views_asked(struct ck_view *const *view);
bool fs_nested_asked(struct fs_nested *n);

#endif
