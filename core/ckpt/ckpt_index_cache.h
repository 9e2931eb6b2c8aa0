/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_index_cache.h - catalogs that were made before, in files of the user's
 *
 * -o index-cache=DIR.  A file holds the record of what the parser asked of the
 * checkpoint (core/root/dir_record.h) and the catalog that it made of that.
 * Who parses asks again first, in its sandbox; meanwhile who waits for it reads
 * the catalog, which is checked as any, and takes that where every answer is the
 * one it was.  A file that is damaged, cut, of another version, or that others
 * could have written costs time and nothing else; so does a directory that cannot
 * be used.
 *
 * Threads: one for each struct.
 */
#ifndef CK_CKPT_INDEX_CACHE_H
#define CK_CKPT_INDEX_CACHE_H

#include "core/ckpt/ckpt.h"
#include "core/geom/catalog.h"
#include "core/root/dir.h"
#include "core/root/root.h"

#include <stdint.h>

struct ck_index_cache {
	int dir_fd; /* -1: there is none */
	int file_fd; /* what was kept; or -1 */
	char *record; /* the one in it; NULL: there is none */
	uint64_t record_len, catalog_len;
	uint64_t digest[2];
	int record_fd; /* to be filled by who parses */
	bool slow_only;
	int64_t started;
	char name[40];
	uint64_t key[2];
};

/*
 * For @root, to be parsed with @opts.  @in NULL: nothing is kept.  Never fails:
 * see above.
 */
void ck_index_cache_open(struct ck_index_cache *c, const struct ck_root *root,
			 const struct ck_opts *opts,
			 struct ck_index_cache_in *in);
void ck_index_cache_close(struct ck_index_cache *c);
/* In the parser: whether @dir gives the answers for which the catalog was kept. */
bool ck_index_cache_holds(const struct ck_index_cache *c,
			  const struct ck_dir *dir);
/* The catalog that was kept, as ck_catalog_map() does; false: it is none. */
bool ck_index_cache_map(const struct ck_index_cache *c, struct ck_catalog *out);
/* What was kept is not good. */
void ck_index_cache_forget(struct ck_index_cache *c);
/* In the parser: @text was what was asked.  0 or -errno. */
int ck_index_cache_tell(const struct ck_index_cache *c, const char *text,
			size_t len, struct ck_err *err);
/* After it has ended well: keeps what it made, if that is new. */
void ck_index_cache_keep(const struct ck_index_cache *c, int catalog_fd);

#endif
