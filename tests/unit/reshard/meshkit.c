/* SPDX-License-Identifier: Apache-2.0 */
/* meshkit.c - see meshkit.h */
#include "tests/unit/reshard/meshkit.h"

#include <errno.h>
#include <string.h>

struct meshkit mk;

void mk_init(void)
{
	static const char *const names[MESHKIT_FILES] = { "a", "b", "c", "d" };

	mk = (struct meshkit){ .kit = kit_new() };
	for (unsigned i = 0; i < MESHKIT_FILES; i++)
		mk.file[i] = kit_file(&mk.kit, names[i], 1 << 20);
}

void mk_free(void)
{
	ck_reshard_free(mk.rs);
	mk.rs = NULL;
	ck_opts_free(&mk.opts);
	json_decref(mk.config);
	mk.config = NULL;
	kit_free(&mk.kit);
}

void mk_part(const char *name, unsigned rank, const uint64_t *shape,
	     const uint64_t *start, const uint64_t *len, unsigned in)
{
	struct ck_part p = kit_part(name, mk.file[in]);
	uint64_t size = 4;

	p.rank = rank;
	p.shape = shape;
	p.start = start;
	p.len = len;
	p.off = mk.at;
	for (unsigned d = 0; d < rank; d++)
		size *= len ? len[d] : shape[d];
	mk.at += size;
	kit_add(&mk.kit, &p);
}

void mk_whole(const char *name, uint64_t rows, uint64_t columns)
{
	mk_part(name, 2, DIMS(rows, columns), NULL, NULL, 0);
}

void mk_split(const char *name, uint64_t rows, uint64_t columns, unsigned axis,
	      unsigned nr)
{
	uint64_t each = (axis ? columns : rows) / nr;

	for (unsigned i = 0; i < nr; i++)
		mk_part(name, 2, DIMS(rows, columns),
			DIMS(axis ? 0 : i * each, axis ? i * each : 0),
			DIMS(axis ? rows : each, axis ? each : columns), i);
}

int mk_try_file(const char *name, const char *bytes, size_t len)
{
	const struct ck_reshard_in in = { .img = &mk.kit.img,
					  .nr = mk.kit.img.nr_tensors,
					  .name = name,
					  .bytes = bytes,
					  .len = len,
					  .opts = &mk.opts,
					  .config = mk.config };

	ck_reshard_free(mk.rs);
	mk.rs = NULL;
	return ck_reshard_new(&mk.rs, &in, &mk.of_spec, &mk.err);
}

int mk_try(const char *words)
{
	return mk_try_file(words, NULL, 0);
}

void mk_make(const char *words)
{
	cr_assert_eq(mk_try(words), 0, "%s: %s", words, mk.err.msg);
}

void mk_refused(const char *words, const char *why)
{
	cr_expect(mk_try(words) && !mk.of_spec, "\"%s\"", words);
	cr_expect(strstr(mk.err.msg, why), "%s: %s", words, mk.err.msg);
}

void mk_malformed(const char *words, const char *why)
{
	cr_expect_eq(mk_try(words), -EINVAL, "\"%s\"", words);
	cr_expect(mk.of_spec && strstr(mk.err.msg, why), "%s: %s", words,
		  mk.err.msg);
}

void mk_holds(uint32_t rank, const char *name, const char *want)
{
	naive_holds(mk.rs, rank, kit_find(&mk.kit, name), want);
}
