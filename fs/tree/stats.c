/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/tree/stats.h"

#include "core/base/check.h"
#include "core/sandbox/sandbox.h"

#include <inttypes.h>
#include <stddef.h>
#include <sys/utsname.h>

static void number(struct ck_str *out, const char *key, uint64_t value)
{
	ck_str_fmt(out, "%s %20" PRIu64 "\n", key, value);
}

static void word(struct ck_str *out, const char *key, const char *value)
{
	ck_str_fmt(out, "%s %s\n", key, value);
}

/* One row for both files; a NULL name: .unshard/stats alone has it. */
#define ROW(key, name, help)                                          \
	{                                                             \
#key, offsetof(struct ck_read_stats, key), name, help \
	}
static const struct counter {
	const char *key;
	size_t at;
	const char *name, *help;
} counters[] = {
	ROW(reads, "reads_total", "Reads of tensors that reached the mount."),
	ROW(bytes, "read_bytes_total", "Bytes of tensors that were read."),
	ROW(source_reads, "source_reads_total",
	    "Requests to the files of the checkpoint."),
	ROW(source_bytes, "source_read_bytes_total",
	    "Bytes read from the files of the checkpoint."),
	ROW(resolved, "resolved_items_total",
	    "Items whose place in a file was looked up."),
	ROW(failed, "errors_total", "Reads and writes that failed."),
	ROW(tile_hits, "tile_cache_hits_total",
	    "Reads of transposed tensors that the cache had."),
	ROW(tile_misses, "tile_cache_misses_total",
	    "Reads of transposed tensors that the cache did not have."),
	ROW(spooled_bytes, "decoded_bytes_total",
	    "Bytes that compressed items were decoded to."),
	ROW(writes, "writes_total", "Writes to tensors."),
	ROW(written, "written_bytes_total",
	    "Bytes of tensors that were written."),
	ROW(source_writes, "source_writes_total",
	    "Requests that wrote to the files of the checkpoint."),
	ROW(span_walks, "write_plans_total", "Writes that were planned."),
	ROW(cache_opens, "cache_opens_total",
	    "Opens of files that were served from the cache."),
	ROW(cache_bytes, "cache_read_bytes_total",
	    "Bytes that the mount read from files in the cache."),
	ROW(cache_filled, "cache_filled_bytes_total",
	    "Bytes that were put into the cache."),
	ROW(touched, NULL, NULL),
	ROW(read_ns, NULL, NULL),
};

static uint64_t load(const struct ck_read_stats *s, size_t at)
{
	const _Atomic uint64_t *v = (const void *)((const char *)s + at);

	return atomic_load_explicit(v, memory_order_relaxed);
}

void fs_counts_add(struct fs_counts *to, const struct ck_read_stats *s)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(to->v); i++)
		to->v[i] += load(s, i * sizeof(uint64_t));
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
	word(out, "cache", k->cache.where);
	number(out, "cache_held", atomic_load(&k->cache.held));
	number(out, "cache_passthrough", atomic_load(&k->cache.passthrough));
	number(out, "cache_whole_files", atomic_load(&k->cache.whole));
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
	for (size_t i = 0; i < CK_ARRAY_LEN(counters); i++)
		number(out, counters[i].key,
		       load(ck_ckpt_stats(in->ck), counters[i].at));
	delivery(in->kernel, out);
	sandbox(in->sandbox, out);
}

/* ---- .unshard/metrics ---- */

/* All samples of a metric follow its head. */
static void head(struct ck_str *out, const char *name, const char *type,
		 const char *help)
{
	ck_str_fmt(out, "# HELP unshard_%s %s\n# TYPE unshard_%s %s\n", name,
		   help, name, type);
}

static void start(struct ck_str *out, const char *name, const char *mnt,
		  const struct fs_metrics_of *of)
{
	ck_str_fmt(out, "unshard_%s{", name);
	ck_str_label(out, "mount", mnt);
	if (of->step) {
		ck_str_puts(out, ",");
		ck_str_label(out, "step", of->step);
	}
}

static void sample(struct ck_str *out, const char *name, const char *mnt,
		   const struct fs_metrics_of *of, uint64_t value)
{
	start(out, name, mnt, of);
	ck_str_fmt(out, "} %" PRIu64 "\n", value);
}

static uint64_t count_at(const struct fs_metrics_of *of, size_t at)
{
	return of->counts.v[at / sizeof(uint64_t)];
}

/* In seconds, as Prometheus wants all times, and each bucket with those below. */
static void durations(struct ck_str *out, const char *mnt,
		      const struct fs_metrics_of *of)
{
	uint64_t ns = count_at(of, offsetof(struct ck_read_stats, read_ns));
	uint64_t sum = 0;

	for (unsigned i = 0; i < CK_TOOK_NR; i++) {
		size_t at = offsetof(struct ck_read_stats, took) +
			    i * sizeof(uint64_t);

		sum += count_at(of, at);
		start(out, "read_duration_seconds_bucket", mnt, of);
		if (i < CK_TOOK_NR - 1)
			ck_str_fmt(out, ",le=\"%g\"} %" PRIu64 "\n",
				   ck_took_us[i] / 1e6, sum);
		else
			ck_str_fmt(out, ",le=\"+Inf\"} %" PRIu64 "\n", sum);
	}
	start(out, "read_duration_seconds_sum", mnt, of);
	ck_str_fmt(out, "} %" PRIu64 ".%09" PRIu64 "\n", ns / 1000000000,
		   ns % 1000000000);
	sample(out, "read_duration_seconds_count", mnt, of, sum);
}

static void facts(struct ck_str *out, const char *mnt,
		  const struct fs_metrics_of *v, size_t nr)
{
#define FACT(member, name, help)        \
	head(out, name, "gauge", help); \
	for (size_t i = 0; i < nr; i++) \
		sample(out, name, mnt, &v[i], v[i].member);
	FACT(whole, "checkpoint_complete", "1: every tensor is there.")
	FACT(tensors, "checkpoint_tensors", "Tensors that it has.")
	FACT(bytes, "checkpoint_tensor_bytes", "Bytes of all its tensors.")
	FACT(errors, "checkpoint_errors", "Errors in its list of problems.")
	FACT(warnings, "checkpoint_warnings",
	     "Warnings in its list of problems.")
#undef FACT
}

void fs_metrics_text(const char *mnt, const struct fs_metrics_of *v, size_t nr,
		     struct ck_str *out)
{
	const struct fs_metrics_of mount = { .step = NULL };

	head(out, "up", "gauge", "1: the mount answers.");
	sample(out, "up", mnt, &mount, 1);
	facts(out, mnt, v, nr);
	for (size_t c = 0; c < CK_ARRAY_LEN(counters); c++) {
		if (!counters[c].name)
			continue;
		head(out, counters[c].name, "counter", counters[c].help);
		for (size_t i = 0; i < nr; i++)
			sample(out, counters[c].name, mnt, &v[i],
			       count_at(&v[i], counters[c].at));
	}
	head(out, "read_duration_seconds", "histogram",
	     "How long reads of tensors took.");
	for (size_t i = 0; i < nr; i++)
		durations(out, mnt, &v[i]);
}
