/* SPDX-License-Identifier: Apache-2.0 */
#include "core/options/options.h"
#include "core/format/format.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct ck_opts opts;
static struct ck_err err;

static int parse(const char *text)
{
	ck_opts_free(&opts);
	return ck_options_parse(&opts, CK_OPTIONS_MOUNT, text, &err);
}

static void expect(const char *text, const char *name, const char *value)
{
	const char *got;

	cr_assert(!parse(text), "%s: %s", text, err.msg);
	got = ck_opts_get(&opts, name);
	cr_expect(got && !strcmp(got, value), "%s: %s is %s, expected %s", text,
		  name, got ? got : "absent", value);
}

static void expect_bad(const char *text, const char *word)
{
	cr_expect(parse(text) == -EINVAL, "%s", text);
	cr_expect(strstr(err.msg, word), "%s: \"%s\" lacks \"%s\"", text,
		  err.msg, word);
}

Test(opts, values_by_type)
{
	expect("engine=plain", "engine", "plain");
	expect("threads=8,cache-mem=1G", "cache-mem", "1G");
	expect("allow_other", "allow-other", "");
	expect("cache_mem=4k,ro", "cache-mem", "4k");
	expect("engine=plain,engine=uring", "engine", "uring");
}

Test(opts, bad_values_name_the_option)
{
	expect_bad("engine=fast", "engine");
	expect_bad("engine=", "engine");
	expect_bad("engine=auto|plain", "engine");
	expect_bad("engine", "engine=KIND");
	expect_bad("ro=1", "ro");
	expect_bad("threads=0", "1 to 1024");
	expect_bad("threads=4k", "threads");
	expect_bad("threads=99999", "threads");
	expect_bad("spool-max=many", "spool-max");
	expect_bad("format=nonsense", "nonsense");
	expect_bad("spool=", "spool");
	expect_bad("colour=blue", "colour");
	expect_bad("remount", "cannot be changed");
}

Test(opts, words_of_every_file_system_are_dropped)
{
	cr_assert(!parse("nodev,nosuid,noauto,user=joe,_netdev,nofail,"
			 "x-systemd.automount,x-a=b,,defaults"));
	cr_expect(opts.nr == 0);
	cr_assert(!ck_options_parse(&opts, CK_OPTIONS_FSTAB, "rw,ro", &err));
	cr_expect(opts.nr == 1);
}

Test(opts, reading_commands_take_fewer)
{
	cr_expect(!ck_options_parse(&opts, CK_OPTIONS_OPEN, "engine=plain",
				    &err));
	cr_expect(ck_options_parse(&opts, CK_OPTIONS_OPEN, "direct=on", &err) ==
		  -EINVAL);
	cr_expect(strstr(err.msg, "mount"));
}

Test(opts, escapes_in_paths)
{
	expect("log=/no/such/a\\,b,ro", "log", "/no/such/a,b");
	expect("log=/no/such/a:b", "log", "/no/such/a:b");
	expect("log=/no/such/a\\:b", "log", "/no/such/a:b");
	expect("log=/no/such/a\\b", "log", "/no/such/a\\b");
	expect("log=/no/such/a\\,", "log", "/no/such/a,");
}

Test(opts, lists_of_paths)
{
	cr_assert(!parse("follow=/no/a:/no/b\\:c,follow=/no/d\\,e,ro"));
	cr_expect_str_eq(ck_opts_nth(&opts, "follow", 0), "/no/a");
	cr_expect_str_eq(ck_opts_nth(&opts, "follow", 1), "/no/b:c");
	cr_expect_str_eq(ck_opts_nth(&opts, "follow", 2), "/no/d,e");
	cr_expect(!ck_opts_nth(&opts, "follow", 3));
	cr_expect(ck_opts_get(&opts, "ro") != NULL);
}

Test(opts, a_path_that_exists_wins)
{
	char dir[] = "/tmp/opts-test.XXXXXX", path[64], text[128];
	int fd;

	cr_assert(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/a,b:c\\,d", dir);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	cr_assert(fd >= 0);
	snprintf(text, sizeof(text), "follow=%s,threads=2", path);
	expect(text, "follow", path);
	cr_expect_str_eq(ck_opts_get(&opts, "threads"), "2");
	cr_expect(!ck_opts_nth(&opts, "follow", 1));
	close(fd);
	unlink(path);
	rmdir(dir);
}

Test(opts, files_are_read_at_once)
{
	char path[] = "/tmp/opts-file.XXXXXX", text[96];
	int fd = mkstemp(path);
	size_t len = 0;

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, "a\0b", 3), 3);
	close(fd);
	snprintf(text, sizeof(text), "strategy=%s:no/such,ro", path);
	cr_assert_eq(parse(text), 0, "%s", err.msg);
	unlink(path);
	cr_expect_str_eq(ck_opts_nth(&opts, "strategy", 0), path);
	cr_assert(ck_opts_bytes(&opts, "strategy", 0, &len));
	cr_expect_eq(len, 3);
	cr_expect_eq(
		memcmp(ck_opts_bytes(&opts, "strategy", 0, &len), "a\0b", 4),
		0);
	cr_expect_str_eq(ck_opts_nth(&opts, "strategy", 1), "no/such");
	cr_expect(!ck_opts_bytes(&opts, "strategy", 1, &len));
	cr_expect(parse("strategy=/dev/null") == -EINVAL);
	cr_expect(strstr(err.msg, "/dev/null"));
	ck_opts_free(&opts);
}

Test(opts, a_folder_of_strategies_is_the_files_in_it)
{
	char dir[] = "/tmp/unshard-opts-XXXXXX", path[64], text[96];
	static const char *const names[] = { "b.json", "a.ckpt", "notes.txt" };
	size_t len = 0;

	cr_assert(mkdtemp(dir));
	snprintf(text, sizeof(text), "strategy=%s", dir);
	cr_expect_eq(parse(text), -EINVAL);
	cr_expect(strstr(err.msg, "no .ckpt or .json"), "%s", err.msg);
	for (size_t i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		close(open(path, O_CREAT | O_WRONLY, 0600));
	}
	cr_expect_eq(parse(text), 0, "%s", err.msg);
	cr_expect(strstr(ck_opts_nth(&opts, "strategy", 0), "/a.ckpt"));
	cr_expect(strstr(ck_opts_nth(&opts, "strategy", 1), "/b.json"));
	cr_expect(!ck_opts_nth(&opts, "strategy", 2));
	cr_expect(ck_opts_bytes(&opts, "strategy", 1, &len));
	ck_opts_free(&opts);
	snprintf(text, sizeof(text), "sbp=%s", dir);
	cr_expect_eq(parse(text), -EINVAL);
	cr_expect(strstr(err.msg, "it is a folder"), "%s", err.msg);
	for (size_t i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
	ck_opts_free(&opts);
}

static void note(const struct ck_option *o, void *ctx)
{
	ck_str_fmt(ctx, " %s ", o->name);
	cr_expect(o->help && !strchr(o->help, '\t'), "%s", o->name);
}

/* For --help and the manual, which tests/lint/manual.sh compares. */
Test(opts, lists_have_every_option)
{
	struct ck_str names = { 0 };
	const struct ck_option *own;
	char word[64];

	ck_options_each(CK_OPTIONS_MOUNT, note, &names);
	for (const struct ck_option *o = ck_options; o->name; o++) {
		snprintf(word, sizeof(word), " %s ", o->name);
		cr_expect(strstr(names.v, word), "%s", o->name);
	}
	for (size_t i = 0; (own = ck_format_option(i)); i++) {
		snprintf(word, sizeof(word), " %s ", own->name);
		cr_expect(strstr(names.v, word), "%s", own->name);
	}
	ck_str_free(&names);
}

Test(opts, those_of_how_change_no_bytes)
{
	cr_expect(ck_options_is_how("parse-time"));
	cr_expect(ck_options_is_how("engine"));
	cr_expect(!ck_options_is_how("weights"));
	cr_expect(!ck_options_is_how("rw"), "an export has none");
	cr_expect(!ck_options_is_how("to"), "a command's own");
}
