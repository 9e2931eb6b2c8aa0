/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/shardkit.h"

#include "core/base/auto.h"

#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void no(const char *what)
{
	perror(what);
	abort();
}

uint64_t sk_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

void sk_init(struct shardkit *k, enum ck_dtype dtype, unsigned rank,
	     const uint64_t *shape)
{
	uint64_t state = 88172645463325252u;

	*k = (struct shardkit){ .rank = rank, .dtype = dtype };
	k->elem = ck_dtype_info(dtype)->size;
	k->size = k->elem;
	for (unsigned i = 0; i < rank; i++) {
		k->shape[i] = shape[i];
		k->size *= shape[i];
	}
	k->want = malloc(k->size + 8);
	snprintf(k->dir, sizeof(k->dir), "/tmp/ck-shards-XXXXXX");
	if (!k->want || !mkdtemp(k->dir))
		no(k->dir);
	for (uint64_t i = 0; i < k->size; i += 8) {
		uint64_t v = sk_random(&state);

		memcpy(k->want + i, &v, 8);
	}
}

static int gone(const char *path, const struct stat *st, int type,
		struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

void sk_close(struct shardkit *k)
{
	if (!k->r)
		return;
	ck_reader_free(k->r);
	ck_root_close(&k->root);
	k->r = NULL;
}

void sk_free(struct shardkit *k)
{
	sk_close(k);
	nftw(k->dir, gone, 16, FTW_DEPTH | FTW_PHYS);
	free(k->want);
	ik_free(&k->ik);
}

const char *sk_path(const struct shardkit *k, const char *file)
{
	static _Thread_local char path[2][256];
	static _Thread_local unsigned turn;
	char *out = path[turn++ % 2];

	snprintf(out, sizeof(path[0]), "%s/%s", k->dir, file);
	return out;
}

void sk_put(const struct shardkit *k, const char *file, const void *bytes,
	    uint64_t len)
{
	FILE *f = fopen(sk_path(k, file), "w");

	if (!f || fwrite(bytes, 1, len, f) != len || fclose(f))
		no(file);
}

void sk_spoil(const struct shardkit *k, const char *file, uint64_t off)
{
	ck_auto_fd int fd = open(sk_path(k, file), O_WRONLY);
	struct stat was, is;

	if (fd < 0 || fstat(fd, &was))
		no(file);
	/* file times have the kernel's tick */
	do {
		if (pwrite(fd, "spoilt", 6, (off_t)off) != 6 || fstat(fd, &is))
			no(file);
	} while (is.st_mtim.tv_sec == was.st_mtim.tv_sec &&
		 is.st_mtim.tv_nsec == was.st_mtim.tv_nsec);
}

uint32_t sk_src(struct shardkit *k, const char *file)
{
	struct stat st;
	struct ck_src *s;
	uint32_t src;

	if (stat(sk_path(k, file), &st))
		no(file);
	src = ik_src(&k->ik, CK_SRC_FILE, file, (uint64_t)st.st_size);
	s = &k->ik.srcs.v[src];
	s->id = ck_id_of(&st);
	return src;
}

/* Steps @at through @len; false after the last. */
static bool next(uint64_t *at, const uint64_t *len, unsigned rank)
{
	for (unsigned d = rank; d-- > 0;) {
		if (++at[d] < len[d])
			return true;
		at[d] = 0;
	}
	return false;
}

static void strides_of(const struct shardkit *k, const struct sk_part *p,
		       int64_t *out)
{
	int64_t row = 1;

	for (unsigned d = k->rank; d-- > 0;) {
		out[d] = p->stride ? p->stride[d] : row;
		row *= (int64_t)p->len[d];
	}
}

unsigned char *sk_bytes(const struct shardkit *k, const struct sk_part *p,
			uint64_t *len, uint64_t *first)
{
	uint64_t at[8] = { 0 }, nth = 0;
	int64_t stride[8], low = 0, high = 0;
	unsigned char *bytes;

	strides_of(k, p, stride);
	for (unsigned d = 0; d < k->rank; d++) {
		int64_t span = (int64_t)(p->len[d] - 1) * stride[d];

		*(span < 0 ? &low : &high) += span;
	}
	if (p->flat) {
		low = 0;
		high = (int64_t)(p->flat[1] - p->flat[0]) - 1;
	}
	*len = (uint64_t)(high - low + 1) * k->elem;
	*first = (uint64_t)-low * k->elem;
	bytes = malloc(*len);
	if (!bytes)
		no("malloc");
	memset(bytes, 0xee, *len);
	do {
		uint64_t from = 0;
		int64_t to = -low;

		for (unsigned d = 0; d < k->rank; d++) {
			from = from * k->shape[d] + p->start[d] + at[d];
			to += (int64_t)at[d] * stride[d];
		}
		if (p->flat && (nth < p->flat[0] || nth >= p->flat[1]))
			continue;
		if (p->flat)
			to -= (int64_t)p->flat[0];
		memcpy(bytes + (uint64_t)to * k->elem, k->want + from * k->elem,
		       k->elem);
	} while (nth++, next(at, p->len, k->rank));
	return bytes;
}

static uint32_t add_chunk(struct shardkit *k, const struct sk_part *p,
			  uint32_t src, uint64_t off)
{
	struct ik_chunk c = { .rank = k->rank,
			      .start = p->start,
			      .len = p->len,
			      .stride = p->stride,
			      .flat = p->flat,
			      .item_len = p->item_len,
			      .off = off,
			      .src = src,
			      .xform = p->xform };

	k->nr_cells += !p->replica;
	return ik_chunk(&k->ik, &c);
}

uint32_t sk_part(struct shardkit *k, const struct sk_part *p)
{
	uint64_t len, first;
	ck_auto_free unsigned char *bytes = sk_bytes(k, p, &len, &first);
	ck_auto_free unsigned char *file = malloc(p->pad + len + 7);

	if (!file)
		no("malloc");
	memset(file, 0xaa, p->pad + len + 7);
	memcpy(file + p->pad, bytes, len);
	sk_put(k, p->file, file, p->pad + len + 7);
	return add_chunk(k, p, sk_src(k, p->file), p->pad + first);
}

void sk_cut(struct shardkit *k, unsigned axis, unsigned nr)
{
	uint64_t start[8] = { 0 }, len[8];
	char name[16];

	memcpy(len, k->shape, sizeof(len));
	len[axis] /= nr;
	for (unsigned i = 0; i < nr; i++) {
		struct sk_part p = {
			.file = name, .start = start, .len = len, .pad = 8 + i
		};

		snprintf(name, sizeof(name), "s%u", i);
		start[axis] = i * len[axis];
		if (i + 1 == nr)
			len[axis] = k->shape[axis] - start[axis];
		sk_part(k, &p);
	}
}

void sk_open(struct shardkit *k, const char *engine)
{
	struct ik_tensor t = { .name = "t",
			       .dtype = k->dtype,
			       .rank = k->rank,
			       .shape = k->shape,
			       .nr = k->nr_cells,
			       .nr_all = (uint32_t)k->ik.chunks.nr,
			       .covered = k->size / k->elem };
	struct ck_err err = { 0 };

	if (!k->ik.tensors.nr)
		ik_index(&k->ik, ik_tensor(&k->ik, &t));
	k->img = ik_image(&k->ik);
	k->img.blob = k->blob;
	k->img.blob_len = k->blob_len;
	k->in.img = &k->img;
	k->in.root = &k->root;
	k->in.engine = ck_engine_choose(engine, &err);
	if (!k->in.spool_dir)
		k->in.spool_dir = k->dir;
	if (!k->in.engine || ck_root_open(&k->root, k->dir, NULL, &err) ||
	    ck_reader_new(&k->r, &k->in, &err))
		no(err.msg);
}

int sk_read(struct shardkit *k, uint64_t len, uint64_t off, struct ck_err *err)
{
	ck_auto_free unsigned char *buf = malloc(len + 8);
	int ret;

	if (!buf)
		no("malloc");
	memset(buf, 0x5c, len + 8);
	ret = ck_reader_read(k->r, 0, buf, len, off, err);
	for (unsigned i = 0; i < 8; i++)
		if (buf[len + i] != 0x5c)
			no("written behind the buffer");
	if (ret == 0 && memcmp(buf, k->want + off, len)) {
		for (uint64_t i = 0; i < len; i++)
			if (buf[i] != k->want[off + i]) {
				fprintf(stderr,
					"read %llu at %llu: byte %llu is "
					"wrong\n",
					(unsigned long long)len,
					(unsigned long long)off,
					(unsigned long long)i);
				break;
			}
		abort();
	}
	return ret;
}

void sk_read_all(struct shardkit *k, unsigned nr)
{
	uint64_t state = 0x2545f4914f6cdd1d;
	struct ck_err err = { 0 };

	if (sk_read(k, k->size, 0, &err))
		no(err.msg);
	while (nr--) {
		uint64_t off = sk_random(&state) % k->size;
		uint64_t len = sk_random(&state) % (k->size - off) + 1;

		if (nr % 2 && len > 5000)
			len = len % 5000 + 1;
		if (sk_read(k, len, off, &err))
			no(err.msg);
	}
}
