/* SPDX-License-Identifier: Apache-2.0 */
/* labels.c - what to call a file in a drawing */
#include "mount-helpers/inspect/inspect.h"

#include "mount-helpers/text.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/number.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILES 1024
#define MAX_NAME 24

static bool digits_at(const char *name, size_t len, size_t at, uint64_t *out)
{
	size_t n = ck_digits(name + at, len - at, out);

	return n > 0 && n < 10;
}

/* The rank in the last part of a path, "__3_0.distcp", "rank-00003.pt"; false: none. */
static bool rank_in(const char *name, size_t len, uint64_t *rank)
{
	static const char distcp[] = ".distcp", word[] = "rank";
	size_t end = sizeof(distcp) - 1;
	const char *at;

	if (len > end && !memcmp(name + len - end, distcp, end) &&
	    !memcmp(name, "__", 2))
		return digits_at(name, len, 2, rank);
	at = memmem(name, len, word, sizeof(word) - 1);
	if (!at)
		return false;
	end = (size_t)(at - name) + sizeof(word) - 1;
	if (end < len && (name[end] == '-' || name[end] == '_'))
		end++;
	return digits_at(name, len, end, rank);
}

static const char *base_name(const struct ck_catalog *img, uint32_t file,
			     size_t *len)
{
	const char *name = ck_catalog_str(img, file, len);
	const char *slash = memrchr(name, '/', *len);

	if (slash) {
		*len -= (size_t)(slash + 1 - name);
		name = slash + 1;
	}
	return name;
}

/* The folder that the file lies in; of none, no bytes. */
static const char *folder_name(const struct ck_catalog *img, uint32_t file,
			       size_t *len)
{
	const char *name = ck_catalog_str(img, file, len);
	const char *end = memrchr(name, '/', *len);
	const char *from =
		end ? memrchr(name, '/', (size_t)(end - name)) : NULL;

	from = from ? from + 1 : name;
	*len = end ? (size_t)(end - from) : 0;
	return from;
}

static uint32_t find(const struct labels *l, uint32_t file)
{
	uint32_t i = 0;

	while (i < l->nr && l->files[i] != file)
		i++;
	return i;
}

/* A .. Z, AA .. */
static void put_key(struct ck_str *out, uint32_t i)
{
	if (i >= 26)
		put_key(out, i / 26 - 1);
	ck_str_fmt(out, "%c", (char)('A' + i % 26));
}

/* How file @i would be called; false: it has no such name. */
static bool name_of(const struct labels *l, enum labels_kind kind, uint32_t i,
		    struct ck_str *out)
{
	const char *name;
	uint64_t rank;
	size_t len;

	switch (kind) {
	case LABELS_RANK:
		name = base_name(l->img, l->files[i], &len);
		if (!rank_in(name, len, &rank))
			return false;
		ck_str_fmt(out, "rank %" PRIu64, rank);
		return true;
	case LABELS_NAME:
	case LABELS_FOLDER:
		name = kind == LABELS_NAME ?
			       base_name(l->img, l->files[i], &len) :
			       folder_name(l->img, l->files[i], &len);
		ck_str_plain(out, name, len);
		return len && len <= MAX_NAME;
	default:
		put_key(out, i);
		return true;
	}
}

static bool is_before(const struct labels *l, enum labels_kind kind, uint32_t i,
		      const char *name)
{
	ck_auto_str struct ck_str other = { 0 };

	while (i-- > 0) {
		other.len = 0;
		name_of(l, kind, i, &other);
		if (other.v && !strcmp(other.v, name))
			return true;
	}
	return false;
}

/* Whether all of them have a name of that kind, and no two the same. */
static bool tells(const struct labels *l, enum labels_kind kind)
{
	for (uint32_t i = 0; i < l->nr; i++) {
		ck_auto_str struct ck_str name = { 0 };

		if (!name_of(l, kind, i, &name) || name.failed ||
		    is_before(l, kind, i, name.v))
			return false;
	}
	return true;
}

static enum labels_kind choose(const struct labels *l)
{
	enum labels_kind kind = LABELS_RANK;

	while (kind != LABELS_KEY && !tells(l, kind))
		kind++;
	return kind;
}

bool labels_init(struct labels *l, const struct ck_catalog *img,
		 const struct ck_tensor *t)
{
	*l = (struct labels){ .img = img };
	l->files = malloc(MAX_FILES * sizeof(*l->files));
	if (!l->files)
		return false;
	for (uint32_t i = 0; i < t->nr_all; i++) {
		const struct ck_chunk *c = &img->chunks[t->first + i];
		uint32_t file = ck_catalog_file_of(img, c->src);

		if (file == CK_NONE || find(l, file) < l->nr)
			continue;
		if (l->nr == MAX_FILES)
			return false;
		l->files[l->nr++] = file;
	}
	l->kind = choose(l);
	return true;
}

void labels_free(struct labels *l)
{
	free(l->files);
}

void labels_put(const struct labels *l, uint32_t src, struct ck_str *out)
{
	uint32_t file = ck_catalog_file_of(l->img, src);

	if (file == CK_NONE)
		ck_str_puts(out, "index");
	else
		name_of(l, l->kind, find(l, file), out);
}

void labels_legend(const struct labels *l, struct ck_str *out)
{
	for (uint32_t i = 0; i < l->nr; i++) {
		size_t from = out->len;

		ck_str_puts(out, "  ");
		name_of(l, l->kind, i, out);
		text_pad(out, from, 12);
		ck_str_puts(out, " ");
		text_ref(out, l->img, l->files[i]);
		ck_str_puts(out, "\n");
	}
}
