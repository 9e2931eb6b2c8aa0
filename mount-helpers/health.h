/* SPDX-License-Identifier: Apache-2.0 */
/* health.h - whether all of a checkpoint is there */
#ifndef HEALTH_H
#define HEALTH_H

#include "mount-helpers/cmd.h"

/* Whether every byte of the tensor can be read, as far as the index says. */
bool health_tensor(const struct ck_catalog *img, const struct ck_tensor *t);
/* Tensors that were refused: errors name them, and they are not there. */
uint64_t health_left_out(const struct ck_catalog *img);
/*
 * The same, as the first problem of each, by name.  *out: to free(), NULL where
 * there is no memory.
 */
uint32_t health_refusals(const struct ck_catalog *img, uint32_t **out);
/* "1 missing, 2 torn, 1 error", without what there is none of; to free(). */
char *health_counts(const struct ck_catalog *img);
/* The first errors, a line each on stderr. */
void health_errors(const struct cmd *c, const struct ck_catalog *img);
/*
 * CMD_OK, or CMD_BAD_CKPT after one line that counts what is torn, missing or
 * refused.  @problems_found: errors found since the index was read.
 */
int health_report(const struct cmd *c, const char *path,
		  const struct ck_catalog *img, uint64_t problems_found);
/*
 * CMD_OK, or CMD_BAD_CKPT after one line that names the first tensor that was
 * refused and is in no view, and counts the errors.
 */
int health_refused(const struct cmd *c, const char *path,
		   const struct ck_catalog *img);

/* What was found since @ck was opened, a line each on stderr. */
void health_runtime(const struct cmd *c, const char *path, struct ck_ckpt *ck);

#endif
