/* SPDX-License-Identifier: Apache-2.0 */
/* imported_manifest.c - two manifests of the same files, block by block */
#include "core/publish/imported_manifest.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/base/whole.h"
#include "core/manifest/manifest.h"
#include "core/manifest/sealed.h"
#include "core/root/openat_beneath.h"
#include "core/seal/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NOTE "manifest"

static int differs(const struct ck_manifest_file *f, struct ck_err *err,
		   const char *what)
{
	return ck_fail(err, EBADMSG,
		       "%s: %s, by the " CK_MANIFEST_NAME " that was copied "
		       "along; remove that to publish what is there",
		       f->name, what);
}

static int differs_at(const struct ck_manifest_file *f, uint64_t block,
		      uint64_t from, uint64_t to, struct ck_err *err)
{
	char what[120];

	snprintf(what, sizeof(what),
		 "block %" PRIu64 " (bytes %" PRIu64 " to %" PRIu64
		 ") is not what was sealed",
		 block, from, to);
	return differs(f, err, what);
}

static int compare_blocks(const struct ck_manifest *was,
			  const struct ck_manifest *now,
			  const struct ck_manifest_file *f,
			  const struct ck_manifest_file *g, struct ck_err *err)
{
	for (uint64_t k = 0; k < f->nr; k++)
		if (ck_manifest_block(was, f->first + k) !=
		    ck_manifest_block(now, g->first + k))
			return differs_at(
				f, k, k << was->shift,
				CK_MIN(f->size, (k + 1) << was->shift), err);
	return 0;
}

static int compare_file(const struct ck_manifest *was,
			const struct ck_manifest *now,
			const struct ck_manifest_file *f, struct ck_err *err)
{
	struct ck_manifest_file g;
	char what[120];

	if (!ck_manifest_find_file(now, f->name, f->name_len, &g))
		return differs(f, err, "is missing");
	if (f->size != g.size) {
		snprintf(what, sizeof(what),
			 "has %" PRIu64 " bytes, and had %" PRIu64
			 " when it was sealed",
			 g.size, f->size);
		return differs(f, err, what);
	}
	return was->shift == now->shift ? compare_blocks(was, now, f, &g, err) :
					  0;
}

/* Blocks of another size than ours: all is read once more. */
static int read_again(const struct ck_manifest *was, const struct ck_root *root,
		      struct ck_err *err)
{
	struct ck_verify v = { .root = root, .m = was };
	int ret = ck_verify_files(&v, err);

	for (size_t i = 0; i < v.nr_damage && !ret; i++) {
		const struct ck_damage *d = &v.damage[i];
		const struct ck_manifest_file f = { .name = d->file };

		if (d->kind != CK_DAMAGE_EDITED)
			ret = differs_at(&f, d->block, d->off, d->off + d->len,
					 err);
	}
	ck_verify_free(&v);
	return ret;
}

/* What a mount that died was editing is no longer what was sealed. */
static int compare(const struct ck_manifest *was, const struct ck_manifest *now,
		   const struct ck_root *root, struct ck_err *err)
{
	bool edited = ck_sealed_is_edited(root);
	int ret = 0;

	for (uint64_t i = 0; i < was->nr_files && !ret; i++) {
		struct ck_manifest_file f;

		ck_manifest_file(was, i, &f);
		if (!edited || !ck_sealed_was_edited(root, f.name))
			ret = compare_file(was, now, &f, err);
	}
	if (!ret && was->shift != now->shift)
		ret = read_again(was, root, err);
	return ret;
}

static bool is_ours(const struct ck_draft *s, const struct ck_manifest *m)
{
	char text[CK_DIGEST_TEXT], note[CK_DIGEST_TEXT] = "";
	ck_auto_fd int fd = ck_beneath_file(s->fd, NOTE, O_RDONLY);

	ck_digest_text(&m->digest, text);
	return fd >= 0 && !ck_pread_whole(fd, note, sizeof(note) - 1, 0) &&
	       !strcmp(text, note);
}

int ck_imported_manifest_check(const struct ck_draft *s,
			       const struct ck_root *root, const void *bytes,
			       size_t len, struct ck_err *err)
{
	struct ck_manifest was, now;
	int ret = ck_manifest_load(&was, root, err);

	if (ret == -ENOENT)
		return 0;
	if (ret == -EINVAL)
		return ck_fail(err, EBADMSG,
			       "%s; remove it to publish what is there",
			       err->msg);
	if (ret)
		return ret;
	if (!is_ours(s, &was)) {
		ret = ck_manifest_parse(&now, bytes, len, err);
		if (!ret)
			ret = compare(&was, &now, root, err);
	}
	ck_manifest_free(&was);
	return ret;
}

int ck_imported_manifest_ours(const struct ck_draft *s, const void *bytes,
			      size_t len, struct ck_err *err)
{
	char text[CK_DIGEST_TEXT];
	struct ck_manifest m;
	int ret = ck_manifest_parse(&m, bytes, len, err);

	if (ret)
		return ret;
	ck_digest_text(&m.digest, text);
	ret = ck_fds_put_file(s->fd, NOTE, NOTE ".new", 0666, text,
			      strlen(text));
	if (!ret)
		ret = ck_fds_sync_dir(s->fd);
	return ret ? ck_fail(err, -ret, "the manifest: %s", strerror(-ret)) : 0;
}
