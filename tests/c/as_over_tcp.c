/*
 * Offloaded connections in programs that rely on details of TCP sockets. The argument names the
 * case.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sockaddr_in service = {.sin_family = AF_INET};

static void check(int holds, const char *what)
{
	if (holds)
		return;
	printf("FAILED %s, errno %d\n", what, errno);
	exit(1);
}

static int listening(void)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof service;

	service.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	service.sin_port = 0;
	check(bind(listener, (struct sockaddr *)&service, len) == 0, "bind");
	check(listen(listener, 5) == 0, "listen");
	check(getsockname(listener, (struct sockaddr *)&service, &len) == 0, "getsockname");
	return listener;
}

static int connected(void)
{
	int client = socket(AF_INET, SOCK_STREAM, 0);

	check(connect(client, (struct sockaddr *)&service, sizeof service) == 0, "connect");
	return client;
}

/* Returns the answer of the kernel, which the library does not see. */
static int in_kernel(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof value;
	register long pointer __asm__("r10") = (long)&value;
	register long room __asm__("r8") = (long)&len;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"((long)SYS_getsockopt), "D"((long)fd), "S"((long)level),
			   "d"((long)name), "r"(pointer), "r"(room)
			 : "rcx", "r11", "memory");
	check(result == 0, "getsockopt by the kernel");
	return value;
}

/* `fclose` closes the number without a call of `close`. The next socket has the same number. */
static void stream_closed(void)
{
	int one = 1, listener = listening(), client = connected(), other;
	struct sockaddr_in own = service, from;
	socklen_t len = sizeof own;
	char byte;

	check(fclose(fdopen(client, "r+")) == 0, "fclose");
	other = socket(AF_INET, SOCK_DGRAM, 0);
	check(other == client, "the number is free");
	own.sin_port = 0;
	check(bind(other, (struct sockaddr *)&own, sizeof own) == 0, "bind");
	check(getsockname(other, (struct sockaddr *)&own, &len) == 0, "getsockname");
	check(sendto(other, "x", 1, 0, (struct sockaddr *)&own, len) == 1, "sendto");
	len = sizeof from;
	check(recvfrom(other, &byte, 1, 0, (struct sockaddr *)&from, &len) == 1, "recvfrom");
	check(len == sizeof from && from.sin_port == own.sin_port, "the sender's address");
	close(other);

	client = connected();
	check(fclose(fdopen(client, "r+")) == 0, "fclose");
	other = socket(AF_INET, SOCK_STREAM, 0);
	check(other == client, "the number is free again");
	check(setsockopt(other, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "setsockopt");
	check(in_kernel(other, IPPROTO_TCP, TCP_NODELAY) == 1, "the option is set");
	close(other);
	close(listener);
}

static int descriptors(void)
{
	DIR *all = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(all))
		count++;
	closedir(all);
	return count;
}

/* A peer may attach descriptors to the bytes. No program expects them from TCP. */
static void descriptors_passed(void)
{
	int listener = listening(), client = connected(), server = accept(listener, NULL, NULL);
	int before = descriptors();
	char byte = 'x', room[CMSG_SPACE(sizeof(int))] = {0}, name[128];
	struct iovec part = {&byte, 1};
	struct msghdr to = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room,
	};
	struct cmsghdr *rights = CMSG_FIRSTHDR(&to);

	for (int many = 0; many < 2; many++) {
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(rights), &listener, sizeof(int));
		check(sendmsg(client, &to, 0) == 1, "sendmsg");

		struct mmsghdr from = {.msg_hdr = to};

		from.msg_hdr.msg_name = name;
		from.msg_hdr.msg_namelen = sizeof name;
		byte = 0;
		if (many) {
			check(recvmmsg(server, &from, 1, 0, NULL) == 1, "recvmmsg");
			check(from.msg_len == 1, "the length");
		} else {
			check(recvmsg(server, &from.msg_hdr, 0) == 1, "recvmsg");
		}
		check(byte == 'x', "the byte");
		check(from.msg_hdr.msg_name == name && from.msg_hdr.msg_namelen == 0, "no name");
		check(from.msg_hdr.msg_control == room, "the pointer is the caller's");
		check(from.msg_hdr.msg_controllen == 0, "no control data");
		check(from.msg_hdr.msg_flags == 0, "no flags");
		check(descriptors() == before, "no descriptor");
		byte = 'x';
	}
	check(recv(server, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "no more bytes");
}

static void ignore(int signal)
{
	(void)signal;
}

/* A receive of no bytes waits for a byte. Neither the timeout nor a signal makes it fail. */
static void nothing_received(void)
{
	int listener = listening(), client = connected(), server = accept(listener, NULL, NULL);
	int flags[] = {0, MSG_PEEK, MSG_WAITALL, MSG_TRUNC, MSG_PEEK | MSG_WAITALL};
	struct itimerval alarm = {.it_value = {.tv_usec = 20000}}, none = {0};
	struct timeval limit = {.tv_usec = 20000};
	struct sigaction action = {.sa_handler = ignore};
	struct msghdr message = {0};
	struct mmsghdr messages[2] = {0};
	struct iovec part = {NULL, 2};
	char byte;

	sigaction(SIGALRM, &action, NULL);
	setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	for (size_t at = 0; at < sizeof flags / sizeof *flags; at++) {
		int now = flags[at] | MSG_DONTWAIT;

		check(recv(client, &byte, 0, flags[at]) == 0, "recv waits");
		check(recvmsg(client, &message, flags[at]) == 0, "recvmsg waits");
		check(recvmmsg(client, messages, 2, flags[at], NULL) == 2, "recvmmsg waits");
		check(recvmmsg(client, messages, 2, now, NULL) < 0 && errno == EAGAIN,
		      "recvmmsg does not wait");
		check(recv(client, &byte, 0, now) < 0 && errno == EAGAIN, "recv does not wait");
	}
	memset(&limit, 0, sizeof limit);
	setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	/* The signal is repeated, because it may be sent before the call sleeps. */
	alarm.it_interval = alarm.it_value;
	setitimer(ITIMER_REAL, &alarm, NULL);
	check(recv(client, &byte, 0, 0) == 0, "a signal ends the wait");
	setitimer(ITIMER_REAL, &none, NULL);
	fcntl(client, F_SETFL, O_NONBLOCK);
	check(recv(client, &byte, 0, 0) < 0 && errno == EAGAIN, "the socket does not wait");
	fcntl(client, F_SETFL, 0);
	check(send(server, "x", 1, 0) == 1, "send");
	check(recv(client, &byte, 0, 0) == 0, "a byte ends the wait");
	check(recvmmsg(client, messages, 2, 0, NULL) == 2, "a byte ends both waits");
	check(recv(client, &byte, 1, 0) == 1 && byte == 'x', "the byte remains");
	check(send(server, "abc", 3, 0) == 3, "send");
	messages[1].msg_hdr.msg_iov = &part;
	messages[1].msg_hdr.msg_iovlen = 1;
	check(recvmmsg(client, messages, 2, MSG_TRUNC, NULL) == 2, "recvmmsg discards");
	check(messages[0].msg_len == 0 && messages[1].msg_len == 2, "the lengths");
	check(recv(client, &byte, 1, 0) == 1 && byte == 'c', "the last byte");
	/* A list of this length is refused before it is read. */
	message.msg_iovlen = 1 << 20;
	check(recvmsg(client, &message, 0) < 0 && errno == EMSGSIZE, "too many parts");
}

extern void *__libc_malloc(size_t len);
extern void *__libc_calloc(size_t count, size_t len);
extern void *__libc_realloc(void *block, size_t len);
extern void __libc_free(void *block);

/* The number of calls of the allocator by a handler, in memory that the parent shares. */
static int *uses;
static volatile sig_atomic_t in_handler;

static void count_use(void)
{
	if (in_handler)
		++*uses;
}

void *malloc(size_t len)
{
	count_use();
	return __libc_malloc(len);
}

void *calloc(size_t count, size_t len)
{
	count_use();
	return __libc_calloc(count, len);
}

void *realloc(void *block, size_t len)
{
	count_use();
	return __libc_realloc(block, len);
}

void free(void *block)
{
	if (block)
		count_use();
	__libc_free(block);
}

static void end(int signal)
{
	(void)signal;
	in_handler = 1;
	_exit(7);
}

/* A handler may have interrupted the allocator, and may end the process all the same. */
static void handler_ends(void)
{
	int status = 0, shared = MAP_SHARED | MAP_ANONYMOUS;

	uses = mmap(NULL, sizeof *uses, PROT_READ | PROT_WRITE, shared, -1, 0);
	check(uses != MAP_FAILED, "mmap");

	pid_t child = fork();

	if (child == 0) {
		int listener = listening();

		connected();
		check(accept(listener, NULL, NULL) >= 0, "accept");
		signal(SIGUSR1, end);
		raise(SIGUSR1);
		exit(1);
	}
	check(waitpid(child, &status, 0) == child, "waitpid");
	check(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the status");
	check(*uses == 0, "the allocator is not used");
}

static int joined_late = -1;
static pthread_t receiver, poller;

static void *receive(void *unused)
{
	char byte;

	recv(joined_late, &byte, 1, 0);
	return unused;
}

static void *await_event(void *unused)
{
	struct pollfd event = {.fd = joined_late, .events = POLLIN};

	poll(&event, 1, -1);
	return receive(unused);
}

/* Runs after the destructors of all libraries. */
static void join_late(void *unused)
{
	(void)unused;
	if (joined_late < 0)
		return;
	shutdown(joined_late, SHUT_RDWR);
	pthread_join(receiver, NULL);
	pthread_join(poller, NULL);
}

extern int __cxa_atexit(void (*handler)(void *), void *argument, void *library);

/* Runs before the loader registers the destructors of the libraries, which run in reverse order. */
static void before_libraries(void)
{
	__cxa_atexit(join_late, NULL, NULL);
}

__attribute__((section(".preinit_array"), used)) static void (*first)(void) = before_libraries;

/* At the exit, a destructor ends the connection of its threads and waits for them. */
static void joined_at_exit(void)
{
	int listener = listening(), client = connected();

	check(accept(listener, NULL, NULL) >= 0, "accept");
	joined_late = client;
	check(pthread_create(&receiver, NULL, receive, NULL) == 0, "pthread_create");
	check(pthread_create(&poller, NULL, await_event, NULL) == 0, "pthread_create");
	/* The threads are in their calls soon; the result does not depend on it. */
	usleep(50000);
	/* A destructor that waits for ever fails the test. */
	alarm(60);
}

static int last_client;

static void *send_later(void *unused)
{
	(void)unused;
	usleep(100000);
	check(send(last_client, "later", 5, 0) == 5, "send");
	return NULL;
}

static void kill_thread(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = 4, .filter = code};

	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS");
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0, "PR_SET_SECCOMP");
	syscall(SYS_getpgid, 0);
}

static void end_first_thread(void)
{
	pthread_exit(NULL);
}

static void end_before_another(void)
{
	pthread_t later;

	check(pthread_create(&later, NULL, send_later, NULL) == 0, "pthread_create");
	pthread_exit(NULL);
}

static void *connect_client(void *unused)
{
	(void)unused;
	last_client = connected();
	return NULL;
}

/* The thread that connects: the first, or another one, which ends. */
enum connector { by_first, by_another };

/* Ends the first thread, and returns the status of its process. */
static int status_of_client(void (*end)(void), enum connector connector)
{
	pthread_t other;
	char got[9];
	int listener = listening(), server, status;
	ssize_t count, heard = 0;
	pid_t client = fork();

	if (client == 0) {
		close(listener);
		if (connector == by_first) {
			connect_client(NULL);
		} else {
			check(pthread_create(&other, NULL, connect_client, NULL) == 0, "pthread_create");
			check(pthread_join(other, NULL) == 0, "pthread_join");
		}
		check(send(last_client, "said", 4, 0) == 4, "send");
		end();
		_exit(99);
	}
	server = accept(listener, NULL, NULL);
	check(server >= 0 && recv(server, got, 4, MSG_WAITALL) == 4, "recv");
	/* An end or a reset follows the bytes of all threads. */
	while ((count = recv(server, got, sizeof got, 0)) > 0)
		heard += count;
	check(heard == (end == end_before_another ? 5 : 0), "the bytes of the other thread");
	/* A process that stays fails the test. */
	alarm(60);
	check(waitpid(client, &status, 0) == client, "waitpid");
	close(listener);
	close(server);
	return status;
}

/* A process ends with the last thread of its program, and as the first thread has ended. */
static void last_thread(void)
{
	for (int connector = by_first; connector <= by_another; connector++) {
		int status = status_of_client(kill_thread, connector);

		check(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "killed");
		status = status_of_client(end_first_thread, connector);
		check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "ended");
		status = status_of_client(end_before_another, connector);
		check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "ended before another");
	}
}

int main(int count, char **words)
{
	const char *wanted = count > 1 ? words[1] : "";

	if (!strcmp(wanted, "stream_closed"))
		stream_closed();
	else if (!strcmp(wanted, "descriptors_passed"))
		descriptors_passed();
	else if (!strcmp(wanted, "nothing_received"))
		nothing_received();
	else if (!strcmp(wanted, "handler_ends"))
		handler_ends();
	else if (!strcmp(wanted, "last_thread"))
		last_thread();
	else if (!strcmp(wanted, "joined_at_exit"))
		joined_at_exit();
	else
		check(0, "there is no such case");
	return 0;
}
