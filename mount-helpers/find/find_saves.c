/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find_saves.c - parts that are one step, and steps that hold the same
 *
 *	step_10/policy/weights	step_10/policy/optimizer	one: step_10
 *	checkpoint-10/pytorch_model_fsdp_0	.../optimizer_0	one: checkpoint-10
 *	checkpoint-10/global_step10			one: checkpoint-10
 */
#include "mount-helpers/find/find.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/number.h"
#include "core/base/suffix.h"
#include "core/base/whole.h"
#include "core/root/root.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SAMPLE 4096
#define SAMPLED_FILES 64

/* What trainers call the folder of a part, but for "_0" at its end. */
static bool is_part(const char *name, size_t len)
{
	static const char *const names[] = { "actor",
					     "critic",
					     "ref",
					     "policy",
					     "value",
					     "model",
					     "weights",
					     "dist_ckpt",
					     "optim",
					     "optimizer",
					     "model_and_optim",
					     "trainer",
					     "ema",
					     "scheduler",
					     "lr_scheduler",
					     "pytorch_model_fsdp",
					     "iter_ckpt" };
	size_t n = len;

	while (n && isdigit((unsigned char)name[n - 1]))
		n--;
	if (n < len && n && name[n - 1] == '_')
		len = n - 1;
	for (size_t i = 0; i < CK_ARRAY_LEN(names); i++)
		if (strlen(names[i]) == len && !memcmp(names[i], name, len))
			return true;
	return false;
}

/* As run_dir.c has it: what is longer counts no steps. */
#define MAX_DIGITS 18

/* "step-10", "epoch=1-step=20.ckpt", "ba20", "100"; not "llama3". */
static bool step_of(const char *name, size_t len, uint64_t *out)
{
	static const char *const words[] = { "step", "iter",	   "ba",
					     "ep",   "checkpoint", "epoch" };
	const char *dot = memrchr(name, '.', len);
	size_t from, to;

	if (dot && dot > name && !isdigit((unsigned char)dot[1]))
		len = (size_t)(dot - name);
	if (!ck_last_number(name, len, &from, &to) || to != len ||
	    to - from > MAX_DIGITS ||
	    !ck_decimal(name + from, to - from, UINT64_MAX, out))
		return false;
	if (!from || !isalpha((unsigned char)name[from - 1]))
		return true;
	for (size_t i = 0; i < CK_ARRAY_LEN(words); i++) {
		size_t n = strlen(words[i]);

		if (from >= n && !memcmp(name + from - n, words[i], n))
			return true;
	}
	return false;
}

/* "CKP-4_32.ckpt" is step 32 of epoch 4, and CKP-5_32.ckpt comes after it. */
static bool epoch_of(const char *name, size_t len, uint64_t *out)
{
	size_t from, to;

	if (!ck_last_number(name, len, &from, &to) || !from ||
	    name[from - 1] != '_')
		return false;
	len = from - 1;
	return ck_last_number(name, len, &from, &to) && to == len && from &&
	       name[from - 1] == '-' &&
	       ck_decimal(name + from, to - from, UINT64_MAX, out);
}

/* The last component of the first @len bytes. */
static const char *base_of(const char *path, size_t len, size_t *base_len)
{
	const char *slash = memrchr(path, '/', len);
	const char *base = slash ? slash + 1 : path;

	*base_len = len - (size_t)(base - path);
	return base;
}

char *find_save_of(const char *top, const char *path)
{
	size_t len = strlen(path), least = strlen(top), n;
	const char *base = base_of(path, len, &n);
	uint64_t step, other;

	while (len > least && is_part(base, n)) {
		len = (size_t)(base - path) - 1;
		base = base_of(path, len, &n);
	}
	if (len > least && step_of(base, n, &step)) {
		size_t up = (size_t)(base - path) - 1, m;
		const char *above = base_of(path, up, &m);

		if (up > least && step_of(above, m, &other) && other == step)
			len = up;
	}
	return strndup(path, len);
}

static int by_save(const void *pa, const void *pb)
{
	const struct find_part *a = pa, *b = pb;
	int c = strverscmp(a->save, b->save);

	if (!c)
		c = strcmp(a->save, b->save);
	return c ? c : strverscmp(a->path, b->path);
}

static int by_size(const void *pa, const void *pb)
{
	const struct find_save *a = pa, *b = pb;

	return a->stored != b->stored ? (a->stored < b->stored ? 1 : -1) :
					strverscmp(a->path, b->path);
}

static int by_age(const void *pa, const void *pb)
{
	const struct find_save *a = pa, *b = pb;

	return a->mtime != b->mtime ? (a->mtime < b->mtime ? 1 : -1) :
				      strverscmp(a->path, b->path);
}

static int gather(struct find *f)
{
	struct find_save *s = NULL;

	for (size_t i = 0; i < f->part.nr; i++) {
		const struct find_part *p = &f->part.v[i];
		size_t n;
		const char *base;

		if (!s || strcmp(s->path, p->save)) {
			s = ck_vec_push(&f->save);
			if (!s)
				return ck_no_memory(&f->err);
			*s = (struct find_save){ .path = p->save, .first = p };
			base = base_of(s->path, strlen(s->path), &n);
			s->numbered = step_of(base, n, &s->step);
			s->has_epoch =
				s->numbered && epoch_of(base, n, &s->epoch);
		}
		s->nr++;
		s->state = CK_MAX(s->state, p->state);
		s->tensors += p->tensors;
		s->model += p->model;
		s->optimizer += p->optimizer;
		s->stored += p->stored;
		s->mtime = CK_MAX(s->mtime, p->mtime);
	}
	return 0;
}

/* ---- copies ---- */

static void sample(XXH3_state_t *h, const struct ck_root *root,
		   const char *name)
{
	char buf[SAMPLE];
	ck_auto_fd int fd = -1;
	struct stat st;

	XXH3_64bits_update(h, name, strlen(name) + 1);
	if (ck_root_open_file(root, name, &fd, &st, NULL))
		return;
	XXH3_64bits_update(h, &st.st_size, sizeof(st.st_size));
	for (unsigned i = 0; i < 3; i++) {
		uint64_t end = (uint64_t)CK_MAX(st.st_size - SAMPLE, 0);
		ssize_t n = ck_pread_most(fd, buf, sizeof(buf), end * i / 2);

		if (n > 0)
			XXH3_64bits_update(h, buf, (size_t)n);
	}
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Files in the folder itself, some blocks of some of them; 0: not known. */
static uint64_t fingerprint(const struct find_part *p,
			    const struct ck_opts *opts)
{
	CK_VEC(char *) names = { 0 };
	ck_auto_dir DIR *d = NULL;
	XXH3_state_t *h = XXH3_createState();
	const struct dirent *e;
	struct ck_root root;
	uint64_t out = 0;

	if (!h || !p->open || ck_root_open(&root, p->open, opts, NULL)) {
		XXH3_freeState(h);
		return 0;
	}
	XXH3_64bits_reset(h);
	ck_root_list(&root, "", &d, NULL);
	while (d && (e = readdir(d))) {
		char **to =
			*e->d_name == '.' && strcmp(e->d_name, ".metadata") ?
				NULL :
				ck_vec_push(&names);

		if (to)
			*to = strdup(e->d_name);
	}
	if (names.nr)
		qsort(names.v, names.nr, sizeof(*names.v), by_name);
	for (size_t i = 0; i < names.nr; i++) {
		size_t every = CK_DIV_UP(names.nr, SAMPLED_FILES);

		if (names.v[i] && i % every == 0)
			sample(h, &root, names.v[i]);
		free(names.v[i]);
	}
	free(names.v);
	ck_root_close(&root);
	out = XXH3_64bits_digest(h);
	XXH3_freeState(h);
	return out ? out : 1;
}

struct print {
	size_t save;
	uint64_t stored, model, digest;
};

static int by_print(const void *pa, const void *pb)
{
	const struct print *a = pa, *b = pb;

	if (a->stored != b->stored)
		return a->stored < b->stored ? -1 : 1;
	if (a->digest != b->digest)
		return a->digest < b->digest ? -1 : 1;
	return a->save < b->save ? -1 : a->save > b->save;
}

static uint64_t digest_of(const struct find *f, const struct find_save *s)
{
	uint64_t all = s->nr;

	for (size_t i = 0; i < s->nr; i++) {
		uint64_t one = fingerprint(&s->first[i], f->opts);

		if (!one)
			return 0;
		all = all * UINT64_C(0x9e3779b97f4a7c15) + one;
	}
	return all;
}

/* Only where another has as many bytes is anything read. */
static int find_same(struct find *f)
{
	ck_auto_free struct print *v = calloc(f->save.nr + 1, sizeof(*v));
	size_t nr = f->save.nr;

	if (!v)
		return ck_no_memory(&f->err);
	for (size_t i = 0; i < nr; i++)
		v[i] = (struct print){ i, f->save.v[i].stored,
				       f->save.v[i].model, 0 };
	qsort(v, nr, sizeof(*v), by_print);
	for (size_t i = 0; i < nr; i++)
		if (v[i].stored &&
		    ((i && v[i - 1].stored == v[i].stored) ||
		     (i + 1 < nr && v[i + 1].stored == v[i].stored)))
			v[i].digest = digest_of(f, &f->save.v[v[i].save]);
	qsort(v, nr, sizeof(*v), by_print);
	for (size_t i = 1, first = 0; i < nr; i++) {
		if (v[i].stored != v[first].stored ||
		    v[i].digest != v[first].digest)
			first = i;
		else if (v[i].digest)
			f->save.v[v[i].save].same = f->save.v + v[first].save;
	}
	return 0;
}

int find_saves(struct find *f, const char *sort)
{
	int ret;

	if (f->part.nr)
		qsort(f->part.v, f->part.nr, sizeof(*f->part.v), by_save);
	ret = gather(f);
	if (!ret && strcmp(sort, "path"))
		qsort(f->save.v, f->save.nr, sizeof(*f->save.v),
		      strcmp(sort, "age") ? by_size : by_age);
	return ret ? ret : find_same(f);
}
