/* SPDX-License-Identifier: Apache-2.0 */
/* The variables of OneFlow's model.mlir. */
#include "core/format/oneflow/oneflow.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct oneflow_graph g;
static char *text;

static void parse_len(const char *s, size_t len)
{
	ck_oneflow_graph_free(&g);
	free(text);
	text = malloc(len); /* no byte past the end: sanitizers watch */
	memcpy(text, s, len);
	cr_assert_eq(ck_oneflow_graph_read(&g, text, len, NULL), 0);
}

static void parse(const char *s)
{
	parse_len(s, strlen(s));
}

static const struct oneflow_variable *find(const char *name)
{
	return ck_oneflow_graph_find(&g, name, strlen(name));
}

static void done(void)
{
	ck_oneflow_graph_free(&g);
	free(text);
	text = NULL;
}

#define VARIABLE "  %output_0 = \"oneflow.variable\"() {"
#define TYPE "} : () -> tensor<4x6xf32>\n"

Test(of_graph, variables, .fini = done)
{
	parse("module {\n"
	      "%o = \"oneflow.input\"(%a) {op_name = \"in\", shape = [5 : si64]}\n" VARIABLE
	      "data_type = 2 : i32, hierarchy = [1], op_name = \"m.fc1.weight\", output_lbns = [\"m.fc1.weight/out\"], parallel = #sbp.parallel<[] -> [[#sbp.B]]>, shape = [4 : si64, 6 : si64]" TYPE
		      VARIABLE
	      "hierarchy=[2,2], op_name=\"split\", shape = [4 : si64, 6 : si64]" TYPE
		      VARIABLE
	      "hierarchy = [1], op_name = \"scalar\", shape = []" TYPE "}\n");
	cr_expect(g.whole);
	cr_assert_eq(g.names.nr, 3);
	cr_assert(find("m.fc1.weight") && find("split") && find("scalar"));
	cr_expect_not(find("in"));
	cr_expect(find("m.fc1.weight")->shaped &&
		  find("m.fc1.weight")->type == 2 &&
		  find("m.fc1.weight")->rank == 2 &&
		  find("m.fc1.weight")->shape[1] == 6);
	cr_expect(!find("split")->shaped && find("split")->type == -1);
	cr_expect(find("scalar")->shaped && find("scalar")->rank == 0);
}

Test(of_graph, names_are_escaped, .fini = done)
{
	parse(VARIABLE "op_name = \"a\\22b\\5Cc\\\\d\"" TYPE);
	cr_expect(find("a\"b\\c\\d"));
	parse(VARIABLE "op_name = \"twice\"" TYPE VARIABLE
		       "op_name = \"twice\"" TYPE);
	cr_expect(g.names.nr == 1 && g.v.nr == 1);
}

Test(of_graph, what_cannot_be_read_is_passed_over, .fini = done)
{
	static const char *const odd[] = {
		"",
		"\n",
		"\"oneflow.variable\"",
		VARIABLE,
		VARIABLE "op_name = ",
		VARIABLE "op_name = \"",
		VARIABLE "op_name = \"x",
		VARIABLE "op_name = \"x\\",
		VARIABLE "op_name = \"\"",
		VARIABLE "my_op_name = \"x\"",
		VARIABLE "op_name \"x\"",
	};

	for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		parse(odd[i]);
		cr_expect(!g.names.nr && !g.whole, "%s", odd[i]);
	}
	parse(VARIABLE
	      "op_name = \"x\", hierarchy = [1], shape = [4 : si64, -1 : si64]" TYPE);
	cr_expect(find("x") && !find("x")->shaped);
	parse(VARIABLE
	      "op_name = \"x\", hierarchy = [1], shape = [99999999999999999999 : si64]" TYPE);
	cr_expect(find("x") && !find("x")->shaped);
}

/* Cut anywhere, it only must stay inside. */
Test(of_graph, cut, .fini = done)
{
	static const char all[] = VARIABLE
		"data_type = 2 : i32, hierarchy = [1], op_name = \"m\\5C.w\", shape = [4 : si64, 6 : si64]" TYPE;

	for (size_t n = 1; n < sizeof(all); n++)
		parse_len(all, n);
	cr_expect(find("m\\.w"));
}
