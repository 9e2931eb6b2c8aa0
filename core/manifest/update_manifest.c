/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update_manifest.c - from touched blocks to a manifest that is true again
 */
#include "core/manifest/sealed_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/manifest/edited.h"
#include "core/manifest/hash.h"
#include "core/manifest/corrupt_elements.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TENSORS_MAX (UINT64_C(256) << 20) /* bytes hashed again at once */

/* ---- noting ---- */

static void touch(struct ck_sealed *s, uint64_t file, uint64_t off,
		  uint64_t len)
{
	struct ck_manifest_file f;

	ck_manifest_file(&s->m, file, &f);
	for (uint64_t k = off >> s->m.shift;
	     len && k <= (off + len - 1) >> s->m.shift && k < f.nr; k++)
		atomic_fetch_or(&s->touched[(f.first + k) / 64],
				UINT64_C(1) << (f.first + k) % 64);
}

static int mark(struct ck_sealed *s, uint64_t file, struct ck_err *err)
{
	ck_auto_str struct ck_str names = { 0 };
	int ret;

	if (s->marked[file])
		return 0;
	ck_sealed_names(s, file, &names);
	if (names.failed)
		return ck_no_memory(err);
	ret = ck_edited_add(s->root, &s->edited_fd, names.v, names.len, err);
	s->marked[file] = !ret;
	return ret;
}

/* Where blocks are compared before use, one that is not good is not written. */
static int compare_rest(struct ck_sealed *s, uint32_t src, uint64_t off,
			uint64_t len, struct ck_err *err)
{
	const char *name = ck_catalog_str(s->img, s->img->srcs[src].name, NULL);
	ck_auto_fd int fd = -1;
	struct stat st;
	int ret = ck_root_open_file(s->root, name, &fd, &st, err);

	if (!ret)
		ret = ck_checked_use(s->checked, &ck_engine_plain, src, fd,
				     name, off, 1, err);
	if (!ret)
		ret = ck_checked_use(s->checked, &ck_engine_plain, src, fd,
				     name, off + len - 1, 1, err);
	return ret;
}

static int begin(void *ctx, uint32_t src, uint64_t off, uint64_t len,
		 struct ck_err *err)
{
	struct ck_sealed *s = ctx;
	uint64_t file = s->present ? s->file_of[src] : CK_NO_FILE;
	int ret = 0;

	if (s->checked && len)
		ret = compare_rest(s, src, off, len, err);
	if (ret)
		return ret;
	if (file != CK_NO_FILE)
		ck_sealed_old(s, src, file, off, len);
	pthread_mutex_lock(&s->lock);
	if (file != CK_NO_FILE)
		ret = mark(s, file, err);
	if (!ret && s->present) {
		s->edited = true;
		s->writing++;
		if (file != CK_NO_FILE)
			touch(s, file, off, len);
	}
	pthread_mutex_unlock(&s->lock);
	if (!ret && s->checked)
		ck_checked_ours(s->checked, src, off, len);
	return ret;
}

static void end(void *ctx, uint32_t src, uint64_t off, uint64_t len, bool done)
{
	struct ck_sealed *s = ctx;
	uint64_t file;

	pthread_mutex_lock(&s->lock);
	file = s->present ? s->file_of[src] : CK_NO_FILE;
	if (file != CK_NO_FILE) {
		(done ? ck_sealed_read_new : ck_sealed_failed)(s, file, off,
							       len);
		touch(s, file, off, len);
	}
	s->writing -= s->present;
	pthread_mutex_unlock(&s->lock);
}

/* Nobody knows any more what of it the dead mount wrote. */
static void take_as_it_is(struct ck_sealed *s, uint64_t file)
{
	struct ck_manifest_file f;

	ck_manifest_file(&s->m, file, &f);
	for (uint64_t k = 0; k < f.nr; k++)
		s->old[f.first + k] = CK_OLD_GOOD;
}

/* What a mount that died had begun to edit: every block of it. */
static int take_over(struct ck_sealed *s, struct ck_err *err)
{
	ck_auto_free char *names = NULL;
	size_t len;
	int ret = ck_edited_read(s->root, &names, &len, err);

	if (ret)
		return ret == -ENOENT ? 0 : ret;
	for (size_t at = 0; at < len; at += strlen(names + at) + 1) {
		uint64_t file = ck_manifest_number(&s->m, names + at,
						   strlen(names + at));

		if (file == CK_NO_FILE)
			continue;
		touch(s, file, 0, CK_SIZE_MAX);
		take_as_it_is(s, file);
		s->marked[file] = 1;
	}
	for (size_t at = 0; at < len; at += strlen(names + at) + 1)
		ck_sealed_was_bad(s, names + at);
	s->edited = true;
	return 0;
}

const struct ck_watch *ck_sealed_watch(struct ck_sealed *s,
				       struct ck_checked *sums,
				       const struct ck_sealed_said *said)
{
	s->checked = sums;
	s->said = *said;
	s->watch = (struct ck_watch){ .ctx = s, .begin = begin, .end = end };
	return &s->watch;
}

int ck_sealed_writer_lock(struct ck_sealed *s, struct ck_err *err)
{
	int ret = ck_sealed_load(s, err);

	if (ret && ret != -ENOENT)
		return ret;
	if (!ret && s->root->only)
		return ck_fail(err, EROFS,
			       "it is sealed as a single file: remove that, "
			       "and seal and mount its directory");
	s->held = true;
	return ret ? 0 : take_over(s, err);
}

bool ck_sealed_is_edited(const struct ck_root *root)
{
	return ck_fds_has(root->fd, CK_MANIFEST_EDITED);
}

/* ---- hashing ---- */

enum { IN_TOUCHED = 1, IN_BAD = 2 };

struct job {
	struct ck_sealed *s;
	uint64_t *todo; /* bits: blocks that were touched */
	uint64_t *block; /* digests of all */
	struct ck_hash_file *file; /* all of the manifest's */
	struct ck_corrupt_finder damaged;
	unsigned char *tensor; /* by catalog: IN_TOUCHED, IN_BAD */
	unsigned char in; /* what the blocks are that are looked at now */
	uint64_t *first; /* of each file */
};

static bool is_set(const uint64_t *bits, uint64_t k)
{
	return bits[k / 64] >> (k % 64) & 1;
}

static bool is_bad(const struct job *j, uint64_t k)
{
	return j->s->old[k] >= CK_OLD_BAD;
}

static bool want(void *ctx, size_t i, uint64_t k)
{
	const struct job *j = ctx;

	k += j->first[i];
	return is_set(j->todo, k) && !is_bad(j, k);
}

static int keep(void *ctx, size_t i, uint64_t k, uint64_t digest,
		const struct ck_err *err)
{
	struct job *j = ctx;

	if (err)
		return -err->code;
	j->block[j->first[i] + k] = digest;
	return 0;
}

static int prepare(struct job *j, struct ck_err *err)
{
	const struct ck_manifest *m = &j->s->m;
	uint64_t words = m->nr_blocks / 64 + 1;

	j->todo = calloc(words, sizeof(*j->todo));
	j->block = calloc(m->nr_blocks + 1, sizeof(*j->block));
	j->file = calloc(m->nr_files + 1, sizeof(*j->file));
	j->first = calloc(m->nr_files + 1, sizeof(*j->first));
	j->tensor = calloc(j->s->img->nr_tensors + 1u, 1);
	if (!j->todo || !j->block || !j->file || !j->first || !j->tensor)
		return ck_no_memory(err);
	for (uint64_t i = 0; i < m->nr_files; i++) {
		struct ck_manifest_file f;

		ck_manifest_file(m, i, &f);
		j->file[i].name = (char *)f.name;
		j->file[i].size = f.size;
		j->first[i] = f.first;
	}
	for (uint64_t k = 0; k < m->nr_blocks; k++)
		j->block[k] = ck_manifest_block(m, k);
	for (uint64_t i = 0; i < words; i++)
		j->todo[i] = atomic_exchange(&j->s->touched[i], 0);
	return 0;
}

static void free_job(struct job *j)
{
	free(j->todo);
	free(j->block);
	free(j->file);
	free(j->first);
	free(j->tensor);
	ck_corrupt_finder_free(&j->damaged);
}

static void touch_again(struct job *j)
{
	for (uint64_t i = 0; j->todo && i <= j->s->m.nr_blocks / 64; i++)
		atomic_fetch_or(&j->s->touched[i], j->todo[i]);
}

static int hash(struct job *j, struct ck_err *err)
{
	struct ck_hash_in in = {
		.root = j->s->root,
		.file = j->file,
		.nr = j->s->m.nr_files,
		.shift = j->s->m.shift,
		.jobs = 2,
		.ctx = j,
		.want = want,
		.block = keep,
	};

	return ck_hash_run(&in, err);
}

/* ---- tensors ---- */

static void add_tensor(void *ctx, const struct ck_corrupt_elements *sp)
{
	struct job *j = ctx;

	j->tensor[sp->tensor] |= j->in;
}

static unsigned char in_what(const struct job *j, uint64_t k)
{
	if (!is_set(j->todo, k))
		return 0;
	return is_bad(j, k) ? IN_TOUCHED | IN_BAD : IN_TOUCHED;
}

/* Stretches of touched blocks to the tensors that have elements there. */
static int find_tensors(struct job *j, struct ck_err *err)
{
	const struct ck_manifest *m = &j->s->m;
	int ret = 0;

	j->damaged.ctx = j;
	j->damaged.each = add_tensor;
	for (uint64_t i = 0; i < m->nr_files && !ret; i++) {
		struct ck_manifest_file f;

		ck_manifest_file(m, i, &f);
		for (uint64_t k = 0, from; k < f.nr && !ret;) {
			j->in = in_what(j, f.first + k);
			for (from = k;
			     k < f.nr && in_what(j, f.first + k) == j->in;)
				k++;
			if (!j->in)
				continue;
			ret = ck_corrupt_finder_find(
				&j->damaged, f.name, from << m->shift,
				(k - from) << m->shift, err);
		}
	}
	return ret;
}

/* Its digest as it was, made again, or, past @left bytes, not known. */
static int put_tensor(struct job *j, struct ck_reader *reader, uint32_t i,
		      uint64_t *left, struct ck_manifest_new *n,
		      struct ck_err *err)
{
	const struct ck_catalog *img = j->s->img;
	const struct ck_tensor *t = &img->tensors[i];
	size_t tree_len, len;
	const char *tree = ck_catalog_str(img, img->trees[t->tree], &tree_len);
	const char *name = ck_catalog_str(img, t->name, &len);
	struct ck_manifest_tensor was;
	struct ck_digest digest;
	struct ck_err why;
	bool known = ck_manifest_find_tensor(&j->s->m, tree, tree_len, name,
					     len, &was) &&
		     was.known && was.size == t->size;

	if (known)
		digest = was.digest;
	if (j->tensor[i]) {
		known = !(j->tensor[i] & IN_BAD) && t->size <= *left &&
			!ck_hash_tensor(reader, i, t->size, &digest, NULL,
					&why);
		*left -= known ? t->size : 0;
	}
	return ck_manifest_put_tensor(n, tree, tree_len, name, len, t->size,
				      known ? &digest : NULL, err);
}

/* ---- the new manifest ---- */

static int make(struct job *j, struct ck_reader *reader,
		struct ck_manifest_new *n, struct ck_err *err)
{
	uint64_t left = TENSORS_MAX;
	int ret = 0;

	for (uint64_t i = 0; i < j->s->m.nr_files && !ret; i++)
		ret = ck_manifest_put_file(n, j->file[i].name, j->file[i].size,
					   j->block + j->first[i], err);
	for (uint32_t i = 0; i < j->s->img->nr_tensors && !ret; i++)
		ret = put_tensor(j, reader, i, &left, n, err);
	return ret;
}

static int replace(struct job *j, struct ck_manifest_new *n, struct ck_err *err)
{
	struct ck_sealed *s = j->s;
	ck_auto_free void *bytes = NULL;
	struct ck_manifest m;
	size_t len;
	int ret = ck_manifest_bytes(n, &bytes, &len, err);

	if (!ret)
		ret = ck_manifest_store(s->root->fd, CK_MANIFEST_NAME, bytes,
					len, err);
	if (!ret)
		ret = ck_manifest_parse(&m, bytes, len, err);
	if (ret)
		return ret;
	m.own = ck_steal(bytes);
	pthread_mutex_lock(&s->lock);
	ck_manifest_free(&s->m);
	s->m = m;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* With the lock held: every file that EDITED names is on storage. */
static int sync_marked(struct ck_sealed *s, struct ck_err *err)
{
	for (uint64_t i = 0; i < s->m.nr_files; i++) {
		struct ck_manifest_file f;
		ck_auto_fd int fd = -1;
		struct stat st;
		int ret;

		if (!s->marked[i])
			continue;
		ck_manifest_file(&s->m, i, &f);
		ret = ck_root_open_file(s->root, f.name, &fd, &st, err);
		if (ret)
			return ret;
		if (fdatasync(fd))
			return ck_fail(err, errno, "%s: %s", f.name,
				       strerror(errno));
	}
	return 0;
}

/* EDITED goes, if nothing was touched or is being touched since. */
static int finish(struct ck_sealed *s, struct ck_err *err)
{
	bool quiet;
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	quiet = !s->writing;
	for (uint64_t i = 0; quiet && i <= s->m.nr_blocks / 64; i++)
		quiet = !atomic_load(&s->touched[i]);
	if (quiet)
		ret = sync_marked(s, err);
	if (quiet && !ret) {
		ret = ck_edited_remove(s->root, &s->edited_fd, err);
		memset(s->marked, 0, s->m.nr_files);
		s->edited = false;
	}
	pthread_mutex_unlock(&s->lock);
	return ret;
}

static int settle(struct ck_sealed *s, struct ck_reader *reader,
		  const struct ck_resolved *resolved, bool last,
		  struct ck_err *err)
{
	struct job j = { .s = s,
			 .damaged = { .img = s->img, .resolved = resolved } };
	struct ck_manifest_new *n = NULL;
	int ret = prepare(&j, err);

	if (!ret)
		ret = hash(&j, err);
	if (!ret)
		ret = find_tensors(&j, err);
	if (!ret)
		ret = ck_manifest_new(&n, s->m.shift, err);
	if (!ret)
		ret = make(&j, reader, n, err);
	if (!ret)
		ret = replace(&j, n, err);
	if (ret)
		touch_again(&j);
	ck_manifest_drop(n);
	free_job(&j);
	return ret || !last ? ret : finish(s, err);
}

int ck_sealed_update_manifest(struct ck_sealed *s, struct ck_reader *reader,
			      const struct ck_resolved *resolved, bool last,
			      struct ck_err *err)
{
	bool edited;
	int ret = 0;

	pthread_mutex_lock(&s->updating);
	pthread_mutex_lock(&s->lock);
	edited = s->edited;
	pthread_mutex_unlock(&s->lock);
	if (edited)
		ret = settle(s, reader, resolved, last, err);
	pthread_mutex_unlock(&s->updating);
	return ret;
}
