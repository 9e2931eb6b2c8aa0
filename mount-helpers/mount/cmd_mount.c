/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_mount.c - what is checked before anything is mounted */
#include "mount-helpers/cmd.h"
#include "mount-helpers/mount_helper.h"
#include "mount-helpers/plan_reshard.h"
#include "mount-helpers/mount/describe.h"
#include "mount-helpers/mount/mount_point.h"
#include "mount-helpers/mount/supervisor.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/number.h"
#include "core/catalog/catalog.h"
#include "core/catalog/dump.h"
#include "core/sandbox/child.h"
#include "core/ckpt/ckpt.h"
#include "core/run/run_dir.h"
#include "core/view/extras.h"
#include "core/view/translate/translate.h"
#include "fs/session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ANSWER_SECONDS 20 /* for the first stat of the new mount */

extern const struct cmd cmd_mount;

#define MAX_ROOTS \
	64 /* of joined directories: their config files are looked for */
#define MAX_LOOKED_AT 4 /* of several, for unused options */

struct job {
	const char *src; /* as given */
	struct mount_point at;
	struct ck_opts *opts;
	struct ck_root root;
	struct ck_catalog img; /* of no bytes: there are many */
	int log_fd;
	/* Folders that were not there; to free(). */
	char *made_src, *made_overlay;
};

/* A folder that a mount for writing may be the first to want. */
static bool make_dir(const char *dir, char **made)
{
	if (!mkdir(dir, 0777)) {
		*made = realpath(dir, NULL);
		return true;
	}
	return errno == EEXIST;
}

/* Of a mount that failed nothing stays but what is in it. */
static void unmake(struct job *j, bool failed)
{
	if (failed && j->made_overlay)
		rmdir(j->made_overlay);
	if (failed && j->made_src)
		rmdir(j->made_src);
	free(j->made_overlay);
	free(j->made_src);
}

static int failed(int code, const struct ck_err *err)
{
	return cmd_fail(&cmd_mount, code, "%s", err->msg);
}

static int check_device(void)
{
	ck_auto_fd int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return 0;
	if (errno == EACCES || errno == EPERM)
		return cmd_fail(&cmd_mount, CMD_SYSTEM,
				"/dev/fuse: %s; "
				"expected mode 0666, as the fuse3 package "
				"makes it",
				strerror(errno));
	return cmd_fail(&cmd_mount, CMD_SYSTEM,
			"/dev/fuse: %s; expected the "
			"kernel's fuse module (modprobe fuse), and in a "
			"container the device",
			strerror(errno));
}

/* ---- the options that name files ---- */

static int open_log(struct job *j)
{
	const char *path = ck_opts_get(j->opts, "log");

	if (!path)
		return 0;
	/* it may say what is in files that not everybody may read */
	j->log_fd =
		open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY,
		     0600);
	if (j->log_fd < 0)
		return cmd_fail(&cmd_mount, CMD_SYSTEM, "-o log=%s: %s", path,
				strerror(errno));
	return 0;
}

/* ---- the mount ---- */

static int asks(void *ctx, struct ck_err *err)
{
	const struct job *j = ctx;
	struct stat st;

	if (stat(j->at.real, &st))
		return ck_fail(err, errno, "%s: mounted, but: %s", j->at.path,
			       strerror(errno));
	if (st.st_dev == j->at.under)
		return ck_fail(err, EIO,
			       "%s: the mount is not to be seen "
			       "here",
			       j->at.path);
	return 0;
}

/* In a process of its own: one that asks a stuck mount is stuck too. */
static int check_answers(struct job *j, struct ck_err *err)
{
	const struct ck_child c = {
		.what = "the mount's first answer",
		.hint = "",
		.run = asks,
		.ctx = j,
		.seconds = ANSWER_SECONDS,
	};
	int ret = ck_child_call(&c, err);

	if (ret)
		fs_unmount(j->at.real, true, NULL);
	return ret;
}

/* Damage is the checkpoint's; all else that the worker ends with is not. */
static int not_mounted(const struct ck_err *err)
{
	return failed(err->code == EBADMSG ? CMD_BAD_CKPT : CMD_SYSTEM, err);
}

static int supervise(struct job *j)
{
	const struct supervise_in in = {
		.src = j->src,
		.mnt = j->at.real,
		.root = &j->root,
		.img = &j->img,
		.opts = j->opts,
		.log_fd = j->log_fd,
		.lock_fd = j->at.lock_fd,
	};
	struct ck_err err = { 0 };
	int ret;

	if (ck_opts_get(j->opts, "foreground"))
		return supervise_foreground(&in, &err) ? not_mounted(&err) :
							 CMD_OK;
	ret = supervise_background(&in, &err);
	if (!ret)
		ret = check_answers(j, &err);
	return ret ? not_mounted(&err) : CMD_OK;
}

/* Nothing but folders in it, or nothing at all: a place for checkpoints. */
static bool is_place(const struct job *j)
{
	ck_auto_dir DIR *dir = opendir(j->root.real);
	const struct dirent *d;
	struct stat st;

	while (dir && (d = readdir(dir)))
		if (d->d_name[0] != '.' &&
		    (fstatat(j->root.fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
		     !S_ISDIR(st.st_mode)))
			return false;
	return dir;
}

/* The folder in which a run keeps its checkpoints becomes the root. */
static void enter_run(struct job *j)
{
	ck_auto_free char *below = ck_run_dir_of_run(&j->root);
	struct ck_root root;

	if (!below || ck_root_open(&root, below, j->opts, NULL))
		return;
	ck_root_close(&j->root);
	j->root = root;
}

/* No checkpoint itself, but folders or files in it are, or will be. */
static bool is_of_many(struct job *j, const struct ck_err *why)
{
	struct ck_run_dir all;
	bool any;

	if (why->code != ENODATA || j->root.only)
		return false;
	enter_run(j);
	if (ck_run_dir_list(&all, &j->root, NULL))
		return false;
	any = all.nr;
	ck_run_dir_free(&all);
	return any || (ck_opts_get(j->opts, "rw") &&
		       !ck_opts_get(j->opts, "overlay") && is_place(j));
}

/* What is written goes there, so that it is a mount for writing. */
static int make_overlay(struct job *j)
{
	ck_auto_free char *real = NULL;
	const char *dir = ck_opts_get(j->opts, "overlay");
	size_t len = strlen(j->root.real);

	if (!dir)
		return CMD_OK;
	if (!make_dir(dir, &j->made_overlay))
		return cmd_fail(&cmd_mount, CMD_SYSTEM, "-o overlay=%s: %s",
				dir, strerror(errno));
	real = realpath(dir, NULL);
	if (!real)
		return cmd_fail(&cmd_mount, CMD_SYSTEM, "-o overlay=%s: %s",
				dir, strerror(errno));
	if (!strncmp(real, j->root.real, len) &&
	    (!real[len] || real[len] == '/') && !j->root.only)
		return cmd_fail(&cmd_mount, CMD_USAGE,
				"-o overlay=%s: lies in the checkpoint itself",
				dir);
	if (ck_opts_add(j->opts, "rw", ""))
		return cmd_fail(&cmd_mount, CMD_SYSTEM, "no memory");
	return cmd_absolute(&cmd_mount, j->opts, "overlay");
}

/* "DIR", "DIR:SIZE" or "memory:SIZE" becomes cache= and cache-size=. */
static int take_cache(struct job *j)
{
	const char *given = ck_opts_get(j->opts, "cache");
	const char *colon = given ? strrchr(given, ':') : NULL;
	ck_auto_free char *where = NULL;
	uint64_t size = 0;

	if (!given)
		return CMD_OK;
	if (ck_opts_get(j->opts, "rw"))
		return cmd_fail(&cmd_mount, CMD_USAGE,
				"-o cache: is for mounts that are only read");
	if (colon && !ck_size_parse(colon + 1, &size))
		colon = NULL;
	where = strndup(given, colon ? (size_t)(colon - given) : SIZE_MAX);
	if (!where || ck_opts_add(j->opts, "cache", where) ||
	    (colon && ck_opts_add(j->opts, "cache-size", colon + 1)))
		return cmd_fail(&cmd_mount, CMD_SYSTEM, "no memory");
	if (strcmp(where, "memory"))
		return cmd_absolute(&cmd_mount, j->opts, "cache");
	if (!size)
		return cmd_fail(&cmd_mount, CMD_USAGE,
				"-o cache=%s: expected memory:SIZE", given);
	return CMD_OK;
}

struct unused {
	const struct job *j;
	const struct ck_catalog *img;
};

static int reshard_unused(void *ctx, struct ck_err *err)
{
	const struct unused *v = ctx;

	(void)err;
	plan_reshard_unused(&cmd_mount, v->j->src, v->img, v->j->opts);
	return 0;
}

/* In a process of its own, for it looks at a file and at all names. */
static void report_unused_reshard(const struct job *j,
				  const struct ck_catalog *img)
{
	struct unused v = { j, img };
	const struct ck_child c = { .what = "the mesh",
				    .hint = "",
				    .run = reshard_unused,
				    .ctx = &v,
				    .seconds = 30 };
	struct ck_err err;

	if (ck_opts_get(j->opts, "reshard"))
		ck_child_call(&c, &err);
}

struct shown {
	const struct job *j;
	const struct ck_root *root;
	const struct ck_catalog *img;
};

static int foreign_names(void *ctx, struct ck_err *err)
{
	const struct shown *v = ctx;
	ck_auto_json json_t *config = NULL;
	struct ck_model_names names;
	struct ck_translation t;
	uint32_t nr = 0;
	int ret;

	while (nr < v->img->nr_tensors && !v->img->tensors[nr].tree)
		nr++;
	ret = ck_model_names_make(&names, v->img, 0, nr, v->j->opts, err);
	if (ret)
		return ret;
	ck_model_config(&config, v->root, v->j->opts, NULL);
	ret = ck_translate(&t, v->img, &names, config, v->j->opts, err);
	if (!ret && t.why.len)
		cmd_fail(&cmd_mount, 0, "%s: warning: hf/: %s", v->j->src,
			 t.why.v);
	ck_translation_free(&t);
	ck_model_names_free(&names);
	return ret;
}

/* Who loads hf/ should not have to look for why it is not there. */
static void report_foreign_names(const struct job *j,
				 const struct ck_root *root,
				 const struct ck_catalog *img)
{
	struct shown v = { j, root, img };
	int keep[MAX_ROOTS];
	unsigned nr = 0;
	struct ck_child c = { .what = "names",
			      .hint = "",
			      .run = foreign_names,
			      .ctx = &v,
			      .keep = keep,
			      .seconds = 30 };
	struct ck_err err;

	for (; root && nr < MAX_ROOTS; root = root->next)
		keep[nr++] = root->fd;
	c.nr_keep = nr;
	ck_child_call(&c, &err);
}

/* An unused option is a mistake that nobody looks for in problems. */
static void report_unused(const struct job *j)
{
	const struct ck_catalog *img = &j->img;

	if (!img->base)
		return;
	for (uint32_t i = 0; i < img->nr_problems; i++) {
		const struct ck_problem *p = &img->problems[i];
		const char *line = p->reason == CK_NONE ?
					   "" :
					   ck_catalog_str(img, p->reason, NULL);

		if (!strncmp(line, "-o ", 3))
			cmd_fail(&cmd_mount, 0, "%s: %s: %s", j->src,
				 ck_dump_severity(p->severity), line);
	}
	report_unused_reshard(j, img);
	report_foreign_names(j, &j->root, img);
}

static bool unused_in(const struct job *j, const char *name, uint32_t *bits)
{
	ck_auto_fd int catalog = -1;
	struct ck_catalog img;
	struct ck_root root;
	struct ck_err err;
	int ret = ck_run_dir_open(&root, &j->root, name, j->opts, &err);

	if (ret)
		return false;
	ret = ck_ckpt_describe(&root, j->opts, &catalog, &err);
	ck_root_close(&root);
	if (ret || ck_catalog_map(&img, catalog, &err))
		return false;
	*bits &= ck_run_dir_unused(&img);
	ck_catalog_unmap(&img);
	return true;
}

/* Of several the last ones are looked at, where such an option is given. */
static void report_unused_of_many(const struct job *j)
{
	ck_auto_str struct ck_str names = { 0 };
	uint32_t bits = UINT32_MAX;
	struct ck_run_dir all;
	size_t nr = 0;

	if (j->img.base || !ck_run_dir_may_be_unused(j->opts) ||
	    ck_run_dir_list(&all, &j->root, NULL))
		return;
	while (bits && nr < all.nr && nr < MAX_LOOKED_AT &&
	       unused_in(j, all.v[all.nr - 1 - nr].name, &bits))
		nr++;
	/* one that cannot be read may have a use for it */
	if (nr && (nr == all.nr || nr == MAX_LOOKED_AT))
		ck_run_dir_unused_names(bits, &names);
	if (names.len && !names.failed)
		cmd_fail(&cmd_mount, 0,
			 "%s: warning: %s: none of its checkpoints makes use "
			 "of it%s",
			 j->src, names.v,
			 nr < all.nr ? ", as far as the last ones tell" : "");
	ck_run_dir_free(&all);
}

/* Of several the newest, as the next save will be called the same. */
static void report_names_of_newest(const struct job *j)
{
	const struct ck_run_dir_entry *newest;
	ck_auto_fd int catalog = -1;
	struct ck_catalog img;
	struct ck_run_dir all;
	struct ck_root root;

	if (j->img.base || ck_run_dir_list(&all, &j->root, NULL))
		return;
	newest = ck_run_dir_newest(&all, 0);
	if (newest &&
	    !ck_run_dir_open(&root, &j->root, newest->name, j->opts, NULL)) {
		if (!ck_ckpt_describe(&root, j->opts, &catalog, NULL) &&
		    !ck_catalog_map(&img, catalog, NULL)) {
			report_foreign_names(j, &root, &img);
			ck_catalog_unmap(&img);
		}
		ck_root_close(&root);
	}
	ck_run_dir_free(&all);
}

static int mount_root(struct job *j)
{
	struct ck_err err;
	int ret = mount_point_take(&cmd_mount, &j->at,
				   j->root.only ? NULL : j->src);

	if (!ret)
		ret = check_device();
	if (!ret)
		ret = make_overlay(j);
	if (!ret)
		ret = take_cache(j);
	if (!ret)
		ret = open_log(j);
	if (ret)
		return ret;
	if (mount_describe(&cmd_mount, &j->root, j->opts, &j->img, &err) &&
	    !is_of_many(j, &err))
		return cmd_err(&cmd_mount, &err);
	report_unused(j);
	report_unused_of_many(j);
	report_names_of_newest(j);
	if (!j->img.base && ck_opts_get(j->opts, "overlay"))
		return cmd_fail(&cmd_mount, CMD_USAGE,
				"-o overlay: is for one checkpoint, and %s "
				"holds several",
				j->src);
	return supervise(j);
}

static bool make_new(struct job *j)
{
	char name[PATH_MAX];

	return !ck_root_is_one(j->src, name) || make_dir(name, &j->made_src);
}

int mount_run(const char *src, const char *mnt, struct ck_opts *opts)
{
	struct job j = {
		.src = src,
		.at = { .path = mnt, .lock_fd = -1 },
		.opts = opts,
		.log_fd = -1,
	};
	struct ck_err err;
	int ret;

	if (ck_opts_get(opts, "rw") && !make_new(&j) && !strchr(src, ':'))
		return cmd_fail(&cmd_mount, CMD_SYSTEM, "%s: %s", src,
				strerror(errno));
	if (ck_root_open(&j.root, src, opts, &err)) {
		unmake(&j, true);
		return cmd_err(&cmd_mount, &err);
	}
	ret = mount_root(&j);
	if (ret)
		mount_point_unmake(&j.at);
	unmake(&j, ret);
	ck_catalog_unmap(&j.img);
	ck_root_close(&j.root);
	return ret;
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	int nr = cmd_parse(&cmd_mount, argc, argv, &opts);
	int ret = nr < 0 ? CMD_USAGE : mount_run(argv[1], argv[2], &opts);

	ck_opts_free(&opts);
	return ret;
}

static const struct cmd_flag flags[] = {
	{ 'f', "foreground", "stay in the foreground, and log to stderr" },
	{ 0, NULL, NULL },
};

const struct cmd cmd_mount = {
	.name = "mount",
	.group = CMD_MOUNT,
	.args = "CKPT MNT",
	.summary = "show the tensors of a checkpoint as files",
	.help = "  unshard mount run/step-1000 mnt\n"
		"  unshard umount mnt\n",
	.flags = flags,
	.min_words = 2,
	.max_words = 2,
	.mounts = true,
	.plain = true,
	.run = run,
};
