/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/tree/stats.h"

#include "core/base/check.h"
#include "core/sandbox/sandbox.h"

#include <inttypes.h>
#include <sys/utsname.h>

static void number(struct ck_str *out, const char *key, uint64_t value)
{
	ck_str_fmt(out, "%s %20" PRIu64 "\n", key, value);
}

static void word(struct ck_str *out, const char *key, const char *value)
{
	ck_str_fmt(out, "%s %s\n", key, value);
}

static void counters(const struct ck_read_stats *s, struct ck_str *out)
{
	const struct {
		const char *key;
		const _Atomic uint64_t *value;
	} all[] = {
		{ "reads", &s->reads },
		{ "bytes", &s->bytes },
		{ "source_reads", &s->source_reads },
		{ "source_bytes", &s->source_bytes },
		{ "resolved", &s->resolved },
		{ "failed", &s->failed },
		{ "tile_hits", &s->tile_hits },
		{ "tile_misses", &s->tile_misses },
		{ "spooled_bytes", &s->spooled_bytes },
		{ "writes", &s->writes },
		{ "written", &s->written },
		{ "source_writes", &s->source_writes },
		{ "span_walks", &s->span_walks },
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(all); i++)
		number(out, all[i].key,
		       atomic_load_explicit(all[i].value,
					    memory_order_relaxed));
}

static void sandbox(unsigned bits, struct ck_str *out)
{
	ck_str_puts(out, "sandbox");
	if (!bits)
		ck_str_puts(out, " off");
	if (bits & CK_SANDBOX_LANDLOCK)
		ck_str_puts(out, " landlock");
	if (bits & CK_SANDBOX_SECCOMP)
		ck_str_puts(out, " seccomp");
	if (bits & CK_SANDBOX_CAPS)
		ck_str_puts(out, " caps");
	ck_str_puts(out, "\n");
}

static void delivery(const struct fs_kernel *k, struct ck_str *out)
{
	struct utsname u = { 0 };

	uname(&u);
	word(out, "transport", k->direct ? "direct" : "cached");
	word(out, "mmap", !k->direct || k->direct_mmap ? "shared" : "private");
	number(out, "threads_max", k->threads);
	number(out, "read_ahead_kib", fs_read_ahead_kib(&k->read_ahead));
	word(out, "libfuse", fuse_pkgversion());
	ck_str_fmt(out, "fuse_protocol 7.%u\n", k->proto_minor);
	word(out, "kernel", u.release);
}

void fs_stats_text(const struct fs_stats_in *in, struct ck_str *out)
{
	const struct ck_catalog *img = ck_ckpt_catalog(in->ck);

	number(out, "generation", in->generation);
	word(out, "format", ck_catalog_str(img, img->format, NULL));
	word(out, "engine", ck_ckpt_engine(in->ck));
	number(out, "tensors", img->nr_tensors);
	number(out, "chunks", img->nr_chunks);
	counters(ck_ckpt_stats(in->ck), out);
	delivery(in->kernel, out);
	sandbox(in->sandbox, out);
}
