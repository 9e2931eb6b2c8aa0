/* SPDX-License-Identifier: Apache-2.0 */
/* Every form that a layout has, written as slices and read back. */
#include "tests/lib/slicekit.h"

#include <criterion/criterion.h>
#include <stdio.h>

TestSuite(slices_forms, .init = slicekit_setup, .fini = slicekit_teardown,
	  .timeout = 120);

static const struct form {
	const char *what, *layout;
	unsigned tensors;
} forms[] = {
	{ "one rank, no mesh",
	  "{\"unshard_layout\":1,\"write\":{},\"tensors\":["
	  "{\"name\":\"w\",\"dtype\":\"float32\",\"shape\":[3,5]}]}",
	  1 },
	{ "rows and columns",
	  DOC(TWO,
	      TENSOR("r", "float32", "[8,6]", PLACE("{\"a\":{\"shard\":0},\"b\":{\"shard\":1}}")) "," TENSOR(
		      "c", "bfloat16", "[4,9]", PLACE("{\"b\":{\"shard\":1}}")),
	      ""),
	  2 },
	{ "copies",
	  DOC(TWO,
	      TENSOR("n", "float32", "[700]", PLACE("{\"a\":\"replicate\",\"b\":\"replicate\"}")) "," TENSOR(
		      "m", "float32", "[]",
		      "") "," TENSOR("o", "int64", "[6]",
				     PLACE("{\"a\":\"replicate\",\"b\":{\"shard\":0}}")),
	      ""),
	  3 },
	{ "ceil, with an empty last part",
	  DOC(TWO,
	      TENSOR("w", "float32", "[4,5]",
		     PLACE("{\"b\":{\"shard\":0,\"sizes\":\"ceil\"}}")),
	      ""),
	  1 },
	{ "balanced",
	  DOC(TWO,
	      TENSOR("w", "float16", "[11,5]",
		     PLACE("{\"a\":{\"shard\":1,\"sizes\":\"balanced\"},"
			   "\"b\":{\"shard\":0,\"sizes\":\"balanced\"}}")),
	      ""),
	  1 },
	{ "sizes one by one, one of them nothing",
	  DOC(TWO,
	      TENSOR("w", "float64", "[10,2]",
		     PLACE("{\"b\":{\"shard\":0,\"sizes\":[7,0,3]}}")),
	      ""),
	  1 },
	{ "one dimension twice, in an order of its own",
	  DOC(TWO,
	      TENSOR("w", "float32", "[12,3]",
		     PLACE("[{\"axis\":\"b\",\"shard\":0},"
			   "{\"axis\":\"a\",\"shard\":0}]")),
	      ""),
	  1 },
	{ "flat, padded",
	  DOC(TWO,
	      TENSOR("w", "float32", "[5,7]",
		     PLACE("{\"b\":{\"flat\":true,\"padded\":36},"
			   "\"a\":\"replicate\"}")),
	      ""),
	  1 },
	{ "flat behind a shard",
	  DOC(TWO,
	      TENSOR("w", "bfloat16", "[6,7]",
		     PLACE("{\"a\":{\"shard\":0},\"b\":{\"flat\":true}}")),
	      ""),
	  1 },
	{ "a padded dimension, outer and inner",
	  DOC(TWO,
	      TENSOR("w", "float32", "[7,4]", PLACE("{\"a\":{\"shard\":0,\"padded\":8}}")) "," TENSOR(
		      "x", "float32", "[3,2,7]",
		      PLACE("{\"b\":{\"shard\":2,\"padded\":9}}")),
	      ""),
	  2 },
	{ "fused, through a view",
	  DOC(TWO,
	      TENSOR("q", "float32", "[18,4]",
		     ",\"view\":[3,6,4]" PLACE("{\"a\":{\"shard\":1}}")),
	      ""),
	  1 },
	{ "boxes, some of them copies, some flat",
	  DOC(TWO,
	      TENSOR("w", "float32", "[4,6]",
		     ",\"boxes\":["
		     "{\"at\":{\"rank\":5},\"start\":[0,0],\"size\":[4,2]},"
		     "{\"at\":{\"b\":0},\"start\":[0,2],\"size\":[4,4],"
		     "\"flat\":[0,5]},"
		     "{\"at\":{\"rank\":1},\"start\":[0,2],\"size\":[4,4],"
		     "\"flat\":[5,16]},"
		     "{\"at\":{\"rank\":2},\"start\":[0,0],\"size\":[4,2]}]"),
	      ""),
	  1 },
	{ "stages of a pipeline, by pattern; ranks of other numbers",
	  "{\"unshard_layout\":1,\"mesh\":{\"axes\":["
	  "{\"name\":\"pp\",\"size\":2},{\"name\":\"tp\",\"size\":2}],"
	  "\"ranks\":[7,3,0,12]},\"tensors\":["
	  "{\"regex\":\"l([0-9]+)[.]w\",\"at\":{\"pp\":\"{$1/2}\"},"
	  "\"dtype\":\"float32\",\"placement\":{\"tp\":{\"shard\":0}}},"
	  "{\"glob\":\"l*.norm\",\"dtype\":\"bfloat16\"}],"
	  "\"write\":{\"path\":\"pp{pp}-tp{tp}.safetensors\",\"tensors\":["
	  "{\"name\":\"l0.w\",\"shape\":[4,3]},"
	  "{\"name\":\"l1.w\",\"shape\":[6,3]},"
	  "{\"name\":\"l2.w\",\"shape\":[4,3]},"
	  "{\"name\":\"l3.w\",\"shape\":[2,3]},"
	  "{\"name\":\"l3.norm\",\"shape\":[8]}]}}",
	  5 },
	{ "for torch.distributed.checkpoint",
	  DOC(TWO,
	      TENSOR("r", "float32", "[8,6]", PLACE("{\"a\":{\"shard\":0},\"b\":{\"shard\":1}}")) "," TENSOR(
		      "c", "bfloat16", "[4,9]",
		      PLACE("{\"b\":{\"shard\":1,\"sizes\":[0,5,4]}}")) "," TENSOR("s",
										   "int64",
										   "[]",
										   "") "," TENSOR("e",
												  "int64",
												  "[0,3]",
												  ""),
	      "\"format\":\"dcp\""),
	  4 },
	{ "two 4-bit elements a byte: cut, padded, flat, through a view",
	  DOC(TWO,
	      TENSOR("c", "float4_e2m1fn_x2", "[4,6]", PLACE("{\"a\":{\"shard\":0},\"b\":{\"shard\":1}}")) "," TENSOR(
		      "p", "float4_e2m1fn_x2", "[4,7]",
		      PLACE("{\"b\":{\"shard\":1,\"padded\":9}}")) "," TENSOR("f",
									      "float4_e2m1fn_x2",
									      "[5,7]",
									      PLACE("{\"b\":{\"flat\":true,\"padded\":36}}")) "," TENSOR("v",
																	 "float4_e2m1fn_x2",
																	 "[18]",
																	 ",\"view\":[3,6]" PLACE(
																		 "{\"a\":{\"shard\":1}}")),
	      ""),
	  4 },
	{ "the same for torch.distributed.checkpoint, and a name of safetensors'",
	  DOC(TWO,
	      TENSOR("c", "float4_e2m1fn_x2", "[4,6]",
		     PLACE("{\"a\":{\"shard\":0}}")) "," TENSOR("__metadata__",
								"float4_e2m1fn_x2",
								"[]", ""),
	      "\"format\":\"dcp\""),
	  2 },
	{ "packed",
	  DOC(TWO,
	      TENSOR("a", "uint8", "[5]",
		     "") "," TENSOR("b", "float64", "[3]",
				    "") "," TENSOR("z", "float32", "[0,4]", ""),
	      "\"align\":1"),
	  3 },
};

Test(slices_forms, every_form_by_rank)
{
	for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
		struct ck_err err = { 0 };
		char name[32];
		struct slicekit j;

		snprintf(name, sizeof(name), "step-%zu", i);
		slicekit_open(&j, name, forms[i].layout);
		slicekit_write_ranks(j.sl);
		slicekit_close(&j);
		cr_assert_eq(slicekit_publish(name, &err), 0, "%s: %s",
			     forms[i].what, err.msg);
		slicekit_read_back(name, forms[i].tensors);
	}
}

Test(slices_forms, every_form_as_tensors)
{
	for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
		struct ck_err err = { 0 };
		char name[32];
		struct slicekit j;

		snprintf(name, sizeof(name), "step-%zu", i);
		slicekit_open(&j, name, forms[i].layout);
		slicekit_write_tensors(j.sl);
		slicekit_close(&j);
		cr_assert_eq(slicekit_publish(name, &err), 0, "%s: %s",
			     forms[i].what, err.msg);
		slicekit_read_back(name, forms[i].tensors);
	}
}
