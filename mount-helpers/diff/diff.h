/* SPDX-License-Identifier: Apache-2.0 */
/* diff.h - what is different between two checkpoints, and how it is said */
#ifndef DIFF_H
#define DIFF_H

#include "mount-helpers/cmd.h"
#include "mount-helpers/diff/compare.h"
#include "mount-helpers/progress.h"

#include "core/base/str.h"
#include "core/base/vec.h"
#include "core/catalog/catalog.h"
#include "core/manifest/manifest.h"

extern const struct cmd cmd_diff;

struct side {
	struct ck_ckpt *ck;
	const struct ck_catalog *img;
	struct ck_manifest manifest;
	bool sealed; /* and its files are as the manifest says */
	uint32_t *refused, nr_refused; /* health_refusals() */
};

/* A name that one refused, and the other has not. */
struct refusal {
	const struct side *s;
	uint32_t problem;
};

struct diff {
	struct side a, b;
	const char *glob; /* NULL: all names */
	bool json, all;
	CK_VEC(struct compare_pair) pair; /* a or b CK_NONE: only in one */
	CK_VEC(struct refusal) refusal;
	uint64_t printed, equal, differ, only_a, only_b, unreadable;
	struct ck_str out;
	struct progress progress;
	struct ck_err err;
};

/* Whether the name, a string of @img, is one that was asked for. */
bool diff_chosen(const struct diff *d, const struct ck_catalog *img,
		 uint32_t name);
/* "PATH: refused: FILE: REASON" */
void diff_put_refusal(struct ck_str *out, const struct side *s,
		      uint32_t problem);
/* All of it; an exit code. */
int diff_print(struct diff *d);

#endif
