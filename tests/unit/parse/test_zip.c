/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of torch and Python, and archives that two readers read apart. */
#include "core/base/limits.h"
#include "core/parse/zip.h"
#include "tests/unit/parse/data.h"
#include "tests/unit/parse/zip_make.h"

#include <criterion/criterion.h>
#include <string.h>

static struct ck_err err;
static struct zip z;
static struct ck_zip_end end;

/* All three steps over every member of the archive; the last payload. */
static int walk(const uint8_t *v, size_t len, uint64_t *payload)
{
	struct ck_zip_entry *e;
	int ret = ck_zip_end(v, len, len, &end, &err);

	if (!ret)
		ret = ck_zip_dir(v + end.dir_off, end.dir_len, &end, &e, &err);
	if (ret)
		return ret;
	for (uint64_t i = 0; !ret && i < end.nr; i++)
		ret = ck_zip_local(v + e[i].local_off, len - e[i].local_off,
				   &e[i], payload, &err);
	free(e);
	return ret;
}

static const struct zip_member two[] = {
	{ .name = "a/data.pkl", .bytes = "pickle", .len = 6, .padding = 20 },
	{ .name = "a/data/0", .bytes = "01234567", .len = 8, .padding = 5 },
};

static struct zip_member m[2];

static void fresh(void)
{
	memcpy(m, two, sizeof(m));
	memset(&z, 0, sizeof(z));
}

#define cr_refused(text)                                                      \
	do {                                                                  \
		uint64_t at_;                                                 \
		cr_expect_eq(walk(z.v, z.len, &at_), -EINVAL, "not refused"); \
		cr_expect(strstr(err.msg, text), "%s", err.msg);              \
	} while (0)

/* @change two members, and the archive is refused with @text. */
#define cr_refused_with(change, text) \
	do {                          \
		fresh();              \
		change;               \
		zip_make(&z, m, 2);   \
		cr_refused(text);     \
	} while (0)

#define cr_refused_after(change, text) \
	do {                           \
		fresh();               \
		zip_make(&z, m, 2);    \
		change;                \
		cr_refused(text);      \
	} while (0)

Test(zip, made)
{
	uint64_t at = 0;

	for (unsigned plain = 0; plain < 2; plain++) {
		fresh();
		z.plain = plain;
		zip_make(&z, m, 2);
		cr_assert_eq(walk(z.v, z.len, &at), 0, "%s", err.msg);
		cr_expect_eq(at, z.at[1].payload);
		cr_expect_eq(end.nr, 2);
	}
	zip_make(&z, m, 0);
	cr_expect_eq(walk(z.v, z.len, &at), 0, "%s", err.msg);
	cr_expect_eq(end.nr, 0);
}

static void check_real(const char *name, const char *last, uint64_t payload,
		       uint64_t size, uint64_t nr)
{
	struct data d = data_read(name);
	struct ck_zip_entry *e = NULL;
	uint64_t at = 0;
	unsigned found = 0;

	cr_assert_eq(walk((uint8_t *)d.bytes, d.len, &at), 0, "%s", err.msg);
	cr_expect_eq(end.nr, nr, "%d entries", (int)end.nr);
	cr_assert_eq(
		ck_zip_dir(d.bytes + end.dir_off, end.dir_len, &end, &e, &err),
		0);
	for (uint64_t i = 0; i < end.nr; i++) {
		if (e[i].name_len != strlen(last) ||
		    memcmp(e[i].name, last, e[i].name_len) != 0)
			continue;
		found++;
		cr_assert_eq(ck_zip_local(d.bytes + e[i].local_off,
					  CK_ZIP_LOCAL + e[i].name_len, &e[i],
					  &at, &err),
			     0, "%s", err.msg);
		cr_expect_eq(at, payload);
		cr_expect_eq(e[i].size, size);
	}
	cr_expect_eq(found, 1);
	free(e);
	data_free(&d);
}

Test(zip, torch)
{
	check_real("item-2.14.zip", "archive/data/0", 704, 48, 7);
	check_real("item-1.13.zip", "archive/data/0", 320, 64, 3);
}

/* True sizes in 64 bits in a local header, and an empty member. */
Test(zip, python)
{
	struct data d = data_read("python.zip");
	struct ck_zip_entry *e = NULL;
	uint64_t at = 0;

	cr_assert_eq(walk((uint8_t *)d.bytes, d.len, &at), 0, "%s", err.msg);
	cr_expect_eq(end.nr, 3);
	cr_expect(!memcmp(d.bytes + at, "third", 5));
	cr_assert_eq(
		ck_zip_dir(d.bytes + end.dir_off, end.dir_len, &end, &e, &err),
		0);
	cr_expect_eq(ck_zip_local(d.bytes, CK_ZIP_LOCAL + 5, &e[0], &at, &err),
		     -EINVAL, "sizes that were not given");
	d.bytes[CK_ZIP_LOCAL + 5 + 4]++;
	cr_expect_eq(ck_zip_local(d.bytes, d.len, &e[0], &at, &err), -EINVAL);
	free(e);
	data_free(&d);
}

Test(zip, directory_and_local_header_disagree)
{
	uint64_t at;

	cr_refused_with(m[1].local_name = "a/data/1", "about its name");
	cr_refused_with(m[1].local_name = "a/data/00", "about its name");
	cr_refused_with(m[1].local_size = 7, "about its size");
	fresh();
	m[1].local_crc = 7; /* the power went between the two */
	zip_make(&z, m, 2);
	cr_expect(!walk(z.v, z.len, &at), "%s", err.msg);
	cr_refused_with(m[1].local_flags = 0x0800, "about its flags");
	cr_refused_with(m[1].local_method = 8, "about its method");
	cr_refused_with((m[1].flags = 0x0800, m[1].local_flags = 0x0800),
			"about its size");
	cr_refused_after(z.v[z.at[1].local] = 0, "local header of a/data/0");
}

Test(zip, overlap)
{
	cr_refused_with(m[0].size = 80, "a/data.pkl at byte 0 overlaps");
	cr_refused_with((m[0].size = 40, m[0].padding = 60),
			"a/data.pkl runs into");
	cr_refused_with(m[1].size = 8 + 16 + 1, "runs into what follows");
	cr_refused_with(m[1].size = 0x7fffffff, "do not lie before");
	cr_refused_with(m[1].off = 0x7fffffff, "do not lie before");
	/* The same bytes twice, by two names. */
	fresh();
	zip_make(&z, m, 2);
	zip_put32(&z, z.at[1].entry + 42, 0);
	cr_refused("overlaps");
}

Test(zip, names)
{
	cr_refused_with(m[1].name = "a/data.pkl", "a/data.pkl is there twice");
	cr_refused_with(m[1].name = "", "a name that is empty");
	cr_refused_after(z.v[z.at[1].entry + 46] = 0, "holds a NUL");
}

Test(zip, stored_and_plain_only)
{
	cr_refused_with(m[0].method = m[0].local_method = 8,
			"method 8; expected stored");
	cr_refused_with(m[0].flags = 0x0809, "encrypted");
	cr_refused_with(m[0].flags = 0x2808, "flags 0x2808");
	cr_refused_with(m[0].flags = 0x0848, "flags 0x0848");
	cr_refused_after(zip_put32(&z, z.at[0].entry + 20, 5),
			 "6 bytes stored as 5");
	cr_refused_after(zip_put16(&z, z.at[0].entry + 34, 1), "several parts");
}

/* A comment that holds a second end record, which ends the file as well. */
static void add_second_end(void)
{
	uint8_t copy[22];

	memcpy(copy, z.v + z.end_off, sizeof(copy));
	zip_put16(&z, z.end_off + 20, sizeof(copy));
	memcpy(z.v + z.len, copy, sizeof(copy));
	z.len += sizeof(copy);
}

Test(zip, end_records)
{
	cr_refused_after(add_second_end(), "2 end records");
	cr_refused_after(z.len--, "no end record");
	cr_refused_after(z.v[z.end_off]++, "no end record");
	cr_refused_after(zip_put16(&z, z.end_off + 10, 3),
			 "the two end records disagree");
	cr_refused_after(zip_put32(&z, z.end_off + 16, 1),
			 "the two end records disagree");
	cr_refused_after(zip_put16(&z, z.end_off + 4, 1), "several parts");
	cr_refused_after(zip_put64(&z, z.end_off - 12, 5), "no 64-bit end");
	cr_refused_after(zip_put64(&z, z.end64_off + 4, 45), "no 64-bit end");
	cr_refused_after(zip_put32(&z, z.end64_off, 5), "no 64-bit end");
	cr_refused_after(zip_put64(&z, z.end64_off + 24, 1), "several parts");
	/* A gap behind the directory, where another could hide. */
	fresh();
	z.plain = true;
	zip_make(&z, m, 2);
	zip_put32(&z, z.end_off + 12, (uint32_t)(z.end_off - z.dir_off - 1));
	cr_refused("expected its end at");
}

Test(zip, counts)
{
	uint64_t at;

	for (unsigned nr = 1; nr <= 3; nr += 2) {
		fresh();
		z.plain = true;
		zip_make(&z, m, 2);
		zip_put16(&z, z.end_off + 8, (uint16_t)nr);
		zip_put16(&z, z.end_off + 10, (uint16_t)nr);
		cr_expect_eq(walk(z.v, z.len, &at), -EINVAL);
	}
	fresh();
	zip_make(&z, m, 2);
	for (unsigned i = 0; i < 2; i++) {
		zip_put16(&z, z.end_off + 8 + 2 * i, UINT16_MAX);
		zip_put64(&z, z.end64_off + 24 + 8 * i, UINT64_C(1) << 40);
	}
	cr_refused("entries; the limit is");
	zip_put64(&z, z.end64_off + 24, CK_MAX_ZIP_ENTRIES);
	zip_put64(&z, z.end64_off + 32, CK_MAX_ZIP_ENTRIES);
	cr_refused("entries in a directory of");
}

/* Offsets near 2^64 must not wrap. */
Test(zip, huge_64_bit_fields)
{
	static const uint64_t huge[] = { UINT64_MAX, INT64_MAX,
					 UINT64_C(1) << 62 };

	for (unsigned i = 0; i < 3; i++) {
		uint64_t at;

		fresh();
		zip_make(&z, m, 2);
		zip_put32(&z, z.end_off + 12, UINT32_MAX);
		zip_put32(&z, z.end_off + 16, UINT32_MAX);
		zip_put64(&z, z.end64_off + 48, huge[i]);
		cr_expect_eq(walk(z.v, z.len, &at), -EINVAL);
		zip_put64(&z, z.end64_off + 40, -huge[i]);
		cr_expect_eq(walk(z.v, z.len, &at), -EINVAL);
	}
}

/* No byte of an archive may be changed so that a bad read follows. */
Test(zip, every_byte_changed)
{
	struct data d = data_read("item-2.14.zip");
	uint64_t at;

	for (size_t i = 0; i < d.len; i++)
		for (unsigned bit = 0; bit < 8; bit += 7) {
			d.bytes[i] = (char)(d.bytes[i] ^ 1 << bit);
			walk((uint8_t *)d.bytes, d.len, &at);
			d.bytes[i] = (char)(d.bytes[i] ^ 1 << bit);
		}
	for (size_t len = 0; len < d.len; len++)
		cr_expect_eq(walk((uint8_t *)d.bytes, len, &at), -EINVAL);
	data_free(&d);
}
