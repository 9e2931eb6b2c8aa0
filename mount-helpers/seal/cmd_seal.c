/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_seal.c - writes the manifest of a checkpoint that came without one
 *
 *	this process   writes the manifest
 *	  └─fork──> reads and hashes, in a sandbox that allows no writing; leaves
 *	            the manifest in a memfd, which is not trusted here
 */
#include "mount-helpers/subprocess.h"
#include "mount-helpers/health.h"
#include "core/lib/only_ckpt.h"
#include "mount-helpers/progress.h"
#include "mount-helpers/text.h"

#include "core/base/auto.h"
#include "core/base/fds.h"
#include "core/base/whole.h"
#include "core/root/writer_lock.h"
#include "core/seal/seal.h"
#include "core/run/run_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

extern const struct cmd cmd_seal;

struct seal {
	const char *path;
	const struct ck_opts *opts;
	int out; /* the manifest, for the parent */
	struct progress bar;
	struct ck_err err;
};

/* ---- the child: reads ---- */

static void tick(void *ctx, uint64_t bytes, uint64_t total)
{
	struct seal *s = ctx;

	progress_at(&s->bar, bytes, total);
}

static int hash(struct seal *s, struct ck_ckpt *ck, struct ck_manifest_new *n)
{
	const char *crc = ck_opts_get(s->opts, "crc");
	struct ck_seal_in in = { .ck = ck, .tick = tick, .ctx = s };
	int ret;

	in.crcs = !ck_opts_get(s->opts, "force") &&
		  (!crc || strcmp(crc, "ignore"));
	progress_begin(&s->bar, "files and tensors");
	ret = ck_seal(&in, n, &s->err);
	progress_end(&s->bar);
	return ret;
}

static int put(int fd, const void *bytes, size_t len, struct ck_err *err)
{
	int ret = ck_write_whole(fd, bytes, len);

	return ret ? ck_fail(err, -ret, "%s", strerror(-ret)) : 0;
}

static int make(struct seal *s, struct ck_ckpt *ck, int out)
{
	ck_auto_free void *bytes = NULL;
	struct ck_manifest_new *n = NULL;
	size_t len;
	int ret = ck_manifest_new(&n, 0, &s->err);

	if (!ret)
		ret = hash(s, ck, n);
	if (!ret)
		ret = ck_manifest_bytes(n, &bytes, &len, &s->err);
	if (!ret)
		ret = put(out, bytes, len, &s->err);
	ck_manifest_drop(n);
	return ret ? cmd_err(&cmd_seal, &s->err) : CMD_OK;
}

/* What is torn or missing now would pass for whole ever after. */
static int child(void *ctx)
{
	struct seal *s = ctx;
	struct ck_ckpt *ck;
	int ret = CMD_OK;

	if (cmd_open(&ck, s->path, s->opts, &s->err))
		return cmd_err(&cmd_seal, &s->err);
	if (!ck_opts_get(s->opts, "force"))
		ret = health_report(&cmd_seal, s->path, ck_ckpt_catalog(ck), 0);
	if (!ret && ck_ckpt_at_rest(ck, true, &s->err))
		ret = cmd_err(&cmd_seal, &s->err);
	if (!ret)
		ret = make(s, ck, s->out);
	if (!ret && ck_ckpt_at_rest(ck, true, &s->err))
		ret = cmd_err(&cmd_seal, &s->err);
	ck_ckpt_close(ck);
	return ret;
}

/* ---- the parent: writes ---- */

static int run_child(struct seal *s, int out)
{
	char what[PATH_MAX + 32];

	s->out = out;
	snprintf(what, sizeof(what), "%s: what read it", s->path);
	return cmd_subprocess(&cmd_seal, what, child, s);
}

static void say(const struct seal *s, const struct ck_manifest *m,
		const char *name, struct ck_str *out)
{
	uint64_t bytes = 0, unknown = 0;
	char digest[CK_DIGEST_TEXT];

	for (uint64_t i = 0; i < m->nr_files; i++) {
		struct ck_manifest_file f;

		ck_manifest_file(m, i, &f);
		bytes += f.size;
	}
	for (uint64_t i = 0; i < m->nr_tensors; i++) {
		struct ck_manifest_tensor t;

		ck_manifest_tensor(m, i, &t);
		unknown += !t.known;
	}
	ck_digest_text(&m->digest, digest);
	if (ck_opts_get(s->opts, "json")) {
		ck_str_puts(out, "{\"manifest\": ");
		ck_str_json(out, name, strlen(name));
		ck_str_fmt(out,
			   ", \"digest\": \"xxh3:%s\", \"files\": %" PRIu64
			   ", \"bytes\": %" PRIu64 ", \"blocks\": %" PRIu64
			   ", \"tensors\": %" PRIu64 ", \"unknown\": %" PRIu64
			   "}\n",
			   digest, m->nr_files, bytes, m->nr_blocks,
			   m->nr_tensors, unknown);
		return;
	}
	ck_str_plain(out, s->path, strlen(s->path));
	ck_str_puts(out, ": ");
	text_count(out, m->nr_files, "file");
	ck_str_puts(out, ", ");
	text_size(out, bytes);
	ck_str_puts(out, ", ");
	text_count(out, m->nr_tensors, "tensor");
	ck_str_fmt(out, " sealed in %s\n", name);
	if (!unknown)
		return;
	ck_str_puts(out, "without a digest: ");
	text_count(out, unknown, "tensor");
	ck_str_puts(out, " that cannot be read\n");
}

static int keep(struct seal *s, const struct ck_root *root, int from,
		const char *name)
{
	ck_auto_str struct ck_str out = { 0 };
	struct ck_manifest m = { 0 };
	struct stat st;
	void *bytes;
	int ret;

	if (fstat(from, &st) || !st.st_size)
		return cmd_fail(&cmd_seal, CMD_SYSTEM, "no manifest was made");
	bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, from, 0);
	if (bytes == MAP_FAILED)
		return cmd_fail(&cmd_seal, CMD_SYSTEM, "%s", strerror(errno));
	ret = ck_manifest_parse(&m, bytes, (size_t)st.st_size, &s->err);
	if (!ret)
		ret = ck_manifest_store(root->fd, name, bytes,
					(size_t)st.st_size, &s->err);
	if (ret)
		ret = cmd_fail(&cmd_seal, CMD_SYSTEM, "%s: %s", s->path,
			       s->err.msg);
	else
		say(s, &m, name, &out);
	munmap(bytes, (size_t)st.st_size);
	if (!ret && !text_flush(&out))
		ret = CMD_SYSTEM;
	return ret ? ret : cmd_flush(&cmd_seal);
}

static int seal(struct seal *s, const struct ck_root *root)
{
	ck_auto_fd int fd = -1;
	struct ck_writer_lock *writer_lock;
	char name[256];
	int ret;

	if (!ck_root_manifest(root, name, sizeof(name)))
		return cmd_fail(&cmd_seal, CMD_USAGE,
				"%s: its name is too long for a manifest "
				"beside it",
				s->path);
	if (ck_fds_has(root->fd, name) && !ck_opts_get(s->opts, "force"))
		return cmd_fail(&cmd_seal, CMD_USAGE,
				"%s: is sealed already (unshard verify checks "
				"it, --force writes another %s)",
				s->path, name);
	fd = memfd_create("manifest", MFD_CLOEXEC);
	if (fd < 0)
		return cmd_fail(&cmd_seal, CMD_SYSTEM, "%s", strerror(errno));
	if (ck_writer_lock_take(&writer_lock, root, &s->err))
		return cmd_err(&cmd_seal, &s->err);
	ret = run_child(s, fd);
	if (!ret)
		ret = keep(s, root, fd, name);
	ck_writer_lock_drop(writer_lock);
	return ret;
}

/*
 * The manifest goes where the checkpoint is, which may be the only one in the
 * directory that was given.
 */
static int find_one(struct seal *s, struct ck_root *root)
{
	ck_auto_fd int catalog = -1;
	const char *given = root->path;
	struct ck_run_dir all;
	bool one;
	int ret = 0;

	if (root->only || root->next || ck_run_dir_list(&all, root, NULL))
		return 0;
	one = all.nr == 1;
	ck_run_dir_free(&all);
	if (one)
		ret = ck_only_ckpt_describe(NULL, root, s->opts, &catalog,
					    &s->err);
	if (root->path != given)
		s->path = root->path;
	return ret;
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	struct seal s = { .opts = &opts };
	struct ck_root root;
	int ret = CMD_USAGE;

	if (cmd_parse(&cmd_seal, argc, argv, &opts) < 0) {
		ret = CMD_USAGE;
	} else if (s.path = argv[1],
		   ck_root_open(&root, s.path, &opts, &s.err)) {
		ret = cmd_err(&cmd_seal, &s.err);
	} else {
		ret = find_one(&s, &root) ? cmd_err(&cmd_seal, &s.err) :
					    seal(&s, &root);
		ck_root_close(&root);
	}
	ck_opts_free(&opts);
	return ret;
}

static const struct cmd_flag flags[] = {
	{ 'f', "force",
	  "also where there is a manifest, or parts are missing" },
	{ 0, NULL, NULL },
};

const struct cmd cmd_seal = {
	.name = "seal",
	.group = CMD_KEEP,
	.args = "CKPT",
	.summary = "write down what the files hold, for unshard verify",
	.help = "Reads every file and every tensor, and leaves one file, "
		".unshard-manifest,\nbeside them. Nothing else is changed.\n",
	.flags = flags,
	.min_words = 1,
	.max_words = 1,
	.run = run,
};
