/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extras.h - the config and tokenizer files that loaders want beside weights
 *
 * As found in the checkpoint's directory (of joined ones the first that has the
 * name), or in -o config=DIR and nowhere else; where no config.json is in it, in a
 * folder beside it that trainers keep one in, and nowhere else.  Shown as they
 * are, and nothing in them is run.  Held open, so that they stay what they were.
 */
#ifndef CK_EXTRAS_H
#define CK_EXTRAS_H

#include "core/base/opts.h"
#include "core/parse/json.h"
#include "core/view/view.h"

#define CK_MAX_EXTRAS 128 /* each is an open file */

struct ck_extras {
	struct ck_extra {
		char *name;
		int fd;
		struct stat st;
		/* joined: its directory, and the next that has another */
		const struct ck_root *root, *other;
	} v[CK_MAX_EXTRAS]; /* by name */
	uint32_t nr, more; /* more: that found no room */
	bool templates; /* there is a folder of more chat templates */
};

/*
 * The folder in which the files of @root are looked for, in place of its own; to
 * free().  NULL: its own.
 */
char *ck_extras_folder(const struct ck_root *root, const struct ck_opts *opts);
/* Fills the empty @e; what it took is to be freed also after -errno. */
int ck_extras_take(struct ck_extras *e, const struct ck_root *root,
		   const struct ck_opts *opts, struct ck_err *err);
/* Says in the problems of @v's checkpoint what is not as somebody may expect. */
void ck_extras_report(const struct ck_extras *e, const struct ck_view *v);
void ck_extras_free(struct ck_extras *e);
/* Number @i < e->nr as a view's ops say it. */
bool ck_extras_file(const struct ck_extras *e, uint32_t i,
		    struct ck_vfile *out);
void ck_extras_at(const struct ck_extras *e, uint32_t i, uint64_t off,
		  struct ck_span *out);
int ck_extras_made(const struct ck_extras *e, uint32_t i, void *buf,
		   uint64_t len, uint64_t off, struct ck_err *err);

/* Its config.json; NULL: there is none, or it cannot be read. */
json_t *ck_extras_config(const struct ck_extras *e);
/*
 * The same of what ck_extras_take() would take; json_decref() it.  -errno only
 * where -o config= was given, or memory is short.
 */
int ck_model_config(json_t **out, const struct ck_root *root,
		    const struct ck_opts *opts, struct ck_err *err);

#endif
