/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_parser_limits.c - limits for the parser, from names and sizes
 *
 * Runs outside the sandbox, so of the checkpoint it reads no more than the eight
 * bytes by which some safetensors files say how long their headers are.
 */
#include "core/ckpt/ckpt_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/le.h"
#include "core/base/limits.h"
#include "core/base/number.h"
#include "core/base/suffix.h"
#include "core/manifest/manifest.h"

#include <fcntl.h>
#include <string.h>

/*
 * The limit is of processor time, for on a busy machine a good checkpoint takes
 * many times as long.
 */
#define PATIENCE 10
#define SECONDS_MAX 100000000u
#define HASH_SECONDS 86400
#define ENTRIES_MAX 100000 /* looked at */
#define HEADER_GUESS (64 << 10) /* read of a file that is no index */
#define HEADERS_MAX 64 /* looked at; the others are taken to be alike */
#define FOLDER_GUESS (UINT64_C(1) << 20) /* and of what is in a folder */

static bool is_index(const char *name)
{
	return ck_ends_in(name, ".json") || ck_ends_in(name, ".metadata");
}

/* Headers of safetensors files beyond the guess. */
struct headers {
	uint64_t looked, bytes;
};

/* What file @name says its header takes; each that is looked at is opened. */
static uint64_t read_header(const struct ck_root *root, const char *name)
{
	ck_auto_fd int fd = -1;
	unsigned char len[8];
	struct stat now;

	if (ck_root_open_file(root, name, &fd, &now, NULL) ||
	    pread(fd, len, sizeof(len), 0) != (ssize_t)sizeof(len))
		return 0;
	return CK_MIN(ck_le64(len),
		      CK_MIN((uint64_t)now.st_size, CK_MAX_HEADER));
}

static uint64_t header_of(const struct ck_root *root, const char *name,
			  const struct stat *st, struct headers *h)
{
	uint64_t head;

	if (!ck_ends_in(name, ".safetensors") ||
	    (S_ISREG(st->st_mode) && st->st_size <= HEADER_GUESS))
		return 0;
	if (h->looked == HEADERS_MAX)
		return h->bytes / HEADERS_MAX;
	head = read_header(root, name);
	h->looked++;
	h->bytes += head;
	return head;
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
	struct headers headers = { 0 };
	struct dirent *d;
	struct stat st;

	if (ck_root_list(root, "", &dir, NULL))
		return;
	for (unsigned n = 0; n < ENTRIES_MAX && (d = readdir(dir)); n++) {
		uint64_t head;

		/* A stat of what is mounted below may hang. */
		if (d->d_type == DT_DIR) {
			e->folders++;
			continue;
		}
		if (fstatat(root->fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		head = header_of(root, d->d_name, &st, &headers);
		if (head > HEADER_GUESS)
			count(e, head, true);
		else
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
	e->patience = CK_MIN(e->seconds, SECONDS_MAX) * PATIENCE;
}
