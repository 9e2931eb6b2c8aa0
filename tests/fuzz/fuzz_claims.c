/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_claims.c - records of any bytes in journals of claims, of two that wrote
 *
 * What is said to be good has all that it needs, and each file one who said it.
 */
#include "core/slices/claims.h"
#include "core/root/journal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KIND 2
#define ID 7

static const struct ck_slice_plan_file files[] = {
	{ .size = (UINT64_C(9) << 20) + 5, .first = 0, .nr = 3 },
	{ .size = 100, .data = 8, .first = 3, .nr = 1 },
};
static const struct ck_slice_plan plan = {
	.files = files, .nr_files = 2, .nr_pieces = 4, .id = ID
};

/* Of @data: a type, whose it is, two bytes of a length, and that. */
static void make(struct ck_journal *j, const uint8_t *data, size_t size,
		 uint8_t whose)
{
	for (size_t at = 0, len; at + 4 <= size; at += 4 + len) {
		len = (size_t)(data[at + 2] | data[at + 3] << 8);
		if (len > size - at - 4)
			len = size - at - 4;
		if (len <= CK_JOURNAL_BODY && (data[at + 1] & 1) == whose &&
		    ck_journal_append(j, data[at], data + at + 4, (uint32_t)len,
				      NULL))
			abort();
	}
}

static void look(const struct ck_claims_sums *told)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < 2; i++) {
		const struct ck_claims_sums *s = &told[i];

		if (!s->good)
			continue;
		if (s->id.size != files[i].size)
			abort();
		for (uint64_t k = 0; k < ck_claims_blocks(&files[i]); k++)
			sum += s->block[k];
		for (size_t k = 0; k < s->digest.nr; k++)
			if (s->digest.v[k].piece < files[i].first ||
			    s->digest.v[k].piece >=
				    files[i].first + files[i].nr ||
			    (k &&
			     s->digest.v[k].piece <= s->digest.v[k - 1].piece))
				abort();
	}
	if (sum == 12345)
		fputs("", stderr);
}

static void read_them(int dir)
{
	struct ck_err err = { 0 };
	struct ck_claims_sums *told;
	struct ck_claims *c;
	int ret = ck_claims_open(&c, dir, &plan, &err);

	if (ret && (!err.code || !err.msg[0]))
		abort();
	if (ret)
		return;
	ret = ck_claims_told(c, &told, &err);
	if (ret && (!err.code || !err.msg[0]))
		abort();
	if (!ret) {
		look(told);
		ck_claims_told_free(&plan, told);
	}
	ck_claims_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const name[] = { "w-0000000000000001.log",
					    "w-0000000000000002.log" };
	char path[] = "/tmp/fuzz-claims.XXXXXX";
	int dir = mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY) : -1;

	for (uint8_t i = 0; i < 2 && dir >= 0; i++) {
		struct ck_journal j;

		if (ck_journal_make(&j, dir, name[i], KIND, ID, "", NULL))
			abort();
		make(&j, data, size, i);
		ck_journal_close(&j);
	}
	if (dir >= 0) {
		read_them(dir);
		unlinkat(dir, name[0], 0);
		unlinkat(dir, name[1], 0);
		close(dir);
		rmdir(path);
	}
	return 0;
}
