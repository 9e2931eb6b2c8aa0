/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pickle machine: the same value in every protocol, real indexes, and
 * pickles made to hurt.  Data files: tests/unit/data/parse/.
 */
#include "core/base/limits.h"
#include "core/parse/pickle.h"
#include "tests/lib/pickles.h"
#include "tests/unit/parse/data.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct ck_err err;

#define PARSE(p, literal) \
	ck_pickle_parse(&(p), literal, sizeof(literal) - 1, NULL, NULL, &err)

#define cr_refused(literal, text)                                \
	do {                                                     \
		struct ck_pickle *p_ = NULL;                     \
		int ret_ = PARSE(p_, literal);                   \
		cr_expect(ret_ == -EINVAL && !p_, "%d", ret_);   \
		cr_expect(strstr(err.msg, text), "%s", err.msg); \
		ck_pickle_free(p_);                              \
	} while (0)

static ck_pv key(const struct ck_pickle *p, ck_pv dict, const char *name)
{
	ck_pv v = 0;

	cr_assert(ck_pv_key(p, dict, name, &v), "no %s", name);
	return v;
}

static ck_pv at(const struct ck_pickle *p, ck_pv v, uint64_t i)
{
	ck_pv out = 0;

	cr_assert(ck_pv_at(p, v, i, &out), "no element %d", (int)i);
	return out;
}

static int64_t num(const struct ck_pickle *p, ck_pv v)
{
	int64_t n = -999;

	cr_assert(ck_pv_int(p, v, &n), "kind %d", ck_pv_kind(v));
	return n;
}

static void check_ints(const struct ck_pickle *p, ck_pv v)
{
	static const int64_t want[] = { 0,
					-1,
					255,
					65536,
					INT64_C(1) << 31,
					-(INT64_C(1) << 31) - 1,
					INT64_C(1) << 58,
					INT64_MIN,
					INT64_MAX };

	cr_assert_eq(ck_pv_len(p, v), 9);
	for (unsigned i = 0; i < 9; i++)
		cr_expect_eq(num(p, at(p, v, i)), want[i], "%u", i);
}

static void check_many(const struct ck_pickle *p, ck_pv many, ck_pv dict)
{
	struct ck_piter it;
	ck_pv k, v;
	int64_t n = 0;

	cr_assert_eq(ck_pv_len(p, many), 2100);
	ck_piter_init(&it, p, many);
	while (ck_piter_next(&it, &v))
		cr_expect_eq(num(p, v), n++);
	cr_expect_eq(n, 2100);
	cr_expect_eq(num(p, at(p, many, 2099)), 2099);
	cr_expect(!ck_pv_at(p, many, 2100, &v));

	cr_assert_eq(ck_pv_len(p, dict), 1200);
	ck_piter_init(&it, p, dict);
	for (n = 0; ck_piter_next2(&it, &k, &v); n++)
		cr_expect(num(p, k) == n && num(p, v) == 2 * n);
	cr_expect_eq(n, 1200);
}

static void check_strings(const struct ck_pickle *p, ck_pv root, int protocol)
{
	static const char want[] =
		"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\\u\n'\"";
	const char *s;
	size_t len;
	ck_pv v = key(p, root, "text");

	cr_expect_eq(ck_pv_kind(v), CK_P_STR);
	cr_expect(ck_pv_is_str(p, v, want));
	v = key(p, root, "bytes");
	if (protocol >= 3) {
		cr_assert(ck_pv_str(p, v, &s, &len));
		cr_expect_eq(ck_pv_kind(v), CK_P_BYTES);
		cr_expect(len == 2 && !memcmp(s, "\0\xff", 2));
		return;
	}
	/* Older protocols have no bytes: a call that would make them. */
	cr_expect(ck_pv_is_global(p, ck_pv_callee(p, v), "_codecs", "encode"));
	cr_expect(ck_pv_is_str(p, at(p, ck_pv_args(p, v), 1), "latin1"));
}

static void check_ordered(const struct ck_pickle *p, ck_pv v, int protocol)
{
	ck_pv k, val;
	struct ck_piter it;

	cr_assert_eq(ck_pv_kind(v), CK_P_CALL);
	cr_expect(ck_pv_is_global(p, ck_pv_callee(p, v), "collections",
				  "OrderedDict"));
	(void)protocol;
	ck_piter_init_pairs(&it, p, v);
	cr_assert(ck_piter_next2(&it, &k, &val));
	cr_expect(ck_pv_is_str(p, k, "a") && num(p, val) == 1);
	cr_assert(ck_piter_next2(&it, &k, &val));
	cr_expect(ck_pv_is_str(p, k, "b") && num(p, val) == 2);
	cr_expect(!ck_piter_next2(&it, &k, &val));
	cr_expect_eq(num(p, key(p, v, "b")), 2);
	cr_expect_eq(ck_pv_len(p, v), 0);
}

Test(pickle, every_protocol)
{
	for (int protocol = 0; protocol < 6; protocol++) {
		char name[32];
		struct data d;
		struct ck_pickle *p = NULL;
		size_t used = 0;
		double f = 0;
		ck_pv root, v;

		snprintf(name, sizeof(name), "value.p%d", protocol);
		d = data_read(name);
		cr_assert_eq(
			ck_pickle_parse(&p, d.bytes, d.len, NULL, &used, &err),
			0, "%s: %s", name, err.msg);
		cr_expect_eq(used, d.len);
		root = ck_pickle_root(p);
		cr_expect_eq(ck_pv_kind(key(p, root, "none")), CK_P_NONE);
		v = key(p, root, "bools");
		cr_expect_eq(ck_pv_kind(at(p, v, 0)), CK_P_BOOL);
		cr_expect(num(p, at(p, v, 0)) == 1 && num(p, at(p, v, 1)) == 0);
		check_ints(p, key(p, root, "ints"));
		cr_expect_eq(ck_pv_kind(key(p, root, "big")), CK_P_BIGINT);
		cr_expect(ck_pv_float(p, key(p, root, "float"), &f));
		cr_expect(f >= -1.5 && f <= -1.5);
		check_strings(p, root, protocol);
		v = key(p, root, "tuples");
		for (uint64_t i = 0; i < 5; i++)
			cr_expect_eq(ck_pv_len(p, at(p, v, i)), i);
		cr_expect_eq(num(p, at(p, at(p, v, 4), 3)), 4);
		check_many(p, key(p, root, "many"), key(p, root, "dict"));
		check_ordered(p, key(p, root, "od"), protocol);
		cr_expect_eq(key(p, root, "od"), key(p, root, "again"));
		cr_expect_lt(pickle_memory(p), 8 * d.len);
		ck_pickle_free(p);
		data_free(&d);
	}
}

/* The one box that rank 0 of a real checkpoint wrote. */
Test(pickle, real_index)
{
	struct data d = data_read("dcp-2.14.metadata");
	struct ck_pickle *p = NULL;
	struct ck_piter it;
	ck_pv root, dict, index, info, v;
	int64_t last = -1;
	unsigned nr = 0;

	cr_assert_eq(ck_pickle_parse(&p, d.bytes, d.len, NULL, NULL, &err), 0,
		     "%s", err.msg);
	root = ck_pickle_root(p);
	cr_expect(ck_pv_is_global(p, ck_pv_callee(p, root), NULL, "Metadata"));
	cr_expect_eq(ck_pv_len(p, ck_pv_args(p, root)), 0);
	cr_assert(ck_pv_attr(p, root, "storage_data", &dict));
	ck_piter_init(&it, p, dict);
	for (; ck_piter_next2(&it, &index, &info); nr++) {
		cr_assert(ck_pv_attr(p, index, "fqn", &v));
		cr_assert(ck_pv_attr(p, info, "relative_path", &v));
		cr_expect_eq(ck_pv_kind(v), CK_P_STR);
		cr_assert(ck_pv_attr(p, info, "length", &v));
		cr_expect_eq(num(p, v), 1577);
		cr_assert(ck_pv_attr(p, info, "offset", &v));
		last = num(p, v);
	}
	cr_expect(nr == 4 && last == 0, "%u %d", nr, (int)last);
	cr_expect(!ck_pv_attr(p, root, "no_such_thing", &v));
	ck_pickle_free(p);
	data_free(&d);
}

static unsigned asked;

static bool all_but_getattr(void *ctx, const char *module, size_t module_len,
			    const char *name, size_t name_len)
{
	(void)ctx;
	(void)module;
	(void)module_len;
	asked++;
	return name_len != 7 || memcmp(name, "getattr", 7) != 0;
}

/* torch 1.13 wrote an enum as getattr(Class, "NAME"). */
Test(pickle, allow_list)
{
	static const char evil[] = "cos\nsystem\n(S'true'\ntR.";
	struct ck_pickle_opts opts = { .allow = all_but_getattr };
	struct data d = data_read("dcp-1.13.metadata");
	struct ck_pickle *p = NULL;

	cr_assert_eq(ck_pickle_parse(&p, d.bytes, d.len, NULL, NULL, &err), 0,
		     "%s", err.msg);
	ck_pickle_free(p);
	p = NULL;
	cr_expect_eq(ck_pickle_parse(&p, d.bytes, d.len, &opts, NULL, &err),
		     -EINVAL);
	cr_expect(strstr(err.msg, "pickle names builtins.getattr at byte "),
		  "%s", err.msg);
	cr_expect_lt(asked, 20, "asked %u times", asked);
	data_free(&d);

	cr_assert_eq(PARSE(p, evil), 0);
	cr_expect_eq(ck_pv_kind(ck_pickle_root(p)), CK_P_CALL);
	ck_pickle_free(p);
}

static bool nothing(void *ctx, const char *module, size_t module_len,
		    const char *name, size_t name_len)
{
	(void)ctx;
	(void)module;
	(void)module_len;
	(void)name;
	(void)name_len;
	return false;
}

#define cr_names(literal, byte)                                            \
	do {                                                               \
		struct ck_pickle_opts opts_ = { .allow = nothing };        \
		struct ck_pickle *p_ = NULL;                               \
		cr_expect_eq(ck_pickle_parse(&p_, literal,                 \
					     sizeof(literal) - 1, &opts_,  \
					     NULL, &err),                  \
			     -EINVAL);                                     \
		cr_expect_str_eq(err.msg,                                  \
				 "pickle names os.system at byte " #byte); \
	} while (0)

Test(pickle, names_what_it_refuses)
{
	struct ck_pickle_opts opts = { .allow = nothing };
	struct ck_pickle *p = NULL;

	cr_names("cos\nsystem\n(S'true'\ntR.", 0);
	cr_names("\x80\x02Ncos\nsystem\nq\x01)R.", 3);
	cr_names("\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93)\x81.", 16);
	cr_names("(ios\nsystem\n.", 1);
	cr_names("(cos\nsystem\nI1\no.", 1);
	/* Only mentioned: no harm in it. */
	cr_expect_eq(
		ck_pickle_parse(&p, "cos\nsystem\n.", 12, &opts, NULL, &err),
		0);
	cr_expect(ck_pv_is_global(p, ck_pickle_root(p), "os", "system"));
	ck_pickle_free(p);
}

Test(pickle, memo_index_beyond_reason)
{
	struct timespec start, stop;
	struct ck_pickle *p = NULL;
	int ret;

	clock_gettime(CLOCK_MONOTONIC, &start);
	ret = PARSE(p, "\x80\x02Nr\x00\x00\x00\x08.");
	clock_gettime(CLOCK_MONOTONIC, &stop);
	cr_expect_eq(ret, -EINVAL);
	cr_expect(strstr(err.msg, "byte 3: memo entry 134217728"), "%s",
		  err.msg);
	cr_expect_lt((stop.tv_sec - start.tv_sec) * 1000000000L + stop.tv_nsec -
			     start.tv_nsec,
		     20000000L);
	cr_refused("\x80\x02Nr\xff\xff\xff\xff.", "memo entry 4294967295");
	cr_refused("Np99999999999999999999\n.", "is no number");
	cr_refused("Np-1\n.", "is no number");
	cr_refused("h\x05.", "memo entry 5 was never stored");
	cr_refused("Nq\x02h\x01.", "memo entry 1 was never stored");
}

/* 60 lists, each of them twice the one before: 2^60 references. */
Test(pickle, shared_references_stay_shared)
{
	char text[1024] = "\x80\x02]q", *to = text + 4;
	struct ck_pickle *p = NULL;
	ck_pv v;
	unsigned depth = 0;

	*to++ = 0;
	for (int i = 1; i < 60; i++)
		to += sprintf(to, "](h%ch%ceq%c", i - 1 ? i - 1 : 100,
			      i - 1 ? i - 1 : 100, i);
	for (char *c = text + 4; c < to; c++)
		if (*c == 100)
			*c = 0;
	*to++ = '.';
	/* Leaves 60 values on the stack: take them into one tuple. */
	memmove(text + 3, text + 2, (size_t)(to - text) - 2);
	text[2] = '(';
	to[0] = 't';
	to[1] = '.';
	cr_assert_eq(ck_pickle_parse(&p, text, (size_t)(to + 2 - text), NULL,
				     NULL, &err),
		     0, "%s", err.msg);
	cr_expect_lt(pickle_memory(p), 8192);
	v = at(p, ck_pickle_root(p), 59);
	for (; ck_pv_at(p, v, 0, &v); depth++)
		;
	cr_expect_eq(depth, 59);
	ck_pickle_free(p);
}

Test(pickle, a_list_in_itself)
{
	struct ck_pickle *p = NULL;
	ck_pv root;

	cr_assert_eq(PARSE(p, "]q\0h\0a."), 0, "%s", err.msg);
	root = ck_pickle_root(p);
	cr_expect_eq(at(p, root, 0), root);
	ck_pickle_free(p);
}

Test(pickle, objects)
{
	struct ck_pickle *p = NULL;
	ck_pv root, v;

	/* NEWOBJ, APPENDS, SETITEMS, then BUILD of a dict and slots, twice */
	cr_assert_eq(PARSE(p, "cm\nC\n)\x81(K\1K\2e(U\1kK\3u"
			      "}U\1dK\6sb"
			      "}U\1dK\5s}U\1sK\7s\x86"
			      "b."),
		     0, "%s", err.msg);
	root = ck_pickle_root(p);
	cr_expect_eq(ck_pv_len(p, root), 2);
	cr_expect_eq(num(p, at(p, root, 1)), 2);
	cr_expect_eq(num(p, key(p, root, "k")), 3);
	cr_assert(ck_pv_attr(p, root, "d", &v));
	cr_expect_eq(num(p, v), 5);
	cr_assert(ck_pv_attr(p, root, "s", &v));
	cr_expect_eq(num(p, v), 7);
	cr_expect(!ck_pv_kwargs(p, root, &v));
	ck_pickle_free(p);

	cr_assert_eq(PARSE(p, "\x80\x04"
			      "cm\nC\nK\1\x85}U\1kK\2s\x92."),
		     0, "%s", err.msg);
	root = ck_pickle_root(p);
	cr_assert(ck_pv_kwargs(p, root, &v));
	cr_expect_eq(num(p, key(p, v, "k")), 2);
	cr_expect(!ck_pv_state(p, root, &v));
	cr_expect_eq(ck_pv_len(p, ck_pv_args(p, root)), 1);
	ck_pickle_free(p);

	cr_assert_eq(PARSE(p, "Pabc\nU\1aQ\x86."), 0, "%s", err.msg);
	root = ck_pickle_root(p);
	cr_expect(ck_pv_is_str(p, ck_pv_persid(p, at(p, root, 0)), "abc"));
	cr_expect(ck_pv_is_str(p, ck_pv_persid(p, at(p, root, 1)), "a"));
	ck_pickle_free(p);
}

/* Any accessor may be handed any value. */
Test(pickle, wrong_kinds)
{
	struct ck_pickle *p = NULL;
	const char *s;
	size_t len;
	int64_t n;
	double f;
	ck_pv v = 0;
	struct ck_piter it;

	cr_assert_eq(PARSE(p, "(NK\1U\1a}]cm\nC\ncm\nC\n)RU\1aQt."), 0);
	for (uint64_t i = 0; i < 8; i++) {
		ck_pv x = at(p, ck_pickle_root(p), i);

		cr_expect_eq(ck_pv_int(p, x, &n), i == 1);
		cr_expect_eq(ck_pv_str(p, x, &s, &len), i == 2);
		cr_expect(!ck_pv_float(p, x, &f));
		cr_expect_eq(ck_pv_is_global(p, x, NULL, "C"), i == 5);
		cr_expect_eq(!ck_pv_callee(p, x), i != 6);
		cr_expect_eq(!ck_pv_args(p, x), i != 6);
		cr_expect_eq(!ck_pv_persid(p, x), i != 7);
		cr_expect(!ck_pv_state(p, x, &v) && !ck_pv_kwargs(p, x, &v));
		cr_expect(!ck_pv_key(p, x, "a", &v) && !ck_pv_at(p, x, 0, &v));
		cr_expect_eq(ck_pv_len(p, x), 0);
		ck_piter_init(&it, p, x);
		cr_expect(!ck_piter_next(&it, &v));
	}
	ck_pickle_free(p);
}

Test(pickle, malformed)
{
	cr_refused("", "byte 0: the pickle ends without STOP");
	cr_refused("N", "byte 1: the pickle ends without STOP");
	cr_refused(".", "STOP with 0 values");
	cr_refused("NN.", "STOP with 2 values");
	cr_refused("N(.", "1 open marks");
	cr_refused("(.", "1 open marks");
	cr_refused("\x80\x06N.", "pickle protocol 6");
	cr_refused("\x95\xff\xff\xff\xff\xff\xff\xff\xff.", "byte 0: a frame");
	cr_refused("X\xff\xff\xff\x7f", "byte 0: the pickle is cut short");
	cr_refused("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
		   "abc",
		   "byte 0: the pickle is cut short");
	cr_refused("J\1\2\3", "cut short");
	cr_refused("NS'abc", "byte 1: the pickle is cut short");
	cr_refused("Sabc\n.", "without its quotes");
	cr_refused("S'\n.", "without its quotes");
	cr_refused("S'\\q'\n.", "an escape that Python does not write");
	cr_refused("S'\\'\n.", "an escape that Python does not write");
	cr_refused("V\\u12\n.", "malformed \\u escape");
	cr_refused("V\\U00110000\n.", "malformed \\U escape");
	cr_refused("I\n.", "is no number");
	cr_refused("Iabc\n.", "is no number");
	cr_refused("F1.5x\n.", "is no number");
	cr_refused("F 1\n.", "is no number");
	cr_refused("t.", "without a MARK");
	cr_refused("N\x86.", "takes 2 values, there are 1");
	cr_refused("NN(\x86.", "takes 2 values, there are 0");
	cr_refused("(NK\1ds.", "takes 3 values, there are 1");
	cr_refused("(Nd.", "a key without a value");
	cr_refused("}(Nu.", "a key without a value");
	cr_refused("N(Ne.", "adds elements to something");
	cr_refused("](NNu.", "adds pairs to something");
	cr_refused("](N\x90.", "adds elements to something");
	cr_refused("N)R.", "calls something that is no class");
	cr_refused("cm\nC\nNR.", "arguments of a call are not a tuple");
	cr_refused("NNb.", "gives a state to something");
	cr_refused("NN\x93.", "a global whose names are not strings");
	cr_refused("\x82\1.", "an extension code");
	cr_refused("\x97.", "a buffer that is not in the pickle");
	cr_refused("\xff.", "byte 0: 0xff is no pickle opcode");
	cr_refused("cm\nC\n)N\x92.", "keyword arguments");
}

static void refuse_made(const char *unit, unsigned nr, const char *text)
{
	size_t len = strlen(unit);
	char *bytes = malloc(len * nr);
	struct ck_pickle *p = NULL;

	for (unsigned i = 0; i < nr; i++)
		memcpy(bytes + len * i, unit, len);
	cr_expect_eq(ck_pickle_parse(&p, bytes, len * nr, NULL, NULL, &err),
		     -EINVAL);
	cr_expect(strstr(err.msg, text), "%s", err.msg);
	free(bytes);
}

Test(pickle, limits)
{
	refuse_made("(", CK_MAX_PICKLE_DEPTH + 1, "open marks");
	refuse_made("N", CK_MAX_PICKLE_STACK + 2, "values on the stack");
	refuse_made(")\x85\x85\x85\x85\x85\x85\x85\x85"
		    "0",
		    100000, "bytes of memory");
}

Test(pickle, memory_is_the_callers_to_limit)
{
	struct data d = data_read("value.p4");
	struct ck_pickle_opts opts = { .mem_max = 4096 };
	struct ck_pickle *p = NULL;

	cr_expect_eq(ck_pickle_parse(&p, d.bytes, d.len, &opts, NULL, &err),
		     -EINVAL);
	cr_expect(strstr(err.msg, "needs more than 4096 bytes"), "%s", err.msg);
	data_free(&d);
}

/* Every prefix of a real pickle is refused, and none is read beyond. */
Test(pickle, every_prefix)
{
	struct data d = data_read("dcp-2.14.metadata");

	for (size_t len = 0; len < d.len; len++) {
		struct ck_pickle *p = NULL;
		char *copy = malloc(len ? len : 1);

		memcpy(copy, d.bytes, len);
		cr_expect_eq(ck_pickle_parse(&p, copy, len, NULL, NULL, &err),
			     -EINVAL);
		free(copy);
	}
	data_free(&d);
}

/* What follows STOP is the caller's: torch's old files are five in a row. */
Test(pickle, one_of_several)
{
	static const char bytes[] = "\x80\x02\x8a\x0al\xfc\x9c"
				    "F\xf9 j\xa8P\x19."
				    "\x80\x02M\xe9\x03.";
	struct ck_pickle *p = NULL;
	size_t used = 0;

	cr_assert_eq(ck_pickle_parse(&p, bytes, sizeof(bytes) - 1, NULL, &used,
				     &err),
		     0, "%s", err.msg);
	cr_expect_eq(used, 15);
	cr_expect_eq(ck_pv_kind(ck_pickle_root(p)), CK_P_BIGINT);
	ck_pickle_free(p);
	cr_assert_eq(ck_pickle_parse(&p, bytes + used, sizeof(bytes) - 1 - used,
				     NULL, &used, &err),
		     0);
	cr_expect_eq(num(p, ck_pickle_root(p)), 1001);
	ck_pickle_free(p);
}
