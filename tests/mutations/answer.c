/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answer.c - what one checkpoint after the other holds, each in a child process
 *
 * Reads lines "PATH", "PATH<TAB>OPTION" or "PATH<TAB>OPTION=VALUE"; writes of each,
 *
 *	refused LINE
 *	tensor DTYPE SHAPE DIGEST|error NAME     all of its bytes, or that some fail
 *	stored FILE LO HI                        bytes of a file that are elements
 *	problem LINE                             "error: ...", "warning: ...", "note: ..."
 *	sum LINE                                 a container's checksum that is wrong
 *	end ok|exit N|signal N|hang
 *
 * in text that has no tab or line break of its own.  "stored" is asked for with a
 * word after the program.
 */
#include "core/base/crc32.h"
#include "core/base/str.h"
#include "core/catalog/dump.h"
#include "core/ckpt/ckpt.h"
#include "core/geom/cursor.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#define CPU_SECONDS 20 /* a sanitizer takes some */
#define HANG_MS 120000
#define PIECE (1 << 20)
#define READ_AT_MOST (64 << 20) /* of one tensor; a mutation may make it huge */

static void line(const char *word, const char *text, size_t len)
{
	struct ck_str s = { 0 };

	ck_str_plain(&s, text, len);
	printf("%s\t%s\n", word, s.v ? s.v : "");
	ck_str_free(&s);
}

static void lines(const char *word, char *text)
{
	char *rest = text;

	for (char *l; rest && (l = strsep(&rest, "\n"));)
		if (*l)
			line(word, l, strlen(l));
}

static int digest(struct ck_ckpt *ck, uint32_t t, XXH64_hash_t *out,
		  struct ck_err *err)
{
	static unsigned char buf[PIECE];
	uint64_t size = ck_ckpt_catalog(ck)->tensors[t].size;
	XXH3_state_t *h = XXH3_createState();
	int ret = 0;

	XXH3_64bits_reset(h);
	if (size > READ_AT_MOST)
		size = READ_AT_MOST;
	for (uint64_t at = 0; !ret && at < size; at += PIECE) {
		size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;

		ret = ck_ckpt_read(ck, t, buf, n, at, err);
		XXH3_64bits_update(h, buf, n);
	}
	*out = XXH3_64bits_digest(h);
	XXH3_freeState(h);
	return ret;
}

static void tensor(struct ck_ckpt *ck, uint32_t i)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	const struct ck_tensor *t = &img->tensors[i];
	struct ck_str s = { 0 };
	struct ck_err err = { 0 };
	XXH64_hash_t h;
	size_t len;
	const char *name = ck_catalog_str(img, t->name, &len);

	ck_str_fmt(&s, "tensor\t%s\t", ck_dtype_info(t->dtype)->name);
	ck_str_json_u64(&s, img->dims + t->shape, t->rank);
	if (digest(ck, i, &h, &err))
		ck_str_puts(&s, "\terror\t");
	else
		ck_str_fmt(&s, "\t%016" PRIx64 "\t", (uint64_t)h);
	ck_str_json(&s, ck_catalog_str(img, img->trees[t->tree], NULL),
		    strlen(ck_catalog_str(img, img->trees[t->tree], NULL)));
	ck_str_json(&s, name, len);
	puts(s.v);
	ck_str_free(&s);
}

/* The stretch of a file that each segment of a tensor lies in. */
static void stored(struct ck_ckpt *ck, uint32_t i)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	const struct ck_tensor *t = &img->tensors[i];
	struct ck_cursor cur;
	struct ck_seg seg;

	ck_cursor_init(&cur, img, ck_ckpt_resolved(ck), t, 0, t->size);
	while (ck_cursor_next(&cur, &seg)) {
		const struct ck_src *src;
		uint64_t lo = seg.src_off, hi = seg.src_off + seg.run;

		if (seg.kind != CK_SEG_COPY)
			continue;
		src = &img->srcs[img->chunks[seg.chunk].src];
		if (src->kind != CK_SRC_FILE)
			continue;
		for (unsigned a = 0; a < seg.nax; a++) {
			int64_t by = (int64_t)(seg.ax[a].n - 1) * seg.ax[a].src;

			*(by < 0 ? &lo : &hi) += (uint64_t)by;
		}
		printf("stored\t%s\t%" PRIu64 "\t%" PRIu64 "\n",
		       ck_catalog_str(img, src->name, NULL), lo, hi);
	}
}

static int sum(void *ctx, uint32_t src, uint64_t off, uint64_t len,
	       uint32_t want, struct ck_err *err)
{
	struct ck_ckpt *ck = ctx;
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	const char *name = ck_catalog_str(img, img->srcs[src].name, NULL);
	struct stat st;
	uint32_t got = 0;
	char *p;
	int fd;

	if (ck_root_open_file(ck_ckpt_root(ck), name, &fd, &st, err))
		return 0;
	p = malloc(len + 1);
	if (p && pread(fd, p, len, (off_t)off) == (ssize_t)len)
		got = ck_crc32(0, p, len);
	close(fd);
	free(p);
	if (got != want)
		line("sum", name, strlen(name));
	return 0;
}

static void everything(struct ck_ckpt *ck, bool with_stored)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	struct ck_str text = { 0 };
	struct ck_dump_pos pos = { 0 };
	struct ck_err err;

	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		tensor(ck, i);
		ck_ckpt_resolve(ck, i, &err);
		if (with_stored)
			stored(ck, i);
	}
	while (ck_dump_next(img, CK_DUMP_PROBLEMS_TEXT, 1, &pos, &text))
		;
	ck_ckpt_runtime_problems(ck, false, &text);
	lines("problem", text.v);
	ck_str_free(&text);
	ck_ckpt_sums(ck, sum, ck, &err);
}

/* As the command opens it, but in this one process. */
static int answer(char *ask, bool with_stored)
{
	const char *path = strsep(&ask, "\t");
	struct ck_opts opts = { 0 };
	struct ck_root root;
	struct ck_ckpt *ck = NULL;
	struct ck_err err = { 0 };
	int fd = memfd_create("catalog", MFD_CLOEXEC);
	int ret = ck_opts_add(&opts, "sandbox", "off");

	if (ask) {
		const char *name = strsep(&ask, "=");

		ret = ck_opts_add(&opts, name, ask ? ask : "");
	}
	if (!ret)
		ret = ck_root_open(&root, path, &opts, &err);
	if (!ret) {
		ret = ck_ckpt_parse(&root, &opts, NULL, fd, &err);
		if (!ret)
			ret = ck_ckpt_serve(&ck, &root, &opts, fd, &err);
		if (ret)
			ck_root_close(&root);
	}
	if (ret && !err.msg[0])
		return 70; /* nobody said why */
	if (ret)
		line("refused", err.msg, strlen(err.msg));
	else
		everything(ck, with_stored);
	ck_ckpt_close(ck);
	ck_opts_free(&opts);
	close(fd);
	return fflush(stdout) != 0;
}

static void limit(int what, rlim_t to)
{
	const struct rlimit r = { to, to };

	setrlimit(what, &r);
}

/* Whether @pid ended; it is killed where it does not. */
static bool ended(pid_t pid, int *status)
{
	struct pollfd p = { .fd = -1 };

	for (int ms = 0; ms < HANG_MS; ms += p.revents ? 0 : 1) {
		if (waitpid(pid, status, WNOHANG) == pid)
			return true;
		poll(&p, 1, 1);
	}
	kill(pid, SIGKILL);
	waitpid(pid, status, 0);
	return false;
}

int main(int argc, char **argv)
{
	char *ask = NULL;
	size_t room = 0;
	ssize_t n;

	(void)argv;
	while ((n = getline(&ask, &room, stdin)) > 0) {
		int status;
		pid_t pid;

		ask[n - 1] = '\0';
		pid = fork();
		if (pid < 0)
			return 1;
		if (!pid) {
			limit(RLIMIT_CORE, 0);
			limit(RLIMIT_CPU, CPU_SECONDS);
			exit(answer(ask, argc > 1));
		}
		if (!ended(pid, &status))
			puts("end\thang");
		else if (WIFSIGNALED(status))
			printf("end\t%s %d\n",
			       WTERMSIG(status) == SIGXCPU ? "hang" : "signal",
			       WTERMSIG(status));
		else if (WEXITSTATUS(status))
			printf("end\texit %d\n", WEXITSTATUS(status));
		else
			puts("end\tok");
		fflush(stdout);
	}
	free(ask);
	return 0;
}
