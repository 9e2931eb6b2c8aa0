/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_parser_limits.c - limits for the parser, from names and sizes alone
 *
 * Runs outside the sandbox, so it opens no file of the checkpoint.
 */
#include "core/ckpt/ckpt_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/base/size.h"
#include "core/base/suffix.h"
#include "core/manifest/manifest.h"

#include <fcntl.h>
#include <string.h>

#define HASH_SECONDS 86400
#define ENTRIES_MAX 100000 /* looked at */
#define HEADER_GUESS (64 << 10) /* read of a file that is no index */
#define FOLDER_GUESS (UINT64_C(1) << 20) /* and of what is in a folder */

static bool is_index(const char *name)
{
	return ck_ends_in(name, ".json") || ck_ends_in(name, ".metadata");
}

static void count(struct ck_parser_limits *e, uint64_t size, bool index)
{
	uint64_t most = index ? CK_MAX_INDEX : HEADER_GUESS;

	e->index_bytes += CK_MIN(size, most);
	e->files++;
}

static void count_only(const struct ck_root *root, struct ck_parser_limits *e)
{
	struct stat st;

	/* Its header may be all of it. */
	if (!fstatat(root->fd, root->only, &st, 0) && S_ISREG(st.st_mode))
		count(e, CK_MIN((uint64_t)st.st_size, CK_MAX_HEADER), true);
}

static void count_dir(const struct ck_root *root, struct ck_parser_limits *e)
{
	ck_auto_dir DIR *dir = NULL;
	struct dirent *d;
	struct stat st;

	if (ck_root_list(root, "", &dir, NULL))
		return;
	for (unsigned n = 0; n < ENTRIES_MAX && (d = readdir(dir)); n++) {
		/* A stat of what is mounted below may hang. */
		if (d->d_type == DT_DIR) {
			e->folders++;
			continue;
		}
		if (!fstatat(root->fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW))
			count(e, (uint64_t)st.st_size, is_index(d->d_name));
	}
}

/*
 * Of what is read each block is hashed, maybe all: 8 bytes of the manifest are
 * 4 MiB, so that 2 KiB are 1 GiB.
 */
static void count_sums(const struct ck_root *root, struct ck_parser_limits *e)
{
	struct stat st;

	if (ck_manifest_stat(root, &st) || !S_ISREG(st.st_mode))
		return;
	e->seconds += (unsigned)CK_MIN(st.st_size >> 11, HASH_SECONDS);
	e->memory += 4 * CK_MIN((uint64_t)st.st_size, CK_MAX_INDEX);
}

void ck_parser_limits_guess(const struct ck_root *root,
			    const struct ck_opts *opts,
			    struct ck_parser_limits *e)
{
	*e = (struct ck_parser_limits){ 0 };
	for (const struct ck_root *r = root; r; r = r->next) {
		if (r->only)
			count_only(r, e);
		else
			count_dir(r, e);
	}
	/* A rank may have a folder, with an index or a file for each tensor. */
	e->index_bytes += e->folders * FOLDER_GUESS;
	e->seconds = (unsigned)(5 + (e->index_bytes >> 23) + e->files / 10 +
				e->folders);
	e->memory = (UINT64_C(512) << 20) + 16 * e->index_bytes;
	if (ck_opts_get(opts, "verify"))
		count_sums(root, e);
	e->seconds = (unsigned)ck_opts_size(opts, "parse-time", e->seconds);
}
