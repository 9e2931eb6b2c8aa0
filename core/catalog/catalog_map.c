/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog_map.c - a catalog's bytes into memory that nobody can change
 *
 * What catalog_check.c has proved must stay true, so a file is mapped only
 * where it is sealed against writing; else its bytes are copied.
 */
#include "core/catalog/catalog.h"

#include "core/base/auto.h"
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

static int read_all(int fd, unsigned char *to, size_t len, struct ck_err *err)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, to + done, len - done, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return ck_fail(err, n ? errno : EIO,
				       "cannot read the catalog: %s",
				       n ? strerror(errno) : "it ends early");
		done += (size_t)n;
	}
	return 0;
}

static int bring_in(void **base, int fd, size_t size, struct ck_err *err)
{
	bool sealed = is_sealed(fd);
	int ret = 0;

	*base = mmap(NULL, size, PROT_READ | (sealed ? 0 : PROT_WRITE),
		     MAP_PRIVATE | (sealed ? 0 : MAP_ANONYMOUS),
		     sealed ? fd : -1, 0);
	if (*base == MAP_FAILED)
		return ck_fail(err, errno, "cannot map the catalog: %s",
			       strerror(errno));
	if (!sealed)
		ret = read_all(fd, *base, size, err);
	if (!ret && !sealed)
		mprotect(*base, size, PROT_READ);
	if (ret)
		munmap(*base, size);
	return ret;
}

int ck_catalog_map(struct ck_catalog *img, int fd, struct ck_err *err)
{
	struct stat st;
	void *base;
	size_t size;
	int ret;

	*img = (struct ck_catalog){ 0 };
	if (fstat(fd, &st))
		return ck_fail(err, errno, "cannot stat the catalog: %s",
			       strerror(errno));
	if (st.st_size < (off_t)sizeof(struct ck_catalog_head))
		return ck_fail(
			err, EINVAL,
			"the catalog has %lld bytes, too few for its head",
			(long long)st.st_size);
	size = (size_t)st.st_size;
	ret = bring_in(&base, fd, size, err);
	if (ret)
		return ret;
	ret = ck_catalog_check(img, base, size, err);
	if (ret) {
		munmap(base, size);
		*img = (struct ck_catalog){ 0 };
	}
	return ret;
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
