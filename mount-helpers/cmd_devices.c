/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_devices.c - which ways to read, and which memories, this build and machine have */
#include "mount-helpers/cmd.h"

#include "core/base/auto.h"
#include "core/base/str.h"
#include "core/comm/comm.h"
#include "core/device/device.h"
#include "core/io/engine.h"

#include <stdio.h>
#include <string.h>

extern const struct cmd cmd_devices;

struct listing {
	struct ck_str text;
	bool json;
	unsigned nr;
};

/* @why: NULL, it is there. */
static void say(struct listing *l, const char *name, const char *what,
		const char *why)
{
	if (!l->json) {
		ck_str_fmt(&l->text, "%-10s %-4s %s%s%s\n", name,
			   why ? "no" : "yes", what, why ? ": " : "",
			   why ? why : "");
		return;
	}
	ck_str_fmt(&l->text, "%s\n{\"name\": \"%s\", \"there\": %s, \"what\": ",
		   l->nr++ ? "," : "", name, why ? "false" : "true");
	ck_str_json(&l->text, what, strlen(what));
	if (why) {
		ck_str_puts(&l->text, ", \"why\": ");
		ck_str_json(&l->text, why, strlen(why));
	}
	ck_str_puts(&l->text, "}");
}

static void engine(struct listing *l, const char *name, const char *what)
{
	struct ck_err err = { 0 };

	say(l, name, what, ck_engine_choose(name, &err) ? NULL : err.msg);
}

/* CUDA, whether it reads files itself, and what moves between its devices. */
static void cuda(struct listing *l)
{
	struct ck_device *dev = NULL;
	struct ck_err err = { 0 };
	int ret = ck_device_open(&dev, "cuda", &err);

	say(l, "cuda", "memory of GPUs, by NVIDIA's driver",
	    ret ? err.msg : NULL);
	if (!ret)
		ret = dev->ops->files(dev->dev, &err);
	say(l, "cufile", "files into memory of GPUs, by GPUDirect Storage",
	    ret ? err.msg : NULL);
	if (dev)
		ret = ck_comm_nccl_version(&err);
	say(l, "nccl", "between GPUs of several ranks",
	    ret < 0 ? err.msg : NULL);
	ck_device_close(dev);
}

static int list(bool json)
{
	struct listing l = { .json = json };
	bool failed;

	if (json)
		ck_str_puts(&l.text, "{\"devices\": [");
	engine(&l, "plain", "files, by preadv");
	engine(&l, "uring", "files, by io_uring");
	cuda(&l);
	if (json)
		ck_str_puts(&l.text, "\n]}\n");
	failed = l.text.failed;
	if (!failed)
		fputs(l.text.v, stdout);
	ck_str_free(&l.text);
	return failed ? cmd_fail(&cmd_devices, CMD_SYSTEM, "no memory") :
			cmd_flush(&cmd_devices);
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	int nr = cmd_parse(&cmd_devices, argc, argv, &opts);
	bool json = nr >= 0 && ck_opts_get(&opts, "json");

	ck_opts_free(&opts);
	if (nr > 0)
		return cmd_fail(&cmd_devices, CMD_USAGE, "%s: expected no word",
				argv[1]);
	return nr < 0 ? CMD_USAGE : list(json);
}

static const struct cmd_flag flags[] = {
	{ 0, "json", "JSON instead of text for people" },
	{ 0 },
};

const struct cmd cmd_devices = {
	.name = "devices",
	.group = CMD_LOOK,
	.args = "",
	.summary = "say what reads files here, and into which memories",
	.help = "A line each: name, yes or no, what it is, and why it is not "
		"there.\n",
	.flags = flags,
	.plain = true,
	.run = run,
};
