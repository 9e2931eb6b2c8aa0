/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_examples - each tensor of the examples of all formats, as one load
 *
 * Whole, and a slice of it into memory of other strides, cast where it is a
 * float; against what the reader says of the same box, its errors too.  All of it
 * twice: into memory of the host, and of the simulated device.
 */
#include "core/base/check.h"
#include "core/ckpt/ckpt.h"
#include "core/device/ring.h"
#include "core/geom/cast.h"
#include "tests/lib/loadkit.h"
#include "tests/lib/openckpt.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOP "tests/formats"
#define MAX_BYTES (UINT64_C(64) << 20) /* of a tensor that is tried */

/* Two for each tensor: the whole, and a slice. */
struct tried {
	struct ck_load_item in;
	struct ck_box box;
	int64_t stride[CK_MAX_RANK];
	unsigned char *mem;
	uint64_t bytes, first;
	uint64_t there; /* on the device; 0: it is not */
};

static struct ck_device *dev;
static struct ck_ring *ring;

static uint64_t seed = 1;
static unsigned nr_ckpts, nr_items, nr_failed;

static uint64_t rnd(uint64_t n)
{
	return sk_random(&seed) % n;
}

/* The axes in reverse, every second backwards, with gaps. */
static uint64_t turn(struct tried *it)
{
	uint64_t step = 1;

	for (unsigned d = 0; d < it->box.rank; d++) {
		it->stride[d] = (int64_t)step;
		if (d % 2 && it->box.len[d]) {
			it->first += step * (it->box.len[d] - 1);
			it->stride[d] = -it->stride[d];
		}
		step = step * CK_MAX(it->box.len[d], 1) + d;
	}
	return step;
}

static void make(struct tried *it, const struct ck_catalog *img, uint32_t t,
		 bool whole)
{
	const struct ck_tensor *ten = &img->tensors[t];
	const uint64_t *shape = img->dims + ten->shape;
	enum ck_dtype to = ten->dtype;
	uint64_t elems = 1;

	*it = (struct tried){ .in.tensor = t, .box.rank = ten->rank };
	for (unsigned d = 0; d < ten->rank; d++) {
		uint64_t n = shape[d];

		it->box.start[d] = whole || n < 2 ? 0 : rnd(n / 2);
		it->box.len[d] = whole || n < 2 ? n : 1 + rnd(n / 2);
		elems *= it->box.len[d];
	}
	if (!whole) {
		elems = turn(it);
		it->in.stride = it->stride;
		it->in.start = it->box.start;
		it->in.len = it->box.len;
		if (ck_cast_has(ten->dtype, CK_DT_F32))
			it->in.dtype = to = CK_DT_F32;
	}
	it->bytes = elems * ck_dtype_info(to)->size;
	it->mem = calloc(1, it->bytes + 16);
	LK_CHECK(it->mem);
	it->in.mem = it->mem + it->first * ck_dtype_info(to)->size;
}

static void move_in(struct tried *it)
{
	uint64_t room = it->bytes + 16;

	LK_CHECK(!ck_device_alloc(dev, room, &it->there, NULL));
	it->in.mem =
		(void *)(uintptr_t)(it->there +
				    (uint64_t)((unsigned char *)it->in.mem -
					       it->mem));
}

/* What is there by now. */
static void look_at(struct tried *it)
{
	if (!it->there)
		return;
	LK_CHECK(!ck_device_get(dev, it->mem, it->there, it->bytes + 16, NULL));
	LK_CHECK(!ck_device_free(dev, it->there, NULL));
}

/* Element @i of the box, which is @v, is where it should be. */
static void check_elem(const struct tried *it, const struct ck_tensor *t,
		       uint64_t i, const unsigned char *v)
{
	unsigned char want[16];
	uint64_t at[CK_MAX_RANK], mem = i, size = ck_dtype_info(t->dtype)->size;

	if (it->in.stride) {
		ck_dims_coords(it->box.len, it->box.rank, i, at);
		mem = it->first;
		for (unsigned d = 0; d < it->box.rank; d++)
			mem += at[d] * (uint64_t)it->stride[d];
	}
	memcpy(want, v, size);
	if (it->in.dtype != CK_DT_NONE) {
		ck_cast_as_torch(t->dtype, v, it->in.dtype, want, 1);
		size = ck_dtype_info(it->in.dtype)->size;
	}
	LK_CHECK(!memcmp(it->mem + mem * size, want, size));
}

static void check(struct ck_ckpt *ck, const struct tried *it, int ret,
		  const struct ck_err *err)
{
	const struct ck_tensor *t =
		&ck_ckpt_catalog(ck)->tensors[it->in.tensor];
	uint64_t size = ck_dtype_info(t->dtype)->size, elems = 1;
	struct ck_err why = { 0 };
	unsigned char *ref;
	int expected;

	for (unsigned d = 0; d < it->box.rank; d++)
		elems *= it->box.len[d];
	ref = malloc(elems * size + 1);
	LK_CHECK(ref);
	expected = ck_ckpt_read_box(ck, it->in.tensor, &it->box, ref,
				    elems * size, &why);
	if (ret != expected)
		fprintf(stderr, "%d: %s\nreader %d: %s\n", ret, err->msg,
			expected, why.msg);
	LK_CHECK(ret == expected);
	for (uint64_t i = 0; !ret && i < elems; i++)
		check_elem(it, t, i, ref + i * size);
	nr_items++;
	nr_failed += ret != 0;
	free(ref);
}

static void try_all(struct ck_ckpt *ck, struct ck_load_pool *pool,
		    bool on_device)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	struct tried *v = calloc(2 * img->nr_tensors + 1, sizeof(*v));
	struct ck_load_item *item =
		calloc(2 * img->nr_tensors + 1, sizeof(*item));
	struct ck_load_in in = { .reader = ck_ckpt_reader(ck),
				 .ring = on_device ? ring : NULL,
				 .item = item };
	struct ck_err err = { 0 };
	struct ck_load *load;
	size_t at;
	int ret;

	LK_CHECK(v && item);
	for (uint32_t t = 0; t < img->nr_tensors; t++)
		for (unsigned k = 0;
		     k < 2 && img->tensors[t].size < MAX_BYTES &&
		     ck_dtype_info(img->tensors[t].dtype)->size;
		     k++) {
			make(&v[in.nr], img, t, !k);
			if (on_device)
				move_in(&v[in.nr]);
			item[in.nr] = v[in.nr].in;
			in.nr++;
		}
	ret = ck_load_start(&load, pool, &in, &at, &err);
	if (ret)
		fprintf(stderr, "item %zu: %s\n", at, err.msg);
	LK_CHECK(!ret);
	while ((ret = ck_load_next(load, -1, &at, &err)) <= 0) {
		look_at(&v[at]);
		check(ck, &v[at], ret, &err);
	}
	ck_load_free(load);
	for (size_t i = 0; i < in.nr; i++)
		free(v[i].mem);
	free(v);
	free(item);
}

/* The one line of file @name of example @at, without its end; or NULL. */
static char *line_of(const char *at, const char *name)
{
	char path[512], *line = NULL;
	size_t room = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", at, name);
	f = fopen(path, "r");
	if (!f)
		return NULL;
	if (getline(&line, &room, f) > 0)
		line[strcspn(line, "\n")] = '\0';
	fclose(f);
	return line;
}

static void try_example(const char *at, struct ck_load_pool *pool)
{
	char path[512], *only = line_of(at, "only"), *opt = line_of(at, "opts");
	char *value = opt ? strchr(opt, '=') : NULL;
	struct ck_opts opts = { 0 };
	struct ck_err err = { 0 };
	struct ck_ckpt *ck;

	if (value)
		*value++ = '\0';
	LK_CHECK(!ck_opts_add(&opts, "sandbox", "off"));
	LK_CHECK(!opt || !ck_opts_add(&opts, opt, value ? value : ""));
	snprintf(path, sizeof(path), "%s/in%s%s", at, only ? "/" : "",
		 only ? only : "");
	if (!access(path, F_OK) && !open_ckpt(&ck, path, &opts, &err)) {
		try_all(ck, pool, false);
		try_all(ck, pool, true);
		ck_ckpt_close(ck);
		nr_ckpts++;
	}
	ck_opts_free(&opts);
	free(only);
	free(opt);
}

static void try_format(const char *at, struct ck_load_pool *pool)
{
	DIR *dir = opendir(at);
	const struct dirent *e;
	char path[400];

	while (dir && (e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%.120s/%s", at, e->d_name);
		try_example(path, pool);
	}
	if (dir)
		closedir(dir);
}

int main(void)
{
	struct ck_load_pool *pool;
	struct ck_err err = { 0 };
	DIR *dir = opendir(TOP);
	const struct dirent *e;
	char path[300];

	LK_CHECK(dir && !ck_load_pool_new(&pool, 2, &err));
	LK_CHECK(!ck_device_open(&dev, "simulated:late=20", &err));
	LK_CHECK(!ck_load_ring_new(&ring, pool, dev, 3, CK_LOAD_CHUNK_MIN,
				   &err));
	while ((e = readdir(dir))) {
		if (e->d_name[0] == '.' || strchr(e->d_name, '.'))
			continue;
		snprintf(path, sizeof(path), TOP "/%s", e->d_name);
		try_format(path, pool);
	}
	closedir(dir);
	ck_ring_free(ring);
	ck_device_close(dev);
	ck_load_pool_free(pool);
	printf("%u checkpoints, %u items, %u of them refused\n", nr_ckpts,
	       nr_items, nr_failed);
	LK_CHECK(nr_ckpts > 100 && nr_items > 1000);
	return 0;
}
