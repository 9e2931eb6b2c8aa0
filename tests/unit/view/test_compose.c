/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of a composed file: every position, padding, what is too large. */
#include "core/view/compose.h"
#include "tests/unit/view/viewkit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct viewkit k;
static struct ck_compose c = CK_COMPOSE_INIT;
static struct ck_err err;

static void setup(void)
{
	vk_init(&k);
	vk_tensor(&k, "a", CK_DT_U8, 1, DIMS(5));
	vk_tensor(&k, "b", CK_DT_F32, 2, DIMS(3, 4));
	vk_tensor(&k, "none", CK_DT_F32, 2, DIMS(0, 4));
	vk_image(&k);
}

static void teardown(void)
{
	ck_compose_free(&c);
	vk_free(&k);
}
TestSuite(compose, .init = setup, .fini = teardown);

static char at(uint64_t off)
{
	struct ck_span s;
	char made;

	ck_compose_at(&c, off, &s);
	cr_expect_leq(s.len, c.size - off);
	cr_assert_gt(s.len, 0);
	if (s.kind == CK_SPAN_TENSOR)
		return (char)('0' + s.off);
	cr_assert_eq(ck_compose_made(&c, &made, 1, s.off, &err), 0);
	return made;
}

Test(compose, every_position)
{
	static const char want[] = "xyz01234--0123456789:;end";

	ck_compose_bytes(&c, "x", 1);
	ck_compose_bytes(&c, "", 0);
	ck_compose_bytes(&c, "yz", 2);
	ck_compose_tensor(&c, &k.ck.img, kit_find(&k.kit, "a"));
	ck_compose_tensor(&c, &k.ck.img, kit_find(&k.kit, "none"));
	ck_compose_bytes(&c, "--", 2);
	ck_compose_tensor(&c, &k.ck.img, kit_find(&k.kit, "b"));
	cr_expect_eq(c.pieces.nr, 4, "%zu", c.pieces.nr);
	for (uint64_t off = 0; off < 10 + 12; off++)
		cr_expect_eq(at(off), want[off], "%d", (int)off);
	cr_expect_eq(c.size, 10 + 48);
	ck_compose_bytes(&c, "end", 3);
	cr_expect_eq(at(58), 'e');
	cr_expect_eq(at(60), 'd');
	cr_expect_eq(ck_compose_done(&c, &err), 0);
}

Test(compose, own_bytes_end)
{
	char buf[8];

	ck_compose_bytes(&c, "abc", 3);
	cr_expect_eq(ck_compose_made(&c, buf, 3, 0, &err), 0);
	cr_expect_eq(ck_compose_made(&c, buf, 2, 2, &err), -EIO);
	cr_expect_eq(ck_compose_made(&c, buf, 1, UINT64_MAX, &err), -EIO);
}

Test(compose, too_large_is_said_at_the_end)
{
	c.size = UINT64_MAX - 3;
	ck_compose_tensor(&c, &k.ck.img, kit_find(&k.kit, "a"));
	cr_expect_eq(ck_compose_done(&c, &err), -ENOMEM);
}

Test(compose, the_latest_source_gives_the_time)
{
	struct ck_vfile f;

	ck_compose_bytes(&c, "abc", 3);
	cr_expect(ck_compose_vfile(&c, &f));
	cr_expect_eq(f.newest, CK_NONE);
	ck_compose_tensor(&c, &k.ck.img, kit_find(&k.kit, "none"));
	ck_compose_tensor(&c, &k.ck.img, kit_find(&k.kit, "a"));
	ck_compose_vfile(&c, &f);
	cr_expect_eq(f.newest, k.src);
	cr_expect_eq(f.size, 8);
}
