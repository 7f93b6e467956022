/*
 * Servers that wait for clients, or accept them, past the library that is preloaded. Each client is
 * served as over TCP: it sends its own name, ends its half of the connection, and receives an
 * answer of LEN bytes and the end. The argument names the case. The suite ends a program that
 * hangs.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CLIENTS 6
/* The number of clients that connect before the server accepts. */
#define TOGETHER 3
#define LEN (1 << 20)

static struct sockaddr_in service = {.sin_family = AF_INET};
static char answer[LEN];

static void check(int holds, const char *what)
{
	if (holds)
		return;
	printf("FAILED %s, errno %d\n", what, errno);
	exit(1);
}

static void pause_ms(long ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	nanosleep(&time, NULL);
}

/* The C library's own function. */
static void *past_library(const char *name)
{
	static void *libc;

	if (!libc)
		libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	check(libc != NULL, "dlopen");
	return dlsym(libc, name);
}

static int is_unix(int fd)
{
	int domain = 0;
	socklen_t len = sizeof domain;
	int (*ask)(int, int, int, void *, socklen_t *) = past_library("getsockopt");

	check(ask(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0, "SO_DOMAIN");
	return domain == AF_UNIX;
}

static int is_local(void)
{
	const char *protocol = getenv("SUITE_PROTOCOL");

	return protocol && !strcmp(protocol, "local");
}

/* ---- the ways of waiting and accepting ---- */

struct ring {
	int fd;
	unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
};

static struct ring *ring(void)
{
	static struct ring made;
	struct io_uring_params p = {0};
	char *sq, *cq;

	if (made.sqes)
		return &made;
	made.fd = syscall(SYS_io_uring_setup, 8, &p);
	if (made.fd < 0) {
		printf("NOT RUN: io_uring_setup: %s\n", strerror(errno));
		exit(77);
	}
	sq = mmap(NULL, p.sq_off.array + p.sq_entries * sizeof(unsigned), PROT_READ | PROT_WRITE,
		  MAP_SHARED, made.fd, IORING_OFF_SQ_RING);
	cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
		  PROT_READ | PROT_WRITE, MAP_SHARED, made.fd, IORING_OFF_CQ_RING);
	made.sqes = mmap(NULL, p.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
			 MAP_SHARED, made.fd, IORING_OFF_SQES);
	check(sq != MAP_FAILED && cq != MAP_FAILED && made.sqes != MAP_FAILED, "mmap");
	made.sq_tail = (unsigned *)(sq + p.sq_off.tail);
	made.sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
	made.sq_array = (unsigned *)(sq + p.sq_off.array);
	made.cq_head = (unsigned *)(cq + p.cq_off.head);
	made.cq_tail = (unsigned *)(cq + p.cq_off.tail);
	made.cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
	made.cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
	return &made;
}

/* Submits one request, and waits for its result. */
static int by_ring(struct io_uring_sqe request)
{
	struct ring *r = ring();
	unsigned tail = *r->sq_tail, at = tail & *r->sq_mask, head;
	int result;

	r->sqes[at] = request;
	r->sq_array[at] = at;
	__atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
	while (syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		check(errno == EINTR, "io_uring_enter");
	head = *r->cq_head;
	check(head != __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE), "no completion");
	result = r->cqes[head & *r->cq_mask].res;
	__atomic_store_n(r->cq_head, head + 1, __ATOMIC_RELEASE);
	return result;
}

static int ring_polls(int listener)
{
	int fd = -1;

	while (fd < 0) {
		check(by_ring((struct io_uring_sqe){.opcode = IORING_OP_POLL_ADD,
						    .fd = listener,
						    .poll32_events = POLLIN}) > 0,
		      "poll by io_uring");
		fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
		check(fd >= 0 || errno == EAGAIN, "accept");
	}
	fcntl(fd, F_SETFL, 0);
	return fd;
}

static int ring_accepts(int listener)
{
	return by_ring((struct io_uring_sqe){.opcode = IORING_OP_ACCEPT, .fd = listener});
}

static int accepts_past(int listener)
{
	int (*call)(int, void *, void *) = past_library("accept");

	fcntl(listener, F_SETFL, 0);
	return call(listener, NULL, NULL);
}

static int polls_past(int listener)
{
	int (*call)(struct pollfd *, nfds_t, int) = past_library("poll");
	struct pollfd set = {.fd = listener, .events = POLLIN};
	int fd = -1;

	while (fd < 0) {
		check(call(&set, 1, -1) == 1, "poll");
		fd = accept(listener, NULL, NULL);
		check(fd >= 0 || errno == EAGAIN, "accept");
	}
	return fd;
}

static int polls_and_accepts_past(int listener)
{
	struct pollfd set = {.fd = listener, .events = POLLIN};
	int (*call)(int, void *, void *) = past_library("accept");
	int fd = -1;

	while (fd < 0) {
		check(poll(&set, 1, -1) == 1, "poll");
		fd = call(listener, NULL, NULL);
		check(fd >= 0 || errno == EAGAIN, "accept");
	}
	return fd;
}

/* A server that uses the library, and is slow. It must get offloaded connections only. */
static int is_slow(int listener)
{
	struct pollfd set = {.fd = listener, .events = POLLIN};
	int fd;

	check(poll(&set, 1, -1) == 1, "poll");
	pause_ms(300);
	fd = accept(listener, NULL, NULL);
	check(fd >= 0 && is_unix(fd), "an offloaded connection");
	return fd;
}

static const struct way {
	const char *name;
	int (*accept)(int listener);
	int is_deferred, is_blocking;
} WAYS[] = {
	{"ring_polls", ring_polls, 0, 0},
	{"ring_accepts", ring_accepts, 0, 0},
	{"accepts_past", accepts_past, 0, 1},
	{"polls_past", polls_past, 0, 0},
	{"polls_and_accepts_past", polls_and_accepts_past, 0, 0},
	{"deferred", accepts_past, 1, 1},
	{"is_slow", is_slow, 0, 0},
};

/* ---- the clients and the server ---- */

static int connected(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	check(connect(fd, (struct sockaddr *)&service, sizeof service) == 0, "connect");
	return fd;
}

static void talk(int fd)
{
	struct sockaddr_in name;
	socklen_t len = sizeof name;
	static char got[LEN + 1];
	size_t count = 0;
	ssize_t more;

	check(getsockname(fd, (struct sockaddr *)&name, &len) == 0, "getsockname");
	check(send(fd, &name, sizeof name, 0) == sizeof name, "send");
	check(shutdown(fd, SHUT_WR) == 0, "shutdown");
	while ((more = recv(fd, got + count, sizeof got - count, 0)) > 0)
		count += more;
	check(more == 0, "the end of the answer");
	check(count == LEN && !memcmp(got, answer, LEN), "the answer");
	close(fd);
}

static void serve(int fd)
{
	struct sockaddr_in name, peer;
	socklen_t len = sizeof peer;
	char more;

	check(fd >= 0, "accept");
	check(recv(fd, &name, sizeof name, MSG_WAITALL) == sizeof name, "the client's name");
	check(getpeername(fd, (struct sockaddr *)&peer, &len) == 0, "getpeername");
	/* The socket of an SDP client keeps its port while the client is offered over TCP. */
	check(peer.sin_family == AF_INET && peer.sin_addr.s_addr == name.sin_addr.s_addr &&
		      (peer.sin_port == name.sin_port || !is_local()),
	      "the address of the client");
	check(recv(fd, &more, 1, 0) == 0, "the end of the client's bytes");
	for (size_t sent = 0; sent < LEN;) {
		ssize_t count = send(fd, answer + sent, LEN - sent, 0);

		check(count > 0, "send");
		sent += count;
	}
	close(fd);
}

static int listening(const struct way *way)
{
	int listener = socket(AF_INET, SOCK_STREAM | (way->is_blocking ? 0 : SOCK_NONBLOCK), 0);
	socklen_t len = sizeof service;
	int seconds = 60;

	service.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(bind(listener, (struct sockaddr *)&service, len) == 0, "bind");
	if (way->is_deferred)
		setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
	check(listen(listener, 20) == 0, "listen");
	check(getsockname(listener, (struct sockaddr *)&service, &len) == 0, "getsockname");
	return listener;
}

static void be_clients(void)
{
	int together[TOGETHER];

	for (int at = 0; at < TOGETHER; at++)
		together[at] = connected();
	for (int at = 0; at < TOGETHER; at++)
		talk(together[at]);
	for (int at = TOGETHER; at < CLIENTS; at++)
		talk(connected());
	exit(0);
}

int main(int count, char **arguments)
{
	const struct way *way = NULL;
	int listener, status;
	pid_t clients;

	for (size_t at = 0; at < sizeof WAYS / sizeof *WAYS; at++)
		if (count > 1 && !strcmp(arguments[1], WAYS[at].name))
			way = &WAYS[at];
	check(way != NULL, "the name of a case");
	for (size_t at = 0; at < LEN; at++)
		answer[at] = at * 7 + at / 251;
	if (way->accept == ring_polls || way->accept == ring_accepts)
		ring();
	listener = listening(way);
	clients = fork();
	if (clients == 0) {
		close(listener);
		be_clients();
	}
	for (int at = 0; at < CLIENTS; at++)
		serve(way->accept(listener));
	check(waitpid(clients, &status, 0) == clients && status == 0, "the clients");
	return 0;
}
