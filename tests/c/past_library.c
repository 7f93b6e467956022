/*
 * Connections whose descriptors are used without the C library: by io_uring, by Linux AIO and by
 * system call instructions. The first argument names the means, the second one of "number" and
 * "instruction" says how the program sets it up, the third one of "before" and "after" says when:
 * before or after the connection is made, or "receives": after it, and the client's first use is a
 * receive. The bytes go to another process and back, and each is compared.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

enum { TOTAL = 300000, PART = 70000 };

static unsigned char sent[TOTAL], got[TOTAL];
static int by_instruction, is_after, receives_first;
static const char *means;
/* The client writes a byte when its ring is there. */
static int prepared[2];

static void check(int holds, const char *what)
{
	if (holds)
		return;
	printf("FAILED %s, errno %d\n", what, errno);
	fflush(stdout);
	_exit(1);
}

/* A system call that no library sees. Returns a negative error, as the kernel does. */
static long instruction(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

static long by_number(long number, long a, long b, long c)
{
	long result = syscall(number, a, b, c, 0L, 0L, 0L);

	return result < 0 ? -errno : result;
}

static long set_up(long number, long a, long b)
{
	return by_instruction ? instruction(number, a, b, 0, 0, 0, 0) : by_number(number, a, b, 0);
}

static struct {
	int fd;
	struct io_uring_params params;
	unsigned char *submissions, *completions;
	struct io_uring_sqe *entries;
} ring;

static void make_ring(void)
{
	int access = PROT_READ | PROT_WRITE;

	ring.fd = (int)set_up(SYS_io_uring_setup, 4, (long)&ring.params);
	check(ring.fd >= 0, "io_uring_setup");
	ring.submissions = mmap(NULL, 4096, access, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
	ring.completions = mmap(NULL, 4096, access, MAP_SHARED, ring.fd, IORING_OFF_CQ_RING);
	ring.entries = mmap(NULL, 4096, access, MAP_SHARED, ring.fd, IORING_OFF_SQES);
	check(ring.entries != MAP_FAILED, "mmap");
}

static unsigned *at(unsigned char *base, unsigned offset)
{
	return (unsigned *)(base + offset);
}

/* One operation of the ring, from its submission to its completion. */
static int operate(int kind, int fd, void *bytes, unsigned len)
{
	unsigned mask = *at(ring.submissions, ring.params.sq_off.ring_mask);
	unsigned *tail = at(ring.submissions, ring.params.sq_off.tail);
	unsigned *head = at(ring.completions, ring.params.cq_off.head);
	struct io_uring_cqe *done = (void *)(ring.completions + ring.params.cq_off.cqes);
	struct io_uring_sqe *entry = &ring.entries[*tail & mask];
	int result;

	memset(entry, 0, sizeof *entry);
	entry->opcode = (unsigned char)kind;
	entry->fd = fd;
	entry->addr = (unsigned long)bytes;
	entry->len = len;
	if (kind == IORING_OP_POLL_ADD)
		entry->poll32_events = POLLIN;
	at(ring.submissions, ring.params.sq_off.array)[*tail & mask] = *tail & mask;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	check(instruction(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) == 1,
	      "io_uring_enter");
	result = done[*head & (ring.params.cq_entries - 1)].res;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return result;
}

static aio_context_t context;

static void make_context(void)
{
	check(set_up(SYS_io_setup, 8, (long)&context) == 0, "io_setup");
}

static int transfer(int kind, int fd, void *bytes, unsigned len)
{
	struct iocb block = {.aio_fildes = (unsigned)fd, .aio_lio_opcode = (unsigned short)kind};
	struct iocb *blocks[] = {&block};
	struct io_event event;

	block.aio_buf = (unsigned long)bytes;
	block.aio_nbytes = len;
	check(instruction(SYS_io_submit, (long)context, 1, (long)blocks, 0, 0, 0) == 1, "io_submit");
	check(instruction(SYS_io_getevents, (long)context, 1, 1, (long)&event, 0, 0) == 1,
	      "io_getevents");
	return (int)event.res;
}

static int is(const char *name)
{
	return !strcmp(means, name);
}

static void prepare(void)
{
	if (is("ring"))
		make_ring();
	else if (is("aio"))
		make_context();
}

/* Sends some of the bytes; `turn` selects among the calls. */
static int send_some(int fd, unsigned char *bytes, unsigned len, int turn)
{
	int ends[2];
	long moved;

	if (is("ring"))
		return operate(turn % 2 ? IORING_OP_WRITE : IORING_OP_SEND, fd, bytes, len);
	if (is("aio"))
		return transfer(IOCB_CMD_PWRITE, fd, bytes, len);
	if (is("calls"))
		return (int)send(fd, bytes, len, 0);
	if (turn % 3 == 0)
		return (int)instruction(SYS_write, fd, (long)bytes, len, 0, 0, 0);
	if (turn % 3 == 1)
		return (int)instruction(SYS_sendto, fd, (long)bytes, len, 0, 0, 0);
	check(pipe(ends) == 0, "pipe");
	check(write(ends[1], bytes, len < 4096 ? len : 4096) > 0, "write to a pipe");
	moved = instruction(SYS_splice, ends[0], 0, fd, 0, len < 4096 ? len : 4096, 0);
	close(ends[0]);
	close(ends[1]);
	return (int)moved;
}

/* Receives some of the bytes. A program that only sends past the library receives by its calls. */
static int receive_some(int fd, unsigned char *bytes, unsigned len, int turn)
{
	if (is("ring")) {
		if (turn % 3 == 0)
			check(operate(IORING_OP_POLL_ADD, fd, NULL, 0) & POLLIN, "POLL_ADD");
		return operate(turn % 2 ? IORING_OP_READ : IORING_OP_RECV, fd, bytes, len);
	}
	if (is("aio"))
		return transfer(IOCB_CMD_PREAD, fd, bytes, len);
	return (int)recv(fd, bytes, len, 0);
}

static void send_all(int fd, unsigned char *bytes, unsigned len)
{
	unsigned part = 1;

	for (int turn = 0; len > 0; turn++) {
		unsigned wanted = part < len ? part : len;
		int count = send_some(fd, bytes, wanted, turn);

		check(count > 0 && (unsigned)count <= wanted, "sending");
		bytes += count;
		len -= (unsigned)count;
		part = part * 7 % PART + 1;
	}
}

static void receive_all(int fd, unsigned char *bytes, unsigned len)
{
	for (int turn = 0; len > 0; turn++) {
		int count = receive_some(fd, bytes, len, turn);

		check(count > 0 && (unsigned)count <= len, "receiving");
		bytes += count;
		len -= (unsigned)count;
	}
}

static void fill(unsigned char *bytes, unsigned seed)
{
	for (unsigned at = 0; at < TOTAL; at++)
		bytes[at] = (unsigned char)(at * 31 + at / 251 + seed);
}

static void compare(unsigned seed, const char *what)
{
	fill(sent, seed);
	for (unsigned at = 0; at < TOTAL; at++) {
		if (sent[at] != got[at])
			printf("byte %u is %d instead of %d\n", at, got[at], sent[at]);
		check(sent[at] == got[at], what);
	}
}

/* Takes the descriptor of another process, and sends the bytes to it. */
static void send_for(pid_t owner, int fd)
{
	int process = (int)syscall(SYS_pidfd_open, owner, 0);
	int taken = (int)syscall(SYS_pidfd_getfd, process, fd, 0);

	check(taken >= 0, "pidfd_getfd");
	means = "instruction";
	send_all(taken, sent, TOTAL);
	_exit(0);
}

static void serve(int report)
{
	struct sockaddr_in service = {.sin_family = AF_INET};
	socklen_t len = sizeof service;
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd;
	char end;

	service.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(bind(listener, (struct sockaddr *)&service, len) == 0, "bind");
	check(listen(listener, 5) == 0, "listen");
	check(getsockname(listener, (struct sockaddr *)&service, &len) == 0, "getsockname");
	check(write(report, &service, sizeof service) == sizeof service, "write");
	if (!is_after)
		prepare();
	fd = accept(listener, NULL, NULL);
	check(fd >= 0, "accept");
	if (receives_first) {
		check(read(prepared[0], &end, 1) == 1, "the client's ring");
		fill(sent, 2);
		means = "calls";
		send_all(fd, sent, TOTAL);
		receive_all(fd, got, TOTAL);
		compare(1, "bytes of the client");
		return;
	}
	/* A ring that an instruction makes is noticed when the program sends. */
	if (is_after && by_instruction)
		check(send(fd, "x", 1, 0) == 1, "send");
	if (is_after)
		prepare();
	if (is_after && by_instruction)
		send_all(fd, (unsigned char *)"y", 1);
	receive_all(fd, got, TOTAL);
	compare(1, "bytes of the client");
	fill(sent, 2);
	send_all(fd, sent, TOTAL);
	check(recv(fd, &end, 1, 0) == 0, "the end of the client");
	close(fd);
}

static void use(struct sockaddr_in *service)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char first[2];

	if (!is_after)
		prepare();
	check(connect(fd, (struct sockaddr *)service, sizeof *service) == 0, "connect");
	if (is_after && by_instruction && !receives_first)
		check(recv(fd, first, 2, MSG_WAITALL) == 2 && !memcmp(first, "xy", 2), "xy");
	if (is_after)
		prepare();
	if (receives_first) {
		check(write(prepared[1], "", 1) == 1, "write");
		receive_all(fd, got, TOTAL);
		compare(2, "bytes of the server");
		fill(sent, 1);
		send_all(fd, sent, TOTAL);
		close(fd);
		return;
	}
	fill(sent, 1);
	if (is("taken")) {
		pid_t owner = getpid();
		pid_t child = fork();
		int status;

		if (child == 0)
			send_for(owner, fd);
		check(waitpid(child, &status, 0) == child && status == 0, "the other process");
	} else {
		send_all(fd, sent, TOTAL);
	}
	receive_all(fd, got, TOTAL);
	compare(2, "bytes of the server");
	check(shutdown(fd, SHUT_WR) == 0, "shutdown");
	close(fd);
}

int main(int count, char **words)
{
	struct sockaddr_in service;
	int ends[2], status;
	pid_t server;

	check(count == 4, "three arguments");
	means = words[1];
	by_instruction = !strcmp(words[2], "instruction");
	receives_first = !strcmp(words[3], "receives");
	is_after = receives_first || !strcmp(words[3], "after");
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* A transfer that never ends fails the test. */
	alarm(120);
	check(pipe(ends) == 0 && pipe(prepared) == 0, "pipe");
	server = fork();
	if (server == 0) {
		alarm(120);
		serve(ends[1]);
		return 0;
	}
	check(read(ends[0], &service, sizeof service) == sizeof service, "read");
	use(&service);
	check(waitpid(server, &status, 0) == server && status == 0, "the server");
	return 0;
}
