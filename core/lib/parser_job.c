/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parser_job.c - roots and options through a memfd
 *
 * Written by the library and read by its own program, so that it is trusted:
 * numbers are the machine's, and only lengths are checked.
 */
#include "core/lib/parser_job.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/base/str.h"
#include "core/base/whole.h"
#include "core/run/run_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* ---- to a memfd ---- */

struct out {
	struct ck_str text;
	int fds[CK_PARSER_FDS_MAX];
	unsigned nr_fds;
	bool full;
};

static void put_u64(struct out *o, uint64_t v)
{
	ck_str_add(&o->text, &v, sizeof(v));
}

static void put_bytes(struct out *o, const void *v, size_t len)
{
	put_u64(o, v ? len : UINT64_MAX);
	if (v)
		ck_str_add(&o->text, v, len);
}

static void put_text(struct out *o, const char *v)
{
	put_bytes(o, v, v ? strlen(v) + 1 : 0);
}

/* As its place among those that are sent; UINT64_MAX: none. */
static void put_fd(struct out *o, int fd)
{
	if (fd < 0) {
		put_u64(o, UINT64_MAX);
		return;
	}
	if (o->nr_fds == CK_PARSER_FDS_MAX) {
		o->full = true;
		return;
	}
	put_u64(o, o->nr_fds);
	o->fds[o->nr_fds++] = fd;
}

static void put_root(struct out *o, const struct ck_root *r)
{
	put_fd(o, r->fd);
	put_text(o, r->path);
	put_text(o, r->real);
	put_text(o, r->only);
	put_text(o, r->save);
	put_u64(o, r->entry);
	put_u64(o, r->served);
	put_fd(o, r->blobs_fd);
	put_u64(o, r->blobs_up);
	put_u64(o, r->nr_follow);
	for (unsigned i = 0; i < r->nr_follow; i++) {
		put_fd(o, r->follow_fd[i]);
		put_text(o, r->follow_path[i]);
		put_text(o, r->follow_given[i]);
	}
	put_u64(o, r->next != NULL);
}

static void put_job(struct out *o, const struct ck_parser_job *job)
{
	put_u64(o, CK_PARSER_VERSION);
	put_u64(o, job->kind);
	ck_str_add(&o->text, &job->limits, sizeof(job->limits));
	put_fd(o, job->catalog_fd);
	put_u64(o, job->opts->nr);
	for (size_t i = 0; i < job->opts->nr; i++) {
		put_text(o, job->opts->v[i].name);
		put_text(o, job->opts->v[i].value);
		put_bytes(o, job->opts->v[i].bytes, job->opts->v[i].len);
	}
	for (const struct ck_root *r = job->root; r; r = r->next)
		put_root(o, r);
}

static int send_out(int to, struct out *o, struct ck_err *err)
{
	int fds[CK_FDS_MAX], ret;
	ssize_t n;
	ck_auto_fd int fd =
		memfd_create("unshard-job", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return ck_fail(err, errno, "memfd: %s", strerror(errno));
	ret = ck_write_whole(fd, o->text.v, o->text.len);
	if (ret)
		return ck_fail(err, -ret, "memfd: %s", strerror(-ret));
	fds[0] = fd;
	memcpy(fds + 1, o->fds, o->nr_fds * sizeof(*fds));
	n = ck_fds_send(to, "", 1, fds, o->nr_fds + 1, 0);
	return n == 1 ? 0 :
			ck_fail(err, (int)-n, "a message to the parser: %s",
				strerror((int)-n));
}

int ck_parser_job_send(int to, const struct ck_parser_job *job,
		       struct ck_err *err)
{
	struct out o = { .nr_fds = 0 };
	int ret;

	put_job(&o, job);
	if (o.full)
		ret = ck_fail(err, EMFILE,
			      "%s: more than %d directories to be read",
			      job->root->path, CK_PARSER_FDS_MAX);
	else if (o.text.failed)
		ret = ck_no_memory(err);
	else
		ret = send_out(to, &o, err);
	ck_str_free(&o.text);
	return ret;
}

/* ---- and back ---- */

struct in {
	const char *at;
	size_t left;
	int fds[CK_FDS_MAX];
	unsigned nr_fds;
	bool bad;
};

static uint64_t get_u64(struct in *in)
{
	uint64_t v;

	if (in->left < sizeof(v)) {
		in->bad = true;
		return 0;
	}
	memcpy(&v, in->at, sizeof(v));
	in->at += sizeof(v);
	in->left -= sizeof(v);
	return v;
}

/* NULL: there is none, or it is bad. */
static char *get_bytes(struct in *in, size_t *len)
{
	uint64_t n = get_u64(in);
	const char *at = in->at;
	char *v;

	*len = 0;
	if (n == UINT64_MAX || in->bad)
		return NULL;
	v = n <= in->left ? malloc((size_t)n + 1) : NULL;
	if (!v) {
		in->bad = true;
		return NULL;
	}
	memcpy(v, at, (size_t)n);
	v[n] = '\0';
	in->at += n;
	in->left -= (size_t)n;
	*len = (size_t)n;
	return v;
}

static char *get_text(struct in *in)
{
	size_t len;

	return get_bytes(in, &len);
}

static int get_fd(struct in *in)
{
	uint64_t i = get_u64(in);

	if (i == UINT64_MAX)
		return -1;
	if (i + 1 >= in->nr_fds) {
		in->bad = true;
		return -1;
	}
	return in->fds[i + 1];
}

static bool get_follows(struct in *in, struct ck_root *r)
{
	uint64_t nr = get_u64(in);

	if (in->bad || nr > CK_PARSER_FDS_MAX)
		return false;
	r->follow_fd = calloc((size_t)nr + 1, sizeof(*r->follow_fd));
	r->follow_path = calloc((size_t)nr + 1, sizeof(*r->follow_path));
	r->follow_given = calloc((size_t)nr + 1, sizeof(*r->follow_given));
	if (!r->follow_fd || !r->follow_path || !r->follow_given)
		return false;
	for (; r->nr_follow < nr; r->nr_follow++) {
		r->follow_fd[r->nr_follow] = get_fd(in);
		r->follow_path[r->nr_follow] = get_text(in);
		r->follow_given[r->nr_follow] = get_text(in);
	}
	return !in->bad;
}

static bool get_roots(struct in *in, struct ck_root *r)
{
	for (;; r = r->next) {
		*r = (struct ck_root){ .fd = get_fd(in) };
		r->path = get_text(in);
		r->real = get_text(in);
		r->only = get_text(in);
		r->save = get_text(in);
		r->hides = ck_run_dir_hides(r->save);
		r->entry = get_u64(in);
		r->served = get_u64(in);
		r->blobs_fd = get_fd(in);
		r->blobs_up = (unsigned)get_u64(in);
		if (!get_follows(in, r) || !r->path)
			return false;
		if (!get_u64(in))
			return !in->bad;
		r->next = calloc(1, sizeof(*r->next));
		if (!r->next)
			return false;
	}
}

static bool get_opts(struct in *in, struct ck_opts *opts)
{
	uint64_t nr = get_u64(in);

	for (uint64_t i = 0; i < nr && !in->bad; i++) {
		ck_auto_free char *name = get_text(in);
		ck_auto_free char *value = get_text(in);
		size_t len;
		char *bytes = get_bytes(in, &len);

		if (!name || !value || ck_opts_add(opts, name, value)) {
			free(bytes);
			return false;
		}
		if (bytes)
			ck_opts_keep(opts, bytes, len);
	}
	return !in->bad;
}

static bool get_job(struct in *in, struct ck_parser_job_in *out)
{
	struct ck_parser_job *job = &out->job;

	if (get_u64(in) != CK_PARSER_VERSION)
		return false;
	job->kind = (enum ck_parser_kind)get_u64(in);
	if (in->left < sizeof(job->limits))
		return false;
	memcpy(&job->limits, in->at, sizeof(job->limits));
	in->at += sizeof(job->limits);
	in->left -= sizeof(job->limits);
	job->catalog_fd = get_fd(in);
	job->opts = &out->opts;
	job->root = &out->root;
	return get_opts(in, &out->opts) && get_roots(in, &out->root);
}

static int receive_fds(int from, struct in *in)
{
	char one;

	in->nr_fds = CK_FDS_MAX;
	return ck_fds_receive(from, &one, 1, in->fds, &in->nr_fds, 0) == 1 &&
			       in->nr_fds ?
		       0 :
		       -1;
}

int ck_parser_job_receive(int from, struct ck_parser_job_in *out,
			  struct ck_err *err)
{
	struct in in = { .bad = false };
	struct stat st;
	void *map;

	*out = (struct ck_parser_job_in){ 0 };
	if (receive_fds(from, &in) || fstat(in.fds[0], &st))
		return ck_fail(err, EINVAL, "it was not told what to parse");
	in.left = (size_t)st.st_size;
	map = mmap(NULL, in.left, PROT_READ, MAP_PRIVATE, in.fds[0], 0);
	if (map == MAP_FAILED)
		return ck_fail(err, errno, "mmap: %s", strerror(errno));
	in.at = map;
	if (!get_job(&in, out))
		return ck_fail(err, EINVAL,
			       "it is of another version than the library");
	munmap(map, (size_t)st.st_size);
	close(in.fds[0]);
	return 0;
}
