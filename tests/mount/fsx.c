/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsx.c - random operations on a file of fixed size, and on a model of it
 *
 *	fsx FILE MODEL OPS SEED rw|map|all
 *	fsx FILE MODEL OPS SEED views OTHER@OFFSET...
 *
 * MODEL holds what FILE does, and afterwards what FILE should.  rw: read and
 * write; map: through maps only, with msync; all: both, in any order.  The
 * file is closed and opened again now and then, and every now and then all of
 * it is compared.  The first difference ends it, with the last operations.
 *
 * views: OTHER has the same bytes from OFFSET on; a negative one counts from its
 * end, and 0 from there is the last of them.  All are mapped for good, one of
 * them for writing, by turns; and written to.  What is stored and not synced is
 * not written to through another, but the bytes beside it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG 40
#define MAX_LEN (256u << 10)

#define MAX_VIEWS 4

enum op { READ, WRITE, MAPREAD, MAPWRITE, REOPEN, SYNC, ALL, MSYNC, NR_OPS };
static const char *const names[] = { "read",   "write", "mapread", "mapwrite",
				     "reopen", "fsync", "all",	   "msync" };

static struct {
	enum op op;
	size_t off, len;
	unsigned view;
} done[LOG];
static unsigned long nr_done;
static const char *path;
static unsigned char *model, *buf;
static size_t size, page;
static uint64_t state;
static int fd;

static uint64_t lot(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * UINT64_C(0x2545f4914f6cdd1d) >> 11;
}

static void die(const char *what)
{
	unsigned long first = nr_done > LOG ? nr_done - LOG : 0;

	fprintf(stderr, "fsx: operation %lu: %s (%s)\n", nr_done, what,
		strerror(errno));
	for (; first < nr_done; first++)
		fprintf(stderr, "  %lu %s %zu +%zu of view %u\n", first + 1,
			names[done[first % LOG].op], done[first % LOG].off,
			done[first % LOG].len, done[first % LOG].view);
	exit(1);
}

static void compare(const unsigned char *got, size_t off, size_t len)
{
	char line[100];

	if (!memcmp(got, model + off, len))
		return;
	for (size_t i = 0; i < len; i++)
		if (got[i] != model[off + i]) {
			errno = 0;
			snprintf(line, sizeof(line),
				 "byte %zu is %02x, expected %02x", off + i,
				 got[i], model[off + i]);
			die(line);
		}
}

static void read_at(size_t off, size_t len)
{
	size_t at = 0;

	while (at < len) {
		ssize_t n = pread(fd, buf + at, len - at, (off_t)(off + at));

		if (n <= 0)
			die("read");
		at += (size_t)n;
	}
	compare(buf, off, len);
}

static void fill(size_t off, size_t len)
{
	uint64_t v = lot();

	for (size_t i = 0; i < len; i++)
		model[off + i] = (unsigned char)((v >> i % 56) + i * 7);
}

static void write_at(size_t off, size_t len)
{
	fill(off, len);
	if (pwrite(fd, model + off, len, (off_t)off) != (ssize_t)len)
		die("write");
}

static void map_at(size_t off, size_t len, int write)
{
	size_t skip = off % page;
	unsigned char *m =
		mmap(NULL, len + skip, PROT_READ | (write ? PROT_WRITE : 0),
		     MAP_SHARED, fd, (off_t)(off - skip));

	if (m == MAP_FAILED)
		die("mmap");
	if (write) {
		fill(off, len);
		memcpy(m + skip, model + off, len);
		if (msync(m, len + skip, MS_SYNC))
			die("msync");
	} else {
		compare(m + skip, off, len);
	}
	munmap(m, len + skip);
}

static void open_it(void)
{
	struct stat st;

	fd = open(path, O_RDWR);
	if (fd < 0 || fstat(fd, &st))
		die("open");
	if ((size_t)st.st_size != size)
		die("the size changed");
}

static void load(const char *name)
{
	struct stat st;
	int in = open(name, O_RDONLY);

	if (in < 0 || fstat(in, &st) || !st.st_size)
		die(name);
	size = (size_t)st.st_size;
	model = malloc(size);
	buf = malloc(size);
	if (!model || !buf || read(in, model, size) != (ssize_t)size)
		die(name);
	close(in);
}

static void save(const char *name)
{
	int out = open(name, O_WRONLY | O_TRUNC);

	if (out < 0 || write(out, model, size) != (ssize_t)size || close(out))
		die(name);
}

/* ---- several views of the same bytes, mapped for good ---- */

static struct view {
	const char *path;
	int fd, wfd;
	size_t base, whole;
	unsigned char *map;
	size_t from, to; /* stored, and not synced */
} view[MAX_VIEWS];
static unsigned nr_views;
static struct view *stored = view; /* the one that is mapped for writing */

static void map_view(struct view *v)
{
	bool own = v == stored;

	v->fd = open(v->path, own ? O_RDWR : O_RDONLY);
	v->wfd = open(v->path, O_WRONLY);
	if (v->fd < 0 || v->wfd < 0)
		die(v->path);
	v->map = mmap(NULL, v->whole, own ? PROT_READ | PROT_WRITE : PROT_READ,
		      MAP_SHARED, v->fd, 0);
	if (v->map == MAP_FAILED)
		die("mmap");
}

static void add_view(char *name)
{
	struct view *v = &view[nr_views++];
	char *at = strrchr(name, '@');
	long long base = at ? strtoll(at + 1, NULL, 10) : 0;
	struct stat st;

	if (at)
		*at = 0;
	v->path = name;
	if (nr_views > MAX_VIEWS || stat(name, &st))
		die(name);
	v->whole = (size_t)st.st_size;
	v->base = at && at[1] != '-' ? (size_t)base :
				       v->whole - size - (size_t)-base;
	map_view(v);
}

static void sync_view(struct view *v)
{
	if (msync(v->map, v->whole, MS_SYNC))
		die("msync");
	v->from = v->to = 0;
}

/* What others have stored in [off, off+len) is there, and shown. */
static void sync_met(const struct view *but, size_t off, size_t len)
{
	for (unsigned i = 0; i < nr_views; i++)
		if (&view[i] != but && view[i].from < off + len &&
		    view[i].to > off)
			sync_view(&view[i]);
}

static void store(struct view *v, size_t off, size_t len)
{
	sync_met(v, off, len);
	fill(off, len);
	memcpy(v->map + v->base + off, model + off, len);
	if (v->from == v->to)
		v->from = off;
	v->from = off < v->from ? off : v->from;
	v->to = off + len > v->to ? off + len : v->to;
}

static void compare_view(struct view *v, enum op op, size_t off, size_t len)
{
	sync_met(v, off, len);
	if (op == MAPREAD) {
		compare(v->map + v->base + off, off, len);
		return;
	}
	if (pread(v->fd, buf, len, (off_t)(v->base + off)) != (ssize_t)len)
		die("read");
	compare(buf, off, len);
}

static void write_view(struct view *v, size_t off, size_t len)
{
	int to = v == stored && lot() & 1 ? v->fd : v->wfd;

	sync_met(to == v->fd ? v : NULL, off, len);
	fill(off, len);
	if (pwrite(to, model + off, len, (off_t)(v->base + off)) !=
	    (ssize_t)len)
		die("write");
}

static void compare_all(void)
{
	for (unsigned i = 0; i < nr_views; i++)
		sync_view(&view[i]);
	for (unsigned i = 0; i < nr_views; i++)
		for (size_t at = 0; at < size; at += MAX_LEN) {
			size_t n = size - at < MAX_LEN ? size - at : MAX_LEN;

			compare_view(&view[i], MAPREAD, at, n);
			compare_view(&view[i], READ, at, n);
		}
}

static void close_view(struct view *v)
{
	if (munmap(v->map, v->whole) || close(v->fd) || close(v->wfd))
		die("close");
	v->from = v->to = 0;
}

/* From now on @v is the one that is stored into. */
static void reopen_view(struct view *v)
{
	struct view *was = stored;

	if (v != was && (open(v->path, O_RDWR) >= 0 || errno != EBUSY))
		die("two of them at a time");
	close_view(v);
	if (v != was)
		close_view(was);
	stored = v;
	map_view(v);
	if (v != was)
		map_view(was);
}

static enum op choose_view(void)
{
	unsigned n = (unsigned)(lot() % 1000);

	if (n < 5)
		return REOPEN;
	if (n < 7)
		return ALL;
	if (n < 150)
		return MSYNC;
	if (n < 250)
		return WRITE;
	if (n < 300)
		return READ;
	return n < 400 ? MAPREAD : MAPWRITE;
}

/* Mostly few bytes in few pages, so that they meet. */
static void step_views(void)
{
	enum op op = choose_view();
	unsigned nr = (unsigned)(lot() % nr_views);
	struct view *v = &view[nr];
	size_t len = (size_t)(lot() % (lot() % 8 ? 300 : 20000)) + 1;
	size_t off = (size_t)(lot() % (lot() % 4 ? 5 * page : size));

	off = off < size ? off : size - 1;
	len = len < size - off ? len : size - off;
	done[nr_done % LOG].op = op;
	done[nr_done % LOG].off = off;
	done[nr_done % LOG].len = len;
	done[nr_done % LOG].view = nr;
	nr_done++;
	switch (op) {
	case MAPWRITE:
		store(stored, off, len);
		break;
	case WRITE:
		write_view(v, off, len);
		break;
	case READ:
	case MAPREAD:
		compare_view(v, op, off, len);
		break;
	case MSYNC:
		sync_view(v);
		break;
	case REOPEN:
		reopen_view(v);
		break;
	default:
		compare_all();
	}
}

static void run_views(unsigned long ops, char **name)
{
	static char own[4096];

	snprintf(own, sizeof(own), "%s@0", path);
	add_view(own);
	while (*name)
		add_view(*name++);
	compare_all();
	while (nr_done < ops)
		step_views();
	compare_all();
	for (unsigned i = 0; i < nr_views; i++)
		reopen_view(&view[i]);
	compare_all();
	for (unsigned i = 0; i < nr_views; i++)
		close_view(&view[i]);
}

static enum op choose(const char *how)
{
	unsigned n = (unsigned)(lot() % 1000);

	if (n < 10)
		return REOPEN;
	if (n < 20)
		return SYNC;
	if (n < 22)
		return ALL;
	if (!strcmp(how, "rw"))
		return lot() & 1 ? WRITE : READ;
	if (!strcmp(how, "map"))
		return lot() & 1 ? MAPWRITE : MAPREAD;
	return (enum op)(lot() % 4);
}

static void step(const char *how)
{
	enum op op = choose(how);
	size_t len = (size_t)(lot() % (lot() % 8 ? 9000 : MAX_LEN)) + 1;
	size_t off = (size_t)(lot() % size);

	if (len > size - off)
		len = size - off;
	done[nr_done % LOG].op = op;
	done[nr_done % LOG].off = off;
	done[nr_done % LOG].len = len;
	nr_done++;
	switch (op) {
	case READ:
		read_at(off, len);
		break;
	case WRITE:
		write_at(off, len);
		break;
	case MAPREAD:
	case MAPWRITE:
		map_at(off, len, op == MAPWRITE);
		break;
	case SYNC:
		if (fsync(fd))
			die("fsync");
		break;
	case REOPEN:
		if (close(fd))
			die("close");
		open_it();
		break;
	default:
		read_at(0, size);
	}
}

int main(int argc, char **argv)
{
	unsigned long ops;

	if (argc < 6 || (argc > 6) != !strcmp(argv[5], "views")) {
		fprintf(stderr, "usage: fsx FILE MODEL OPS SEED rw|map|all|"
				"views [OTHER@OFFSET...]\n");
		return 2;
	}
	path = argv[1];
	ops = strtoul(argv[3], NULL, 10);
	state = strtoull(argv[4], NULL, 10) * 2 + 1;
	page = (size_t)sysconf(_SC_PAGESIZE);
	load(argv[2]);
	open_it();
	read_at(0, size);
	if (argc > 6) {
		if (close(fd))
			die("close");
		run_views(ops, argv + 6);
		open_it();
	}
	while (nr_done < ops)
		step(argv[5]);
	read_at(0, size);
	if (fsync(fd) || close(fd))
		die("the last close");
	save(argv[2]);
	return 0;
}
