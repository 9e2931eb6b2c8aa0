/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.c - mounting, serving, unmounting
 *
 * The device descriptor decides who lives: while any process has it open the
 * mount waits for answers.  So the supervisor gives its copy up once the
 * worker has it, and the worker's death, however it comes, ends all requests
 * with ENOTCONN instead of letting them hang.
 */
#include "fs/session.h"

#include "core/base/auto.h"
#include "core/base/number.h"
#include "core/base/str.h"
#include "fs/kernel/buf.h"
#include "fs/mount_procs.h"
#include "fs/mounts.h"
#include "fs/ops.h"
#include "fs/kernel/reply.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct fs_session {
	struct fs fs; /* libfuse's userdata */
	struct fuse_session *se;
	bool allow_other, mounted, detached, trims;
	pthread_t trim;
	char *path;
	char dev[32]; /* our mount's, as mountinfo has it */
};

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fs *fs = userdata;

	fs_kernel_init(&fs->kernel, conn);
	if (fs->ready)
		fs->ready(fs->ready_ctx);
}

static char *mount_options(const struct fs_session *s, const char *src)
{
	ck_auto_free char *name = NULL;
	char max_read[32];
	char *o = NULL;

	if (asprintf(&name, "fsname=%s", src) < 0)
		return NULL;
	snprintf(max_read, sizeof(max_read), "max_read=%u", FS_MAX_IO);
	if (fuse_opt_add_opt(&o, s->fs.rw ? "rw" : "ro") ||
	    fuse_opt_add_opt(&o, "default_permissions,subtype=unshardfs") ||
	    fuse_opt_add_opt(&o, max_read) ||
	    fuse_opt_add_opt_escaped(&o, name) ||
	    (s->allow_other && fuse_opt_add_opt(&o, "allow_other"))) {
		free(o);
		return NULL;
	}
	return o;
}

static int make_session(struct fs_session *s, const char *src,
			struct ck_err *err)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	struct fuse_lowlevel_ops ops = { .init = op_init };
	ck_auto_free char *o = mount_options(s, src);

	if (!o || fuse_opt_add_arg(&args, "unshard") ||
	    fuse_opt_add_arg(&args, "-o") || fuse_opt_add_arg(&args, o))
		return ck_no_memory(err);
	fs_ops_meta(&ops);
	fs_ops_dir(&ops);
	fs_ops_read(&ops);
	fs_ops_write(&ops);
	fs_ops_xattr(&ops);
	fs_draft_ops.add(&ops);
	if (s->allow_other)
		fs_access_add(&ops);
	s->se = fuse_session_new(&args, &ops, sizeof(ops), &s->fs);
	fuse_opt_free_args(&args);
	return s->se ? 0 : ck_fail(err, EINVAL, "libfuse makes no session");
}

static int find_place(struct fs_session *s, const char *mnt, struct ck_err *err)
{
	struct stat st;

	s->path = realpath(mnt, NULL);
	if (s->path && !stat(s->path, &st)) {
		if (S_ISDIR(st.st_mode))
			return 0;
		return ck_fail(err, ENOTDIR,
			       "%s: expected a directory to "
			       "mount on, found a file",
			       mnt);
	}
	if (errno == ENOTCONN)
		return ck_fail(err, ENOTCONN,
			       "%s: a dead mount lies there; "
			       "end it with: unshard umount %s",
			       mnt, mnt);
	return ck_fail(err, errno, "%s: %s", mnt, strerror(errno));
}

/* libfuse's words without its name before them. */
static const char *plain_words(const char *said)
{
	return !strncmp(said, "fuse: ", 6) ? said + 6 : said;
}

static int mount_there(struct fs_session *s, const char *mnt,
		       struct ck_err *err)
{
	struct fs_mount_info info;
	struct fs_catch c;
	char said[512];
	int ret;

	fs_catch_begin(&c);
	ret = fuse_session_mount(s->se, s->path);
	fs_catch_end(&c, said, sizeof(said));
	if (ret)
		return ck_fail(err, EIO, "%s: cannot mount: %s", mnt,
			       *said ? plain_words(said) : "no reason given");
	s->mounted = true;
	ret = fs_mounts_find(s->path, &info);
	if (ret || strcmp(info.type, FS_MOUNT_TYPE))
		return ck_fail(err, EIO,
			       "%s: expected a mount of type %s "
			       "there, found %s",
			       mnt, FS_MOUNT_TYPE, ret ? "none" : info.type);
	snprintf(s->dev, sizeof(s->dev), "%s", info.dev);
	return fs_kernel_hook(&s->fs.kernel, s->se, err);
}

/* ---- what .unshard/map says of options ---- */

static const char *const map_words[] = {
	"verify",	  "strip-prefix",      "optimizer", "hf-shard-size",
	"dcp-shard-size", "reshard-container", NULL
};
static const char *const map_files[] = { "config", "names", "views", "reshard",
					 NULL };

static void add_option(struct ck_str *out, const char *name, const char *value)
{
	ck_str_puts(out, out->len ? "," : "");
	ck_str_puts(out, name);
	if (!*value)
		return;
	ck_str_puts(out, "=");
	ck_str_puts(out, value);
}

static bool map_wanted(const struct ck_opts *opts)
{
	const char *how = ck_opts_get(opts, "map");

	return !(how && !strcmp(how, "off")) && !ck_opts_get(opts, "rw");
}

/*
 * Those by which who opens @root himself sees the same: text, from malloc(); files
 * that they name are named only by absolute paths.  NULL: the mount has no map, for
 * it is written to, or map=off was given; or no memory.
 */
static char *map_options(const struct ck_opts *opts, const struct ck_root *root)
{
	struct ck_str out = { 0 };
	const char *value;

	if (!map_wanted(opts))
		return NULL;
	for (unsigned i = 0; map_words[i]; i++) {
		value = ck_opts_get(opts, map_words[i]);
		if (value)
			add_option(&out, map_words[i], value);
	}
	for (unsigned i = 0; map_files[i]; i++)
		for (size_t k = 0; (value = ck_opts_nth(opts, map_files[i], k));
		     k++)
			if (*value == '/')
				add_option(&out, map_files[i], value);
	for (unsigned i = 0; i < root->nr_follow; i++)
		add_option(&out, "follow", root->follow_given[i]);
	ck_str_puts(&out, "");
	if (!out.failed && out.v)
		return out.v;
	ck_str_free(&out);
	return NULL;
}

/* ---- opening ---- */

/* By the kernel, for maps, and by fs/cache/ahead.h. */
static bool ahead(const struct ck_opts *opts)
{
	const char *how = ck_opts_get(opts, "read-ahead");

	return !how || strcmp(how, "off");
}

int fs_session_open(struct fs_session **out, const char *src, const char *mnt,
		    const struct ck_opts *opts, struct ck_err *err)
{
	struct fs_session *s = calloc(1, sizeof(*s));
	int ret;

	if (!s)
		return ck_no_memory(err);
	fs_kernel_setup(&s->fs.kernel, opts);
	s->allow_other = ck_opts_get(opts, "allow-other");
	s->fs.rw = s->fs.kernel.writes = ck_opts_get(opts, "rw");
	s->fs.replace = ck_opts_get(opts, "replace");
	ret = find_place(s, mnt, err);
	if (!ret)
		ret = make_session(s, src, err);
	if (!ret)
		ret = mount_there(s, mnt, err);
	if (!ret && map_wanted(opts))
		s->fs.handover = fs_handover_open();
	if (!ret)
		fs_read_ahead_open(&s->fs.kernel.read_ahead, s->dev,
				   ahead(opts));
	if (ret)
		fs_session_close(s);
	else
		*out = s;
	return ret;
}

void fs_session_fds(const struct fs_session *s, int fds[FS_SESSION_FDS])
{
	fds[0] = s->detached ? -1 : fuse_session_fd(s->se);
	fds[1] = s->fs.kernel.read_ahead.fd;
	fds[2] = fs_handover_fd(s->fs.handover);
}

bool fs_session_hands_over(const struct fs_session *s)
{
	return s->fs.handover;
}

static bool has_lost(const struct ck_catalog *img)
{
	for (uint32_t i = 0; i < img->nr_tensors; i++)
		if (img->tensors[i].state != CK_OK)
			return true;
	return false;
}

static void file_touched(void *ctx, const struct ck_ckpt *ck)
{
	struct fs *fs = ctx;

	if (fs->inval) /* the kernel may know pages of it */
		fs_inval_touched(fs->inval, ck);
}

static int start_state(struct fs *fs, const struct fs_serve_in *in,
		       const char *mnt, struct ck_err *err)
{
	struct fs_mounted_table_in table = {
		.ck = in->ck,
		.steps = in->steps,
		.kernel = &fs->kernel,
		.opts = in->opts,
		.sandbox = in->sandbox,
		.mnt = mnt,
		.touched = { file_touched, fs },
	};

	fs->map = map_options(in->opts,
			      in->steps ? in->steps : ck_ckpt_root(in->ck));
	table.map = fs->map;
	fs->keep = FS_KEEP_FIXED;
	fs->ready = in->ready;
	fs->ready_ctx = in->ctx;
	fs->steps = in->steps;
	if (in->steps && fs->rw) {
		fs->drafts = fs_draft_ops.new(in->steps, in->opts);
		if (!fs->drafts)
			return ck_no_memory(err);
	}
	if (in->ck)
		fs->kernel.lost = has_lost(ck_ckpt_catalog(in->ck));
	return fs_mounted_table_new(&fs->table, &table, err);
}

/* What others were told is asked again when attributes are. */
static int let_others(struct fs *fs, int askers_fd, struct ck_err *err)
{
	fs->keep = fs_keep_src;
	return fs_asker_new(&fs->asker, askers_fd, fs_keep_src, err);
}

/* A folder that could not be had was said by the supervisor. */
static int start_cache(struct fs_session *s, const struct fs_serve_in *in,
		       struct ck_err *err)
{
	bool memory = !strcmp(ck_opts_get(in->opts, "cache"), "memory");
	const struct fs_passed_in passed = {
		.worker = in->passthrough_fd,
		.dev = fuse_session_fd(s->se),
		.kernel = &s->fs.kernel,
	};
	struct fs_copies_in copies = {
		.dir = in->cache_fd,
		.memory = memory,
		.max = ck_opts_size(in->opts, "cache-size", 0),
		.stored = !ck_opts_get(in->opts, "verify"),
		.said = &s->fs.kernel.cache,
	};

	if (memory || in->cache_fd >= 0)
		s->fs.kernel.cache.where = memory ? "memory" : "folder";
	else
		copies.max = 0;
	s->fs.kernel.passthrough = in->passthrough_fd >= 0;
	s->fs.pass_stored = copies.stored;
	copies.passed = s->fs.passed = fs_passed_new(&passed);
	s->fs.copies = copies.passed ? fs_copies_new(&copies) : NULL;
	return s->fs.copies ? 0 : ck_no_memory(err);
}

/* Once; the process ends after it. */
static void end_state(struct fs *fs)
{
	fs_access_end();
	fs_handover_close(fs->handover);
	fs_ahead_free(fs->ahead); /* it reads */
	fs_inval_free(fs->inval);
	fs->inval = NULL; /* see file_touched() */
	fs_draft_ops.free(fs->drafts);
	fs_copies_free(fs->copies);
	fs_passed_free(fs->passed);
	fs_mounted_table_free(fs->table);
	free(fs->map);
	fs_asker_free(fs->asker);
	fs_buf_drain();
}

/*
 * ---- checkpoints that nobody looks at ----
 *
 * The kernel keeps every name that it was told of until memory runs short, and
 * each keeps one of the mounted checkpoints' numbers, of which there are only
 * so many.  It is asked to forget some where it knows too many; nothing waits for
 * it to comply.  The request may wait for operations that are being served, so a
 * thread of its own makes it.
 */

static void *trim(void *ctx)
{
	const struct fs_session *s = ctx;
	char name[256];

	while (fs_mounted_table_wait(s->fs.table))
		while (fs_mounted_table_crowded(s->fs.table, name))
			fuse_lowlevel_notify_inval_entry(s->se, FUSE_ROOT_ID,
							 name, strlen(name));
	return NULL;
}

static int start_trim(struct fs_session *s, struct ck_err *err)
{
	int ret = pthread_create(&s->trim, NULL, trim, s);

	if (ret)
		return ck_fail(err, ret, "no thread for a mount: %s",
			       strerror(ret));
	s->trims = true;
	return 0;
}

static void end_trim(struct fs_session *s)
{
	if (!s->trims)
		return;
	fs_mounted_table_end_wait(s->fs.table);
	pthread_join(s->trim, NULL);
}

static void log_libfuse(enum fuse_log_level level, const char *fmt, va_list ap)
{
	char line[512];

	if (level > FUSE_LOG_WARNING)
		return;
	vsnprintf(line, sizeof(line), fmt, ap);
	line[strcspn(line, "\n")] = '\0';
	fs_log("libfuse: %s", plain_words(line));
}

int fs_session_serve(struct fs_session *s, const struct fs_serve_in *in,
		     struct ck_err *err)
{
	int ret = fs_seconds_from_env("UNSHARD_KEEP", &fs_keep_src, err);

	if (!ret)
		ret = fs_seconds_from_env("UNSHARD_SETTLE", &fs_settle, err);
	if (!ret)
		ret = start_state(&s->fs, in, s->path, err);
	fuse_set_log_func(log_libfuse);
	if (!ret && s->allow_other)
		ret = let_others(&s->fs, in->askers_fd, err);
	if (!ret && ck_opts_get(in->opts, "cache"))
		ret = start_cache(s, in, err);
	if (!ret && in->steps)
		ret = start_trim(s, err);
	if (!ret) {
		s->fs.inval = fs_inval_new(s->se);
		if (!s->fs.inval)
			ret = ck_no_memory(err);
	}
	if (!ret && s->fs.drafts)
		ret = fs_draft_ops.start(s->fs.drafts, err);
	if (!ret) {
		fs_handover_start(s->fs.handover);
		if (ahead(in->opts))
			s->fs.ahead = fs_ahead_new(0);
		ret = fs_kernel_loop(&s->fs.kernel, s->se);
		prctl(PR_SET_NAME, FS_FLUSH_NAME);
		end_trim(s);
		if (ret < 0)
			ck_fail(err, -ret, "%s: serving ended: %s", s->path,
				strerror(-ret));
	}
	end_state(&s->fs);
	return ret > 0 ? 0 : ret;
}

/*
 * libfuse keeps the descriptor's number and would poll and close it: a pipe
 * that nobody reads stands in, on which it finds nothing left to unmount.
 */
void fs_session_detach(struct fs_session *s)
{
	int fd = s->se ? fuse_session_fd(s->se) : -1, p[2];

	if (fd < 0 || s->detached || pipe2(p, O_CLOEXEC))
		return;
	close(p[0]);
	dup3(p[1], fd, O_CLOEXEC);
	close(p[1]);
	fs_read_ahead_close(&s->fs.kernel.read_ahead);
	fs_handover_close(s->fs.handover);
	s->fs.handover = NULL;
	s->detached = true;
}

void fs_session_gone(struct fs_session *s)
{
	s->mounted = false;
}

static void end_mount(struct fs_session *s)
{
	struct fs_mount_info info;

	/* Another mount may lie there by now. */
	if (fs_mounts_find(s->path, &info) ||
	    (s->dev[0] && strcmp(info.dev, s->dev)))
		return;
	if (fs_mounts_end(s->path, false, NULL) == -EBUSY)
		fs_mounts_end(s->path, true, NULL);
}

void fs_session_close(struct fs_session *s)
{
	if (!s)
		return;
	fs_session_detach(s);
	if (s->mounted)
		end_mount(s);
	if (s->detached) {
		fuse_session_unmount(s->se);
		fuse_session_destroy(s->se);
	} else if (s->se && !s->mounted) {
		fuse_session_destroy(s->se);
	}
	free(s->path);
	free(s);
}
