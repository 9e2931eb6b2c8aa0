/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_overlay.c - any bytes as an overlay's log, of two files
 *
 * The first byte says whether the log may be cut off; sums are made right, so
 * that inputs get past them.  Places that are given out lie in the log.
 */
#include "core/base/check.h"
#include "core/base/le.h"
#include "core/write/overlay_priv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD 40

static const uint64_t sizes[] = { 10000, 0, 3 << 20 };

/* As overlay_log.c has it, wherever records seem to begin. */
static void fix_sums(uint8_t *log, size_t len)
{
	for (size_t at = 0; at + HEAD <= len;) {
		size_t n = ck_le32(log + at + 28);

		if (n > len - at - HEAD)
			return;
		ck_le64_put(log + at + 32,
			    XXH3_64bits_withSeed(log + at + HEAD, n,
						 XXH3_64bits(log + at, 32)));
		at += HEAD + n;
	}
}

static void check_map(const struct ck_overlay *o, uint32_t src, uint64_t len)
{
	const struct ck_overlay_map *m = &o->map[src];

	for (uint64_t k = 0; k * CK_OVERLAY_BLOCK < m->size; k++) {
		uint64_t at = ck_overlay_map_get(m, k);
		uint64_t end = CK_MIN((k + 1) * CK_OVERLAY_BLOCK, m->size);

		if (at && (at < HEAD ||
			   !ck_range_ok(at, end - k * CK_OVERLAY_BLOCK, len)))
			abort();
	}
}

static void replay(const uint8_t *log, size_t len, bool write)
{
	struct ck_catalog img = { .nr_srcs = 3 };
	struct ck_overlay_map map[3] = { 0 };
	struct ck_overlay o = { .img = &img, .map = map, .write = write };
	struct ck_err err = { 0 };
	struct stat st;
	int ret;

	o.log_fd = memfd_create("log", MFD_CLOEXEC);
	o.buf = malloc(CK_OVERLAY_BUF);
	if (o.log_fd < 0 || !o.buf ||
	    pwrite(o.log_fd, log, len, 0) != (ssize_t)len)
		abort();
	for (unsigned i = 0; i < 3; i++)
		map[i].size = sizes[i];
	ret = ck_overlay_replay(&o, &err);
	if (ret && (err.code != -ret || !err.msg[0]))
		abort();
	if (fstat(o.log_fd, &st) || (ret && (size_t)st.st_size != len) ||
	    (!ret && write && (uint64_t)st.st_size != o.end))
		abort();
	for (unsigned i = 0; i < 3; i++) {
		check_map(&o, i, len);
		ck_overlay_map_free(&map[i]);
	}
	free(o.buf);
	close(o.log_fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *log;

	if (!size || size > 1 << 20)
		return 0;
	replay(data + 1, size - 1, data[0] & 1);
	log = malloc(size);
	if (!log)
		return 0;
	memcpy(log, data + 1, size - 1);
	fix_sums(log, size - 1);
	replay(log, size - 1, data[0] & 1);
	free(log);
	return 0;
}
