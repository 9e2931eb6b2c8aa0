/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explain.c - what a folder that cannot be read seems to be
 *
 * Looks at names and, for a single file, at its first bytes.
 */
#include "core/format/explain.h"

#include "core/base/auto.h"
#include "core/base/str.h"
#include "core/base/suffix.h"
#include "core/catalog/builder.h"
#include "core/format/format.h"
#include "core/assemble/numbered.h"
#include "core/container/torch_save.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EXPECTED                                                                \
	"expected .metadata with .distcp files, .safetensors files or another " \
	"of the formats that unshard --formats lists"
#define MAX_NAMED 3
#define MAX_REF 256

static bool is_torch_save(const char *name)
{
	return ck_torch_save_is_name(name) || ck_has_suffix(name, ".pkl");
}

/* Of what was read @b knows, where something was. */
typedef bool (*wanted_fn)(const struct ck_dir *dir, const struct ck_builder *b,
			  const struct ck_dir_entry *e);

/* "a, b, c and 4 more" of what @wanted says yes to; returns how many. */
static size_t name_some(const struct ck_dir *dir, const struct ck_builder *b,
			const struct ck_dir_list *l, wanted_fn wanted,
			struct ck_str *out)
{
	size_t nr = 0;

	for (size_t i = 0; i < l->nr; i++) {
		if (!wanted(dir, b, &l->v[i]))
			continue;
		if (nr++ < MAX_NAMED)
			ck_str_fmt(out, "%s%s", nr > 1 ? ", " : "",
				   l->v[i].name);
	}
	if (nr > MAX_NAMED)
		ck_str_fmt(out, " and %zu more", nr - MAX_NAMED);
	return nr;
}

static bool is_checkpoint_dir(const struct ck_dir *dir,
			      const struct ck_builder *b,
			      const struct ck_dir_entry *e)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };

	(void)b;
	if (!e->is_dir || ck_dir_list(dir, e->name, &l, NULL))
		return false;
	for (size_t i = 0; i < l.nr; i++)
		if (ck_has_suffix(l.v[i].name, "/.metadata") ||
		    ck_has_suffix(l.v[i].name, ".distcp") ||
		    ck_has_suffix(l.v[i].name, ".safetensors"))
			return true;
	return false;
}

static bool is_torch_file(const struct ck_dir *dir, const struct ck_builder *b,
			  const struct ck_dir_entry *e)
{
	ck_auto_source struct ck_source *s = NULL;

	(void)b;
	return !e->is_dir && is_torch_save(e->name) &&
	       !ck_dir_open(dir, e->name, &s, NULL) && ck_torch_save_is(s);
}

bool ck_explain_is_part(const char *name)
{
	return !strcmp(name, ".metadata") || ck_has_suffix(name, ".distcp") ||
	       ck_has_suffix(name, ".index.json");
}

static int explain_file(const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	unsigned char head[8] = { 0 };
	static const char unknown[] = "of no known kind";
	const char *what = unknown, *aux;
	int ret = ck_dir_open(dir, dir->only, &s, err);

	if (ret)
		return ret;
	if (s->st.st_size >= (off_t)sizeof(head))
		ck_source_read(s, head, sizeof(head), 0, NULL);
	if (ck_explain_is_part(dir->only))
		what = "part of a checkpoint: give its directory";
	else if (ck_torch_save_is(s))
		what = "cut off, or no torch.save file after its first bytes";
	else if (!memcmp(head, "GGUF", 4))
		what = "a GGUF file, which is not supported";
	else if (s->st.st_size == 0)
		what = "empty";
	else if ((aux = ck_format_aux(dir, dir->only)))
		what = aux;
	return ck_fail(err, what == unknown ? ENODATA : EINVAL,
		       "no checkpoint in %s: it is %s; expected a "
		       ".safetensors or torch.save file, or a directory",
		       dir->path, what);
}

/* NULL: of any name. */
static bool has_dir(const struct ck_dir_list *l, const char *name)
{
	for (size_t i = 0; i < l->nr; i++)
		if (l->v[i].is_dir && (!name || !strcmp(l->v[i].name, name)))
			return true;
	return false;
}

/* models--ORG--NAME/ of a Hugging Face cache. */
static bool is_hub(const struct ck_dir_list *l)
{
	return has_dir(l, "snapshots") &&
	       (has_dir(l, "refs") || has_dir(l, "blobs"));
}

/* The revision that refs/main names, or else the only one. */
static void revision_of(const struct ck_dir *dir, struct ck_str *out)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	ck_auto_free char *text = NULL;
	size_t len;

	if (!ck_dir_slurp(dir, "refs/main", MAX_REF, &text, &len, NULL)) {
		ck_str_puts(out, "snapshots/");
		ck_str_plain(out, text, strcspn(text, "\r\n"));
	} else if (!ck_dir_list(dir, "snapshots", &l, NULL) && l.nr == 1) {
		ck_str_plain(out, l.v[0].name, strlen(l.v[0].name));
	} else {
		ck_str_puts(out, "snapshots/REVISION");
	}
}

/* Not -ENODATA: snapshots/ is no checkpoint among others here. */
static int explain_hub(const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_str struct ck_str rev = { 0 };

	revision_of(dir, &rev);
	return ck_fail(err, EINVAL,
		       "%s is a repository of a Hugging Face cache: give a "
		       "snapshot of it, %s/%s",
		       dir->path, dir->path, rev.v ? rev.v : "");
}

/* A file that is called as those of checkpoints are. */
static bool is_sign(const char *base)
{
	return ck_ends_in(base, ".metadata") || ck_ends_in(base, ".distcp") ||
	       ck_has_suffix(base, ".safetensors") ||
	       ck_torch_save_is_name(base);
}

/* "rank_0", "metadata.pkl": not each link of a folder like /etc. */
static bool is_of_checkpoint(const char *name)
{
	size_t len = strlen(name);

	return is_sign(name) || is_torch_save(name) ||
	       (len && name[len - 1] >= '0' && name[len - 1] <= '9');
}

/*
 * The line of the first link that is not followed to what may be of a
 * checkpoint; 0: there is none.
 */
static int explain_link(const struct ck_dir *dir, const struct ck_dir_list *l,
			struct ck_err *err)
{
	for (size_t i = 0; i < l->nr; i++) {
		ck_auto_source struct ck_source *s = NULL;
		struct ck_err why = { 0 };

		if (l->v[i].is_dir || !is_of_checkpoint(l->v[i].name) ||
		    ck_dir_open(dir, l->v[i].name, &s, &why) != -ELOOP)
			continue;
		return ck_fail(err, ENODATA,
			       "no checkpoint found in %s: " EXPECTED "; %s",
			       dir->path, why.msg);
	}
	return 0;
}

int ck_explain_none(const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	ck_auto_str struct ck_str some = { 0 };
	int ret;

	if (dir->only)
		return explain_file(dir, err);
	ret = ck_dir_list(dir, "", &l, err);
	if (ret)
		return ret;
	if (!l.nr)
		return ck_fail(err, ENODATA,
			       "no checkpoint found in %s, which "
			       "is empty; " EXPECTED,
			       dir->path);
	if (is_hub(&l))
		return explain_hub(dir, err);
	if (ck_format_unfinished(dir))
		return ck_fail(err, EINVAL,
			       "%s: a save that has not ended: its index is "
			       "still in parts, in %s",
			       dir->path, ck_format_unfinished(dir));
	if (name_some(dir, NULL, &l, is_checkpoint_dir, &some))
		return ck_fail(err, ENODATA,
			       "no checkpoint found in %s itself: "
			       "it holds folders of checkpoints (%s), give one "
			       "of them; unshard find lists them",
			       dir->path, some.v ? some.v : "");
	if (name_some(dir, NULL, &l, is_torch_file, &some))
		return ck_fail(err, ENODATA,
			       "no checkpoint found in %s itself: its "
			       "torch.save files (%s) do not belong together, "
			       "give one of them",
			       dir->path, some.v ? some.v : "");
	ret = explain_link(dir, &l, err);
	return ret ? ret :
		     ck_fail(err, ENODATA,
			     "no checkpoint found in %s: " EXPECTED "%s",
			     dir->path,
			     has_dir(&l, NULL) ?
				     "; unshard find looks below it" :
				     "");
}

/* ---- beside what was read ---- */

/* Files that the reader used are not beside it, nor are pieces of its kind. */
static bool is_torch_beside(const struct ck_dir *dir,
			    const struct ck_builder *b,
			    const struct ck_dir_entry *e)
{
	for (size_t i = 0; ck_formats[i]; i++)
		if (ck_formats[i]->is_piece && ck_formats[i]->is_piece(e->name))
			return false;
	return is_torch_save(e->name) && !ck_builder_has_file(b, e->name) &&
	       is_torch_file(dir, b, e);
}

static bool is_temporary(const struct ck_dir *dir, const struct ck_builder *b,
			 const struct ck_dir_entry *e)
{
	(void)dir;
	(void)b;
	return !e->is_dir && ck_is_temporary(e->name);
}

/*
 * By names alone.  A mount shows each as a tree of its own; who reads one
 * checkpoint is told that it is not in it.  Of an inner one its own reader
 * tells.
 *
 *	latest, global_step500/		DeepSpeed's part of the same save
 *	checkpoint-500/			saves of before
 */
static bool is_checkpoint(const struct ck_dir *dir, const struct ck_builder *b,
			  const struct ck_dir_entry *e)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	bool sign = false;

	if (!e->is_dir || *e->name == '.' || ck_format_is_inner(e->name) ||
	    ck_dir_list(dir, e->name, &l, NULL))
		return false;
	for (size_t i = 0; i < l.nr; i++) {
		if (ck_builder_has_file(b, l.v[i].name))
			return false;
		sign |= !l.v[i].is_dir && is_sign(ck_base_name(l.v[i].name));
	}
	return sign;
}

/* A note of those that @wanted says yes to: @what (a, b), @then. */
static int note_some(const struct ck_dir *dir, struct ck_builder *b,
		     const struct ck_dir_list *l, wanted_fn wanted,
		     const char *what, const char *then, struct ck_err *err)
{
	ck_auto_str struct ck_str some = { 0 };

	if (!name_some(dir, b, l, wanted, &some))
		return 0;
	if (some.failed)
		return ck_no_memory(err);
	return ck_builder_report_file(b, CK_NOTE, NULL, err,
				      "left aside: %s (%s)%s", what, some.v,
				      then);
}

/* An index is read by who knows it; here only its name matters. */
static bool has_index(const struct ck_dir_list *l)
{
	for (size_t i = 0; i < l->nr; i++)
		if (strstr(l->v[i].name, ".safetensors.index.") ||
		    !strcmp(l->v[i].name, CK_NUMBERED_PARTS))
			return true;
	return false;
}

/* Names say that files are of a set, and nothing says how many there were. */
static int report_numbered(const struct ck_dir_list *l, struct ck_builder *b,
			   struct ck_err *err)
{
	struct ck_numbered n;

	for (size_t i = 0; i < l->nr && !has_index(l); i++) {
		const char *name = l->v[i].name;

		if (!ck_numbered_is(name, &n) || n.of ||
		    !ck_ends_in(name, ".safetensors") ||
		    !ck_builder_has_file(b, name))
			continue;
		return ck_builder_report_file(
			b, CK_WARNING, NULL, err,
			"%.*s%s*%s: no index (%s) says "
			"whether these numbered files are all",
			(int)n.stem, name, n.part ? "" : "-", n.suffix,
			n.part ? CK_NUMBERED_PARTS :
				 "*.safetensors.index.json");
	}
	return 0;
}

/* Beside the files of a format that are all in the folder itself. */
static int report_flat(const struct ck_dir *dir, const struct ck_dir_list *l,
		       struct ck_builder *b, struct ck_err *err)
{
	int ret = dir->save ?
			  0 :
			  note_some(dir, b, l, is_checkpoint,
				    "folders beside it that are "
				    "checkpoints of their own",
				    ": give one of them, or mount all", err);

	for (size_t i = 0; ck_formats[i] && !ret && !dir->save; i++)
		if (ck_formats[i]->check_beside)
			ret = ck_formats[i]->check_beside(dir, l, b, err);
	return ret ? ret : report_numbered(l, b, err);
}

int ck_explain_beside(const struct ck_dir *dir, const struct ck_format *f,
		      struct ck_builder *b, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	const char *unfinished;
	int ret = dir->only ? 0 : ck_dir_list(dir, "", &l, err);

	if (ret || dir->only)
		return ret;
	if (!f->reports_aside)
		ret = note_some(dir, b, &l, is_torch_beside,
				"torch.save files beside it", "", err);
	if (!ret && f->flat)
		ret = report_flat(dir, &l, b, err);
	if (!ret)
		ret = ck_leftover_check(dir, &l, b, err);
	unfinished = ck_format_unfinished(dir);
	if (!ret && unfinished)
		ret = ck_builder_report_file(
			b, CK_WARNING, unfinished, err,
			"parts of an index: a save into this folder "
			"has not ended");
	return ret ? ret :
		     note_some(dir, b, &l, is_temporary,
			       "temporary files of a save that was "
			       "interrupted, or goes on",
			       "", err);
}
