/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - devices by name, and copies that are waited for */
#include "core/device/device.h"

#include "core/base/match.h"
#include "core/base/number.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct ck_device_ops *const ck_devices[] = { &ck_device_host,
						   &ck_device_simulated,
						   &ck_device_cuda, NULL };

static const struct ck_device_ops *find(const char *name, size_t len)
{
	for (unsigned i = 0; ck_devices[i]; i++)
		if (ck_text_is(name, len, ck_devices[i]->name))
			return ck_devices[i];
	return NULL;
}

int ck_device_open(struct ck_device **out, const char *name, struct ck_err *err)
{
	size_t len = strcspn(name, ":");
	const struct ck_device_ops *ops = find(name, len);
	const char *args = name[len] ? name + len + 1 : "";
	struct ck_device *dev;
	uint64_t ordinal = 0;
	int ret;

	if (!ops)
		return ck_fail(err, ENODEV,
			       "device \"%.60s\": expected cuda, cuda:N, "
			       "simulated or host",
			       name);
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return ck_no_memory(err);
	ret = ops->open(args, &dev->dev, err);
	if (ret) {
		free(dev);
		return ck_wrap(err, ret, "device %.60s", name);
	}
	dev->ops = ops;
	if (ck_decimal(args, strlen(args), 1 << 16, &ordinal))
		dev->ordinal = (int)ordinal;
	snprintf(dev->name, sizeof(dev->name), "%s", name);
	*out = dev;
	return 0;
}

void ck_device_close(struct ck_device *dev)
{
	if (!dev)
		return;
	dev->ops->close(dev->dev);
	free(dev);
}

bool ck_device_is_same(const struct ck_device *a, const struct ck_device *b)
{
	/* A simulated one is made anew each time. */
	return a->dev == b->dev ||
	       (a->ops == b->ops && a->ordinal == b->ordinal && a->ops->enter);
}

int ck_device_alloc(struct ck_device *dev, size_t len, uint64_t *mem,
		    struct ck_err *err)
{
	return ck_wrap(err, dev->ops->alloc(dev->dev, len, mem, err),
		       "device %s", dev->name);
}

int ck_device_free(struct ck_device *dev, uint64_t mem, struct ck_err *err)
{
	return ck_wrap(err, dev->ops->free(dev->dev, mem, err), "device %s",
		       dev->name);
}

static int copy_now(struct ck_device *dev, const struct ck_device_copy *copy,
		    enum ck_device_way way, struct ck_err *err)
{
	const struct ck_device_ops *ops = dev->ops;
	void *stream, *event;
	int ret = ops->stream(dev->dev, &stream, err);

	if (ret)
		return ret;
	ret = ops->copy(dev->dev, copy, 1, way, stream, err);
	if (!ret)
		ret = ops->event(dev->dev, stream, &event, err);
	if (!ret) {
		ret = ops->wait(dev->dev, event, err);
		ops->event_free(dev->dev, event);
	}
	ops->stream_free(dev->dev, stream);
	return ret;
}

int ck_device_put(struct ck_device *dev, uint64_t mem, const void *from,
		  size_t len, struct ck_err *err)
{
	const struct ck_device_copy copy = { .dst = mem,
					     .src = (uintptr_t)from,
					     .run = len };

	return ck_wrap(err, copy_now(dev, &copy, CK_DEVICE_IN, err),
		       "device %s", dev->name);
}

int ck_device_get(struct ck_device *dev, void *to, uint64_t mem, size_t len,
		  struct ck_err *err)
{
	const struct ck_device_copy copy = { .dst = (uintptr_t)to,
					     .src = mem,
					     .run = len };

	return ck_wrap(err, copy_now(dev, &copy, CK_DEVICE_OUT, err),
		       "device %s", dev->name);
}

bool ck_device_run(struct ck_device_runs *it, uint64_t *dst, uint64_t *src)
{
	const struct ck_device_copy *c = it->copy;
	uint64_t n0 = c->nax > 0 ? c->ax[0].n : 1;
	uint64_t n1 = c->nax > 1 ? c->ax[1].n : 1;

	if (it->i >= n0 || it->j >= n1)
		return false;
	*dst = c->dst;
	*src = c->src;
	if (c->nax > 0) {
		*dst += it->i * c->ax[0].dst;
		*src += it->i * c->ax[0].src;
	}
	if (c->nax > 1) {
		*dst += it->j * c->ax[1].dst;
		*src += it->j * c->ax[1].src;
	}
	if (++it->j == n1) {
		it->j = 0;
		it->i++;
	}
	return true;
}

uint64_t ck_device_copy_bytes(const struct ck_device_copy *copy)
{
	uint64_t all = copy->run;

	for (unsigned i = 0; i < copy->nax; i++)
		all *= copy->ax[i].n;
	return all;
}
