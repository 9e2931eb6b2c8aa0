/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standalone.c - main() for a fuzz target where there is no fuzzer
 *
 * Runs every file named, or found in a folder named, once through the target,
 * each from an allocation of exactly its size so that ASan sees an overread.
 * Prints how many, and fails on none.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned int nr_done;

static int run_file(const char *path)
{
	struct stat st;
	uint8_t *data;
	ssize_t got;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st)) {
		perror(path);
		return -1;
	}
	data = malloc(st.st_size ? (size_t)st.st_size : 1);
	got = data ? read(fd, data, (size_t)st.st_size) : -1;
	close(fd);
	if (got != st.st_size) {
		fprintf(stderr, "%s: cannot read\n", path);
		free(data);
		return -1;
	}
	/* Unbuffered, so that the last line before a crash names the input. */
	fprintf(stderr, "%s\n", path);
	LLVMFuzzerTestOneInput(data, (size_t)got);
	nr_done++;
	free(data);
	return 0;
}

static int run_folder(const char *path)
{
	char file[4096];
	const struct dirent *e;
	DIR *dir = opendir(path);
	int ret = 0;

	if (!dir)
		return run_file(path);
	while (!ret && (e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
		ret = run_file(file);
	}
	closedir(dir);
	return ret;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (run_folder(argv[i]))
			return 1;
	printf("%u inputs\n", nr_done);
	return nr_done == 0;
}
