/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices.c - a draft of slices: begun, and opened
 *
 * It is made beside, as a whole, and gets its name by one rename, which only
 * one of several that try at the same time can do.
 */
#include "core/slices/slices_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/base/whole.h"
#include "core/layout/write.h"
#include "core/root/openat_beneath.h"
#include "core/sandbox/child.h"
#include "core/sandbox/sandbox.h"
#include "core/draft/dir_tree.h"
#include "core/slices/slices_plan_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#define PLAN "plan"
#define GIVEN "given"
#define FILES "files"
#define SECONDS 300

/* ---- a layout becomes a plan, in a process of its own ---- */

struct job {
	const struct ck_root *root;
	const char *layout, *format;
	size_t len;
	int fd;
	bool sandbox;
};

static int plan_in_child(void *ctx, struct ck_err *err)
{
	const struct job *job = ctx;
	const struct ck_sandbox_in box = { .role = CK_SANDBOX_PARSER,
					   .root = job->root,
					   .cpu_seconds = SECONDS };
	ck_auto_str struct ck_str out = { 0 };
	int ret = job->sandbox ? ck_sandbox_enter(&box, NULL, err) : 0;

	if (!ret)
		ret = ck_slice_plan_make(&out, CK_LAYOUT_FILE, job->layout,
					 job->len, job->format, err);
	if (!ret)
		ret = ck_pwrite_whole(job->fd, out.v, out.len, 0);
	return ret;
}

int ck_slices_read_file(int dir, const char *name, uint64_t most, char **bytes,
			size_t *len, struct ck_err *err)
{
	ck_auto_fd int fd = ck_beneath_file(dir, name, O_RDONLY);
	int ret = fd < 0 ? fd : ck_read_file(fd, most, bytes, len);

	return ret ? ck_fail(err, -ret, "slices/%s: %s", name, strerror(-ret)) :
		     0;
}

static int make_plan(const struct ck_root *root, const struct ck_opts *opts,
		     const char *layout, size_t len, char **plan,
		     size_t *plan_len, struct ck_err *err)
{
	const char *how = ck_opts_get(opts, "sandbox");
	ck_auto_fd int fd = memfd_create("unshard-plan", MFD_CLOEXEC);
	unsigned nr = ck_root_fds(root, NULL, 0);
	ck_auto_free int *keep = calloc(nr + 1, sizeof(*keep));
	struct job job = { .root = root,
			   .layout = layout,
			   .format = ck_opts_get(opts, "shard-format"),
			   .len = len,
			   .fd = fd,
			   .sandbox = !how || strcmp(how, "off") != 0 };
	const struct ck_child c = {
		.what = "the reader of the layout",
		.hint = "",
		.run = plan_in_child,
		.ctx = &job,
		.keep = keep,
		.nr_keep = nr + 1,
		.seconds = SECONDS,
	};
	int ret;

	if (fd < 0 || !keep)
		return ck_no_memory(err);
	ck_root_fds(root, keep, nr);
	keep[nr] = fd;
	ret = ck_child_call(&c, err);
	if (ret)
		return ret;
	ret = ck_read_file(fd, CK_SLICE_PLAN_MAX_BYTES, plan, plan_len);
	return ret ? ck_fail(err, -ret, "plan of slices: %s", strerror(-ret)) :
		     0;
}

/* What a builder makes of it has to be whole; else it is of no use. */
static int check_plan(const char *bytes, size_t len, struct ck_err *err)
{
	struct ck_slice_plan p;
	struct ck_catalog img;
	char *copy = malloc(len + 1);
	int ret;

	if (!copy)
		return ck_no_memory(err);
	memcpy(copy, bytes, len);
	ret = ck_slice_plan_take(&p, copy, len, err);
	if (ret)
		return ret;
	ret = ck_slice_plan_catalog(&p, &img, err);
	if (!ret)
		ck_catalog_unmap(&img);
	ck_slice_plan_free(&p);
	return ck_wrap(err, ret, CK_LAYOUT_FILE ": write");
}

/* ---- into the draft ---- */

/* What a draft of slices is made of. */
struct made {
	const char *layout, *extras; /* NULL: nothing is */
	char *plan;
	size_t layout_len, extras_len, plan_len;
};

static int write_all(int dir, const struct made *m)
{
	int ret = ck_fds_put_file(dir, GIVEN, NULL, 0666, m->layout,
				  m->layout_len);

	if (!ret)
		ret = ck_fds_put_file(dir, PLAN, NULL, 0666, m->plan,
				      m->plan_len);
	if (!ret && m->extras)
		ret = ck_fds_put_file(dir, CK_SLICES_EXTRAS, NULL, 0666,
				      m->extras, m->extras_len);
	if (!ret && mkdirat(dir, FILES, 0777))
		ret = -errno;
	return ret ? ret : fsync(dir) ? -errno : 0;
}

static int put_in_place(struct ck_draft *s, const struct made *m,
			struct ck_err *err)
{
	char name[40];
	uint64_t r = 0;
	ck_auto_fd int dir = -1;
	int ret = 0;

	if (getrandom(&r, sizeof(r), 0) != sizeof(r))
		return ck_fail(err, errno, "a name: %s", strerror(errno));
	snprintf(name, sizeof(name), CK_SLICES_DIR ".%016" PRIx64, r);
	if (mkdirat(s->fd, name, 0777))
		ret = -errno;
	dir = ret ? ret : ck_beneath_dir(s->fd, name);
	if (!ret)
		ret = dir < 0 ? dir : write_all(dir, m);
	if (!ret && renameat(s->fd, name, s->fd, CK_SLICES_DIR))
		ret = -errno;
	if (!ret && fsync(s->fd))
		ret = -errno;
	if (!ret)
		return 0;
	ck_dir_tree_remove(s->fd, name, NULL);
	return ck_fail(err, -ret, "%s: " CK_LAYOUT_FILE ": %s",
		       CK_DRAFT_NAME(s), strerror(-ret));
}

static int compare(struct ck_draft *s, const char *layout, size_t len,
		   struct ck_err *err)
{
	ck_auto_fd int dir = ck_beneath_dir(s->fd, CK_SLICES_DIR);
	ck_auto_free char *given = NULL;
	size_t n = 0;
	int ret = dir < 0 ? ck_fail(err, -dir, "slices: %s", strerror(-dir)) :
			    ck_slices_read_file(dir, GIVEN, CK_LAYOUT_MAX_BYTES,
						&given, &n, err);

	if (ret || (n == len && !memcmp(given, layout, len)))
		return ret;
	return ck_fail(err, EEXIST,
		       "%s: another " CK_LAYOUT_FILE
		       " was given before, and it "
		       "stays",
		       CK_DRAFT_NAME(s));
}

static int check_layout(struct ck_draft *s, const char *layout, size_t len,
			struct ck_err *err)
{
	if (ck_slices_look(s))
		return compare(s, layout, len, err);
	return len > CK_LAYOUT_MAX_BYTES ?
		       ck_fail(err, EFBIG, CK_LAYOUT_FILE ": too large") :
		       1;
}

/* Into the draft, of which somebody else may be quicker. */
static int give(struct ck_draft *s, const struct made *m, struct ck_err *err)
{
	int ret = check_plan(m->plan, m->plan_len, err);

	if (ret == -EINVAL && err)
		ck_draft_reject_layout(s, err->msg);
	if (!ret)
		ret = ck_draft_begin(s, err);
	if (ret)
		return ret;
	ret = put_in_place(s, m, err);
	ck_draft_end(s);
	return ret == -ENOTEMPTY || ret == -EEXIST ?
		       compare(s, m->layout, m->layout_len, err) :
		       ret;
}

int ck_slices_make(struct ck_draft *s, const struct ck_root *root,
		   const struct ck_opts *opts, const char *layout, size_t len,
		   struct ck_err *err)
{
	struct made m = { .layout = layout, .layout_len = len };
	int ret = check_layout(s, layout, len, err);

	if (ret <= 0)
		return ret;
	ret = make_plan(root, opts, layout, len, &m.plan, &m.plan_len, err);
	if (ret == -EINVAL && err)
		ck_draft_reject_layout(s, err->msg);
	if (!ret)
		ret = give(s, &m, err);
	free(m.plan);
	return ret;
}

int ck_slices_make_here(struct ck_draft *s, const char *layout, size_t len,
			const char *extras, size_t extras_len,
			struct ck_err *err)
{
	struct made m = { .layout = layout,
			  .layout_len = len,
			  .extras = extras,
			  .extras_len = extras_len };
	ck_auto_str struct ck_str plan = { 0 };
	int ret = check_layout(s, layout, len, err);

	if (ret <= 0)
		return ret;
	ret = ck_slice_plan_make(&plan, CK_LAYOUT_FILE, layout, len, NULL, err);
	m.plan = plan.v;
	m.plan_len = plan.len;
	return ret ? ret : give(s, &m, err);
}

const char *ck_slices_wanted(const struct ck_opts *opts, size_t *len)
{
	const char *bytes = NULL;
	size_t n = 0;

	while (ck_opts_nth(opts, "layout", n))
		bytes = ck_opts_bytes(opts, "layout", n++, len);
	return bytes && ck_layout_out_wanted(bytes, *len) ? bytes : NULL;
}

/* ---- opened ---- */

bool ck_slices_look(const struct ck_draft *s)
{
	return ck_fds_has(s->fd, CK_SLICES_DIR);
}

bool ck_slices_begun(const struct ck_draft *s)
{
	ck_auto_dir_tree struct ck_dir_tree all = { 0 };
	ck_auto_fd int dir = ck_beneath_dir(s->fd, CK_SLICES_DIR "/" FILES);

	return dir >= 0 && (ck_dir_tree_list(&all, dir, NULL) || all.nr);
}

static int open_plan(struct ck_slices *sl, struct ck_err *err)
{
	char *bytes = NULL;
	size_t len = 0;
	int ret = ck_slices_read_file(sl->dir, PLAN, CK_SLICE_PLAN_MAX_BYTES,
				      &bytes, &len, err);

	return ret ? ret : ck_slice_plan_take(&sl->plan, bytes, len, err);
}

/*
 * Which pieces each tensor has; and which tensor of the plan the catalog's is.
 */
static int make_tables(struct ck_slices *sl, struct ck_err *err)
{
	const struct ck_slice_plan *p = &sl->plan;

	sl->to_plan = calloc(p->nr_tensors + 1, sizeof(*sl->to_plan));
	sl->first_of = calloc(p->nr_tensors + 2, sizeof(*sl->first_of));
	sl->by_tensor = calloc(p->nr_pieces + 1, sizeof(*sl->by_tensor));
	if (!sl->to_plan || !sl->first_of || !sl->by_tensor)
		return ck_no_memory(err);
	for (uint32_t i = 0; i < p->nr_tensors; i++)
		sl->to_plan[i] = ck_slice_plan_find_tensor(
			p, ck_catalog_str(&sl->img, sl->img.tensors[i].name,
					  NULL));
	for (uint32_t i = 0; i < p->nr_pieces; i++)
		sl->first_of[p->pieces[i].tensor + 2]++;
	for (uint32_t t = 2; t < p->nr_tensors + 2; t++)
		sl->first_of[t] += sl->first_of[t - 1];
	for (uint32_t i = 0; i < p->nr_pieces; i++)
		sl->by_tensor[sl->first_of[p->pieces[i].tensor + 1]++] = i;
	return 0;
}

static int open_all(struct ck_slices *sl, struct ck_err *err)
{
	int ret;

	sl->dir = ck_beneath_dir(sl->draft->fd, CK_SLICES_DIR);
	if (sl->dir < 0)
		return sl->dir == -ENOENT ? -ENOENT :
					    ck_fail(err, -sl->dir, "slices: %s",
						    strerror(-sl->dir));
	sl->files = ck_beneath_dir(sl->dir, FILES);
	if (sl->files < 0)
		return ck_fail(err, EIO, "slices/" FILES ": %s",
			       strerror(-sl->files));
	ret = open_plan(sl, err);
	if (!ret)
		ret = ck_claims_open(&sl->claims, sl->dir, &sl->plan, err);
	if (!ret)
		ret = ck_slice_plan_catalog(&sl->plan, &sl->img, err);
	sl->has_catalog = !ret;
	return ret ? ret : make_tables(sl, err);
}

int ck_slices_open(struct ck_slices **out, struct ck_draft *s,
		   struct ck_err *err)
{
	struct ck_slices *sl = calloc(1, sizeof(*sl));
	int ret;

	if (!sl)
		return ck_no_memory(err);
	sl->draft = s;
	sl->dir = sl->files = -1;
	for (size_t i = 0; i < CK_SLICES_FDS; i++)
		sl->fds[i].fd = -1;
	sl->same.fd = -1;
	pthread_mutex_init(&sl->lock, NULL);
	pthread_mutex_init(&sl->same_lock, NULL);
	ret = open_all(sl, err);
	if (!ret) {
		*out = sl;
		return 0;
	}
	ck_slices_close(sl);
	return ret == -ENOENT ? ret : ck_wrap(err, ret, "%s", CK_DRAFT_NAME(s));
}

void ck_slices_close(struct ck_slices *sl)
{
	for (size_t i = 0; i < CK_SLICES_FDS; i++)
		if (sl->fds[i].fd >= 0)
			close(sl->fds[i].fd);
	ck_slices_extras_free(sl);
	ck_journal_close(&sl->same);
	ck_claims_told_free(&sl->plan, sl->told);
	ck_slices_sums_free(sl);
	if (sl->claims)
		ck_claims_close(sl->claims);
	if (sl->has_catalog)
		ck_catalog_unmap(&sl->img);
	free(sl->to_plan);
	free(sl->first_of);
	free(sl->by_tensor);
	ck_slice_plan_free(&sl->plan);
	if (sl->dir >= 0)
		close(sl->dir);
	if (sl->files >= 0)
		close(sl->files);
	pthread_mutex_destroy(&sl->same_lock);
	pthread_mutex_destroy(&sl->lock);
	free(sl);
}

const struct ck_slice_plan *ck_slices_plan(const struct ck_slices *sl)
{
	return &sl->plan;
}

const struct ck_catalog *ck_slices_catalog(const struct ck_slices *sl)
{
	return &sl->img;
}

uint32_t ck_slices_tensor(const struct ck_slices *sl, uint32_t catalog_tensor)
{
	return sl->to_plan[catalog_tensor];
}

int ck_slices_given(const struct ck_slices *sl, char **bytes, size_t *len,
		    struct ck_err *err)
{
	return ck_slices_read_file(sl->dir, GIVEN, CK_LAYOUT_MAX_BYTES, bytes,
				   len, err);
}
