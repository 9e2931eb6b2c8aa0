/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_views.c - any bytes as the document of -o views=
 *
 * Over a checkpoint with names of a model, of Megatron and of neither.  What a
 * view shows lies in its tensors and is as long as its header says; what
 * cannot be shown has a line.
 */
#include "core/base/check.h"
#include "core/catalog/catalog.h"
#include "core/ckpt/ckpt_priv.h"
#include "core/format/detect.h"
#include "core/parse/safetensors.h"
#include "core/view/view.h"
#include "tests/lib/memdir.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const struct ck_view_ops ck_view_views;

static const char header[] =
	"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
	"\"module.norm.weight\":"
	"{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[24,32]},"
	"\"n\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[32,40]},"
	"\"i\":{\"dtype\":\"I64\",\"shape\":[0,3],\"data_offsets\":[40,40]},"
	"\"model.embedding.word_embeddings.weight\":"
	"{\"dtype\":\"BF16\",\"shape\":[6,2],\"data_offsets\":[40,64]},"
	"\"decoder.layers.0.self_attention.linear_qkv.weight\":"
	"{\"dtype\":\"BF16\",\"shape\":[8,2],\"data_offsets\":[64,96]},"
	"\"decoder.layers.self_attention.linear_qkv.bias\":"
	"{\"dtype\":\"U8\",\"shape\":[2,8],\"data_offsets\":[96,112]},"
	"\"decoder.layers.mlp.linear_fc1.weight\":"
	"{\"dtype\":\"F8_E4M3\",\"shape\":[3,4,2],\"data_offsets\":[112,136]}}";

static struct ck_ckpt *checkpoint(void)
{
	static unsigned char file[8 + sizeof(header) - 1 + 136] = {
		(sizeof(header) - 1) & 255, (sizeof(header) - 1) >> 8
	};
	static struct ck_ckpt ck;
	static bool made;
	struct memdir m;
	int fd;

	if (made)
		return &ck;
	made = true;
	memcpy(file + 8, header, sizeof(header) - 1);
	fd = memfd_create("fuzz", MFD_CLOEXEC);
	memdir_init(&m);
	if (fd < 0 || !memdir_put(&m, "f.safetensors", file, sizeof(file)) ||
	    ck_detect_load(&m.dir, fd, NULL) ||
	    ck_catalog_map(&ck.img, fd, NULL))
		abort();
	memdir_free(&m);
	close(fd);
	ck.root.only = (char *)(uintptr_t) "f"; /* nothing lies beside it */
	return &ck;
}

static void check_span(const struct ck_view *v, const struct ck_span *s)
{
	const struct ck_tensor *t = &v->img->tensors[s->ref];
	uint64_t size = t->size;

	if (s->kind == CK_SPAN_CAST)
		size = size / ck_dtype_info(t->dtype)->size *
		       ck_dtype_info(s->dtype)->size;
	else if (s->kind != CK_SPAN_TENSOR)
		abort();
	if (!ck_range_ok(s->off, s->len, size))
		abort();
}

/* The header, which says how much follows; 8 and its bytes, and the rest. */
static void check_header(const char *bytes, uint64_t len, uint64_t size)
{
	struct ck_st_header h;
	struct ck_st_tensor t;
	uint64_t end = len, n;

	if (len < 8 || ck_st_header_len(bytes, size, &n, NULL) ||
	    n != len - 8 || ck_st_header_parse(&h, bytes + 8, n, NULL))
		abort();
	while (ck_st_next(&h, &t)) {
		if (t.why)
			abort();
		end = CK_MAX(end, t.end);
	}
	if (end != size)
		abort();
	ck_st_header_free(&h);
}

static void check_file(const struct ck_view *v, uint32_t i)
{
	struct ck_span s = { 0 };
	struct ck_vfile f;
	char *head;

	if (!v->ops->file(v, i, &f) || !f.size)
		abort();
	v->ops->at(v, i, 0, &s);
	head = malloc(s.len);
	if (s.kind != CK_SPAN_MADE || !head ||
	    ck_view_read(v, i, head, s.len, 0, NULL))
		abort();
	check_header(head, s.len, f.size);
	free(head);
	for (uint64_t off = s.len; off < f.size; off += s.len) {
		v->ops->at(v, i, off, &s);
		if (!s.len)
			abort();
		check_span(v, &s);
	}
}

static void check_view(const struct ck_view *v)
{
	const struct ck_view_folder_ops *ops = v->ops->folders;

	for (uint32_t d = 0; d < ops->nr(v); d++) {
		struct ck_err err = { 0 };
		char name[256];
		uint32_t found;

		if (ops->name(v, d, name)) {
			if (ops->find(v, name, &found, &err) || found != d ||
			    ops->nr_files(v, d) != 1)
				abort();
			check_file(v, d << CK_VIEW_FOLDER_SHIFT);
		} else if (ops->nr_files(v, d)) {
			abort();
		}
	}
}

/*
 * Expressions are libc's to compile, whose memory and time have no bound where
 * counts and groups nest; people write their own, and no checkpoint does.
 */
static bool is_tame(const json_t *rules)
{
	for (size_t i = 0; i < json_array_size(rules); i++) {
		const char *from = json_string_value(
			json_object_get(json_array_get(rules, i), "from"));

		if (from && (strlen(from) > 40 || strpbrk(from, "{\\") ||
			     strcspn(from, "(") + 4 < strlen(from)))
			return false;
	}
	return true;
}

static bool all_tame(const char *text, size_t len)
{
	json_t *doc = NULL, *spec;
	const char *name;
	bool tame = true;

	if (ck_json_parse(&doc, text, len, NULL))
		return true;
	json_object_foreach(json_object_get(doc, "views"), name, spec) tame =
		tame && is_tame(json_object_get(spec, "rename"));
	json_decref(doc);
	return tame;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ck_ckpt *ck = checkpoint();
	struct ck_opts opts = { 0 };
	struct ck_err err = { 0 };
	struct ck_view *v = NULL;
	char *text = malloc(size + 1);

	if (!text || ck_opts_add(&opts, "views", "v.json"))
		abort();
	memcpy(text, data, size);
	if (!all_tame(text, size)) {
		free(text);
		ck_opts_free(&opts);
		return 0;
	}
	ck_runtime_problems_init(&ck->problems_found);
	ck_opts_keep(&opts, text, size);
	if (ck_view_open(&v, &ck_view_views, ck, 0, &opts, &err)) {
		if (!err.msg[0])
			abort();
	} else {
		check_view(v);
		ck_view_close(v);
	}
	ck_runtime_problems_free(&ck->problems_found);
	ck_opts_free(&opts);
	return 0;
}
