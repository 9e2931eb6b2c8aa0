/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/stepkit.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	abort();
}

void stepkit_init(struct stepkit *k)
{
	strcpy(k->dir, "/tmp/stepkit.XXXXXX");
	must(mkdtemp(k->dir) != NULL, k->dir);
}

void stepkit_free(struct stepkit *k)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", k->dir);
	must(!system(cmd), cmd);
}

void stepkit_write(const struct stepkit *k, unsigned nr, const char *file,
		   const char *text)
{
	char path[192];
	FILE *f;

	snprintf(path, sizeof(path), "%s/step-%u/%s", k->dir, nr, file);
	f = fopen(path, "w");
	must(f && fputs(text, f) >= 0 && !fclose(f), path);
}

static void save(const char *path, const char *mode, char name,
		 const char *bytes)
{
	char head[128];
	uint64_t len = (uint64_t)snprintf(head, sizeof(head),
					  "{\"%c\": {\"dtype\": \"U8\", "
					  "\"shape\": [4], "
					  "\"data_offsets\": [0, 4]}}",
					  name);
	FILE *f = fopen(path, mode);

	must(f && fwrite(&len, 8, 1, f) == 1 && fwrite(head, len, 1, f) == 1 &&
		     fwrite(bytes, 4, 1, f) == 1 && !fclose(f),
	     path);
}

void stepkit_put(const struct stepkit *k, unsigned nr, const char *bytes)
{
	char from[128], to[128], path[192];

	snprintf(from, sizeof(from), "%s/.new-%u", k->dir, nr);
	snprintf(to, sizeof(to), "%s/step-%u", k->dir, nr);
	must(!mkdir(from, 0755), from);
	snprintf(path, sizeof(path), "%s/model.safetensors", from);
	save(path, "w", 't', bytes);
	must(!rename(from, to), to);
}

void stepkit_put_below(const struct stepkit *k, unsigned nr, char name,
		       const char *bytes, int in_place)
{
	static const char *const folders[] = { "", "/policy",
					       "/policy/weights" };
	char dir[128], path[192], new[200];

	for (unsigned i = 0; i < 3; i++) {
		snprintf(dir, sizeof(dir), "%s/step-%u%s", k->dir, nr,
			 folders[i]);
		must(!mkdir(dir, 0755) || errno == EEXIST, dir);
	}
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	snprintf(new, sizeof(new), "%s.new", path);
	save(in_place ? path : new, in_place ? "r+" : "w", name, bytes);
	must(in_place || !rename(new, path), path);
}

void stepkit_drop(const struct stepkit *k, unsigned nr)
{
	char from[128], to[128], path[192];

	snprintf(from, sizeof(from), "%s/step-%u", k->dir, nr);
	snprintf(to, sizeof(to), "%s/.old-%u", k->dir, nr);
	must(!rename(from, to), from);
	snprintf(path, sizeof(path), "%s/model.safetensors", to);
	must(!unlink(path), path);
	must(!rmdir(to), to);
}
