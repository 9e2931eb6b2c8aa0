/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.c - the bytes of a manifest, which anybody may have written
 *
 * Everything is checked by ck_manifest_parse(), in one pass: the sum, every
 * count against the length, every reference, every name, the order.
 */
#include "core/manifest/manifest_priv.h"

#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/base/search.h"
#include "core/root/dir.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

void ck_digest_text(const struct ck_digest *d, char out[CK_DIGEST_TEXT])
{
	snprintf(out, CK_DIGEST_TEXT, "%016" PRIx64 "%016" PRIx64, d->hi,
		 d->lo);
}

static struct ck_digest from_xxh(XXH128_hash_t h)
{
	return (struct ck_digest){ .hi = h.high64, .lo = h.low64 };
}

struct ck_digest ck_digest_bytes(const void *bytes, size_t len)
{
	return from_xxh(XXH3_128bits(bytes, len));
}

static bool same(const struct ck_digest *a, const struct ck_digest *b)
{
	return a->hi == b->hi && a->lo == b->lo;
}

static int check_head(struct ck_manifest *m, struct ck_err *err)
{
	const unsigned char *at = m->bytes;
	struct ck_digest sum;

	if (m->len < CK_MF_HEAD + CK_MF_SUM || memcmp(at, CK_MF_MAGIC, 8))
		return ck_fail(err, EINVAL, "not a manifest of unshardfs");
	if (ck_le32(at + CK_MF_AT_VERSION) != CK_MF_VERSION)
		return ck_fail(err, EINVAL,
			       "version %" PRIu32 "; this program reads %d",
			       ck_le32(at + CK_MF_AT_VERSION), CK_MF_VERSION);
	if (ck_le64(at + CK_MF_AT_LEN) != m->len)
		return ck_fail(err, EINVAL,
			       "%zu bytes long; it says of itself %" PRIu64,
			       m->len, ck_le64(at + CK_MF_AT_LEN));
	m->digest = ck_mf_digest(at + m->len - CK_MF_SUM);
	sum = ck_digest_bytes(at, m->len - CK_MF_SUM);
	if (!same(&sum, &m->digest))
		return ck_fail(err, EINVAL, "damaged: its own sum is wrong");
	m->shift = ck_le32(at + CK_MF_AT_SHIFT);
	if (m->shift < CK_MF_SHIFT_MIN || m->shift > CK_MF_SHIFT_MAX)
		return ck_fail(err, EINVAL, "blocks of 2^%u bytes", m->shift);
	if (ck_le64(at + CK_MF_AT_ZERO) || ck_le64(at + CK_MF_AT_ZERO + 8))
		return ck_fail(err, EINVAL, "byte %d: not zero", CK_MF_AT_ZERO);
	m->made = (int64_t)ck_le64(at + CK_MF_AT_MADE);
	return 0;
}

/* The sections have to fill the manifest exactly. */
static int check_sections(struct ck_manifest *m, struct ck_err *err)
{
	uint64_t files, tensors, blocks, strs;
	uint64_t all = CK_MF_HEAD + CK_MF_SUM;

	m->nr_files = ck_le64(m->bytes + CK_MF_AT_FILES);
	m->nr_tensors = ck_le64(m->bytes + CK_MF_AT_TENSORS);
	m->nr_blocks = ck_le64(m->bytes + CK_MF_AT_BLOCKS);
	strs = ck_le64(m->bytes + CK_MF_AT_STRS);
	if (m->nr_files > CK_MAX_CHUNKS || m->nr_tensors > CK_MAX_TENSORS ||
	    !ck_mul_ok(m->nr_files, CK_MF_FILE, &files) ||
	    !ck_mul_ok(m->nr_tensors, CK_MF_TENSOR, &tensors) ||
	    !ck_mul_ok(m->nr_blocks, 8, &blocks) ||
	    !ck_add_ok(all, files, &all) || !ck_add_ok(all, tensors, &all) ||
	    !ck_add_ok(all, blocks, &all) || !ck_add_ok(all, strs, &all) ||
	    all != m->len || !strs || strs > UINT32_MAX)
		return ck_fail(err, EINVAL,
			       "its %zu bytes are not what %" PRIu64
			       " files, %" PRIu64 " tensors, %" PRIu64
			       " blocks and %" PRIu64 " bytes of names take",
			       m->len, m->nr_files, m->nr_tensors, m->nr_blocks,
			       strs);
	m->files = m->bytes + CK_MF_HEAD;
	m->tensors = m->files + files;
	m->blocks = m->tensors + tensors;
	m->strs = (const char *)m->blocks + blocks;
	m->strs_len = strs;
	return 0;
}

/* A name: inside the names, and a NUL follows. */
static bool name_ok(const struct ck_manifest *m, const unsigned char *ref)
{
	uint64_t off = ck_le32(ref), len = ck_le32(ref + 4);

	return ck_range_ok(off, len + 1, m->strs_len) && !m->strs[off + len];
}

static int check_files(const struct ck_manifest *m, struct ck_err *err)
{
	struct ck_manifest_file f, last = { 0 };
	struct ck_digest sum;
	uint64_t next = 0;

	for (uint64_t i = 0; i < m->nr_files; i++) {
		const unsigned char *at = m->files + i * CK_MF_FILE;

		if (!name_ok(m, at + CK_MF_FILE_NAME) ||
		    ck_le64(at + CK_MF_FILE_ZERO))
			return ck_fail(err, EINVAL,
				       "file %" PRIu64 ": damaged entry", i);
		ck_manifest_file(m, i, &f);
		if (f.size > CK_SIZE_MAX || f.first != next ||
		    f.nr > m->nr_blocks - next)
			return ck_fail(err, EINVAL,
				       "file %" PRIu64 ": %" PRIu64
				       " bytes from block %" PRIu64 "; %" PRIu64
				       " is next of %" PRIu64,
				       i, f.size, f.first, next, m->nr_blocks);
		sum = ck_digest_bytes(m->blocks + 8 * f.first, 8 * f.nr);
		if (!same(&sum, &f.digest))
			return ck_fail(err, EINVAL,
				       "file %" PRIu64
				       ": its digest is not its blocks'",
				       i);
		if (!ck_dir_name_ok(f.name, f.name_len))
			return ck_fail(err, EINVAL,
				       "file %" PRIu64 ": not a name in a "
				       "directory",
				       i);
		if (i && ck_mf_cmp(last.name, last.name_len, f.name,
				   f.name_len) >= 0)
			return ck_fail(err, EINVAL,
				       "file %" PRIu64 ": not in order", i);
		next += f.nr;
		last = f;
	}
	return next == m->nr_blocks ?
		       0 :
		       ck_fail(err, EINVAL,
			       "%" PRIu64 " blocks; its files have %" PRIu64,
			       m->nr_blocks, next);
}

static int tensor_cmp(const struct ck_manifest_tensor *t, const char *tree,
		      size_t tree_len, const char *name, size_t len)
{
	int c = ck_mf_cmp(t->tree, t->tree_len, tree, tree_len);

	return c ? c : ck_mf_cmp(t->name, t->name_len, name, len);
}

static int check_tensors(const struct ck_manifest *m, struct ck_err *err)
{
	struct ck_manifest_tensor t, last = { 0 };

	for (uint64_t i = 0; i < m->nr_tensors; i++) {
		const unsigned char *at = m->tensors + i * CK_MF_TENSOR;

		if (!name_ok(m, at + CK_MF_TENSOR_TREE) ||
		    !name_ok(m, at + CK_MF_TENSOR_NAME) ||
		    ck_le64(at + CK_MF_TENSOR_KNOWN) > 1)
			return ck_fail(err, EINVAL,
				       "tensor %" PRIu64 ": damaged entry", i);
		ck_manifest_tensor(m, i, &t);
		if (t.size > CK_SIZE_MAX || t.name_len > CK_MAX_NAME)
			return ck_fail(err, EINVAL,
				       "tensor %" PRIu64 ": %" PRIu64 " bytes",
				       i, t.size);
		if (i && tensor_cmp(&last, t.tree, t.tree_len, t.name,
				    t.name_len) >= 0)
			return ck_fail(err, EINVAL,
				       "tensor %" PRIu64 ": not in order", i);
		last = t;
	}
	return 0;
}

int ck_manifest_parse(struct ck_manifest *m, const void *bytes, size_t len,
		      struct ck_err *err)
{
	int ret;

	*m = (struct ck_manifest){ .bytes = bytes, .len = len };
	ret = check_head(m, err);
	if (!ret)
		ret = check_sections(m, err);
	if (!ret)
		ret = check_files(m, err);
	return ret ? ret : check_tensors(m, err);
}

void ck_manifest_file(const struct ck_manifest *m, uint64_t i,
		      struct ck_manifest_file *out)
{
	const unsigned char *at = m->files + i * CK_MF_FILE;

	out->size = ck_le64(at + CK_MF_FILE_SIZE);
	out->first = ck_le64(at + CK_MF_FILE_FIRST);
	out->nr = ck_mf_nr_blocks(out->size, m->shift);
	out->digest = ck_mf_digest(at + CK_MF_FILE_DIGEST);
	out->name = m->strs + ck_le32(at + CK_MF_FILE_NAME);
	out->name_len = ck_le32(at + CK_MF_FILE_NAME + 4);
}

void ck_manifest_tensor(const struct ck_manifest *m, uint64_t i,
			struct ck_manifest_tensor *out)
{
	const unsigned char *at = m->tensors + i * CK_MF_TENSOR;

	out->size = ck_le64(at + CK_MF_TENSOR_SIZE);
	out->digest = ck_mf_digest(at + CK_MF_TENSOR_DIGEST);
	out->tree = m->strs + ck_le32(at + CK_MF_TENSOR_TREE);
	out->tree_len = ck_le32(at + CK_MF_TENSOR_TREE + 4);
	out->name = m->strs + ck_le32(at + CK_MF_TENSOR_NAME);
	out->name_len = ck_le32(at + CK_MF_TENSOR_NAME + 4);
	out->known = ck_le64(at + CK_MF_TENSOR_KNOWN);
}

uint64_t ck_manifest_block(const struct ck_manifest *m, uint64_t k)
{
	return ck_le64(m->blocks + 8 * k);
}

static int file_cmp(const struct ck_manifest *m, uint64_t i, const char *name,
		    size_t len)
{
	struct ck_manifest_file f;

	ck_manifest_file(m, i, &f);
	return ck_mf_cmp(f.name, f.name_len, name, len);
}

uint64_t ck_manifest_number(const struct ck_manifest *m, const char *name,
			    size_t len)
{
	uint64_t at =
		CK_FIRST(i, 0, m->nr_files, file_cmp(m, i, name, len) >= 0);

	return at < m->nr_files && !file_cmp(m, at, name, len) ? at :
								 CK_NO_FILE;
}

bool ck_manifest_find_file(const struct ck_manifest *m, const char *name,
			   size_t len, struct ck_manifest_file *out)
{
	uint64_t at = ck_manifest_number(m, name, len);

	if (at == CK_NO_FILE)
		return false;
	ck_manifest_file(m, at, out);
	return true;
}

bool ck_manifest_block_of(const struct ck_manifest *m, unsigned shift,
			  const char *name, uint64_t size, uint64_t k,
			  uint64_t *digest)
{
	struct ck_manifest_file f;

	if (m->shift != shift ||
	    !ck_manifest_find_file(m, name, strlen(name), &f) ||
	    f.size != size || k >= f.nr)
		return false;
	*digest = ck_manifest_block(m, f.first + k);
	return true;
}

static int number_cmp(const struct ck_manifest *m, uint64_t i, const char *tree,
		      size_t tree_len, const char *name, size_t len)
{
	struct ck_manifest_tensor t;

	ck_manifest_tensor(m, i, &t);
	return tensor_cmp(&t, tree, tree_len, name, len);
}

bool ck_manifest_find_tensor(const struct ck_manifest *m, const char *tree,
			     size_t tree_len, const char *name, size_t len,
			     struct ck_manifest_tensor *out)
{
	uint64_t at =
		CK_FIRST(i, 0, m->nr_tensors,
			 number_cmp(m, i, tree, tree_len, name, len) >= 0);

	if (at == m->nr_tensors)
		return false;
	ck_manifest_tensor(m, at, out);
	return !tensor_cmp(out, tree, tree_len, name, len);
}
