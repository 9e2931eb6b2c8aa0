/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virt.c - documents that are made again for each read, and short texts
 *
 * An open file is up to three pieces, one after the other:
 *
 *	[0, cut) of the catalog's document | late text | the document's rest
 *
 * (map has the catalog itself between two of its own).
 *
 * catalog.json has only the first, stats and metrics only the second; problems.json is
 * the catalog's list with the late ones put in before its closing bracket.
 */
#include "fs/tree/virt.h"

#include "core/base/check.h"
#include "core/base/search.h"
#include "core/base/str.h"
#include "core/base/vec.h"
#include "core/catalog/dump.h"
#include "core/ckpt/map_file.h"
#include "fs/tree/mounted_priv.h"
#include "fs/tree/stats.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define MARK_STEP (UINT64_C(64) << 10)

struct mark {
	uint64_t off;
	struct ck_dump_pos pos;
};

struct doc {
	enum ck_dump_doc what;
	bool made;
	CK_VEC(struct mark) marks;
	uint64_t size;
	uint64_t close; /* where its closing bracket begins, JSON */
};

struct fs_virt {
	struct fs_virt_in in;
	const struct ck_catalog *img;
	struct fs_stats_in stats;
	pthread_mutex_t
		lock; /* while a document is measured, or the map made */
	struct doc docs[FS_VIRT_STATS];
	bool has_map, made_map;
	struct ck_map_parts map;
};

struct fs_virt_file {
	const struct ck_catalog *img;
	uint64_t generation;
	const struct doc *doc; /* NULL: none */
	const struct ck_map_parts *map; /* NULL: it is not the map */
	uint64_t cut, size;
	struct ck_str problems_found;
};

static const struct {
	const char *name;
	enum ck_dump_doc doc;
} files[FS_VIRT_NR] = {
	[FS_VIRT_CATALOG] = { "catalog.json", CK_DUMP_CATALOG },
	[FS_VIRT_PROBLEMS_JSON] = { "problems.json", CK_DUMP_PROBLEMS },
	[FS_VIRT_PROBLEMS] = { "problems", CK_DUMP_PROBLEMS_TEXT },
	[FS_VIRT_STATS] = { "stats", 0 },
	[FS_VIRT_METRICS] = { "metrics", 0 },
	[FS_VIRT_MAP] = { "map", 0 },
};

const char *fs_virt_name(unsigned id)
{
	return files[id].name;
}

bool fs_virt_fixed(unsigned id)
{
	return id == FS_VIRT_CATALOG || id == FS_VIRT_MAP;
}

bool fs_virt_has(const struct fs_virt *v, unsigned id)
{
	if (id == FS_VIRT_MAP)
		return v->has_map;
	return v->in.ck || id != FS_VIRT_CATALOG;
}

struct fs_virt *fs_virt_new(const struct fs_virt_in *in)
{
	struct fs_virt *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->in = *in;
	v->img = in->ck ? ck_ckpt_catalog(in->ck) : NULL;
	v->stats = (struct fs_stats_in){ in->ck, in->kernel, in->sandbox,
					 in->generation };
	pthread_mutex_init(&v->lock, NULL);
	for (unsigned i = 0; i < CK_ARRAY_LEN(v->docs); i++)
		v->docs[i].what = files[i].doc;
	v->has_map = in->ck && in->map && ck_map_is_of(ck_ckpt_root(in->ck));
	return v;
}

void fs_virt_free(struct fs_virt *v)
{
	if (!v)
		return;
	for (unsigned i = 0; i < CK_ARRAY_LEN(v->docs); i++)
		free(v->docs[i].marks.v);
	ck_map_parts_free(&v->map);
	pthread_mutex_destroy(&v->lock);
	free(v);
}

static bool add_mark(struct doc *d, const struct ck_dump_pos *pos)
{
	struct mark *m;

	if (d->marks.nr &&
	    d->size - d->marks.v[d->marks.nr - 1].off < MARK_STEP)
		return true;
	m = ck_vec_push(&d->marks);
	if (m)
		*m = (struct mark){ d->size, *pos };
	return m;
}

/* The last bracket of a JSON document is in its last record. */
static uint64_t bracket_in(const struct ck_str *last)
{
	size_t at = last->len;

	while (at && last->v[at - 1] != ']')
		at--;
	return at ? at - 1 : last->len;
}

static int measure(const struct fs_virt *v, struct doc *d)
{
	ck_auto_str struct ck_str out = { 0 };
	struct ck_dump_pos pos = { 0 };

	d->size = d->close = 0;
	d->marks.nr = 0;
	for (;;) {
		struct ck_dump_pos at = pos;

		out.len = 0;
		if (!ck_dump_next(v->img, d->what, v->in.generation, &pos,
				  &out))
			break;
		if (out.failed || !add_mark(d, &at))
			return -ENOMEM;
		d->close = d->size + bracket_in(&out);
		d->size += out.len;
	}
	d->made = true;
	return 0;
}

static int need_doc(struct fs_virt *v, struct doc *d, struct ck_err *err)
{
	int ret = 0;

	pthread_mutex_lock(&v->lock);
	if (!d->made)
		ret = measure(v, d);
	pthread_mutex_unlock(&v->lock);
	return ret ? ck_fail(err, -ret, "no memory to list the catalog") : 0;
}

/* When it is wanted, for that takes a pass over the whole catalog. */
static int need_map(struct fs_virt *v, struct ck_err *err)
{
	bool made;

	pthread_mutex_lock(&v->lock);
	if (!v->made_map)
		v->made_map = ck_map_make(&v->map, v->img,
					  ck_ckpt_root(v->in.ck), v->in.map);
	if (!v->made_map)
		ck_map_parts_free(&v->map);
	made = v->made_map;
	pthread_mutex_unlock(&v->lock);
	return made ? 0 : ck_no_memory(err);
}

/* The text that is not the catalog's; a list of JSON objects, or lines. */
static void add_runtime(struct fs_virt *v, unsigned id,
			const struct fs_virt_reader *by,
			struct ck_str *problems_found)
{
	bool json = id == FS_VIRT_PROBLEMS_JSON;

	if (!v->in.ck || id == FS_VIRT_METRICS) {
		fs_mounted_text(v->in.owner, v->in.mounted, by, id,
				problems_found);
		return;
	}
	if (id == FS_VIRT_STATS)
		fs_stats_text(&v->stats, problems_found);
	if (id != FS_VIRT_PROBLEMS && !json)
		return;
	if (v->in.mounted)
		fs_mounted_settle(v->in.mounted);
	if (json && ck_ckpt_runtime_problems_seq(v->in.ck))
		ck_str_puts(problems_found, v->img->nr_problems ? ",\n" : "\n");
	if (!json || ck_ckpt_runtime_problems_seq(v->in.ck))
		ck_ckpt_runtime_problems(v->in.ck, json, problems_found);
}

static int fill(struct fs_virt *v, unsigned id, const struct fs_virt_reader *by,
		struct fs_virt_file *f, struct ck_err *err)
{
	struct doc *d =
		v->in.ck && id < CK_ARRAY_LEN(v->docs) ? &v->docs[id] : NULL;
	int ret = d ? need_doc(v, d, err) : 0;

	if (!ret && id == FS_VIRT_MAP)
		ret = need_map(v, err);
	if (ret)
		return ret;
	if (id == FS_VIRT_MAP) {
		f->map = &v->map;
		f->img = v->img;
		f->size = v->map.head.len + v->img->size + v->map.end.len;
		return 0;
	}
	add_runtime(v, id, by, &f->problems_found);
	if (f->problems_found.failed)
		return ck_no_memory(err);
	f->img = v->img;
	f->generation = v->in.generation;
	f->doc = d;
	f->cut = !d ? 0 : id == FS_VIRT_PROBLEMS_JSON ? d->close : d->size;
	f->size = f->problems_found.len + (d ? d->size : 0);
	return 0;
}

int fs_virt_open(struct fs_virt *v, unsigned id,
		 const struct fs_virt_reader *by, struct fs_virt_file **out,
		 struct ck_err *err)
{
	struct fs_virt_file *f = calloc(1, sizeof(*f));
	int ret = f ? fill(v, id, by, f, err) : ck_no_memory(err);

	if (ret)
		fs_virt_close(f);
	else
		*out = f;
	return ret;
}

void fs_virt_close(struct fs_virt_file *f)
{
	if (!f)
		return;
	ck_str_free(&f->problems_found);
	free(f);
}

int fs_virt_size(struct fs_virt *v, unsigned id, uint64_t *size,
		 struct ck_err *err)
{
	struct fs_virt_file *f = NULL;
	int ret = fs_virt_open(v, id, NULL, &f, err);

	if (ret)
		return ret;
	*size = f->size;
	fs_virt_close(f);
	return 0;
}

static const struct mark *mark_before(const struct doc *d, uint64_t off)
{
	return &d->marks.v[CK_LAST(i, 0, d->marks.nr,
				   d->marks.v[i].off <= off)];
}

/* The part of @piece, which begins at byte @at, that lies in [off, off+len) */
static void copy_part(char *buf, size_t len, uint64_t off, uint64_t at,
		      const char *piece, size_t piece_len)
{
	uint64_t lo = CK_MAX(at, off);
	uint64_t hi = CK_MIN(at + piece_len, off + len);

	if (lo < hi)
		memcpy(buf + (lo - off), piece + (lo - at), hi - lo);
}

/* Bytes [off, off+len) of the document, which are there. */
static int read_doc(const struct fs_virt_file *f, char *buf, size_t len,
		    uint64_t off)
{
	ck_auto_str struct ck_str out = { 0 };
	const struct mark *m;
	struct ck_dump_pos pos;
	uint64_t at;

	if (!len)
		return 0;
	m = mark_before(f->doc, off);
	pos = m->pos;
	for (at = m->off; at < off + len; at += out.len) {
		out.len = 0;
		if (!ck_dump_next(f->img, f->doc->what, f->generation, &pos,
				  &out) ||
		    out.failed)
			return -ENOMEM;
		copy_part(buf, len, off, at, out.v, out.len);
	}
	return 0;
}

static void read_map(const struct fs_virt_file *f, char *buf, size_t len,
		     uint64_t off)
{
	const struct ck_str *head = &f->map->head, *end = &f->map->end;

	copy_part(buf, len, off, 0, head->v, head->len);
	copy_part(buf, len, off, head->len, f->img->base, f->img->size);
	copy_part(buf, len, off, head->len + f->img->size, end->v, end->len);
}

int fs_virt_read(const struct fs_virt_file *f, void *buf, size_t len,
		 uint64_t off, size_t *got, struct ck_err *err)
{
	uint64_t runtime_end = f->cut + f->problems_found.len, end, n = 0;
	char *to = buf;
	int ret = 0;

	*got = 0;
	if (off >= f->size)
		return 0;
	end = off + CK_MIN(len, f->size - off);
	if (f->map) {
		read_map(f, to, end - off, off);
		*got = end - off;
		return 0;
	}
	if (off < f->cut) {
		n = CK_MIN(end, f->cut) - off;
		ret = read_doc(f, to, n, off);
	}
	copy_part(to, end - off, off, f->cut, f->problems_found.v,
		  f->problems_found.len);
	if (!ret && end > runtime_end) {
		n = CK_MAX(off, runtime_end);
		ret = read_doc(f, to + (n - off), end - n,
			       n - f->problems_found.len);
	}
	if (ret)
		return ck_fail(err, -ret, "no memory to list the catalog");
	*got = end - off;
	return 0;
}
