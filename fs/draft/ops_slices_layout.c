/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_slices_layout.c - texts of open files, and the layout, which comes as one
 *
 * Reads take no lock of the kernel's, and a close of a duplicate does not wait for
 * a write: the text is read, grown and copied under its own.
 */
#include "fs/draft/ops_draft.h"

#include "core/base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

struct fs_open *fs_open_new(void)
{
	struct fs_open *o = calloc(1, sizeof(*o));

	if (o)
		pthread_mutex_init(&o->lock, NULL);
	return o;
}

void fs_open_free(struct fs_open *o)
{
	if (!o)
		return;
	ck_str_free(&o->text);
	pthread_mutex_destroy(&o->lock);
	free(o);
}

size_t fs_open_text(struct fs_open *o, void *buf, size_t len, uint64_t off)
{
	size_t got;

	pthread_mutex_lock(&o->lock);
	got = off >= o->text.len ? 0 : CK_MIN(len, o->text.len - off);
	if (got)
		memcpy(buf, o->text.v + off, got);
	pthread_mutex_unlock(&o->lock);
	return got;
}

/* As it is when it is opened; what replaces it is written from nothing. */
int fs_layout_open(const struct ck_slices *sl, int flags, struct fs_open *o)
{
	char *bytes = NULL;
	size_t len = 0;
	int ret;

	o->slice = false;
	if (!sl || (flags & O_ACCMODE) != O_RDONLY)
		return 0;
	ret = ck_slices_given(sl, &bytes, &len, NULL);
	if (ret)
		return ret;
	ck_str_add(&o->text, bytes, len);
	free(bytes);
	return o->text.failed ? -ENOMEM : 0;
}

static int put(struct ck_str *t, const char *buf, size_t len, uint64_t off)
{
	static const char zero[4096];

	while (!t->failed && t->len < off)
		ck_str_add(t, zero, CK_MIN(sizeof(zero), off - t->len));
	if (t->failed)
		return -ENOMEM;
	if (off < t->len)
		memcpy(t->v + off, buf, CK_MIN(len, t->len - off));
	if (off + len > t->len)
		ck_str_add(t, buf + (t->len - off), off + len - t->len);
	return t->failed ? -ENOMEM : 0;
}

int fs_layout_write(struct fs_open *o, const char *buf, size_t len,
		    uint64_t off)
{
	int ret;

	if (off > FS_LAYOUT_MAX || len > FS_LAYOUT_MAX - off)
		return -EFBIG;
	pthread_mutex_lock(&o->lock);
	ret = put(&o->text, buf, len, off);
	o->changed = true;
	pthread_mutex_unlock(&o->lock);
	return ret;
}

/* Of a copy, for it takes long, and who has a duplicate reads or writes on. */
int fs_slices_flush(const struct fs_draft_ref *r, struct fs_open *o,
		    struct ck_err *err)
{
	ck_auto_str struct ck_str text = { 0 };
	bool changed;

	pthread_mutex_lock(&o->lock);
	changed = o->changed;
	if (changed)
		ck_str_add(&text, o->text.v, o->text.len);
	o->changed = text.failed;
	pthread_mutex_unlock(&o->lock);
	if (!changed)
		return 0;
	return text.failed ?
		       -ENOMEM :
		       fs_draft_cut(r->drafts, r->s, text.v, text.len, err);
}
