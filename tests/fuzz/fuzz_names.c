/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_names.c - any bytes as -o names=FILE, a config.json, and names and shapes
 * of tensors that these are about
 *
 * Three texts, each ending with a NUL: the rules, the config, and lines of
 * "NAME SIZE SIZE".  What hf/ then has is as large as it says.
 */
#include "core/base/auto.h"
#include "core/base/vec.h"
#include "core/catalog/builder.h"
#include "core/catalog/catalog.h"
#include "core/geom/dtype.h"
#include "core/view/translate/translate.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TENSORS 64

/* False: no tensor that a catalog has. */
static bool add_tensor(struct ck_builder *b, uint32_t src, char *line)
{
	uint64_t shape[CK_MAX_RANK];
	struct ck_part p = { .src = src, .dtype = CK_DT_F32, .shape = shape };
	char *save, *word = strtok_r(line, " ", &save);

	if (!word)
		return false;
	p.name = word;
	p.name_len = strlen(word);
	while (p.rank < 4 && (word = strtok_r(NULL, " ", &save)))
		shape[p.rank++] = strtoul(word, NULL, 10) % 100000;
	return !ck_builder_add(b, &p, NULL);
}

static int build(char *lines, struct ck_catalog *img)
{
	const struct stat st = { .st_mode = S_IFREG,
				 .st_size = INT64_C(1) << 60 };
	struct ck_builder *b = ck_builder_new(NULL);
	ck_auto_fd int fd = -1;
	char *save, *line = strtok_r(lines, "\n", &save);
	uint32_t src;
	int ret = b ? ck_builder_file(b, "f", &st, &src, NULL) : -1;

	for (int i = 0; !ret && i < TENSORS && line; i++) {
		add_tensor(b, src, line);
		line = strtok_r(NULL, "\n", &save);
	}
	if (!ret)
		ret = ck_catalog_file(&fd, NULL);
	if (!ret)
		ret = ck_builder_finish(b, "fuzz", fd, NULL);
	ck_builder_free(b);
	return ret ? ret : ck_catalog_map(img, fd, NULL);
}

static void translate(const struct ck_catalog *img, const json_t *config,
		      const struct ck_opts *opts)
{
	struct ck_translation t = { 0 };
	struct ck_model_names n = { 0 };
	struct ck_err err = { 0 };

	if (!ck_model_names_make(&n, img, 0, img->nr_tensors, opts, NULL)) {
		if (ck_translate(&t, img, &n, config, opts, &err) &&
		    !err.msg[0])
			abort();
		ck_translation_free(&t);
	}
	ck_model_names_free(&n);
}

/* The text at *at, which moves behind it. */
static char *next(char **at, const char *end)
{
	char *text = *at;

	*at += strlen(text);
	if (*at < end)
		++*at;
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ck_auto_free char *copy = malloc(size + 1);
	char *at = copy, *rules, *config;
	struct ck_opts opts = { 0 };
	ck_auto_json json_t *j = NULL;
	struct ck_catalog img;

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	copy[size] = '\0';
	rules = strdup(next(&at, copy + size));
	config = next(&at, copy + size);
	if (rules && !ck_opts_add(&opts, "names", "FILE"))
		ck_opts_keep(&opts, rules, strlen(rules));
	if (ck_json_parse(&j, config, strlen(config), NULL))
		j = NULL;
	if (!build(at, &img)) {
		translate(&img, j, &opts);
		ck_catalog_unmap(&img);
	}
	ck_opts_free(&opts);
	return 0;
}
