/* SPDX-License-Identifier: Apache-2.0 */
/* slice.c - what the top of a file tells of its writer, whoever that is */
#include "core/format/slice.h"

#include "core/format/format.h"

/* An error, unless the file is all that was asked for. */
static int report(const struct ck_dir *dir, struct ck_builder *b,
		  const char *file, const struct ck_format *f, bool sure,
		  struct ck_err *err)
{
	bool asked = dir->only && !dir->entry;

	return ck_builder_report_file(b, asked || !sure ? CK_WARNING : CK_ERROR,
				      file, err, "%s", f->slice);
}

int ck_slice_report(const struct ck_dir *dir, struct ck_builder *b,
		    const char *file, const struct ck_pickle *p,
		    struct ck_err *err)
{
	const struct ck_format *maybe = NULL;

	for (size_t i = 0; ck_formats[i]; i++) {
		const struct ck_format *f = ck_formats[i];
		enum ck_slice is = f->is_slice ? f->is_slice(p) : CK_SLICE_NO;

		if (is == CK_SLICE_YES)
			return report(dir, b, file, f, true, err);
		if (is == CK_SLICE_MAYBE)
			maybe = f;
	}
	return maybe ? report(dir, b, file, maybe, false, err) : 0;
}

int ck_slice_report_metadata(const struct ck_dir *dir, struct ck_builder *b,
			     const char *file, const json_t *metadata,
			     struct ck_err *err)
{
	for (size_t i = 0; ck_formats[i]; i++) {
		const struct ck_format *f = ck_formats[i];
		bool yes = false;
		int ret = f->is_slice_by ? f->is_slice_by(dir, file, metadata,
							  &yes, err) :
					   0;

		if (ret || yes)
			return ret ? ret : report(dir, b, file, f, true, err);
	}
	return 0;
}
