/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/copykit.h"

#include "core/base/check.h"
#include "fs/kernel/buf.h"
#include "tests/lib/openckpt.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD 80

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	abort();
}

static void path_of(const struct copykit *k, unsigned t, char out[128])
{
	snprintf(out, 128, "%s/model-%05u-of-%05u.safetensors", k->dir, t + 1,
		 COPYKIT_TENSORS);
}

static unsigned char byte_at(unsigned t, unsigned version, uint64_t i)
{
	return (unsigned char)(i * 7 + i / 4096 + 31 * t + 101 * version);
}

static void put_file(const struct copykit *k, unsigned t)
{
	unsigned char *all = calloc(1, HEAD + 8 + CK_COPY_SIZE);
	char path[128], head[HEAD + 1];
	uint64_t len = HEAD;
	int fd;

	must(all, "calloc");
	snprintf(head, sizeof(head),
		 "{\"%c\":{\"dtype\":\"U8\",\"shape\":[%llu],"
		 "\"data_offsets\":[0,%llu]}}",
		 'a' + (int)t, (unsigned long long)CK_COPY_SIZE,
		 (unsigned long long)CK_COPY_SIZE);
	memset(head + strlen(head), ' ', HEAD - strlen(head));
	memcpy(all, &len, 8);
	memcpy(all + 8, head, HEAD);
	for (uint64_t i = 0; i < CK_COPY_SIZE; i++)
		all[8 + HEAD + i] = byte_at(t, k->version[t], i);
	path_of(k, t, path);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	must(fd >= 0 && write(fd, all, HEAD + 8 + CK_COPY_SIZE) ==
				(ssize_t)(HEAD + 8 + CK_COPY_SIZE),
	     path);
	close(fd);
	free(all);
}

static void put_index(const struct copykit *k)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/model.safetensors.index.json", k->dir);
	f = fopen(path, "w");
	must(f, path);
	fprintf(f, "{\"metadata\": {}, \"weight_map\": {");
	for (unsigned t = 0; t < COPYKIT_TENSORS; t++)
		fprintf(f, "%s\"%c\": \"model-%05u-of-%05u.safetensors\"",
			t ? ", " : "", 'a' + (int)t, t + 1, COPYKIT_TENSORS);
	fprintf(f, "}}");
	must(!fclose(f), path);
}

static const struct ck_view_ops *tensors(void)
{
	unsigned i = 0;

	while (strcmp(ck_views[i]->name, "tensors"))
		i++;
	return ck_views[i];
}

void copykit_start(struct copykit *k)
{
	struct ck_opts opts = { 0 };
	struct ck_err err = { 0 };

	*k = (struct copykit){ .dir = "/tmp/copykit.XXXXXX" };
	must(mkdtemp(k->dir), "mkdtemp");
	snprintf(k->kept, sizeof(k->kept), "%s.kept", k->dir);
	must(!mkdir(k->kept, 0700), k->kept);
	k->kept_fd = open(k->kept, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (unsigned t = 0; t < COPYKIT_TENSORS; t++)
		put_file(k, t);
	put_index(k);
	ck_opts_add(&opts, "sandbox", "off");
	ck_opts_add(&opts, "engine", "plain");
	must(!open_ckpt(&k->ck, k->dir, &opts, &err), err.msg);
	must(!ck_view_open(&k->v, tensors(), k->ck, 0, &opts, &err) && k->v,
	     err.msg);
	ck_opts_free(&opts);
}

void copykit_serve(struct copykit *k, uint64_t max, bool memory, int dir)
{
	const struct fs_passed_in passed = { .worker = -1,
					     .dev = -1,
					     .kernel = &k->kernel };
	struct fs_copies_in in = { .dir = dir,
				   .memory = memory,
				   .max = max,
				   .said = &k->kernel.cache };

	k->kernel = (struct fs_kernel){ 0 };
	in.passed = k->passed = fs_passed_new(&passed);
	k->cs = fs_copies_new(&in);
	must(k->passed && k->cs, "no memory");
}

void copykit_unserve(struct copykit *k)
{
	fs_copies_free(k->cs);
	fs_passed_free(k->passed);
	k->cs = NULL;
	k->passed = NULL;
	fs_buf_drain();
}

void copykit_end(struct copykit *k)
{
	char cmd[256];

	ck_view_close(k->v);
	ck_ckpt_close(k->ck);
	close(k->kept_fd);
	snprintf(cmd, sizeof(cmd), "rm -rf %s %s", k->dir, k->kept);
	must(!system(cmd), cmd);
}

void copykit_write(struct copykit *k, unsigned t, bool hide)
{
	char path[128];
	struct stat st;

	path_of(k, t, path);
	must(!stat(path, &st), path);
	k->version[t]++;
	put_file(k, t);
	st.st_mtim.tv_sec -= !hide;
	must(!utimensat(AT_FDCWD, path,
			(struct timespec[]){ st.st_atim, st.st_mtim }, 0),
	     path);
}

void copykit_touch(struct copykit *k, unsigned t)
{
	char path[128];

	path_of(k, t, path);
	must(!chmod(path, 0600), path);
}

int copykit_open(struct copykit *k, unsigned t, unsigned turn,
		 struct fs_copy_open *o)
{
	const char name[] = { (char)('a' + t), 0 };
	unsigned char srcs[] = { 0, 0 };
	struct fs_copy_of of = { .serial = 1,
				 .ino = 1000 + t,
				 .kernel = fs_ino_turn(1000 + t, turn),
				 .v = k->v,
				 .nr = k->v->ops->find(k->v, name, 1),
				 .ck = k->ck,
				 .srcs = srcs,
				 .settled = true,
				 .was_settled = true };
	const struct ck_catalog *img = k->v->img;
	struct ck_vfile file;

	must(k->v->ops->file(k->v, of.nr, &file), name);
	srcs[0] =
		(unsigned char)(1u
				<< img->chunks[img->tensors[file.tensor].first]
					   .src);
	return fs_copies_open(k->cs, &of, o);
}

void copykit_close(struct copykit *k, struct fs_copy_open *o)
{
	fs_copy_close(k->cs, o);
}

int copykit_read(struct copykit *k, unsigned t, const struct fs_copy_open *o,
		 uint64_t len, uint64_t off, unsigned version, bool *right)
{
	const char name[] = { (char)('a' + t), 0 };
	unsigned char *buf = malloc(len);
	const unsigned char *at = fs_copy_at(o->copy, k->v, len, off);
	int ret;

	must(buf, "malloc");
	ret = fs_copy_read(o->copy, k->v, k->v->ops->find(k->v, name, 1), buf,
			   len, off, NULL);
	*right = !ret;
	for (uint64_t i = 0; *right && i < len; i++)
		*right = buf[i] == byte_at(t, version, off + i) &&
			 (!at || at[i] == buf[i]);
	free(buf);
	return ret;
}

int copykit_read_all(struct copykit *k, unsigned t,
		     const struct fs_copy_open *o, uint64_t step,
		     unsigned version, bool *right)
{
	int ret = 0;

	*right = true;
	for (uint64_t off = 0; !ret && *right && off < CK_COPY_SIZE;
	     off += step)
		ret = copykit_read(k, t, o, CK_MIN(step, CK_COPY_SIZE - off),
				   off, version, right);
	return ret;
}

bool copykit_keep(struct copykit *k, unsigned t, uint64_t step)
{
	struct fs_copy_open o;
	bool right = false;
	int ret = copykit_open(k, t, 0, &o);

	if (!ret)
		ret = copykit_read_all(k, t, &o, step, k->version[t], &right);
	copykit_close(k, &o);
	return !ret && right;
}

uint64_t copykit_source_bytes(const struct copykit *k)
{
	return ck_ckpt_stats(k->ck)->source_bytes;
}
