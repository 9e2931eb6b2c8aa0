/* SPDX-License-Identifier: Apache-2.0 */
/* Every way in which a name of a checkpoint could lead out of it. */
#include "core/root/root_priv.h"
#include "core/root/source.h"
#include "tests/lib/memsource.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static char top[] = "/tmp/ck-root-XXXXXX";

static char *at(const char *rel)
{
	static char path[4][512];
	static unsigned turn;
	char *out = path[turn++ % 4];

	snprintf(out, 512, "%s/%s", top, rel);
	return out;
}

static void put(const char *rel, const char *text)
{
	FILE *f = fopen(at(rel), "w");

	cr_assert(f, "%s", rel);
	fputs(text, f);
	fclose(f);
}

static void put_link(const char *rel, const char *target)
{
	cr_assert_eq(symlink(target, at(rel)), 0);
}

static void put_dir(const char *rel)
{
	cr_assert_eq(mkdir(at(rel), 0755), 0);
}

static void setup(void)
{
	cr_assert(mkdtemp(top));
	put_dir("src");
	put_dir("src/sub");
	put_dir("out");
	put("out/secret", "secret");
	put("src/a", "alpha");
	put("src/sub/b", "beta");
}

static int gone(const char *path, const struct stat *st, int type,
		struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void teardown(void)
{
	ck_root_no_openat2 = false;
	nftw(top, gone, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(root, .init = setup, .fini = teardown, .timeout = 20);

static struct ck_root open_root(const char *rel, const struct ck_opts *opts)
{
	struct ck_root root;
	struct ck_err err = { 0 };

	cr_assert_eq(ck_root_open(&root, at(rel), opts, &err), 0, "%s",
		     err.msg);
	return root;
}

/* What @name opens to: its text, or the -errno. */
static int text_of(const struct ck_root *root, const char *name, char *text,
		   struct ck_err *err)
{
	struct stat st;
	ssize_t n;
	int fd, ret = ck_root_open_file(root, name, &fd, &st, err);

	if (ret) {
		cr_expect_eq(err->code, -ret);
		return ret;
	}
	n = read(fd, text, 63);
	cr_assert(n >= 0 && st.st_size == n);
	cr_expect_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	cr_expect_neq(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	text[n] = '\0';
	close(fd);
	return 0;
}

#define opens(root, name, want)                                          \
	do {                                                             \
		char text_[64] = "";                                     \
		struct ck_err err_ = { 0 };                              \
		cr_expect_eq(text_of(root, name, text_, &err_), 0, "%s", \
			     err_.msg);                                  \
		cr_expect_str_eq(text_, want);                           \
	} while (0)

#define refuses(root, name, code, words)                                      \
	do {                                                                  \
		char text_[64] = "";                                          \
		struct ck_err err_ = { 0 };                                   \
		cr_expect_eq(text_of(root, name, text_, &err_), -(code),      \
			     "%s: %s", name, err_.msg);                       \
		cr_expect(strstr(err_.msg, words), "%s: %s", name, err_.msg); \
	} while (0)

static void plain_names(void)
{
	struct ck_root root = open_root("src", NULL);

	opens(&root, "a", "alpha");
	opens(&root, "sub/b", "beta");
	refuses(&root, "none", ENOENT, "none");
	refuses(&root, "a/b", ENOTDIR, "a/b");
	refuses(&root, "", EINVAL, "no name");
	refuses(&root, ".", EXDEV, "no name");
	refuses(&root, "..", EXDEV, "no name");
	refuses(&root, "../out/secret", EXDEV, "no name");
	refuses(&root, "sub/../a", EXDEV, "no name");
	refuses(&root, "sub/../../out/secret", EXDEV, "no name");
	refuses(&root, "sub//b", EXDEV, "no name");
	refuses(&root, "sub/", EXDEV, "no name");
	refuses(&root, "/etc/passwd", EXDEV, "no name");
	refuses(&root, at("out/secret"), EXDEV, "no name");
	ck_root_close(&root);
}

Test(root, plain_names)
{
	plain_names();
}

Test(root, plain_names_without_openat2)
{
	ck_root_no_openat2 = true;
	plain_names();
}

Test(root, a_very_long_name)
{
	struct ck_root root = open_root("src", NULL);
	char name[6000];
	struct ck_err err = { 0 };
	struct stat st;
	int fd;

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	cr_expect_eq(ck_root_open_file(&root, name, &fd, &st, &err),
		     -ENAMETOOLONG);
	name[300] = '\0';
	ck_root_no_openat2 = true;
	cr_expect_eq(ck_root_open_file(&root, name, &fd, &st, &err),
		     -ENAMETOOLONG);
	ck_root_close(&root);
}

static void links_out(void)
{
	struct ck_root root;

	put_link("src/abs", at("out/secret"));
	put_link("src/rel", "../out/secret");
	put_link("src/in", "a");
	put_link("src/dirlink", "../out");
	put_link("src/self", "self");
	put_link("src/proc", "/proc/self/fd/0");
	put_link("src/dangling", "nowhere");
	root = open_root("src", NULL);
	refuses(&root, "abs", ELOOP, "-o follow=");
	refuses(&root, "abs", ELOOP, "out/secret");
	refuses(&root, "rel", ELOOP, "../out/secret");
	refuses(&root, "in", ELOOP, "-o follow=");
	refuses(&root, "dirlink/secret", ELOOP, "../out");
	refuses(&root, "self", ELOOP, "self");
	refuses(&root, "proc", ELOOP, "/proc/self/fd/0");
	refuses(&root, "dangling", ELOOP, "nowhere");
	ck_root_close(&root);
}

Test(root, links_lead_nowhere)
{
	links_out();
}

Test(root, links_lead_nowhere_without_openat2)
{
	ck_root_no_openat2 = true;
	links_out();
}

static void followed(void)
{
	struct ck_opts opts = { 0 };
	struct ck_root root;
	int fd = -1;

	put_dir("other");
	put("other/o", "omega");
	put_dir("out/deep");
	put("out/deep/d", "delta");
	put_link("out/back", "../other/o");
	put_link("out/evil", "/etc/passwd");
	put_link("out/up", "../src/a");
	put_link("alias", "out");
	put_link("src/abs", at("out/secret"));
	put_link("src/rel", "../out/secret");
	put_link("src/dirlink", "../out");
	put_link("src/sub/far", "../../out/deep");
	put_link("src/two", "../out/back");
	put_link("src/evil", "../out/evil");
	put_link("src/up", "../out/up");
	put_link("src/alias", at("alias/secret"));
	put_link("src/near", "../outer/x");
	put_link("src/same", "../out");
	put_link("src/loop1", "../out/loop2");
	put_link("out/loop2", "loop2");
	cr_assert_eq(ck_opts_add(&opts, "follow", at("alias")), 0);
	root = open_root("src", &opts);
	opens(&root, "abs", "secret");
	opens(&root, "rel", "secret");
	opens(&root, "alias", "secret");
	opens(&root, "dirlink/secret", "secret");
	opens(&root, "dirlink/deep/d", "delta");
	opens(&root, "sub/far/d", "delta");
	refuses(&root, "two", ELOOP, "../other/o");
	refuses(&root, "evil", ELOOP, "/etc/passwd");
	refuses(&root, "up", ELOOP, "../src/a");
	refuses(&root, "near", ELOOP, "../outer/x");
	refuses(&root, "dirlink/../a", EXDEV, "no name");
	refuses(&root, "dirlink/none", ENOENT, "none");
	refuses(&root, "same", EINVAL, "found a directory");
	cr_expect_eq(ck_root_open_dir(&root, "same", &fd, NULL), 0);
	cr_expect_eq(faccessat(fd, "deep/d", R_OK, 0), 0);
	close(fd);
	refuses(&root, "loop1", ELOOP, "loop2");
	ck_root_close(&root);
	cr_assert_eq(ck_opts_add(&opts, "follow", at("other")), 0);
	root = open_root("src", &opts);
	opens(&root, "two", "omega");
	refuses(&root, "evil", ELOOP, "/etc/passwd");
	ck_root_close(&root);
	ck_opts_free(&opts);
}

Test(root, follow_allows_exactly_its_directories)
{
	followed();
}

Test(root, follow_without_openat2)
{
	ck_root_no_openat2 = true;
	followed();
}

Test(root, follow_must_exist)
{
	struct ck_opts opts = { 0 };
	struct ck_root root;
	struct ck_err err = { 0 };

	ck_opts_add(&opts, "follow", at("absent"));
	cr_expect_eq(ck_root_open(&root, at("src"), &opts, &err), -ENOENT);
	cr_expect(strstr(err.msg, "-o follow="), "%s", err.msg);
	ck_opts_free(&opts);
}

static void no_files(void)
{
	struct ck_root root;
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", at("src/sock"));
	cr_assert_eq(bind(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
	cr_assert_eq(mkfifo(at("src/fifo"), 0644), 0);
	root = open_root("src", NULL);
	refuses(&root, "fifo", EINVAL, "found a FIFO");
	refuses(&root, "sock", EINVAL, "found a socket");
	refuses(&root, "sub", EINVAL, "found a directory");
	if (!mknod(at("src/null"), S_IFCHR | 0666, 0x103))
		refuses(&root, "null", EINVAL, "found a device");
	ck_root_close(&root);
	close(s);
}

Test(root, only_regular_files_and_no_waiting)
{
	no_files();
}

Test(root, only_regular_files_without_openat2)
{
	ck_root_no_openat2 = true;
	no_files();
}

Test(root, directories)
{
	struct ck_root root;
	struct ck_err err = { 0 };
	int fd = -1;

	put_link("src/dirlink", "../out");
	root = open_root("src", NULL);
	cr_expect_eq(ck_root_open_dir(&root, "", &fd, &err), 0);
	cr_expect_eq(faccessat(fd, "a", R_OK, 0), 0);
	close(fd);
	cr_expect_eq(ck_root_open_dir(&root, "sub", &fd, &err), 0);
	cr_expect_eq(faccessat(fd, "b", R_OK, 0), 0);
	close(fd);
	cr_expect_eq(ck_root_open_dir(&root, "a", &fd, &err), -EINVAL);
	cr_expect(strstr(err.msg, "expected a directory"), "%s", err.msg);
	cr_expect_eq(ck_root_open_dir(&root, "dirlink", &fd, &err), -ELOOP);
	cr_expect_eq(ck_root_open_dir(&root, "..", &fd, &err), -EXDEV);
	ck_root_close(&root);
}

/* The layout that huggingface_hub makes. */
static void make_hub(const char *repo)
{
	char rel[256];

	put_dir("hub");
	snprintf(rel, sizeof(rel), "hub/%s", repo);
	put_dir(rel);
	snprintf(rel, sizeof(rel), "hub/%s/blobs", repo);
	put_dir(rel);
	snprintf(rel, sizeof(rel), "hub/%s/blobs/0123abcd", repo);
	put(rel, "blob");
	snprintf(rel, sizeof(rel), "hub/%s/snapshots", repo);
	put_dir(rel);
	snprintf(rel, sizeof(rel), "hub/%s/snapshots/rev", repo);
	put_dir(rel);
	snprintf(rel, sizeof(rel), "hub/%s/snapshots/rev/vae", repo);
	put_dir(rel);
}

#define REV "hub/models--o--n/snapshots/rev"

static void hub(void)
{
	struct ck_root root;

	make_hub("models--o--n");
	put_link("hub/models--o--n/blobs/again", "0123abcd");
	put_link(REV "/m", "../../blobs/0123abcd");
	put_link(REV "/vae/m", "../../../blobs/0123abcd");
	put_link(REV "/vae/short", "../../blobs/0123abcd");
	put_link(REV "/long", "../../../models--o--n/blobs/0123abcd");
	put_link(REV "/abs", at("hub/models--o--n/blobs/0123abcd"));
	put_link(REV "/dots", "../../blobs/../../x");
	put_link(REV "/dot", "../../blobs/..");
	put_link(REV "/two", "../../blobs/again");
	put_link(REV "/gone", "../../blobs/ffff");
	put_link(REV "/dir", "../../blobs");
	root = open_root(REV, NULL);
	cr_expect_geq(root.blobs_fd, 0);
	opens(&root, "m", "blob");
	opens(&root, "vae/m", "blob");
	refuses(&root, "vae/short", ELOOP, "-o follow=");
	refuses(&root, "long", ELOOP, "-o follow=");
	refuses(&root, "abs", ELOOP, "-o follow=");
	refuses(&root, "dots", ELOOP, "blobs/../../x");
	refuses(&root, "dot", ELOOP, "blobs/..");
	refuses(&root, "two", ELOOP, "again");
	refuses(&root, "gone", ENOENT, "ffff");
	refuses(&root, "dir/0123abcd", ELOOP, "../../blobs");
	ck_root_close(&root);
	root = open_root(REV "/vae", NULL);
	opens(&root, "m", "blob");
	ck_root_close(&root);
}

Test(root, hub_cache)
{
	hub();
}

Test(root, hub_cache_without_openat2)
{
	ck_root_no_openat2 = true;
	hub();
}

Test(root, hub_cache_through_a_link_and_as_one_file)
{
	struct ck_root root;

	make_hub("models--o--n");
	put_link(REV "/m.safetensors", "../../blobs/0123abcd");
	put_link("short", REV);
	root = open_root("short", NULL);
	opens(&root, "m.safetensors", "blob");
	ck_root_close(&root);
	root = open_root("short/m.safetensors", NULL);
	cr_assert_str_eq(root.only, "m.safetensors");
	opens(&root, "m.safetensors", "blob");
	ck_root_close(&root);
}

Test(root, other_layouts_are_no_hub_cache)
{
	struct ck_root root;

	make_hub("mine");
	put_link("hub/mine/snapshots/rev/m", "../../blobs/0123abcd");
	root = open_root("hub/mine/snapshots/rev", NULL);
	cr_expect_eq(root.blobs_fd, -1);
	refuses(&root, "m", ELOOP, "-o follow=");
	ck_root_close(&root);
	root = open_root("hub/mine/snapshots", NULL);
	cr_expect_eq(root.blobs_fd, -1);
	ck_root_close(&root);
}

Test(root, blobs_that_are_a_link_are_not_taken)
{
	struct ck_root root;

	put_dir("hub");
	put_dir("hub/models--o--n");
	put_dir("hub/models--o--n/snapshots");
	put_dir(REV);
	put_link("hub/models--o--n/blobs", at("out"));
	put_link(REV "/m", "../../blobs/secret");
	root = open_root(REV, NULL);
	cr_expect_eq(root.blobs_fd, -1);
	refuses(&root, "m", ELOOP, "-o follow=");
	ck_root_close(&root);
}

Test(root, one_file)
{
	struct ck_root root = open_root("src/a", NULL);
	struct ck_err err = { 0 };
	int fd;

	cr_assert_str_eq(root.only, "a");
	opens(&root, "a", "alpha");
	refuses(&root, "sub/b", ENOENT, "holds no file");
	cr_expect_eq(ck_root_open_dir(&root, "sub", &fd, &err), -ENOENT);
	ck_root_close(&root);
	put_link("src/l", "../out/secret");
	root = open_root("src/l", NULL);
	cr_assert_str_eq(root.only, "secret");
	opens(&root, "secret", "secret");
	ck_root_close(&root);
	cr_assert_eq(chdir(at("src")), 0);
	cr_assert_eq(ck_root_open(&root, "a", NULL, &err), 0);
	opens(&root, "a", "alpha");
	ck_root_close(&root);
}

Test(root, what_is_no_checkpoint)
{
	struct ck_root root;
	struct ck_err err = { 0 };

	cr_expect_eq(ck_root_open(&root, at("none"), NULL, &err), -ENOENT);
	cr_expect(strstr(err.msg, "none"));
	cr_assert_eq(mkfifo(at("fifo"), 0644), 0);
	cr_expect_eq(ck_root_open(&root, at("fifo"), NULL, &err), -EINVAL);
	cr_expect(strstr(err.msg, "found a FIFO"), "%s", err.msg);
	cr_expect_eq(ck_root_open(&root, "/dev/null", NULL, &err), -EINVAL);
	cr_expect(strstr(err.msg, "found a device"), "%s", err.msg);
}

Test(root, sources)
{
	struct ck_root root = open_root("src", NULL);
	struct ck_err err = { 0 };
	struct ck_source *s;
	struct stat st;
	char buf[8];
	int fd;

	cr_assert_eq(ck_root_open_file(&root, "a", &fd, &st, &err), 0);
	s = ck_source_file(fd, "a", &st);
	cr_assert_eq(ck_source_read(s, buf, 3, 2, &err), 0);
	cr_expect_arr_eq(buf, "pha", 3);
	cr_expect_eq(ck_source_read(s, buf, 4, 2, &err), -EIO);
	cr_expect(strstr(err.msg, "found 3 before the end"), "%s", err.msg);
	ck_source_close(s);
	s = memsource("alpha", 5, "mem");
	cr_assert_eq(ck_source_read(s, buf, 3, 2, &err), 0);
	cr_expect_arr_eq(buf, "pha", 3);
	cr_expect_eq(s->st.st_size, 5);
	cr_expect_eq(ck_source_read(s, buf, 4, 2, &err), -EIO);
	cr_expect_eq(ck_source_read(s, buf, 1, UINT64_MAX, &err), -EIO);
	cr_expect_eq(ck_source_read(s, buf, 0, 5, &err), 0);
	ck_source_close(s);
	ck_root_close(&root);
}
