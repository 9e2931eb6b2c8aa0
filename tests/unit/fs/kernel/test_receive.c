/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/kernel/receive.h"

#include "fs/kernel/buf.h"
#include "fs/kernel/kernel.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Messages with bounds, as the device has requests. */
#define HEAD 80
#define WRITE 16
#define SETXATTR 21
#define BUF (FS_MAX_IO + 4096)
#define LARGE 150000 /* what such a socket takes at once */

#define HUGE (256 << 10) /* what workers then look for more of */

static unsigned char sent[HEAD + HUGE];

static void open_pair(int p[2])
{
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, p), 0);
	for (size_t i = 0; i < sizeof(sent); i++)
		sent[i] = (unsigned char)(i * 31 >> 3);
}

static void send_request(int fd, uint32_t opcode, size_t len)
{
	uint32_t in[] = { (uint32_t)len, opcode };

	memcpy(sent, in, sizeof(in));
	cr_assert_eq(send(fd, sent, len, 0), (ssize_t)len);
}

Test(receive, what_is_written_begins_on_a_page)
{
	static const size_t lens[] = { 1, 80, 4096, LARGE };
	char *buf = malloc(BUF);
	const char *got;
	int p[2];

	open_pair(p);
	for (size_t i = 0; i < 4; i++) {
		send_request(p[0], WRITE, HEAD + lens[i]);
		cr_assert_eq(fs_receive(p[1], buf, BUF),
			     (ssize_t)(HEAD + lens[i]));
		cr_assert_eq(memcmp(buf, sent, HEAD), 0);
		got = fs_receive_payload(buf + HEAD);
		cr_assert_eq((uintptr_t)got % 4096, 0);
		cr_assert_eq(memcmp(got, sent + HEAD, lens[i]), 0);
	}
	close(p[0]);
	close(p[1]);
	free(buf);
}

Test(receive, other_requests_are_whole_and_elsewhere_is_elsewhere)
{
	static const size_t lens[] = { 40, 79, 80, 81, 4000, LARGE };
	char *buf = malloc(BUF), other[1];
	int p[2];

	open_pair(p);
	for (size_t i = 0; i < 6; i++) {
		send_request(p[0], WRITE, HEAD + 5);
		fs_receive(p[1], buf, BUF);
		cr_assert_eq(fs_receive_payload(other), other);
		send_request(p[0], SETXATTR, lens[i]);
		cr_assert_eq(fs_receive(p[1], buf, BUF), (ssize_t)lens[i]);
		cr_assert_eq(memcmp(buf, sent, lens[i]), 0);
		cr_assert_eq(fs_receive_payload(buf + HEAD), buf + HEAD);
	}
	close(p[0]);
	close(p[1]);
	free(buf);
}

Test(receive, what_fails_is_told)
{
	char *buf = malloc(BUF);
	int p[2];

	open_pair(p);
	close(p[0]);
	cr_assert_eq(fs_receive(p[1], buf, BUF), 0);
	close(p[1]);
	cr_assert_eq(fs_receive(p[1], buf, BUF), -1);
	cr_assert_eq(errno, EBADF);
	free(buf);
}

#define REQUESTS 1000

/* One that serves as a worker does; it ends with the first that is empty. */
static void *serve(void *ctx)
{
	const int *p = ctx;
	char *buf = malloc(BUF);
	ssize_t n;

	while ((n = fs_receive(p[1], buf, BUF)) > HEAD) {
		const char *got = fs_receive_payload(buf + HEAD);

		if (memcmp(got, sent + HEAD, (size_t)n - HEAD) != 0)
			break;
		if (send(p[1], "", 1, 0) != 1)
			break;
	}
	free(buf);
	return (void *)(uintptr_t)(n == HEAD);
}

/* The room needs a right; without it the requests are of the other kind. */
static size_t make_room(int fd)
{
	int room = 1 << 20;

	return setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)) ?
		       LARGE :
		       HUGE;
}

Test(receive, two_writers_are_both_served)
{
	uint32_t in[] = { 0, WRITE };
	pthread_t t[2];
	int p[2][2];
	size_t len = 0;
	void *good;
	char c;

	for (int k = 0; k < 2; k++) {
		open_pair(p[k]);
		len = HEAD + make_room(p[k][0]);
		pthread_create(&t[k], NULL, serve, p[k]);
	}
	memcpy(sent, in, sizeof(in));
	for (int i = 0; i < REQUESTS; i++) {
		for (int k = 0; k < 2; k++)
			cr_assert_eq(send(p[k][0], sent, len, 0), (ssize_t)len);
		for (int k = 0; k < 2; k++)
			cr_assert_eq(recv(p[k][0], &c, 1, 0), 1);
	}
	for (int k = 0; k < 2; k++) {
		cr_assert_eq(send(p[k][0], sent, HEAD, 0), HEAD);
		pthread_join(t[k], &good);
		cr_assert(good);
		close(p[k][0]);
		close(p[k][1]);
	}
	fs_buf_drain();
}
