/* A connection of a process to itself, and the calls that wait for its bytes. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The time limit for what must happen. */
#define DEADLINE_MS 60000
/* Connections to 127.0.0.2 are not offloaded. */
#define TCP_ONLY (INADDR_LOOPBACK + 1)

static int listener, here, there;

static void fail(const char *why)
{
	printf("FAILED %s, errno %d\n", why, errno);
	exit(1);
}

static void check(int holds, const char *what)
{
	if (!holds)
		fail(what);
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void pause_ms(long ms)
{
	struct timespec left = {ms / 1000, ms % 1000 * 1000000};

	while (nanosleep(&left, &left) < 0)
		;
}

/* Connects to a loopback address. */
static void connect_pair(in_addr_t address)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);

	at.sin_addr.s_addr = htonl(address);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	here = socket(AF_INET, SOCK_STREAM, 0);
	check(bind(listener, (struct sockaddr *)&at, len) == 0, "bind");
	check(listen(listener, 5) == 0, "listen");
	check(getsockname(listener, (struct sockaddr *)&at, &len) == 0, "getsockname");
	check(connect(here, (struct sockaddr *)&at, len) == 0, "connect");
	there = accept(listener, NULL, NULL);
	check(there >= 0, "accept");
}

/* Sends one byte, which this wait must report. */
static void one_round(int (*wait)(int fd))
{
	char byte = 'x';

	check(send(there, &byte, 1, 0) == 1, "send");
	check(wait(here) == 1, "the wait");
	check(recv(here, &byte, 1, 0) == 1, "recv");
}

static int by_poll(int fd)
{
	struct pollfd set = {fd, POLLIN, 0};

	return poll(&set, 1, -1);
}

static int by_ppoll(int fd)
{
	struct pollfd set = {fd, POLLIN, 0};

	return ppoll(&set, 1, NULL, NULL);
}

static int by_select(int fd)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return select(fd + 1, &set, NULL, NULL, NULL);
}

static int by_pselect(int fd)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return pselect(fd + 1, &set, NULL, NULL, NULL, NULL);
}

static int by_set(int fd, int (*wait)(int set, struct epoll_event *event))
{
	struct epoll_event event = {.events = EPOLLIN};
	int set = epoll_create1(0), ready;

	check(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
	ready = wait(set, &event);
	close(set);
	return ready;
}

static int epoll_for_ever(int set, struct epoll_event *event)
{
	return epoll_wait(set, event, 1, -1);
}

static int epoll_with_mask(int set, struct epoll_event *event)
{
	return epoll_pwait(set, event, 1, -1, NULL);
}

static int by_epoll(int fd)
{
	return by_set(fd, epoll_for_ever);
}

static int by_epoll_pwait(int fd)
{
	return by_set(fd, epoll_with_mask);
}

static int by_number(int fd)
{
	struct pollfd set = {fd, POLLIN, 0};

	return syscall(SYS_ppoll, &set, 1, NULL, NULL, 0);
}

static int epoll_by_number(int set, struct epoll_event *event)
{
	return syscall(SYS_epoll_pwait, set, event, 1, -1, NULL, 8);
}

static int by_numbered_epoll(int fd)
{
	return by_set(fd, epoll_by_number);
}

/* Never sleeps. */
static int by_looking(int fd)
{
	struct pollfd set = {fd, POLLIN, 0};
	int ready;

	while (!(ready = poll(&set, 1, 0)))
		;
	return ready;
}

static int (*const WAYS[])(int fd) = {by_poll,    by_ppoll, by_select,
				      by_pselect, by_epoll, by_epoll_pwait};
#define WAYS_COUNT (sizeof(WAYS) / sizeof(*WAYS))
