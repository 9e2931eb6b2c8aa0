/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_runtime_problems.c - problems that only reading finds; bounded, each
 * once
 */
#include "core/ckpt/ckpt_priv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void ck_runtime_problems_init(struct ck_runtime_problems *l)
{
	*l = (struct ck_runtime_problems){ 0 };
	pthread_mutex_init(&l->lock, NULL);
}

void ck_runtime_problems_free(struct ck_runtime_problems *l)
{
	for (size_t i = 0; i < l->nr; i++)
		free(l->v[i].reason);
	free(l->v);
	pthread_mutex_destroy(&l->lock);
}

/* Of a view as a whole several things may be said. */
static bool known(const struct ck_runtime_problems *l,
		  const struct ck_runtime_problem *p)
{
	bool whole = p->tensor == CK_NONE;

	for (size_t i = l->nr; i-- > 0;)
		if (l->v[i].chunk == p->chunk && l->v[i].tensor == p->tensor &&
		    l->v[i].view == p->view &&
		    (!whole || !strcmp(l->v[i].reason, p->reason)))
			return true;
	return false;
}

static bool append(struct ck_runtime_problems *l,
		   const struct ck_runtime_problem *p)
{
	char *reason;

	if (!l->v)
		l->v = calloc(CK_RUNTIME_PROBLEMS_MAX, sizeof(*l->v));
	reason = l->v ? strdup(p->reason) : NULL;
	if (!reason)
		return false;
	l->v[l->nr] = *p;
	l->v[l->nr++].reason = reason;
	return true;
}

void ck_runtime_problems_add(struct ck_runtime_problems *l,
			     const struct ck_runtime_problem *p)
{
	bool grew = false;

	pthread_mutex_lock(&l->lock);
	if (l->nr <
	    (p->view ? CK_RUNTIME_PROBLEMS_NOTES : CK_RUNTIME_PROBLEMS_MAX)) {
		grew = !known(l, p) && append(l, p);
	} else if (!l->full && !known(l, p)) {
		l->full = true;
		grew = true;
	}
	pthread_mutex_unlock(&l->lock);
	if (grew)
		atomic_fetch_add(&l->seq, 1);
}

/* The file that a chunk lies in, in the end; NULL: none, or no chunk. */
static const char *file_of(const struct ck_catalog *img, uint32_t chunk,
			   size_t *len)
{
	const struct ck_src *src;

	if (chunk == CK_NONE)
		return NULL;
	src = &img->srcs[img->chunks[chunk].src];
	if (src->kind == CK_SRC_CODEC)
		src = &img->srcs[src->parent];
	return src->kind == CK_SRC_FILE ? ck_catalog_str(img, src->name, len) :
					  NULL;
}

static const char *severity(const struct ck_runtime_problem *p)
{
	if (p->view)
		return p->says == CK_VIEW_WARNS ? "warning" : "note";
	return p->tensor == CK_NONE ? "warning" : "error";
}

uint64_t ck_runtime_problems_errors(struct ck_runtime_problems *l)
{
	uint64_t nr = 0;

	pthread_mutex_lock(&l->lock);
	for (size_t i = 0; i < l->nr; i++)
		nr += *severity(&l->v[i]) == 'e';
	pthread_mutex_unlock(&l->lock);
	return nr;
}

static void add_json(const struct ck_runtime_problem *p,
		     const struct ck_catalog *img, struct ck_str *out)
{
	const char *text;
	size_t len;

	ck_str_fmt(out, "{\"severity\": \"%s\"", severity(p));
	if (p->tensor != CK_NONE) {
		text = ck_catalog_str(img, img->tensors[p->tensor].name, &len);
		ck_str_puts(out, ", \"tensor\": ");
		ck_str_json(out, text, len);
	}
	text = file_of(img, p->chunk, &len);
	if (text) {
		ck_str_puts(out, ", \"file\": ");
		ck_str_json(out, text, len);
	}
	if (p->view) {
		ck_str_puts(out, ", \"view\": ");
		ck_str_json(out, p->view, strlen(p->view));
	} else if (p->tensor != CK_NONE) {
		ck_str_fmt(out,
			   ", \"offset\": %" PRIu64 ", \"nbytes\": %" PRIu64,
			   p->off, p->len);
	}
	ck_str_puts(out, ", \"reason\": ");
	ck_str_json(out, p->reason, strlen(p->reason));
	ck_str_puts(out, "}");
}

/* @reason without the name of its file, which stands before it in the line. */
static const char *said_of(const char *reason, const char *file, size_t len)
{
	bool named = file && !strncmp(reason, file, len) &&
		     !strncmp(reason + len, ": ", 2);

	return named ? reason + len + 2 : reason;
}

static void add_line(const struct ck_runtime_problem *p,
		     const struct ck_catalog *img, struct ck_str *out)
{
	const char *text;
	size_t len;

	if (p->view && p->tensor == CK_NONE) {
		ck_str_fmt(out, "%s: %s: %s\n", severity(p), p->view,
			   p->reason);
		return;
	}
	if (p->tensor == CK_NONE) {
		text = file_of(img, p->chunk, &len);
		ck_str_puts(out, text ? "warning: file " : "warning");
		ck_str_plain(out, text ? text : "", text ? len : 0);
		ck_str_fmt(out, ": %s\n", said_of(p->reason, text, len));
		return;
	}
	ck_str_puts(out, p->view ? "note: tensor " : "error: tensor ");
	text = ck_catalog_str(img, img->tensors[p->tensor].name, &len);
	ck_str_plain(out, text, len);
	text = file_of(img, p->chunk, &len);
	if (text) {
		ck_str_puts(out, ": file ");
		ck_str_plain(out, text, len);
	}
	if (p->view)
		ck_str_fmt(out, ": left out of %s: %s\n", p->view, p->reason);
	else
		ck_str_fmt(out, ": bytes [%" PRIu64 ", %" PRIu64 "): %s\n",
			   p->off, p->off + p->len,
			   said_of(p->reason, text, len));
}

void ck_runtime_problems_dump(struct ck_runtime_problems *l,
			      const struct ck_catalog *img, bool json,
			      struct ck_str *out)
{
	static const char more[] = "there is more than is "
				   "listed here";

	pthread_mutex_lock(&l->lock);
	for (size_t i = 0; i < l->nr; i++) {
		if (!json)
			add_line(&l->v[i], img, out);
		else
			add_json(&l->v[i], img, out);
		if (json && i + 1 < l->nr)
			ck_str_puts(out, ",\n");
	}
	if (l->full && json)
		ck_str_fmt(out,
			   ",\n{\"severity\": \"note\", \"reason\": "
			   "\"%s\"}",
			   more);
	else if (l->full)
		ck_str_fmt(out, "note: %s\n", more);
	pthread_mutex_unlock(&l->lock);
}

#define NAME_OTHERS 100

/* Number @out->nr, from 2 on. */
static void name_other(struct ck_left_out *out, const struct ck_catalog *img,
		       uint32_t tensor)
{
	const char *name;
	size_t len;

	if (out->nr > NAME_OTHERS + 1)
		return;
	name = ck_catalog_str(img, img->tensors[tensor].name, &len);
	ck_str_puts(&out->others, out->others.len ? ", " : "");
	ck_str_plain(&out->others, name, len);
}

void ck_ckpt_left_out(struct ck_ckpt *ck, const char *view,
		      struct ck_left_out *out)
{
	struct ck_runtime_problems *l = &ck->problems_found;

	*out = (struct ck_left_out){ .first = CK_NONE };
	pthread_mutex_lock(&l->lock);
	for (size_t i = 0; i < l->nr; i++) {
		const struct ck_runtime_problem *p = &l->v[i];

		if (!p->view || strcmp(p->view, view) != 0 ||
		    (p->says == CK_VIEW_NOT_MEANT && p->tensor != CK_NONE))
			continue;
		if (p->tensor == CK_NONE)
			ck_str_fmt(&out->other, "%s%s",
				   out->other.len ? "; " : "", p->reason);
		if (p->tensor == CK_NONE)
			continue;
		if (out->nr++) {
			name_other(out, &ck->img, p->tensor);
			continue;
		}
		out->first = p->tensor;
		ck_str_puts(&out->why, p->reason);
	}
	out->more = l->full;
	pthread_mutex_unlock(&l->lock);
}

void ck_left_out_free(struct ck_left_out *left)
{
	ck_str_free(&left->why);
	ck_str_free(&left->others);
	ck_str_free(&left->other);
}
