/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_translate.c - any bytes as a config.json, and behind a NUL as rules of names
 *
 * Over names of Megatron, with experts each, stacked and fused.  What hf/ would
 * show lies in its tensors, is as long as it says, and a matrix that is turned has
 * each of its columns inside; what cannot be shown has a line.
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/catalog/catalog.h"
#include "core/format/detect.h"
#include "core/geom/dtype.h"
#include "core/view/derive/derived_file.h"
#include "core/view/translate/translate.h"
#include "tests/lib/memdir.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LAYER "decoder.layers.0."
#define F32(name, shape, from, to)                          \
	"\"" name "\":{\"dtype\":\"F32\",\"shape\":[" shape \
	"],\"data_offsets\":[" #from "," #to "]}"
static const char header[] = "{" F32("embedding.word_embeddings.weight", "3,2", 0, 24) "," F32(
	"decoder.final_layernorm.weight", "2", 24,
	32) "," F32(LAYER "self_attention.linear_qkv.weight", "6,2", 32,
		    80) "," F32(LAYER "self_attention.linear_proj.weight",
				"2,2", 80,
				96) "," F32(LAYER
					    "mlp.experts.linear_fc1.weight0",
					    "4,2", 96,
					    128) "," F32(LAYER
							 "mlp.experts.linear_fc1.weight1",
							 "4,2", 128,
							 160) "," F32(LAYER
								      "mlp.experts.linear_fc1.bias0",
								      "4", 160,
								      176) "," F32(LAYER
										   "mlp.experts.linear_fc1.bias1",
										   "4",
										   176,
										   192) "," F32("layers.0.moe.experts.w1",
												"2,3,2",
												192,
												240) "," F32("layers.0.moe.experts.w3",
													     "2,3,2",
													     240,
													     288) "}";

static const struct ck_catalog *catalog(void)
{
	static unsigned char file[8 + sizeof(header) - 1 + 288] = {
		(sizeof(header) - 1) & 255, (sizeof(header) - 1) >> 8
	};
	static struct ck_catalog img;
	static bool made;
	struct memdir m;
	int fd;

	if (made)
		return &img;
	made = true;
	memcpy(file + 8, header, sizeof(header) - 1);
	fd = memfd_create("fuzz", MFD_CLOEXEC);
	memdir_init(&m);
	if (fd < 0 || !memdir_put(&m, "f.safetensors", file, sizeof(file)) ||
	    ck_detect_load(&m.dir, fd, NULL) || ck_catalog_map(&img, fd, NULL))
		abort();
	memdir_free(&m);
	close(fd);
	return &img;
}

/* Ranges of one turned tensor: each matrix has its columns once. */
static void check_columns(const struct ck_derivation *d,
			  const struct ck_derived *t)
{
	uint64_t row = t->turned * ck_dtype_info(t->stored)->size, at = 0;
	uint64_t columns = t->shape[t->rank - 1];

	for (uint32_t i = 0; i < t->nr; i++) {
		const struct ck_derived_range *r = &d->range.v[t->first + i];
		uint64_t nr = r->len / row, to = r->step ? r->to : at;

		if (r->len % row || r->at % row || nr > columns - at ||
		    (nr && to + (nr - 1) * (r->step ?: 1) >= columns))
			abort();
		at = (at + nr) % columns;
	}
	if (at)
		abort();
}

static void check(const struct ck_catalog *img, const struct ck_derivation *d,
		  const struct ck_derived *t)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < t->nr; i++) {
		const struct ck_derived_range *r = &d->range.v[t->first + i];

		if (!ck_range_ok(r->at, r->len, img->tensors[r->tensor].size))
			abort();
		sum += r->len;
	}
	if (sum != ck_derived_size(t) || t->parts)
		abort();
	if (t->turned && sum)
		check_columns(d, t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct ck_catalog *img = catalog();
	size_t len = strnlen((const char *)data, size);
	struct ck_translation t = { 0 };
	struct ck_model_names names;
	struct ck_opts opts = { 0 };
	struct ck_err err = { 0 };
	ck_auto_json json_t *config = NULL;
	int ret;

	if (ck_json_parse(&config, (const char *)data, len, &err))
		return 0;
	if (len + 1 < size) {
		char *rules =
			strndup((const char *)data + len + 1, size - len - 1);

		if (!rules || ck_opts_add(&opts, "names", "r.rules"))
			abort();
		ck_opts_keep(&opts, rules, strlen(rules));
	}
	if (ck_model_names_make(&names, img, 0, img->nr_tensors, &opts, &err))
		abort();
	ret = ck_translate(&t, img, &names, config, &opts, &err);
	if (ret && !*err.msg)
		abort();
	for (size_t i = 0; !ret && t.rule.len && i < t.d.v.nr; i++)
		check(img, &t.d, &t.d.v.v[i]);
	ck_translation_free(&t);
	ck_model_names_free(&names);
	ck_opts_free(&opts);
	return 0;
}
