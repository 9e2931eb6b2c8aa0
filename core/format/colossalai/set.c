/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.c - the tables of tensors, pieces and files
 */
#include "core/format/colossalai/set.h"

#include "core/base/suffix.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define META "pytorch_model-meta-dist-"
#define DIST "-dist-"

bool ck_ca_is_meta(const char *name, uint64_t *dist)
{
	if (strncmp(name, META, strlen(META)) != 0 ||
	    !ck_has_suffix(name, ".json"))
		return false;
	*dist = strtoull(name + strlen(META), NULL, 10);
	return true;
}

/* STEM-dist-00001[-shard-00000].bin; the stem may have -dist- in it too. */
bool ck_ca_is_weights(const char *name, uint64_t *dist)
{
	const char *at = NULL, *more = name;
	char *end;

	if (!ck_has_suffix(name, ".bin") &&
	    !ck_has_suffix(name, ".safetensors"))
		return false;
	while ((more = strstr(more, DIST)))
		at = more++;
	if (!at || !isdigit((unsigned char)at[strlen(DIST)]))
		return false;
	*dist = strtoull(at + strlen(DIST), &end, 10);
	return *end == '.' || !strncmp(end, "-shard-", 7);
}

static void free_entry(struct ck_ca_entry *e)
{
	free(e->dims);
	free(e->fault);
	free(e);
}

void ck_ca_set_free(struct ck_ca_set *s)
{
	for (size_t i = 0; i < s->tensors.nr; i++) {
		free(s->tensors.v[i].name);
		free(s->tensors.v[i].fault);
	}
	for (size_t i = 0; i < s->pieces.nr; i++)
		free(s->pieces.v[i].box);
	for (size_t i = 0; i < s->files.nr; i++)
		free(s->files.v[i].name);
	for (size_t i = 0; i < s->entries.nr; i++)
		free_entry(s->entries.v[i]);
	free(s->tensors.v);
	free(s->pieces.v);
	free(s->files.v);
	free(s->entries.v);
	ck_strmap_free(&s->names);
	ck_strmap_free(&s->file_names);
}

struct ck_ca_tensor *ck_ca_tensor(struct ck_ca_set *s, const char *name,
				  size_t len)
{
	uint32_t at = ck_strmap_get(&s->names, name, len);
	struct ck_ca_tensor *t;

	if (at != CK_STRMAP_NONE)
		return &s->tensors.v[at];
	t = ck_vec_push(&s->tensors);
	if (!t)
		return NULL;
	*t = (struct ck_ca_tensor){ .name = malloc(len + 1),
				    .len = len,
				    .first = CK_STRMAP_NONE,
				    .last = CK_STRMAP_NONE,
				    .hint = CK_STRMAP_NONE };
	if (!t->name)
		return NULL;
	memcpy(t->name, name, len);
	t->name[len] = '\0';
	return ck_strmap_put(&s->names, t->name, len) == CK_STRMAP_NONE ? NULL :
									  t;
}

struct ck_ca_piece *ck_ca_piece(struct ck_ca_set *s, const char *name,
				size_t len, uint32_t file)
{
	struct ck_ca_tensor *t = ck_ca_tensor(s, name, len);
	struct ck_ca_piece *p = t ? ck_vec_push(&s->pieces) : NULL;
	uint32_t at = (uint32_t)s->pieces.nr - 1;

	if (!p)
		return NULL;
	*p = (struct ck_ca_piece){ .file = file, .next = CK_STRMAP_NONE };
	if (t->first == CK_STRMAP_NONE)
		t->first = at;
	else
		s->pieces.v[t->last].next = at;
	t->last = at;
	return p;
}

uint32_t ck_ca_file(struct ck_ca_set *s, const char *name)
{
	size_t len = strlen(name);
	uint32_t at = ck_strmap_get(&s->file_names, name, len);
	struct ck_ca_file *f;

	if (at != CK_STRMAP_NONE)
		return at;
	f = ck_vec_push(&s->files);
	if (!f)
		return CK_STRMAP_NONE;
	*f = (struct ck_ca_file){ .name = strdup(name) };
	if (!f->name)
		return CK_STRMAP_NONE;
	if (!ck_ca_is_weights(name, &f->dist))
		f->dist = UINT64_MAX;
	return ck_strmap_put(&s->file_names, f->name, len);
}
