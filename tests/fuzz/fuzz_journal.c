/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_journal.c - any bytes behind the head of a journal; and records that fit
 * their sums, made of the input, with some of their bytes changed
 *
 * What is read has numbers in their order, and can be gone on with.
 */
#include "core/root/journal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD 64

static int see(void *ctx, const struct ck_journal_record *r, struct ck_err *err)
{
	uint64_t *nr = ctx;
	const unsigned char *v = r->body;
	unsigned sum = 0;

	(void)err;
	if (r->number != ++*nr || r->len > CK_JOURNAL_BODY ||
	    (uintptr_t)r->body % 8)
		abort();
	for (uint32_t i = 0; i < r->len; i++)
		sum += v[i];
	return sum == 12345 ? -1 : 0;
}

static void read_it(int fd, bool same_boot)
{
	struct ck_journal j = {
		.fd = fd, .end = HEAD, .same_boot = same_boot, .what = "j"
	};
	struct ck_err err = { 0 };
	uint64_t nr = 0, was;
	int ret = ck_journal_replay(&j, see, &nr, &err);

	if (ret) {
		if (ret != -1 && (!err.code || !err.msg[0]))
			abort();
		return;
	}
	was = nr;
	if (ck_journal_append(&j, 1, "x", 1, &err) ||
	    ck_journal_replay(&j, see, &nr, &err) || nr != was)
		abort();
	j.end = HEAD;
	j.number = j.known = nr = 0;
	if (ck_journal_replay(&j, see, &nr, &err) || nr != was + 1)
		abort();
}

/* A record of each length that a byte says; behind it, where one is changed. */
static void make(int fd, const uint8_t *data, size_t size)
{
	struct ck_journal j = { .fd = fd, .end = HEAD, .what = "j" };
	size_t at = 0, len;

	for (; at + 3 < size; at += 3 + len) {
		len = data[at];
		if (len > size - at - 3)
			len = size - at - 3;
		if (ck_journal_append(&j, data[at + 1], data + at + 3,
				      (uint32_t)len, NULL))
			abort();
		if (data[at + 2] & 1 && ck_journal_sync(&j, NULL))
			abort();
		/* of this record, or of one before it */
		if (data[at + 2] & 2 &&
		    pwrite(fd, data + at, 1,
			   HEAD + (off_t)((j.end - HEAD) * data[at + 2] /
					  256)) < 0)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;

	if (fd < 0)
		fd = memfd_create("journal", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, 0) || ftruncate(fd, HEAD) ||
	    (size && pwrite(fd, data, size, HEAD) < 0))
		return 0;
	read_it(fd, size & 1);
	if (ftruncate(fd, HEAD))
		return 0;
	make(fd, data, size);
	read_it(fd, size & 1);
	return 0;
}
