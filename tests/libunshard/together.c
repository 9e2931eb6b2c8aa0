/* SPDX-License-Identifier: Apache-2.0 */
/*
 * together - loads of several processes that read each byte once
 *
 * By each kind of communicator.  Whatever happens to one of them (tests/lib/worldkit.h),
 * the others must end, and what they call whole must be.
 */
#include "core/base/check.h"
#include "tests/lib/worldkit.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = { "shm", "tcp", "nccl" };

/* Any boxes of any ranks; and where all want all, each byte is read once. */
static void whole(unsigned nr)
{
	long gathered = 0, sent = 0, inside = 0;

	for (unsigned i = 0; i < nr; i++) {
		struct wk_plan p = { .kind = kinds[i % 3],
				     .ranks = (unsigned[]){ 2, 4, 8,
							    3 }[i / 3 % 4],
				     .seed = 100 + i,
				     .same = i / 3 % 2 == 0,
				     .direct = i % 5 == 0,
				     .never_alone = true,
				     .whom = WK_NOBODY,
				     .timeout_ms = 60000 };
		uint64_t read = 0, low = UINT64_MAX, high = 0, size;
		bool to_device = i % 3 == 2 && !(p.seed % 2);

		wk_run(&p, &size);
		wk_all_whole(&p, WK_NOBODY);
		for (unsigned k = 0; k < p.ranks; k++) {
			read += wk_outcome[k].read;
			low = CK_MIN(low, wk_outcome[k].read);
			high = CK_MAX(high, wk_outcome[k].read);
			if (strncmp(wk_outcome[k].why, "cache=", 6))
				LK_CHECK(!wk_outcome[k].why[0]);
			gathered += wk_outcome[k].gathered;
			sent += wk_outcome[k].sent;
			/* What is not turned goes from device to device. */
			inside += to_device && wk_outcome[k].received &&
				  wk_outcome[k].fetched == wk_outcome[k].whole;
		}
		if (!p.same)
			continue;
		/* As many files as there are may begin within a page. */
		LK_CHECK(read <= size + 40 * 4096);
		LK_CHECK(high - low <= WK_BLOCK);
	}
	LK_CHECK(gathered && sent && inside);
}

/* At moments from the first to the last of a load, @each of them, to any rank. */
static void at_moments(enum wk_what what, unsigned worlds, unsigned each)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < worlds; i++) {
		struct wk_plan p = { .kind = kinds[i % 3],
				     .ranks = 2 + i % 3,
				     .seed = 300 + i,
				     .same = i % 3 == 0,
				     .whom = i % (2 + i % 3),
				     .timeout_ms = 60000 };
		long moments;

		wk_run(&p, NULL);
		wk_all_whole(&p, WK_NOBODY);
		moments = wk_outcome[p.whom].moments;
		p.what = what;
		if (what == STOP)
			p.timeout_ms = 200;
		for (unsigned k = 0; k < each; k++) {
			p.when = 1 + (moments - 1) *
					     (1 + (long)k * worlds + i) /
					     (worlds * each);
			wk_run(&p, NULL);
			if (what == STOP)
				nr += wk_all_ended(&p);
			else
				wk_all_whole(&p,
					     what == KILL ? p.whom : WK_NOBODY);
		}
	}
	LK_CHECK(what != STOP || nr);
}

/* Every rank says the same line, with both digests, and nothing is loaded. */
static void differ(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		struct wk_plan p = { .kind = kinds[i % 3],
				     .ranks = 2 + i % 4,
				     .seed = 700 + i,
				     .what = DIFFER,
				     .whom = 1 + i % (1 + i % 4),
				     .timeout_ms = 60000 };

		wk_run(&p, NULL);
		for (unsigned k = 0; k < p.ranks; k++) {
			LK_CHECK(wk_outcome[k].ret == -ESTALE);
			LK_CHECK(!wk_outcome[k].whole && !wk_outcome[k].failed);
			LK_CHECK(!strcmp(wk_outcome[k].line,
					 wk_outcome[0].line));
		}
		LK_CHECK(strstr(wk_outcome[0].line,
				"00000000000000000000000000000001 and "
				"00000000000000000000000000000000"));
	}
}

/* Who never loads is named. */
static void absent(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		struct wk_plan p = { .kind = kinds[i % 3],
				     .ranks = 3,
				     .seed = 800 + i,
				     .what = ABSENT,
				     .whom = i % 3,
				     .timeout_ms = 500 };
		char name[32];
		bool timed_out = false;

		wk_run(&p, NULL);
		snprintf(name, sizeof(name), "rank %u of 3 ", p.whom);
		for (unsigned k = 0; k < p.ranks; k++) {
			const struct wk_outcome *o = &wk_outcome[k];

			if (k == p.whom)
				continue;
			/* Who learns of it from another one reads alone. */
			timed_out = timed_out || o->ret == -ETIMEDOUT;
			LK_CHECK(!o->ret || o->ret == -ETIMEDOUT);
			LK_CHECK(strstr(o->ret ? o->line : o->why, name));
		}
		LK_CHECK(timed_out);
	}
}

/* One gives up: the others are whole. */
static void cancel(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		struct wk_plan p = { .kind = kinds[i % 3],
				     .ranks = 2 + i % 3,
				     .seed = 900 + i,
				     .what = CANCEL,
				     .whom = i % 2,
				     .timeout_ms = 60000 };

		wk_run(&p, NULL);
		wk_all_whole(&p, p.whom);
		LK_CHECK(!wk_outcome[p.whom].ret ||
			 wk_outcome[p.whom].ret == -ECANCELED);
	}
}

/* Reads of one fail, and it says so: all read these bytes by themselves. */
static void unreadable(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		struct wk_plan p = { .kind = kinds[i % 3],
				     .ranks = 2 + i % 3,
				     .seed = 1000 + i,
				     .same = i % 2,
				     .what = UNREADABLE,
				     .whom = i % 2,
				     .when = 1 + i % 5,
				     .timeout_ms = 60000 };

		wk_run(&p, NULL);
		wk_all_whole(&p, p.whom);
		LK_CHECK(!wk_outcome[p.whom].ret ||
			 wk_outcome[p.whom].ret == -EIO);
	}
}

/* Six bytes of one of the files are other ones, and its time. */
static void spoil_one(const struct shardkit *k)
{
	DIR *d = opendir(k->dir);
	const struct dirent *e;

	LK_CHECK(d);
	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			break;
	LK_CHECK(e);
	sk_spoil(k, e->d_name, 0);
	closedir(d);
}

/* A file was replaced: each is told what a load alone is, and nobody else. */
static void lost(unsigned nr)
{
	unsigned any = 0;

	for (unsigned i = 0; i < nr; i++) {
		struct wk_plan p = { .kind = kinds[i % 3],
				     .ranks = 2 + i % 3,
				     .seed = 1100 + i,
				     .alone = true,
				     .whom = WK_NOBODY,
				     .timeout_ms = 60000 };
		static struct wk_world w;
		struct wk_outcome was[WK_RANKS];

		wk_make(&w, &p);
		spoil_one(&w.k);
		wk_start(&w, &p);
		wk_end(&w, &p);
		sk_free(&w.k);
		memcpy(was, wk_outcome, sizeof(was));
		p.alone = false;
		wk_make(&w, &p);
		spoil_one(&w.k);
		wk_start(&w, &p);
		wk_end(&w, &p);
		sk_free(&w.k);
		for (unsigned k = 0; k < p.ranks; k++) {
			LK_CHECK(wk_outcome[k].whole == was[k].whole);
			LK_CHECK(wk_outcome[k].failed == was[k].failed);
			LK_CHECK(wk_outcome[k].ret == was[k].ret);
			any += was[k].failed;
		}
	}
	LK_CHECK(any);
}

int main(void)
{
	bool longer = getenv("UNSHARD_NIGHTLY");

	wk_begin();
	whole(longer ? 400 : 12);
	differ(longer ? 40 : 2);
	absent(longer ? 40 : 2);
	cancel(longer ? 80 : 4);
	unreadable(longer ? 200 : 6);
	lost(longer ? 100 : 6);
	at_moments(KILL, longer ? 20 : 4, longer ? 10 : 3);
	at_moments(STOP, longer ? 20 : 2, longer ? 10 : 3);
	at_moments(FAIL, longer ? 20 : 2, longer ? 10 : 3);
	return 0;
}
