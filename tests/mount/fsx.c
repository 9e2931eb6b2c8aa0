/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsx.c - random operations on a file of fixed size, and on a model of it
 *
 *	fsx FILE MODEL OPS SEED rw|map|all
 *
 * MODEL holds what FILE does, and afterwards what FILE should.  rw: read and
 * write; map: through maps only, with msync; all: both, in any order.  The
 * file is closed and opened again now and then, and every now and then all of
 * it is compared.  The first difference ends it, with the last operations.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG 40
#define MAX_LEN (256u << 10)

enum op { READ, WRITE, MAPREAD, MAPWRITE, REOPEN, SYNC, ALL, NR_OPS };
static const char *const names[] = { "read",   "write", "mapread", "mapwrite",
				     "reopen", "fsync", "all" };

static struct {
	enum op op;
	size_t off, len;
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
		fprintf(stderr, "  %lu %s %zu +%zu\n", first + 1,
			names[done[first % LOG].op], done[first % LOG].off,
			done[first % LOG].len);
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

	if (argc != 6) {
		fprintf(stderr, "usage: fsx FILE MODEL OPS SEED rw|map|all\n");
		return 2;
	}
	path = argv[1];
	ops = strtoul(argv[3], NULL, 10);
	state = strtoull(argv[4], NULL, 10) * 2 + 1;
	page = (size_t)sysconf(_SC_PAGESIZE);
	load(argv[2]);
	open_it();
	read_at(0, size);
	while (nr_done < ops)
		step(argv[5]);
	read_at(0, size);
	if (fsync(fd) || close(fd))
		die("the last close");
	save(argv[2]);
	return 0;
}
