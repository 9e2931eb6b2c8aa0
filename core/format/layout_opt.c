/* SPDX-License-Identifier: Apache-2.0 */
/* layout_opt.c - a regular file of the user's, into the options */
#include "core/format/layout_opt.h"

#include "core/base/auto.h"
#include "core/format/layout_doc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

static int read_all(int fd, const char *path, char *buf, size_t len,
		    struct ck_err *err)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = read(fd, buf + got, len - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return ck_fail(err, n ? errno : EIO,
				       "-o layout=%s: %s", path,
				       n ? strerror(errno) : "became shorter");
		got += (size_t)n;
	}
	return 0;
}

static int read_file(const char *path, char **out, struct ck_err *err)
{
	/* a FIFO would be waited for */
	ck_auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ck_auto_free char *buf = NULL;
	struct stat st;
	int ret;

	if (fd < 0 || fstat(fd, &st))
		return ck_fail(err, errno, "-o layout=%s: %s", path,
			       strerror(errno));
	if (!S_ISREG(st.st_mode))
		return ck_fail(err, EINVAL, "-o layout=%s: no regular file",
			       path);
	if ((uint64_t)st.st_size > CK_LAY_MAX_BYTES)
		return ck_fail(err, EINVAL,
			       "-o layout=%s: has %" PRIu64
			       " bytes, at most %" PRIu64 " are accepted",
			       path, (uint64_t)st.st_size, CK_LAY_MAX_BYTES);
	buf = malloc((size_t)st.st_size + 1);
	if (!buf)
		return ck_fail(err, ENOMEM, "no memory");
	ret = read_all(fd, path, buf, (size_t)st.st_size, err);
	if (ret)
		return ret;
	buf[st.st_size] = '\0';
	if (strlen(buf) != (size_t)st.st_size)
		return ck_fail(err, EINVAL, "-o layout=%s: byte %zu: a NUL",
			       path, strlen(buf));
	*out = ck_steal(buf);
	return 0;
}

int ck_layout_opt_read(struct ck_opts *opts, struct ck_err *err)
{
	const char *path = ck_opts_get(opts, "layout");
	const char *format = ck_opts_get(opts, "format");
	ck_auto_free char *text = NULL;
	int ret;

	if (!path || ck_opts_get(opts, CK_LAYOUT_OPT_TEXT))
		return 0;
	if (format && strcmp(format, "auto") && strcmp(format, "layout"))
		return ck_fail(err, EINVAL,
			       "-o layout=%s and -o format=%s: a layout is a "
			       "format of its own",
			       path, format);
	ret = read_file(path, &text, err);
	if (!ret && ck_opts_add(opts, CK_LAYOUT_OPT_TEXT, text))
		ret = ck_fail(err, ENOMEM, "no memory");
	return ret;
}
