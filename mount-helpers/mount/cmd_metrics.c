/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_metrics.c - .unshard/metrics of several mounts as one text
 *
 * Prometheus wants all samples of a metric together.  A mount that does not
 * answer is asked by a process of its own, and is "down".
 */
#include "mount-helpers/cmd.h"

#include "core/base/auto.h"
#include "core/base/str.h"
#include "core/base/vec.h"
#include "core/base/whole.h"
#include "core/sandbox/child.h"
#include "fs/mounts.h"
#include "mount-helpers/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_SECONDS 5
#define UP "# HELP unshard_up "

extern const struct cmd cmd_metrics;

/* What is said of one metric: its head, and the samples of all mounts. */
struct family {
	char *help; /* the line that begins it */
	struct ck_str text;
};

struct metrics {
	CK_VEC(char *) mnts;
	CK_VEC(struct family) families;
	bool failed; /* no memory */
};

static void metrics_free(struct metrics *m)
{
	for (size_t i = 0; i < m->mnts.nr; i++)
		free(m->mnts.v[i]);
	for (size_t i = 0; i < m->families.nr; i++) {
		free(m->families.v[i].help);
		ck_str_free(&m->families.v[i].text);
	}
	free(m->mnts.v);
	free(m->families.v);
}

static void add_mount(void *ctx, const char *path,
		      const struct fs_mount_info *info)
{
	struct metrics *m = ctx;
	char **to;

	(void)info;
	for (size_t i = 0; i < m->mnts.nr; i++)
		if (!strcmp(m->mnts.v[i], path))
			return;
	to = ck_vec_push(&m->mnts);
	if (to)
		*to = strdup(path);
	m->failed |= !to || !*to;
}

/* ---- one mount ---- */

struct asked {
	const char *mnt;
	int to;
};

static int copy(void *ctx, struct ck_err *err)
{
	const struct asked *a = ctx;
	char path[PATH_MAX], buf[65536];
	ck_auto_fd int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/.unshard/metrics", a->mnt);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return ck_fail(err, errno, "%s: %s", path, strerror(errno));
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		if (write(a->to, buf, (size_t)n) != n)
			return ck_fail(err, EIO, "%s: cannot be kept", path);
	return n ? ck_fail(err, errno, "%s: %s", path, strerror(errno)) : 0;
}

static struct family *family_of(struct metrics *m, const char *help)
{
	struct family *f;

	for (size_t i = 0; i < m->families.nr; i++)
		if (!strcmp(m->families.v[i].help, help))
			return &m->families.v[i];
	f = ck_vec_push(&m->families);
	if (f)
		*f = (struct family){ .help = strdup(help) };
	m->failed |= !f || !f->help;
	return m->failed ? NULL : f;
}

/* The heads are those of the mount that says them first. */
static void merge(struct metrics *m, FILE *text)
{
	ck_auto_free char *line = NULL;
	struct family *f = NULL;
	bool known = false;
	size_t room = 0;

	while (!m->failed && getline(&line, &room, text) > 0) {
		if (!strncmp(line, "# HELP ", 7)) {
			f = family_of(m, line);
			known = f && f->text.len;
		}
		if (f && (*line != '#' || !known))
			ck_str_puts(&f->text, line);
		m->failed |= f && f->text.failed;
	}
}

static void is_down(struct metrics *m, const char *mnt)
{
	struct family *f = family_of(m, UP "1: the mount answers.\n");

	if (!f)
		return;
	if (!f->text.len)
		ck_str_fmt(&f->text, "%s# TYPE unshard_up gauge\n", f->help);
	ck_str_puts(&f->text, "unshard_up{");
	ck_str_label(&f->text, "mount", mnt);
	ck_str_puts(&f->text, "} 0\n");
	m->failed |= f->text.failed;
}

static int ask(struct metrics *m, const char *mnt)
{
	struct asked a = { mnt, memfd_create("metrics", MFD_CLOEXEC) };
	const struct ck_child c = { .what = mnt,
				    .hint = "",
				    .run = copy,
				    .ctx = &a,
				    .keep = &a.to,
				    .nr_keep = 1,
				    .seconds = ANSWER_SECONDS };
	ck_auto_file FILE *f = a.to < 0 ? NULL : fdopen(a.to, "r");
	struct ck_err err;

	if (!f)
		return cmd_fail(&cmd_metrics, CMD_SYSTEM, "%s",
				strerror(errno));
	if (ck_child_call(&c, &err)) {
		is_down(m, mnt);
		return cmd_fail(&cmd_metrics, CMD_SYSTEM, "%s", err.msg);
	}
	rewind(f);
	merge(m, f);
	return CMD_OK;
}

/* ---- all of them ---- */

static int to_file(const char *path, const struct ck_str *all)
{
	ck_auto_free char *temp = NULL;
	ck_auto_fd int fd = -1;
	int ret = 0;

	if (asprintf(&temp, "%s.%d", path, (int)getpid()) < 0)
		return cmd_fail(&cmd_metrics, CMD_SYSTEM, "no memory");
	fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
		  0644);
	if (fd < 0 || ck_write_whole(fd, all->v, all->len) ||
	    rename(temp, path)) {
		ret = cmd_fail(&cmd_metrics, CMD_SYSTEM, "%s: %s", path,
			       strerror(errno));
		if (fd >= 0)
			unlink(temp);
	}
	return ret;
}

static int show(struct metrics *m, const char *path)
{
	ck_auto_str struct ck_str all = { 0 };

	for (size_t i = 0; i < m->families.nr; i++)
		ck_str_add(&all, m->families.v[i].text.v,
			   m->families.v[i].text.len);
	if (m->failed || all.failed)
		return cmd_fail(&cmd_metrics, CMD_SYSTEM, "no memory");
	if (path)
		return to_file(path, &all);
	return text_flush(&all) ? cmd_flush(&cmd_metrics) : CMD_SYSTEM;
}

/* One that hangs is not asked where it is. */
static char *path_of(const char *word)
{
	struct fs_mount_info info;

	return fs_mounts_find(word, &info) ? realpath(word, NULL) :
					     strdup(word);
}

static int take_mounts(struct metrics *m, char **words, int nr)
{
	struct fs_mount_info info;
	int ret;

	for (int i = 0; i < nr; i++) {
		ck_auto_free char *real = path_of(words[i]);

		if (!real || fs_mounts_find(real, &info) ||
		    strcmp(info.type, FS_MOUNT_TYPE))
			return cmd_fail(&cmd_metrics, CMD_SYSTEM,
					"%s: expected a mount of unshard",
					words[i]);
		add_mount(m, real, &info);
	}
	ret = nr ? 0 : fs_mounts_each(add_mount, m);
	if (ret)
		return cmd_fail(&cmd_metrics, CMD_SYSTEM, "mounts: %s",
				strerror(-ret));
	return CMD_OK;
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	struct metrics m = { 0 };
	int nr = cmd_parse(&cmd_metrics, argc, argv, &opts);
	int ret = nr < 0 ? CMD_USAGE : take_mounts(&m, argv + 1, nr), shown;

	if (!ret) {
		for (size_t i = 0; !m.failed && i < m.mnts.nr; i++)
			if (ask(&m, m.mnts.v[i]))
				ret = CMD_SYSTEM;
		shown = show(&m, ck_opts_get(&opts, "file"));
		ret = shown ? shown : ret;
	}
	metrics_free(&m);
	ck_opts_free(&opts);
	return ret;
}

static const struct cmd_valued valued[] = {
	{ "file", "FILE", "replace FILE by it, at once, and print nothing" },
	{ 0 },
};

const struct cmd cmd_metrics = {
	.name = "metrics",
	.args = "[MNT...]",
	.summary = "counters of mounts, as Prometheus reads them",
	.help = "Without MNT: of all mounts that are seen here.\n",
	.valued = valued,
	.plain = true,
	.run = run,
};
