/* SPDX-License-Identifier: Apache-2.0 */
/* Catalogs that were damaged: refused, or harmless. */
#include "tests/unit/catalog/kit.h"

#include "core/catalog/catalog_priv.h"
#include "tests/lib/imagewalk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned char *sample, *bytes;
static size_t size;

static void set_up(void)
{
	sample = imagewalk_sample(2, &size);
	bytes = malloc(size);
	memcpy(bytes, sample, size);
}

static void tear_down(void)
{
	free(sample);
	free(bytes);
}

TestSuite(catalog, .init = set_up, .fini = tear_down);

static struct ck_catalog_head *head(void)
{
	return (void *)bytes;
}

static void *record(unsigned sec, size_t i)
{
	const struct ck_catalog_sec *s = &head()->sec[sec];

	cr_assert_lt(i, s->nr);
	return bytes + s->off + i * s->elem;
}

static struct ck_tensor *tensor(const char *name)
{
	for (size_t i = 0; i < head()->sec[CK_SEC_TENSORS].nr; i++) {
		struct ck_tensor *t = record(CK_SEC_TENSORS, i);
		const char *s = (char *)bytes + head()->sec[CK_SEC_STRS].off +
				t->name + 4;

		if (!strcmp(s, name))
			return t;
	}
	cr_assert_fail("no tensor %s", name);
	return NULL;
}

static struct ck_chunk *chunk(const char *name, uint32_t i)
{
	return record(CK_SEC_CHUNKS, tensor(name)->first + i);
}

static uint64_t *dims(uint32_t ref)
{
	return record(CK_SEC_DIMS, ref);
}

static void refused(const char *why)
{
	struct ck_catalog img;
	struct ck_err err;

	cr_assert_eq(ck_catalog_check(&img, bytes, size, &err), -EINVAL,
		     "accepted, not: %s", why);
	cr_expect(strstr(err.msg, why), "\"%s\" is not \"%s\"", err.msg, why);
	memcpy(bytes, sample, size);
	cr_assert_eq(ck_catalog_check(&img, bytes, size, &err), 0);
}

Test(catalog, as_it_is)
{
	struct ck_catalog img;
	struct ck_err err;

	cr_assert_eq(ck_catalog_check(&img, bytes, size, &err), 0, "%s",
		     err.msg);
	imagewalk(&img);
	cr_expect_gt(img.nr_tensors, 10);
	cr_expect_gt(img.nr_srcs, 4);
	cr_expect_gt(img.nr_problems, 3);
}

Test(catalog, head)
{
	head()->magic ^= 1;
	refused("its first bytes");
	head()->version++;
	refused("of version 5, not 4");
	head()->size--;
	refused("bytes that has");
	head()->sec[CK_SEC_DIMS].off += 4;
	refused("section 8 of the catalog is not inside it");
	head()->sec[CK_SEC_BLOB].nr = size;
	refused("section 10 of the catalog is not inside it");
	head()->sec[CK_SEC_TENSORS].nr = UINT64_MAX / 8;
	refused("section 0 of the catalog is not inside it");
	head()->sec[CK_SEC_CHUNKS].elem = 8;
	refused("section 1 of the catalog is not inside it");
	head()->format = UINT32_MAX - 3;
	refused("names no format");
	head()->save = UINT32_MAX - 3;
	refused("says which save it is of by no text");
}

Test(catalog, tensors)
{
	tensor("whole")->name = UINT32_MAX - 3;
	refused("its names");
	tensor("whole")->file = tensor("mesh")->file;
	refused("its place in the order of names");
	tensor("whole")->file = tensor("../strided")->name;
	refused("its names");
	tensor("whole")->tree = 2;
	refused("its names");
	tensor("packed")->path = UINT32_MAX - 1;
	refused("its names");
	tensor("whole")->rank = 65;
	refused("its rank, dtype or shape");
	tensor("whole")->dtype = CK_DT_NR;
	refused("its rank, dtype or shape");
	tensor("whole")->dtype = CK_DT_NONE;
	refused("its rank, dtype or shape");
	tensor("whole")->state = 3;
	refused("its rank, dtype or shape");
	tensor("whole")->shape = (uint32_t)head()->sec[CK_SEC_DIMS].nr;
	refused("its rank, dtype or shape");
	tensor("whole")->size++;
	refused("its size");
	tensor("grid")->grid++;
	refused("tensor");
	tensor("whole")->newest = 99;
	refused("its newest source");
	tensor("whole")->first++;
	refused("its place among the parts");
	tensor("whole")->nr_all = 1 << 30;
	refused("its place among the parts");
	tensor("whole")->nr = 0;
	refused("its number of cells");
	tensor("whole")->covered--;
	refused("how much its cells cover");
}

Test(catalog, chunks)
{
	const char *why = "one of its parts";

	chunk("whole", 0)->src = 99;
	refused(why);
	chunk("whole", 0)->layout = 99;
	refused(why);
	chunk("whole", 0)->corner = (uint32_t)head()->sec[CK_SEC_DIMS].nr - 1;
	refused(why);
	chunk("whole", 0)->state = 3;
	refused(why);
	chunk("whole", 0)->op = CK_OP_ADD;
	refused(why);
	chunk("whole", 0)->sum = 0;
	refused(why);
	chunk("whole", 0)->off = 4096;
	refused(why);
	chunk("whole", 0)->off = UINT64_MAX;
	refused(why);
	chunk("kept", 0)->off = 4;
	refused(why);
	chunk("torn", 0)->state = CK_OK;
	refused(why);
	chunk("gone", 0)->state = CK_OK;
	refused(why);
	chunk("../strided", 0)->off = 12 * 7 + 24;
	refused(why);
	*dims(chunk("whole", 0)->corner) = 1;
	refused(why);
	*dims(chunk("flat", 0)->corner + 3) = 33;
	refused(why);
	*dims(chunk("flat", 0)->corner + 3) = 0;
	refused(why);
	*dims(chunk("hole", 0)->corner) = UINT64_MAX;
	refused(why);
}

/* Instead of the sample: four parts of one layout, as a large index has them. */
static void of_one_layout(void)
{
	struct kit k = kit_new();
	uint32_t src = kit_file(&k, "f", 4096);
	const struct ck_catalog *img;

	for (uint64_t i = 0; i < 4; i++) {
		struct ck_part p = kit_part("items", src);

		p.start = DIMS(i, 0);
		p.len = DIMS(1, 8);
		p.off = i * 100;
		p.item_len = 77;
		kit_add(&k, &p);
	}
	img = kit_image(&k);
	tear_down();
	size = img->size;
	sample = malloc(size);
	bytes = malloc(size);
	memcpy(sample, img->base, size);
	memcpy(bytes, img->base, size);
	kit_free(&k);
}

/* Each of them is looked at. */
Test(catalog, chunks_of_one_layout)
{
	const char *why = "one of its parts";

	of_one_layout();
	chunk("items", 2)->src = 99;
	refused(why);
	chunk("items", 2)->corner = (uint32_t)head()->sec[CK_SEC_DIMS].nr - 2;
	refused(why);
	chunk("items", 2)->state = 3;
	refused(why);
	chunk("items", 2)->op = CK_OP_ADD;
	refused(why);
	chunk("items", 2)->sum = 0;
	refused(why);
	chunk("items", 2)->off = UINT64_MAX;
	refused(why);
	*dims(chunk("items", 2)->corner) = 15;
	refused(why);
	*dims(chunk("items", 2)->corner + 2) = 0;
	refused(why);
	*dims(chunk("items", 2)->corner + 2) = UINT64_C(1) << 40;
	refused(why);
	chunk("items", 0)->layout = CK_NONE;
	refused(why);
}

Test(catalog, rings_and_trees)
{
	struct ck_tensor *t = tensor("mesh");

	cr_assert_eq(t->nr, 25);
	cr_assert_eq(t->nr_all, 50);
	chunk("mesh", 0)->next = t->first;
	refused("a ring of one");
	chunk("mesh", 0)->next = chunk("mesh", 1)->next;
	refused("a ring");
	chunk("mesh", 0)->next = CK_NONE;
	refused("a replica in no ring");
	chunk("mesh", 0)->next = t->first + 1;
	refused("a ring that leads astray");
	chunk("mesh", 0)->next = UINT32_MAX - 1;
	refused("a ring that leads astray");
	chunk("mesh", 30)->next = t->first + 30;
	refused("a ring");
	chunk("mesh", 30)->next = CK_NONE;
	refused("a ring of unequal parts");
	*dims(t->index) += 1;
	refused("the bounds in its tree");
	t->index = CK_NONE;
	refused("its tree");
	tensor("whole")->index = 0;
	refused("a needless tree");
}

Test(catalog, sources_objects_problems)
{
	const struct ck_src *s = record(CK_SEC_SRCS, 0);
	struct ck_src *mem = NULL, *packed = NULL, *gone = NULL;

	for (size_t i = 0; i < head()->sec[CK_SEC_SRCS].nr; i++) {
		struct ck_src *x = record(CK_SEC_SRCS, i);

		mem = x->kind == CK_SRC_MEM ? x : mem;
		packed = x->kind == CK_SRC_CODEC ? x : packed;
		gone = x->kind == CK_SRC_ABSENT ? x : gone;
	}
	cr_assert(s && mem && packed && gone);
	mem->off = 1;
	refused("source");
	packed->parent = (uint32_t)(packed - s);
	refused("source");
	packed->parent = CK_NONE;
	refused("source");
	packed->len = 5000;
	refused("source");
	packed->codec = 9;
	refused("source");
	gone->state = CK_OK;
	refused("source");
	gone->kind = CK_SRC_TENSOR;
	refused("source");
	gone->name = CK_NONE;
	refused("source");
	((struct ck_src *)record(CK_SEC_INDEXES, 0))->name = CK_NONE;
	refused("index 0 of the catalog is wrong");
	((struct ck_src *)record(CK_SEC_INDEXES, 0))->kind = CK_SRC_MEM;
	refused("index 0 of the catalog is wrong");
	((struct ck_object *)record(CK_SEC_OBJECTS, 0))->src = 99;
	refused("object 0 of the catalog is wrong");
	((struct ck_object *)record(CK_SEC_OBJECTS, 0))->enc = 9;
	refused("object 0 of the catalog is wrong");
	((struct ck_problem *)record(CK_SEC_PROBLEMS, 1))->severity = 3;
	refused("problem 1 of the catalog is wrong");
	((struct ck_problem *)record(CK_SEC_PROBLEMS, 1))->reason = CK_NONE;
	refused("problem 1 of the catalog is wrong");
	*(uint32_t *)record(CK_SEC_TREES, 1) = CK_NONE;
	refused("tree 1 of the catalog is wrong");
}

/* Any byte may be anything. */
Test(catalog, every_byte_damaged, .timeout = 120)
{
	static const unsigned char with[] = { 0x01, 0x80, 0xff };
	unsigned accepted = 0;

	for (size_t i = 0; i < size; i++) {
		for (unsigned v = 0; v < sizeof(with); v++) {
			struct ck_catalog img;

			bytes[i] ^= with[v];
			if (!ck_catalog_check(&img, bytes, size, NULL)) {
				accepted++;
				imagewalk(&img);
			}
			bytes[i] = sample[i];
		}
	}
	cr_expect_gt(accepted, 100, "times stamps and names may be anything");
}

Test(catalog, every_length)
{
	struct ck_catalog img;

	for (size_t n = sizeof(struct ck_catalog_head); n < size; n += 8) {
		unsigned char *cut = malloc(n);

		memcpy(cut, sample, n);
		cr_assert_neq(ck_catalog_check(&img, cut, n, NULL), 0);
		/* the same, with a size that says so */
		((struct ck_catalog_head *)cut)->size = n;
		cr_assert_neq(ck_catalog_check(&img, cut, n, NULL), 0);
		free(cut);
	}
}

static int file_of(size_t len, unsigned flags)
{
	int fd = memfd_create("image", flags);

	cr_assert_eq(write(fd, sample, len), (ssize_t)len);
	return fd;
}

/* What is mapped stays as it was checked, whatever becomes of the file. */
Test(catalog, a_mapped_image_cannot_change)
{
	for (unsigned sealable = 0; sealable < 2; sealable++) {
		int fd = file_of(size, sealable ? MFD_ALLOW_SEALING : 0);
		struct ck_catalog img;
		struct ck_err err;

		cr_assert_eq(ck_catalog_map(&img, fd, &err), 0, "%s", err.msg);
		cr_expect_eq(pwrite(fd, "XXXX", 4, 0), sealable ? -1 : 4);
		cr_expect_eq(ftruncate(fd, 0), sealable ? -1 : 0);
		close(fd);
		cr_expect_eq(img.size, size);
		cr_expect(!memcmp(img.base, sample, size));
		ck_catalog_unmap(&img);
		ck_catalog_unmap(&img);
	}
}

Test(catalog, no_image_at_all)
{
	struct ck_catalog img;
	struct ck_err err;
	int fd = file_of(20, 0);

	cr_expect_eq(ck_catalog_map(&img, fd, &err), -EINVAL);
	cr_expect(strstr(err.msg, "20 bytes, too few"));
	cr_expect_null(img.base);
	close(fd);
	fd = memfd_create("zeros", 0);
	cr_assert_eq(ftruncate(fd, 4096), 0);
	cr_expect_eq(ck_catalog_map(&img, fd, &err), -EINVAL);
	close(fd);
	cr_expect_eq(ck_catalog_map(&img, -1, &err), -EBADF);
}
