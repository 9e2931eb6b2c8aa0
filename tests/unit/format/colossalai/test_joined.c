/* SPDX-License-Identifier: Apache-2.0 */
/* Which states may have been joined in the order of ranks, by their shapes. */
#include "core/catalog/dump.h"
#include "core/catalog/catalog.h"
#include "core/format/colossalai/colossalai.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct colossalai_joined joined;
static struct ck_err err;

static void see(const char *name, uint64_t rows, uint64_t columns)
{
	const uint64_t shape[] = { rows, columns };

	cr_assert_eq(ck_colossalai_joined_see(&joined, name, strlen(name),
					      shape, columns ? 2 : 1, &err),
		     0);
}

/* The names of tensors that notes are about, each after a blank. */
static void expect(const char *want)
{
	struct ck_builder *b = ck_builder_new(&err);
	int fd = memfd_create("joined", MFD_CLOEXEC);
	struct ck_catalog img;
	char got[256] = "";

	cr_assert(b && fd >= 0);
	cr_assert_eq(ck_colossalai_joined_report(&joined, b, &err), 0);
	cr_assert_eq(ck_builder_finish(b, "colossalai", fd, &err), 0, "%s",
		     err.msg);
	ck_builder_free(b);
	cr_assert_eq(ck_catalog_map(&img, fd, &err), 0, "%s", err.msg);
	for (uint32_t i = 0; i < img.nr_problems; i++) {
		strcat(got, " ");
		strcat(got, ck_catalog_str(&img, img.problems[i].tensor, NULL));
	}
	cr_expect_str_eq(got, want);
	ck_catalog_unmap(&img);
	close(fd);
	ck_colossalai_joined_free(&joined);
}

Test(ca_joined, a_matrix_and_its_vector)
{
	see("3.exp_avg", 16, 0);
	see("10.exp_avg", 16, 0);
	see("4.exp_avg", 16, 48);
	see("4.exp_avg_sq", 16, 48);
	see("5.exp_avg", 48, 0);
	see("6.exp_avg", 16, 16);
	see("7.exp_avg", 48, 0);
	see("8.exp_avg", 48, 16);
	see("9.exp_avg", 16, 0);
	expect(" 4.exp_avg 4.exp_avg_sq 5.exp_avg 8.exp_avg");
}

Test(ca_joined, a_gated_layer_is_none)
{
	see("5.exp_avg", 48, 16);
	see("6.exp_avg", 48, 16);
	see("7.exp_avg", 16, 48);
	see("8.exp_avg", 16, 0);
	expect("");
}

Test(ca_joined, names_without_a_number)
{
	see("exp_avg", 16, 48);
	see("param_groups.0.lr", 16, 48);
	see("9999999999999999999.exp_avg", 16, 48);
	see("0.exp_avg", 0, 3);
	expect("");
}
