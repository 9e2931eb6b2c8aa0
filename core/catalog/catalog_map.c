/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog_map.c - a catalog's bytes into memory that nobody can change
 *
 * What catalog_check.c has proved must stay true, so a file is mapped only
 * where it is sealed against writing; else its bytes are copied.
 */
#include "core/catalog/catalog.h"

#include "core/base/check.h"
#include "core/base/whole.h"
#include "core/catalog/catalog_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* Tries to seal it: the process that made it may have died before. */
static bool is_sealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals >= 0 && (seals & SEALS) != SEALS) {
		fcntl(fd, F_ADD_SEALS, SEALS);
		seals = fcntl(fd, F_GET_SEALS);
	}
	return seals >= 0 && (seals & SEALS) == SEALS;
}

/* The bytes of @fd, to @to. */
static int read_all(void *ctx, void *to, size_t len, struct ck_err *err)
{
	const int *fd = ctx;
	ssize_t n = ck_pread_most(*fd, to, len, 0);

	if (n == (ssize_t)len)
		return 0;
	return ck_fail(err, n < 0 ? (int)-n : EIO,
		       "cannot read the catalog: %s",
		       n < 0 ? strerror((int)-n) : "it ends early");
}

static int check(struct ck_catalog *img, void *base, size_t size,
		 struct ck_err *err)
{
	int ret = ck_catalog_check(img, base, size, err);

	if (!ret)
		return 0;
	munmap(base, size);
	*img = (struct ck_catalog){ 0 };
	return ret;
}

static int check_size(uint64_t size, struct ck_err *err)
{
	if (size >= sizeof(struct ck_catalog_head) && size <= CK_SIZE_MAX)
		return 0;
	return ck_fail(err, EINVAL,
		       "the catalog has %llu bytes, too few for its head",
		       (unsigned long long)size);
}

int ck_catalog_fill(struct ck_catalog *img, uint64_t size,
		    ck_catalog_fill_fn fill, void *ctx, struct ck_err *err)
{
	int ret = check_size(size, err);
	void *base;

	*img = (struct ck_catalog){ 0 };
	if (ret)
		return ret;
	base = mmap(NULL, size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return ck_fail(err, errno, "no memory for the catalog: %s",
			       strerror(errno));
	madvise(base, size, MADV_HUGEPAGE);
	ret = fill(ctx, base, size, err);
	if (ret) {
		munmap(base, size);
		return ret;
	}
	mprotect(base, size, PROT_READ);
	return check(img, base, size, err);
}

int ck_catalog_map(struct ck_catalog *img, int fd, struct ck_err *err)
{
	struct stat st;
	void *base;
	int ret;

	*img = (struct ck_catalog){ 0 };
	if (fstat(fd, &st))
		return ck_fail(err, errno, "cannot stat the catalog: %s",
			       strerror(errno));
	if (!is_sealed(fd))
		return ck_catalog_fill(img, (uint64_t)st.st_size, read_all, &fd,
				       err);
	ret = check_size((uint64_t)st.st_size, err);
	if (ret)
		return ret;
	base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (base == MAP_FAILED)
		return ck_fail(err, errno, "cannot map the catalog: %s",
			       strerror(errno));
	return check(img, base, (size_t)st.st_size, err);
}

int ck_catalog_file(int *fd, struct ck_err *err)
{
	*fd = memfd_create("unshard-image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return *fd < 0 ? ck_fail(err, errno, "memfd: %s", strerror(errno)) : 0;
}

int ck_catalog_seal(int fd, struct ck_err *err)
{
	if (fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL))
		return ck_fail(err, errno, "sealing the image: %s",
			       strerror(errno));
	return 0;
}

void ck_catalog_unmap(struct ck_catalog *img)
{
	if (img->base)
		munmap((void *)(uintptr_t)img->base, img->size);
	*img = (struct ck_catalog){ 0 };
}
