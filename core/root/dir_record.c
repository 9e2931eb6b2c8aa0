/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir_record.c - facts, in the order in which they were learned
 *
 * A fact is a kind, four numbers and a name.  The first numbers are what was
 * asked, the last ones the answer, or its digest.  Files are numbered as they
 * are opened; bytes that are read one after the other are one fact.
 */
#include "core/root/dir_record.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/vec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define PIECE ((size_t)256 << 10)

struct fact {
	uint64_t kind; /* one of the letters below */
	uint64_t v[4];
};

#define LIST 'l' /* folder: errno, digest */
#define OPEN 'o' /* file: errno, digest of what stat says */
#define READ 'r' /* number, offset, length; digest */
#define CLOSE 'c' /* number */
#define BESIDE 'b' /* name: whether */
#define WRITTEN 'w' /* name: whether */

struct ck_dir_record {
	const struct ck_dir *below;
	struct ck_dir dir;
	struct ck_str text;
	uint64_t opened; /* files, so far */
	bool failed;
};

/* A source that is read, and the run of bytes that was read last. */
struct seen {
	struct ck_source base;
	struct ck_source *below;
	struct ck_dir_record *r;
	uint64_t number, off, len;
	XXH3_state_t *state;
};

/* ---- answers as numbers ---- */

/* In any order, so a sum. */
static uint64_t of_list(const struct ck_dir_list *l, size_t from)
{
	uint64_t sum = l->nr - from;

	for (size_t i = from; i < l->nr; i++)
		sum += XXH3_64bits_withSeed(l->v[i].name, strlen(l->v[i].name),
					    2 * l->v[i].size + l->v[i].is_dir);
	return sum;
}

static uint64_t of_stat(const struct stat *st)
{
	const uint64_t v[] = {
		(uint64_t)st->st_dev,	       (uint64_t)st->st_ino,
		(uint64_t)st->st_size,	       (uint64_t)st->st_mtim.tv_sec,
		(uint64_t)st->st_mtim.tv_nsec, (uint64_t)st->st_ctim.tv_sec,
		(uint64_t)st->st_ctim.tv_nsec,
	};

	return XXH3_64bits(v, sizeof(v));
}

static struct fact listed(const struct ck_dir *d, const char *sub,
			  struct ck_dir_list *out, struct ck_err *err)
{
	size_t from = out->nr;
	int ret = d->ops->list(d, sub, out, err);

	return (struct fact){
		LIST, { (uint64_t)-ret, ret ? 0 : of_list(out, from), 0, 0 }
	};
}

static struct fact opened(const struct ck_dir *d, const char *name,
			  struct ck_source **out, struct ck_err *err)
{
	int ret = d->ops->open(d, name, out, err);

	return (struct fact){
		OPEN, { (uint64_t)-ret, ret ? 0 : of_stat(&(*out)->st), 0, 0 }
	};
}

static struct fact beside(const struct ck_dir *d, const char *name)
{
	return (struct fact){ BESIDE, { d->ops->beside(d, name), 0, 0, 0 } };
}

static struct fact written(const struct ck_dir *d, const char *name)
{
	return (struct fact){ WRITTEN,
			      { d->ops->written && d->ops->written(d, name), 0,
				0, 0 } };
}

/* ---- recording ---- */

static void note(struct ck_dir_record *r, struct fact f, const char *name)
{
	ck_str_add(&r->text, &f, sizeof(f));
	ck_str_add(&r->text, name, strlen(name) + 1);
}

static void end_run(struct seen *s)
{
	if (s->len)
		note(s->r,
		     (struct fact){ READ,
				    { s->number, s->off, s->len,
				      XXH3_64bits_digest(s->state) } },
		     "");
	s->len = 0;
	XXH3_64bits_reset(s->state);
}

static int read_seen(struct ck_source *base, void *buf, size_t len,
		     uint64_t off, struct ck_err *err)
{
	struct seen *s = (struct seen *)base;
	int ret = ck_source_read(s->below, buf, len, off, err);

	if (ret) {
		s->r->failed = true;
		return ret;
	}
	if (s->len && off != s->off + s->len)
		end_run(s);
	if (!s->len)
		s->off = off;
	s->len += len;
	XXH3_64bits_update(s->state, buf, len);
	return 0;
}

static void close_seen(struct ck_source *base)
{
	struct seen *s = (struct seen *)base;

	end_run(s);
	note(s->r, (struct fact){ CLOSE, { s->number, 0, 0, 0 } }, "");
	XXH3_freeState(s->state);
	ck_source_close(s->below);
	free(s);
}

static const struct ck_source_ops seen_ops = { read_seen, close_seen };

static struct ck_source *watch(struct ck_dir_record *r, struct ck_source *below)
{
	struct seen *s = malloc(sizeof(*s));

	if (!s)
		return NULL;
	*s = (struct seen){ .base = { &seen_ops, below->name, below->st },
			    .below = below,
			    .r = r,
			    .number = r->opened,
			    .state = XXH3_createState() };
	if (!s->state) {
		free(s);
		return NULL;
	}
	XXH3_64bits_reset(s->state);
	return &s->base;
}

static struct ck_dir_record *record_of(const struct ck_dir *d)
{
	return (struct ck_dir_record *)(uintptr_t)d->ctx;
}

static int record_list(const struct ck_dir *d, const char *sub,
		       struct ck_dir_list *out, struct ck_err *err)
{
	struct ck_dir_record *r = record_of(d);
	struct fact f = listed(r->below, sub, out, err);

	note(r, f, sub);
	return -(int)f.v[0];
}

static int record_open(const struct ck_dir *d, const char *name,
		       struct ck_source **out, struct ck_err *err)
{
	struct ck_dir_record *r = record_of(d);
	struct ck_source *below = NULL;
	struct fact f = opened(r->below, name, &below, err);

	note(r, f, name);
	if (f.v[0])
		return -(int)f.v[0];
	*out = watch(r, below);
	if (!*out) {
		ck_source_close(below);
		return ck_no_memory(err);
	}
	r->opened++;
	return 0;
}

static bool record_beside(const struct ck_dir *d, const char *name)
{
	struct fact f = beside(record_of(d)->below, name);

	note(record_of(d), f, name);
	return f.v[0];
}

static bool record_written(const struct ck_dir *d, const char *name)
{
	struct fact f = written(record_of(d)->below, name);

	note(record_of(d), f, name);
	return f.v[0];
}

static const struct ck_dir_ops record_ops = {
	.list = record_list,
	.open = record_open,
	.beside = record_beside,
	.written = record_written,
};

struct ck_dir_record *ck_dir_record_new(const struct ck_dir *below)
{
	struct ck_dir_record *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->below = below;
	r->dir = *below;
	r->dir.ops = &record_ops;
	r->dir.ctx = r;
	return r;
}

void ck_dir_record_free(struct ck_dir_record *r)
{
	if (!r)
		return;
	ck_str_free(&r->text);
	free(r);
}

struct ck_dir *ck_dir_record_dir(struct ck_dir_record *r)
{
	return &r->dir;
}

bool ck_dir_record_text(const struct ck_dir_record *r, const char **text,
			size_t *len)
{
	*text = r->text.v;
	*len = r->text.len;
	return !r->failed && !r->text.failed && r->text.len;
}

/* ---- asking again ---- */

struct again {
	const struct ck_dir *d;
	CK_VEC(struct ck_source *) files; /* by number; NULL: closed */
	char *buf; /* PIECE */
};

static bool same_list(struct again *a, const char *sub, struct fact *f)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };

	*f = listed(a->d, sub, &l, NULL);
	return true;
}

static bool same_open(struct again *a, const char *name, struct fact *f)
{
	struct ck_source *s = NULL, **slot;

	if (!ck_dir_name_ok(name, strlen(name)))
		return false;
	*f = opened(a->d, name, &s, NULL);
	if (f->v[0])
		return true;
	slot = ck_vec_push(&a->files);
	if (!slot)
		ck_source_close(s);
	else
		*slot = s;
	return slot;
}

static struct ck_source *file_of(const struct again *a, uint64_t number)
{
	return number < a->files.nr ? a->files.v[number] : NULL;
}

static bool same_read(struct again *a, struct fact *f)
{
	struct ck_source *s = file_of(a, f->v[0]);
	uint64_t off = f->v[1], len = f->v[2];
	XXH3_state_t *state;
	bool good;

	if (!s || !ck_range_ok(off, len, (uint64_t)s->st.st_size))
		return false;
	state = XXH3_createState();
	good = state && XXH3_64bits_reset(state) == XXH_OK;
	while (good && len) {
		size_t n = (size_t)CK_MIN(len, PIECE);

		good = !ck_source_read(s, a->buf, n, off, NULL);
		if (good)
			XXH3_64bits_update(state, a->buf, n);
		off += n;
		len -= n;
	}
	if (good)
		f->v[3] = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	return good;
}

static bool same_close(struct again *a, struct fact *f)
{
	struct ck_source *s = file_of(a, f->v[0]);

	*f = (struct fact){ CLOSE, { f->v[0], 0, 0, 0 } };
	ck_source_close(s);
	if (s)
		a->files.v[f->v[0]] = NULL;
	return s;
}

/* Puts into @f what the answer is now; false: it could not be asked. */
static bool ask(struct again *a, struct fact *f, const char *name)
{
	switch (f->kind) {
	case LIST:
		return same_list(a, name, f);
	case OPEN:
		return same_open(a, name, f);
	case READ:
		return same_read(a, f);
	case CLOSE:
		return same_close(a, f);
	case BESIDE:
		*f = beside(a->d, name);
		return true;
	case WRITTEN:
		*f = written(a->d, name);
		return true;
	default:
		return false;
	}
}

static bool holds(struct again *a, const char *text, size_t len)
{
	while (len) {
		const char *name = text + sizeof(struct fact), *end;
		struct fact was, now;

		if (len <= sizeof(was))
			return false;
		end = memchr(name, '\0', len - sizeof(was));
		if (!end)
			return false;
		memcpy(&was, text, sizeof(was));
		now = was;
		if (!ask(a, &now, name) || memcmp(&was, &now, sizeof(was)))
			return false;
		len -= (size_t)(end + 1 - text);
		text = end + 1;
	}
	return true;
}

bool ck_dir_record_holds(const struct ck_dir *d, const char *text, size_t len)
{
	struct again a = { .d = d, .buf = malloc(PIECE) };
	bool same = a.buf && len && holds(&a, text, len);

	for (size_t i = 0; i < a.files.nr; i++)
		ck_source_close(a.files.v[i]);
	free(a.files.v);
	free(a.buf);
	return same;
}
