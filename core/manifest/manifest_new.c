/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest_new.c - making a manifest, and putting it into its directory whole
 */
#include "core/manifest/manifest_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/base/limits.h"
#include "core/base/vec.h"
#include "core/base/whole.h"
#include "core/root/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

struct text {
	size_t off, len; /* in strs */
};

struct file {
	struct text name;
	uint64_t size, first; /* first: of the blocks as they were put */
};

struct tensor {
	struct text tree, name;
	uint64_t size;
	bool known;
	struct ck_digest digest;
};

struct ck_manifest_new {
	unsigned shift;
	CK_VEC(struct file) files;
	CK_VEC(struct tensor) tensors;
	CK_VEC(uint64_t) blocks;
	CK_VEC(char) strs;
	struct text last_tree; /* nearly all tensors are in the same */
};

int ck_manifest_new(struct ck_manifest_new **out, unsigned shift,
		    struct ck_err *err)
{
	struct ck_manifest_new *n;

	shift = shift ? shift : CK_MANIFEST_SHIFT;
	if (shift < CK_MF_SHIFT_MIN || shift > CK_MF_SHIFT_MAX)
		return ck_fail(err, EINVAL, "blocks of 2^%u bytes", shift);
	n = calloc(1, sizeof(*n));
	if (!n || !ck_vec_reserve(&n->strs, 1)) {
		free(n);
		return ck_no_memory(err);
	}
	n->strs.v[n->strs.nr++] =
		'\0'; /* the empty name, and never no names at all */
	n->shift = shift;
	*out = n;
	return 0;
}

void ck_manifest_drop(struct ck_manifest_new *n)
{
	if (!n)
		return;
	free(n->files.v);
	free(n->tensors.v);
	free(n->blocks.v);
	free(n->strs.v);
	free(n);
}

unsigned ck_manifest_new_shift(const struct ck_manifest_new *n)
{
	return n->shift;
}

static int put_text(struct ck_manifest_new *n, const char *s, size_t len,
		    struct text *out, struct ck_err *err)
{
	if (len >= UINT32_MAX - n->strs.nr)
		return ck_fail(err, EFBIG, "more than 4 GiB of names");
	if (!ck_vec_reserve(&n->strs, len + 1))
		return ck_no_memory(err);
	*out = (struct text){ len ? n->strs.nr : 0, len };
	if (!len)
		return 0;
	memcpy(n->strs.v + n->strs.nr, s, len);
	n->strs.v[n->strs.nr + len] = '\0';
	n->strs.nr += len + 1;
	return 0;
}

int ck_manifest_put_file(struct ck_manifest_new *n, const char *name,
			 uint64_t size, const uint64_t *block,
			 struct ck_err *err)
{
	uint64_t nr = ck_mf_nr_blocks(size, n->shift);
	struct file f = { .size = size, .first = n->blocks.nr };
	int ret;

	if (size > CK_SIZE_MAX || !ck_dir_name_ok(name, strlen(name)))
		return ck_fail(err, EINVAL, "%s: not a file of a directory",
			       name);
	if (nr > CK_MAX_INDEX / 8 - n->blocks.nr)
		return ck_fail(err, EFBIG, "%s: more than %llu blocks", name,
			       (unsigned long long)CK_MAX_INDEX / 8);
	ret = put_text(n, name, strlen(name), &f.name, err);
	if (ret)
		return ret;
	if (!ck_vec_reserve(&n->blocks, nr) || !ck_vec_reserve(&n->files, 1))
		return ck_no_memory(err);
	if (nr)
		memcpy(n->blocks.v + n->blocks.nr, block, nr * sizeof(*block));
	n->blocks.nr += nr;
	n->files.v[n->files.nr++] = f;
	return 0;
}

static bool same_text(const struct ck_manifest_new *n, const struct text *t,
		      const char *s, size_t len)
{
	return t->len == len && !memcmp(n->strs.v + t->off, s, len);
}

int ck_manifest_put_tensor(struct ck_manifest_new *n, const char *tree,
			   size_t tree_len, const char *name, size_t len,
			   uint64_t size, const struct ck_digest *digest,
			   struct ck_err *err)
{
	struct tensor t = { .size = size, .known = digest };
	int ret = 0;

	if (digest)
		t.digest = *digest;
	if (!same_text(n, &n->last_tree, tree, tree_len))
		ret = put_text(n, tree, tree_len, &n->last_tree, err);
	t.tree = n->last_tree;
	if (!ret)
		ret = put_text(n, name, len, &t.name, err);
	if (ret)
		return ret;
	if (!ck_vec_reserve(&n->tensors, 1))
		return ck_no_memory(err);
	n->tensors.v[n->tensors.nr++] = t;
	return 0;
}

static int text_cmp(const struct ck_manifest_new *n, const struct text *a,
		    const struct text *b)
{
	return ck_mf_cmp(n->strs.v + a->off, a->len, n->strs.v + b->off,
			 b->len);
}

static int by_file(const void *a, const void *b, void *n)
{
	const struct file *x = a, *y = b;

	return text_cmp(n, &x->name, &y->name);
}

static int by_tensor(const void *a, const void *b, void *n)
{
	const struct tensor *x = a, *y = b;
	int c = text_cmp(n, &x->tree, &y->tree);

	return c ? c : text_cmp(n, &x->name, &y->name);
}

static int sort(struct ck_manifest_new *n, struct ck_err *err)
{
	if (n->files.nr)
		qsort_r(n->files.v, n->files.nr, sizeof(*n->files.v), by_file,
			n);
	if (n->tensors.nr)
		qsort_r(n->tensors.v, n->tensors.nr, sizeof(*n->tensors.v),
			by_tensor, n);
	for (size_t i = 1; i < n->files.nr; i++)
		if (!by_file(&n->files.v[i - 1], &n->files.v[i], n))
			return ck_fail(err, EINVAL, "%s: twice in the manifest",
				       n->strs.v + n->files.v[i].name.off);
	for (size_t i = 1; i < n->tensors.nr; i++)
		if (!by_tensor(&n->tensors.v[i - 1], &n->tensors.v[i], n))
			return ck_fail(err, EINVAL,
				       "tensor %s: twice in the manifest",
				       n->strs.v + n->tensors.v[i].name.off);
	return 0;
}

static void put_ref(unsigned char *at, const struct text *t)
{
	ck_le32_put(at, (uint32_t)t->off);
	ck_le32_put(at + 4, (uint32_t)t->len);
}

static unsigned char *write_files(const struct ck_manifest_new *n,
				  unsigned char *at, unsigned char *block)
{
	uint64_t next = 0;

	for (size_t i = 0; i < n->files.nr; i++, at += CK_MF_FILE) {
		const struct file *f = &n->files.v[i];
		uint64_t nr = ck_mf_nr_blocks(f->size, n->shift);
		const unsigned char *first = block;
		struct ck_digest d;

		for (uint64_t k = 0; k < nr; k++, block += 8)
			ck_le64_put(block, n->blocks.v[f->first + k]);
		d = ck_digest_bytes(first, 8 * nr);
		ck_le64_put(at + CK_MF_FILE_SIZE, f->size);
		ck_le64_put(at + CK_MF_FILE_FIRST, next);
		ck_mf_digest_put(at + CK_MF_FILE_DIGEST, &d);
		put_ref(at + CK_MF_FILE_NAME, &f->name);
		next += nr;
	}
	return at;
}

static void write_tensors(const struct ck_manifest_new *n, unsigned char *at)
{
	for (size_t i = 0; i < n->tensors.nr; i++, at += CK_MF_TENSOR) {
		const struct tensor *t = &n->tensors.v[i];

		ck_le64_put(at + CK_MF_TENSOR_SIZE, t->size);
		ck_mf_digest_put(at + CK_MF_TENSOR_DIGEST, &t->digest);
		put_ref(at + CK_MF_TENSOR_TREE, &t->tree);
		put_ref(at + CK_MF_TENSOR_NAME, &t->name);
		ck_le64_put(at + CK_MF_TENSOR_KNOWN, t->known);
	}
}

static void write_head(const struct ck_manifest_new *n, unsigned char *at,
		       size_t len)
{
	struct ck_digest sum;

	memcpy(at, CK_MF_MAGIC, 8);
	ck_le32_put(at + CK_MF_AT_VERSION, CK_MF_VERSION);
	ck_le32_put(at + CK_MF_AT_SHIFT, n->shift);
	ck_le64_put(at + CK_MF_AT_LEN, len);
	ck_le64_put(at + CK_MF_AT_FILES, n->files.nr);
	ck_le64_put(at + CK_MF_AT_TENSORS, n->tensors.nr);
	ck_le64_put(at + CK_MF_AT_BLOCKS, n->blocks.nr);
	ck_le64_put(at + CK_MF_AT_STRS, n->strs.nr);
	ck_le64_put(at + CK_MF_AT_MADE, (uint64_t)time(NULL));
	sum = ck_digest_bytes(at, len - CK_MF_SUM);
	ck_mf_digest_put(at + len - CK_MF_SUM, &sum);
}

int ck_manifest_bytes(struct ck_manifest_new *n, void **bytes, size_t *len,
		      struct ck_err *err)
{
	size_t files = n->files.nr * CK_MF_FILE;
	size_t tensors = n->tensors.nr * CK_MF_TENSOR;
	size_t blocks = n->blocks.nr * 8;
	size_t all =
		CK_MF_HEAD + files + tensors + blocks + n->strs.nr + CK_MF_SUM;
	unsigned char *out, *at;
	int ret = sort(n, err);

	if (ret)
		return ret;
	if (all > CK_MAX_INDEX)
		return ck_fail(err, EFBIG, "a manifest of %zu bytes", all);
	out = calloc(1, all);
	if (!out)
		return ck_no_memory(err);
	at = write_files(n, out + CK_MF_HEAD,
			 out + CK_MF_HEAD + files + tensors);
	write_tensors(n, at);
	memcpy(out + all - CK_MF_SUM - n->strs.nr, n->strs.v, n->strs.nr);
	write_head(n, out, all);
	*bytes = out;
	*len = all;
	return 0;
}

int ck_manifest_store(int dir, const char *name, const void *bytes, size_t len,
		      struct ck_err *err)
{
	struct timespec now;
	char temp[64];
	int ret;

	clock_gettime(CLOCK_MONOTONIC, &now);
	/* of a file alone: who holds the directory may be another */
	snprintf(temp, sizeof(temp), "%s%ld-%lld%09ld",
		 strcmp(name, CK_MANIFEST_NAME) ? CK_MANIFEST_OURS "alone-" :
						  CK_WRITER_LOCK_TEMP,
		 (long)getpid(), (long long)now.tv_sec, now.tv_nsec);
	/* a name of its own: several may seal at once */
	ret = ck_fds_put_file(dir, name, temp, 0644, bytes, len);
	if (ret)
		return ck_fail(err, -ret, "%s: cannot write it: %s", name,
			       strerror(-ret));
	ret = ck_fds_sync_dir(dir);
	return ret ? ck_fail(err, -ret, "%s: cannot make it durable: %s", name,
			     strerror(-ret)) :
		     0;
}
