/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.c - ranks that reach each other by numbers of hosts
 *
 * Slots are a process's own, also those of the others: what another reads is
 * received into its slot.
 */
#include "core/comm/comm_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static bool set_host(struct ck_comm_place *p, const char *host, unsigned port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
				   .sin6_port = htons((uint16_t)port) };

	if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
		memcpy(&p->addr, &v4, sizeof(v4));
		p->len = sizeof(v4);
		return true;
	}
	if (inet_pton(AF_INET6, host, &v6.sin6_addr) != 1)
		return false;
	memcpy(&p->addr, &v6, sizeof(v6));
	p->len = sizeof(v6);
	return true;
}

/* HOST!PORT: no colon, which IPv6 has. */
bool ck_comm_tcp_parse(const char *text, size_t len, struct ck_comm_place *out)
{
	const char *mark = memchr(text, '!', len);
	char host[INET6_ADDRSTRLEN];
	unsigned long port;
	char *end;

	if (!mark || (size_t)(mark - text) >= sizeof(host))
		return false;
	memcpy(host, text, (size_t)(mark - text));
	host[mark - text] = '\0';
	port = strtoul(mark + 1, &end, 10);
	return end == text + len && port && port < 65536 &&
	       set_host(out, host, (unsigned)port);
}

int ck_comm_tcp_listen(struct ck_comm *c, const char *host, struct ck_err *err)
{
	struct ck_comm_place me = { .len = 0 };
	socklen_t len = sizeof(me.addr);
	unsigned port;

	if (!host || !set_host(&me, host, 0))
		return ck_fail(err, EINVAL,
			       "host \"%s\": expected the number of one, as "
			       "127.0.0.1 or ::1",
			       host ? host : "");
	c->listener = socket(me.addr.ss_family,
			     SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->listener < 0 ||
	    bind(c->listener, (const void *)&me.addr, me.len) ||
	    listen(c->listener, 1024) ||
	    getsockname(c->listener, (void *)&me.addr, &len))
		return ck_fail(err, errno, "host %s: %s", host,
			       strerror(errno));
	if (me.addr.ss_family == AF_INET)
		port = ntohs(((struct sockaddr_in *)&me.addr)->sin_port);
	else
		port = ntohs(((struct sockaddr_in6 *)&me.addr)->sin6_port);
	snprintf(c->address, sizeof(c->address), "%s:%s!%u", c->ops->kind, host,
		 port);
	return 0;
}

int ck_comm_tcp_greet(int fd)
{
	int one = 1;

	return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static int slots(struct ck_comm *c, struct ck_err *err)
{
	for (unsigned i = 0; i < c->ranks; i++) {
		c->peer[i].slots =
			ck_comm_room(c, -1, PROT_READ | PROT_WRITE, err);
		if (!c->peer[i].slots)
			return -ENOMEM;
	}
	return 0;
}

const struct ck_comm_ops ck_comm_tcp = {
	.kind = "tcp",
	.listen = ck_comm_tcp_listen,
	.parse = ck_comm_tcp_parse,
	.greet = ck_comm_tcp_greet,
	.slots = slots,
};
