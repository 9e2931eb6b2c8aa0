/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saves.h - how a format's checkpoints show in folders that hold several
 *
 * A directory of checkpoints is listed by names alone (core/run/run_dir.h);
 * these are the names.
 */
#ifndef CK_SAVES_H
#define CK_SAVES_H

#include "core/root/dir.h"
#include "core/base/err.h"
#include "core/base/vec.h"

#include <stdbool.h>
#include <stddef.h>

/* A name that lies in the folder of a checkpoint, and seldom elsewhere. */
struct ck_format_sign {
	const char *pattern; /* with * */
	unsigned is; /* of these: */
};
enum {
	CK_SIGN_WEIGHTS = 1, /* a file that holds tensors by itself */
	CK_SIGN_STRONG = 2, /* by which any folder is one of a checkpoint */
	CK_SIGN_RANK = 4, /* by which a folder called as a rank's is */
};

/*
 * Several saves in the same folders, each of them a step.  What they are
 * called is their key: one word for all files of a save.
 */
struct ck_saves {
	CK_VEC(char *) v; /* keys, the oldest first */
	bool in_ranks; /* not files of the folder itself */
};
void ck_saves_free(struct ck_saves *s);

struct ck_format_saves {
	/* Those in the folder @in of @dir; none where there are not several. */
	int (*find)(struct ck_saves *out, const struct ck_dir *dir,
		    const char *in, struct ck_err *err);
	/*
	 * Calls @fn with each name that a file of the save @key may have in
	 * the folders of ranks in @in, until it returns not 0, which is
	 * returned.
	 */
	int (*each)(const struct ck_dir *dir, const char *in, const char *key,
		    int (*fn)(void *ctx, const char *folder, const char *base),
		    void *ctx, struct ck_err *err);
	/* Whether @path, from the folder of the save @key, is of another. */
	bool (*hides)(const char *key, const char *path);
};

/* Whether there is a file or a folder of that name. */
typedef bool (*ck_has_fn)(const void *ctx, const char *name);

/*
 * Parts of one save, a model, its optimizer, its scheduler, each a checkpoint of
 * its own: as files or folders that are called so, or as files in one folder
 * that tell their part by their names.
 */
struct ck_format_parts {
	const char *const *names; /* of the parts, up to a NULL */
	const char *file; /* the one of them that is a file, and no tensors */

	/* Called so: whether a folder holds the parts of one save. */
	bool (*are_save)(ck_has_fn has, const void *ctx);
	/* Files that are shown without their suffix, up to a NULL. */
	const char *const *files;
	/* The length of a name without the suffix that such a file has. */
	size_t (*stem)(const char *name);

	/* In one folder: what a name shows to be there, as bits. */
	unsigned (*seen)(const char *name);
	unsigned all; /* the bits by which there are parts */
	bool (*has)(const char *part, const char *name); /* the file is its */
	/* Whether @name, a file of such a folder, is of another than @part. */
	bool (*hides)(const char *part, const char *name);
};

#endif
