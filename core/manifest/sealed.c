/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sealed.c - digests that follow the bytes
 *
 * A bit a block says that it was touched.  It is set before the bytes change
 * and again afterwards, so that whoever clears it and then hashes the block
 * either sees the bytes or is told once more; EDITED is only removed while no
 * write is under way and no bit is set.
 */
#include "core/manifest/sealed_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/manifest/edited.h"
#include "core/manifest/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_MAX (UINT64_C(256) << 20)

/* ---- opening ---- */

static int match(struct ck_sealed *s, struct ck_err *err)
{
	uint64_t blocks = s->m.nr_blocks / 64 + 1;

	s->file_of = calloc(s->img->nr_srcs + 1u, sizeof(*s->file_of));
	s->touched = calloc(blocks, sizeof(*s->touched));
	s->old = calloc(s->m.nr_blocks + 1, 1);
	s->marked = calloc(s->m.nr_files + 1, 1);
	if (!s->file_of || !s->touched || !s->old || !s->marked)
		return ck_no_memory(err);
	for (uint32_t i = 0; i < s->img->nr_srcs; i++) {
		const struct ck_src *src = &s->img->srcs[i];
		const char *name;
		size_t len;

		s->file_of[i] = CK_NO_FILE;
		if (src->kind != CK_SRC_FILE)
			continue;
		name = ck_catalog_str(s->img, src->name, &len);
		s->file_of[i] = ck_manifest_number(&s->m, name, len);
	}
	return 0;
}

struct ck_sealed *ck_sealed_new(const struct ck_root *root,
				const struct ck_catalog *img)
{
	struct ck_sealed *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->root = root;
	s->img = img;
	s->edited_fd = -1;
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->updating, NULL);
	pthread_cond_init(&s->compared, NULL);
	return s;
}

static void forget(struct ck_sealed *s)
{
	s->present = false;
	ck_manifest_free(&s->m);
	free(s->file_of);
	free((void *)s->touched);
	free((void *)s->old);
	ck_intervals_free(&s->fresh);
	free(s->marked);
	ck_manifest_free(&s->later);
	s->has_later = false;
	s->file_of = NULL;
	s->touched = NULL;
	s->old = NULL;
	s->marked = NULL;
}

int ck_sealed_load(struct ck_sealed *s, struct ck_err *err)
{
	struct stat st;
	int ret;

	pthread_mutex_lock(&s->lock);
	forget(s);
	s->seen = (struct ck_id){ 0 };
	if (!ck_manifest_stat(s->root, &st))
		s->seen = ck_id_of(&st);
	ret = ck_manifest_load(&s->m, s->root, err);
	if (!ret)
		ret = match(s, err);
	if (ret)
		forget(s);
	s->present = !ret;
	pthread_mutex_unlock(&s->lock);
	return ret;
}

int ck_sealed_open(struct ck_sealed **out, const struct ck_root *root,
		   const struct ck_catalog *img, struct ck_err *err)
{
	struct ck_sealed *s = ck_sealed_new(root, img);
	int ret = s ? ck_sealed_load(s, err) : ck_no_memory(err);

	if (ret) {
		ck_sealed_free(s);
		return ret;
	}
	*out = s;
	return 0;
}

void ck_sealed_free(struct ck_sealed *s)
{
	if (!s)
		return;
	if (s->edited_fd >= 0)
		close(s->edited_fd);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->updating);
	pthread_cond_destroy(&s->compared);
	forget(s);
	free(s);
}

bool ck_sealed_digest(struct ck_sealed *s, uint32_t t, struct ck_digest *out)
{
	const struct ck_tensor *ten = &s->img->tensors[t];
	struct ck_manifest_tensor mt;
	size_t tree_len, len;
	const char *tree =
		ck_catalog_str(s->img, s->img->trees[ten->tree], &tree_len);
	const char *name = ck_catalog_str(s->img, ten->name, &len);
	bool known;

	if (ck_sealed_is_at(s, t))
		return false;
	pthread_mutex_lock(&s->lock);
	known = !s->edited && ck_manifest_find_tensor(ck_sealed_newest(s), tree,
						      tree_len, name, len, &mt);
	if (known) {
		known = mt.known && mt.size == ten->size;
		*out = mt.digest;
	}
	pthread_mutex_unlock(&s->lock);
	return known;
}

/* ---- reading ---- */

static int add_sums(struct ck_sealed *s, struct ck_checked *sums, uint32_t src,
		    struct ck_err *err)
{
	struct ck_manifest_file f;
	ck_auto_free uint64_t *digest = NULL;

	ck_manifest_file(&s->m, s->file_of[src], &f);
	if (f.size != s->img->srcs[src].id.size) {
		ck_checked_other_size(sums, src, f.size);
		return 0;
	}
	digest = malloc((f.nr + 1) * sizeof(*digest));
	if (!digest)
		return ck_no_memory(err);
	for (uint64_t k = 0; k < f.nr; k++)
		digest[k] = ck_manifest_block(&s->m, f.first + k);
	return ck_checked_add(sums, src, f.size, digest, err);
}

struct index_check {
	struct ck_sealed *s;
	struct ck_hash_file *file;
	uint64_t *number;
	size_t nr;
	_Atomic uint64_t bad; /* file of it, plus one */
	_Atomic bool gone; /* it does not exist */
};

static int check_index(void *ctx, size_t i, uint64_t k, uint64_t digest,
		       const struct ck_err *err)
{
	struct index_check *c = ctx;
	struct ck_manifest_file f;

	ck_manifest_file(&c->s->m, c->number[i], &f);
	if (!err && digest == ck_manifest_block(&c->s->m, f.first + k))
		return 0;
	c->gone = err && err->code == ENOENT;
	c->bad = i + 1;
	return -EIO;
}

/* Indexes of their own, which were read before anything could be compared. */
static void choose_index(struct index_check *c)
{
	struct ck_sealed *s = c->s;
	ck_auto_free unsigned char *is_source = calloc(s->m.nr_files + 1, 1);

	for (uint32_t i = 0; is_source && i < s->img->nr_srcs; i++)
		if (s->file_of[i] != CK_NO_FILE)
			is_source[s->file_of[i]] = 1;
	for (uint64_t i = 0; is_source && i < s->m.nr_files; i++) {
		struct ck_manifest_file f;

		ck_manifest_file(&s->m, i, &f);
		if (is_source[i] || f.size > INDEX_MAX)
			continue;
		c->file[c->nr] = (struct ck_hash_file){ .name = (char *)f.name,
							.size = f.size };
		c->number[c->nr++] = i;
	}
}

static int compare_index(struct ck_sealed *s, struct ck_err *err)
{
	struct index_check c = { .s = s };
	struct ck_hash_in in = {
		.root = s->root,
		.shift = s->m.shift,
		.jobs = 2,
		.ctx = &c,
		.block = check_index,
	};
	int ret = 0;

	c.file = calloc(s->m.nr_files + 1, sizeof(*c.file));
	c.number = calloc(s->m.nr_files + 1, sizeof(*c.number));
	if (!c.file || !c.number)
		ret = ck_no_memory(err);
	if (!ret)
		choose_index(&c);
	in.file = c.file;
	in.nr = c.nr;
	if (!ret && c.nr)
		ret = ck_hash_run(&in, err);
	if (ret && c.bad)
		ret = ck_fail(err, EBADMSG, "%s: %s", c.file[c.bad - 1].name,
			      c.gone ? "was sealed, and does not exist" :
				       "is not what was sealed");
	free(c.file);
	free(c.number);
	return ret;
}

int ck_sealed_sums(struct ck_sealed *s, struct ck_checked **out,
		   struct ck_err *err)
{
	const struct ck_checked_later later = { ck_sealed_later, s };
	struct ck_checked *sums = ck_checked_new(s->img->nr_srcs, s->m.shift);
	int ret = sums ? compare_index(s, err) : ck_no_memory(err);

	for (uint32_t i = 0; !ret && i < s->img->nr_srcs; i++)
		if (s->file_of[i] != CK_NO_FILE)
			ret = add_sums(s, sums, i, err);
	if (ret) {
		ck_checked_free(sums);
		return ret;
	}
	ck_checked_ask(sums, &later);
	*out = sums;
	return 0;
}

bool ck_sealed_was_edited(const struct ck_root *root, const char *file)
{
	ck_auto_free char *names = NULL;
	struct ck_err err;
	size_t len;
	int ret = ck_edited_read(root, &names, &len, &err);

	if (ret)
		return ret != -ENOENT;
	for (size_t at = 0; at < len; at += strlen(names + at) + 1)
		if (!strcmp(names + at, file))
			return true;
	return false;
}
