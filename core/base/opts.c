/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/opts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ck_opts_add(struct ck_opts *o, const char *name, const char *value)
{
	struct ck_opt *grown;

	if (o->nr == o->room) {
		size_t room = o->room ? 2 * o->room : 8;

		grown = reallocarray(o->v, room, sizeof(*o->v));
		if (!grown)
			return -ENOMEM;
		o->v = grown;
		o->room = room;
	}
	o->v[o->nr] =
		(struct ck_opt){ .name = strdup(name), .value = strdup(value) };
	o->nr++;
	return o->v[o->nr - 1].name && o->v[o->nr - 1].value ? 0 : -ENOMEM;
}

const char *ck_opts_get(const struct ck_opts *o, const char *name)
{
	for (size_t i = o ? o->nr : 0; i-- > 0;)
		if (!strcmp(o->v[i].name, name))
			return o->v[i].value;
	return NULL;
}

const char *ck_opts_use(const struct ck_opts *o, const char *name)
{
	for (size_t i = 0; o && i < o->nr; i++)
		if (!strcmp(o->v[i].name, name))
			o->v[i].used = true;
	return ck_opts_get(o, name);
}

bool ck_opts_used(const struct ck_opts *o, const char *name)
{
	for (size_t i = 0; o && i < o->nr; i++)
		if (!strcmp(o->v[i].name, name) && o->v[i].used)
			return true;
	return false;
}

void ck_opts_mark_unused(const struct ck_opts *o)
{
	for (size_t i = 0; o && i < o->nr; i++)
		o->v[i].used = false;
}

static const struct ck_opt *find(const struct ck_opts *o, const char *name,
				 size_t nth)
{
	for (size_t i = 0; o && i < o->nr; i++)
		if (!strcmp(o->v[i].name, name) && nth-- == 0)
			return &o->v[i];
	return NULL;
}

const char *ck_opts_nth(const struct ck_opts *o, const char *name, size_t nth)
{
	const struct ck_opt *opt = find(o, name, nth);

	return opt ? opt->value : NULL;
}

void ck_opts_keep(struct ck_opts *o, char *bytes, size_t len)
{
	o->v[o->nr - 1].bytes = bytes;
	o->v[o->nr - 1].len = len;
}

const char *ck_opts_bytes(const struct ck_opts *o, const char *name, size_t i,
			  size_t *len)
{
	const struct ck_opt *opt = find(o, name, i);

	if (opt)
		*len = opt->len;
	return opt ? opt->bytes : NULL;
}

void ck_opts_free(struct ck_opts *o)
{
	for (size_t i = 0; i < o->nr; i++) {
		free(o->v[i].name);
		free(o->v[i].value);
		free(o->v[i].bytes);
	}
	free(o->v);
	*o = (struct ck_opts){ 0 };
}

int ck_opts_without(struct ck_opts *out, const struct ck_opts *o,
		    const char *name)
{
	*out = (struct ck_opts){ 0 };
	out->room = o ? o->nr : 0;
	out->v = calloc(out->room + 1, sizeof(*out->v));
	if (!out->v)
		return -ENOMEM;
	for (size_t i = 0; i < out->room; i++)
		if (strcmp(o->v[i].name, name) != 0)
			out->v[out->nr++] = o->v[i];
	return 0;
}

void ck_opts_let_go(struct ck_opts *out)
{
	free(out->v);
	*out = (struct ck_opts){ 0 };
}
