/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parser_job.h - what the program that parses is told, and how
 *
 * Descriptor 3 of it is a stream socket.  The first message has a descriptor
 * of a memfd, which holds the job, then those that the job names by their
 * places: the catalog, the directories.  It answers with a struct
 * ck_child_answer.
 *
 * CK_PARSER_DESCRIBE: that is all; the catalog is in its memfd by then.
 * CK_PARSER_BOTH: the same, and a byte has it go on as the next; it is the same
 * catalog.
 * CK_PARSER_ITEMS: the catalog was given.  Then, until the end of the stream:
 * a count and so many numbers of chunks, and of each a struct ck_found_item.
 * CK_PARSER_PUBLISH: there is no catalog; a draft of the directory is published,
 * and that is all.  It is not confined: what it starts to parse is.
 * All of that by core/sandbox/exchange.h.
 */
#ifndef CK_PARSER_JOB_H
#define CK_PARSER_JOB_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/ckpt/ckpt.h"
#include "core/root/root.h"

#define CK_PARSER_FD 3
#define CK_PARSER_FDS_MAX 250 /* of CK_FDS_MAX */
#define CK_PARSER_CHUNKS 256 /* in one question */
#define CK_PARSER_VERSION 2

enum ck_parser_kind {
	CK_PARSER_DESCRIBE,
	CK_PARSER_BOTH,
	CK_PARSER_ITEMS,
	CK_PARSER_PUBLISH
};

/* Of CK_PARSER_PUBLISH, among its options. */
#define CK_PARSER_DRAFT "draft"
#define CK_PARSER_AS "as"
#define CK_PARSER_REPLACE "replace"

struct ck_parser_job {
	enum ck_parser_kind kind;
	const struct ck_opts *opts;
	struct ck_parser_limits limits;
	const struct ck_root *root;
	int catalog_fd;
};

/* Sends it over socket @to. */
int ck_parser_job_send(int to, const struct ck_parser_job *job,
		       struct ck_err *err);

/* The other end; what it holds is its own and lasts as long as the process. */
struct ck_parser_job_in {
	struct ck_parser_job job;
	struct ck_opts opts;
	struct ck_root root;
};
int ck_parser_job_receive(int from, struct ck_parser_job_in *in,
			  struct ck_err *err);

#endif
