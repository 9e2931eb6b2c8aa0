/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sealed_old.c - what a block held before a part of it was written
 *
 * The bytes that are not written get a new digest with those that are.  If they
 * were damaged, that would make the damage pass for data.  So a block is compared
 * before the first write to a part of it, and never again; one that is bad is
 * good once all its bytes were written, in whatever pieces.
 */
#include "core/manifest/sealed_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/number.h"
#include "core/manifest/edited.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct block {
	struct ck_manifest_file f;
	uint64_t nr; /* in the manifest */
	uint64_t off, end; /* in the file */
	uint64_t digest; /* as it was sealed */
};

/* With the lock held, for the manifest may be replaced. */
static void find(const struct ck_sealed *s, uint64_t file, uint64_t k,
		 struct block *b)
{
	ck_manifest_file(&s->m, file, &b->f);
	b->nr = b->f.first + k;
	b->off = k << s->m.shift;
	b->end = CK_MIN(b->off + (UINT64_C(1) << s->m.shift), b->f.size);
	b->digest = ck_manifest_block(&s->m, b->nr);
}

static bool compare(const struct ck_sealed *s, uint32_t src,
		    const struct block *b, char *line, size_t room)
{
	const char *name = ck_catalog_str(s->img, s->img->srcs[src].name, NULL);
	ck_auto_fd int fd = -1;
	uint64_t digest = 0;
	struct ck_err err;
	struct stat st;
	int ret = ck_root_open_file(s->root, name, &fd, &st, &err);

	if (!ret)
		ret = ck_checked_hash(&ck_engine_plain, fd, b->off, b->end,
				      &digest);
	if (!ret && digest == b->digest)
		return true;
	snprintf(line, room,
		 "bytes %" PRIu64 " to %" PRIu64 " %s%s before they were "
		 "written to; unshard verify goes on to say so until all of "
		 "them are written, or unshard seal --force",
		 b->off, b->end,
		 ret ? "could not be read: " : "were not what was sealed",
		 ret ? strerror(-ret) : "");
	return false;
}

/*
 * For who takes over from a mount that died, and knows no more which blocks it
 * had written to.  As far as that works: it is said anyway.  Where EDITED does
 * not have the file yet, ck_sealed_names() does it.
 */
static void write_down(struct ck_sealed *s, uint64_t file,
		       const struct block *b)
{
	ck_auto_str struct ck_str text = { 0 };
	struct ck_err err;

	if (!s->marked[file])
		return;
	ck_str_fmt(&text, "%s" CK_EDITED_BAD "%" PRIu64, b->f.name,
		   b->nr - b->f.first);
	ck_str_add(&text, "", 1);
	if (!text.failed)
		ck_edited_add(s->root, &s->edited_fd, text.v, text.len, &err);
}

void ck_sealed_names(const struct ck_sealed *s, uint64_t file,
		     struct ck_str *out)
{
	struct ck_manifest_file f;

	ck_manifest_file(&s->m, file, &f);
	for (uint64_t k = 0; k < f.nr; k++)
		if (s->old[f.first + k] == CK_OLD_BAD) {
			ck_str_fmt(out, "%s" CK_EDITED_BAD "%" PRIu64, f.name,
				   k);
			ck_str_add(out, "", 1);
		}
	ck_str_add(out, f.name, f.name_len + 1);
}

void ck_sealed_was_bad(struct ck_sealed *s, const char *text)
{
	const char *cut = strstr(text, CK_EDITED_BAD);
	struct ck_manifest_file f;
	uint64_t file, k;

	if (!cut)
		return;
	file = ck_manifest_number(&s->m, text, (size_t)(cut - text));
	if (file == CK_NO_FILE)
		return;
	ck_manifest_file(&s->m, file, &f);
	if (ck_digits(cut + strlen(CK_EDITED_BAD), SIZE_MAX, &k) && k < f.nr)
		s->old[f.first + k] = CK_OLD_BAD;
}

/* With the lock held, which is let go meanwhile. */
static void look(struct ck_sealed *s, uint32_t src, uint64_t file,
		 const struct block *b)
{
	char line[300];
	bool good;

	s->old[b->nr] = CK_OLD_BUSY;
	pthread_mutex_unlock(&s->lock);
	/* with -o verify it was compared already, or is refused */
	good = s->checked || compare(s, src, b, line, sizeof(line));
	if (!good)
		s->said.call(s->said.ctx, src, line);
	pthread_mutex_lock(&s->lock);
	if (!good)
		write_down(s, file, b);
	s->old[b->nr] = good ? CK_OLD_GOOD : CK_OLD_BAD;
	pthread_cond_broadcast(&s->compared);
}

static void know(struct ck_sealed *s, uint32_t src, uint64_t file, uint64_t k,
		 uint64_t off, uint64_t end)
{
	struct block b;

	find(s, file, k, &b);
	while (s->old[b.nr] == CK_OLD_BUSY)
		pthread_cond_wait(&s->compared, &s->lock);
	if (s->old[b.nr] != CK_OLD_UNKNOWN)
		return;
	find(s, file, k, &b);
	if (off <= b.off && end >= b.end)
		s->old[b.nr] = CK_OLD_COVERED;
	else
		look(s, src, file, &b);
}

/* Blocks [*k, end) of @file hold bytes of [off, off + len): the end. */
static uint64_t blocks_of(const struct ck_sealed *s, uint64_t file,
			  uint64_t off, uint64_t len, uint64_t *k)
{
	struct ck_manifest_file f;

	ck_manifest_file(&s->m, file, &f);
	*k = off >> s->m.shift;
	if (!len || !ck_range_ok(off, len, f.size))
		return *k;
	return CK_MIN((off + len - 1) >> s->m.shift, f.nr - 1) + 1;
}

void ck_sealed_old(struct ck_sealed *s, uint32_t src, uint64_t file,
		   uint64_t off, uint64_t len)
{
	uint64_t k, end;

	pthread_mutex_lock(&s->lock);
	end = blocks_of(s, file, off, len, &k);
	for (; k < end; k++)
		know(s, src, file, k, off, off + len);
	pthread_mutex_unlock(&s->lock);
}

/* With the lock: of the bytes of block @k in [off, end). */
static bool is_corrupt(const struct ck_sealed *s, uint64_t file, uint64_t k,
		       uint64_t off, uint64_t end)
{
	const struct ck_interval *run;
	uint64_t base;
	struct block b;

	find(s, file, k, &b);
	if (s->old[b.nr] != CK_OLD_BAD)
		return false;
	base = b.nr << s->m.shift;
	off = CK_MAX(off, b.off) - b.off;
	end = CK_MIN(end, b.end) - b.off;
	run = ck_intervals_at(&s->fresh, base + off);
	return !run || run->off > base + off || run->end < base + end;
}

bool ck_sealed_is_corrupt(struct ck_sealed *s, uint32_t src, uint64_t off,
			  uint64_t len, bool see)
{
	uint64_t file, k = 0, end = 0;
	bool corrupt = false;

	pthread_mutex_lock(&s->lock);
	file = s->present ? s->file_of[src] : CK_NO_FILE;
	if (file != CK_NO_FILE)
		end = blocks_of(s, file, off, len, &k);
	for (; !corrupt && k < end; k++) {
		if (see)
			know(s, src, file, k, 0, 0);
		corrupt = is_corrupt(s, file, k, off, off + len);
	}
	pthread_mutex_unlock(&s->lock);
	return corrupt;
}

static void add(struct ck_sealed *s, uint64_t file, uint64_t k, uint64_t off,
		uint64_t end)
{
	const struct ck_interval *run;
	uint64_t base, len;
	struct block b;

	find(s, file, k, &b);
	if (s->old[b.nr] < CK_OLD_BAD)
		return;
	/* a block of the manifest begins at its number in @fresh */
	base = b.nr << s->m.shift;
	len = b.end - b.off;
	off = CK_MAX(off, b.off) - b.off;
	end = CK_MIN(end, b.end) - b.off;
	if (ck_intervals_add(&s->fresh, base + off, base + end))
		return;
	run = ck_intervals_at(&s->fresh, base);
	if (!run || run->off > base || run->end < base + len)
		return;
	s->old[b.nr] = CK_OLD_GOOD;
	ck_intervals_cut(&s->fresh, base, base + len);
}

static void give_up(struct ck_sealed *s, uint64_t file, uint64_t k)
{
	struct block b;

	find(s, file, k, &b);
	if (s->old[b.nr] != CK_OLD_COVERED)
		return;
	s->old[b.nr] = CK_OLD_BAD;
	write_down(s, file, &b);
}

void ck_sealed_failed(struct ck_sealed *s, uint64_t file, uint64_t off,
		      uint64_t len)
{
	uint64_t k, end = blocks_of(s, file, off, len, &k);

	for (; k < end; k++)
		give_up(s, file, k);
}

void ck_sealed_read_new(struct ck_sealed *s, uint64_t file, uint64_t off,
			uint64_t len)
{
	uint64_t k, end = blocks_of(s, file, off, len, &k);

	for (; k < end; k++)
		add(s, file, k, off, off + len);
}
