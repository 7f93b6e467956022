/* Walks all calls of sockets with a connection of the process to itself. See scarce.h. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "scarce.h"

#define MESSAGE_LEN 3000

/* The ends of a connection, -1 without one. */
struct connection {
	int here, there;
};

/* Returns true for an error of a call that lacks a descriptor: EMFILE, ENFILE if the host has none,
 * or the EBADF of dup2 for a number beyond the limit. */
static int is_for_lack_of_descriptors(const char *call)
{
	if (scarce_kind == SCARCE_DESCRIPTORS)
		return errno == EMFILE || (errno == EBADF && strcmp(call, "dup2") == 0);
	return errno == EMFILE || errno == ENFILE;
}

/* Returns the result of a call. A failure is recorded. */
static long result(const char *call, long value)
{
	if (value >= 0)
		return value;
	scarce_refused(call, errno);
	if (scarce_kind >= SCARCE_DESCRIPTORS && !is_for_lack_of_descriptors(call)) {
		dprintf(1, "CALL %s\n", call);
		scarce_fault("a call has the wrong error");
	}
	return value;
}

/* Returns a socket, -1 if there is no descriptor. */
static int make_socket(int type)
{
	int fd = (int)result("socket", socket(AF_INET, type, 0));

	if (fd < 0 && scarce_kind < SCARCE_DESCRIPTORS)
		scarce_fault("a call without an offload protocol");
	return fd;
}

/* Accepts a connection that is waiting. It still waits after an accept without a descriptor. */
static int accept_waiting(int listener)
{
	int fd = (int)result("accept", accept(listener, NULL, NULL));

	if (fd >= 0 || scarce_kind < SCARCE_DESCRIPTORS)
		return fd;
	scarce_end_limit();
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		scarce_fault("a connection was lost for lack of a descriptor");
	return fd;
}

static struct sockaddr_in loopback(in_port_t port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = port};

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return at;
}

/* Returns a listener and its port; -1 if a call has failed. */
static int listen_somewhere(in_port_t *port)
{
	struct sockaddr_in at = loopback(0);
	socklen_t len = sizeof(at);
	int fd = make_socket(SOCK_STREAM), on = 1;

	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, (struct sockaddr *)&at, len))
		scarce_fault("a call without an offload protocol");
	if (result("listen", listen(fd, 5)) == 0 &&
	    result("getsockname", getsockname(fd, (struct sockaddr *)&at, &len)) == 0) {
		*port = at.sin_port;
		return fd;
	}
	close(fd);
	return -1;
}

static int wait_for(int fd, short events)
{
	struct pollfd set = {fd, events, 0};

	return (int)result("poll", poll(&set, 1, 20000)) == 1;
}

static int connect_without_blocking(in_port_t port)
{
	struct sockaddr_in at = loopback(port);
	int fd = make_socket(SOCK_STREAM | SOCK_NONBLOCK), error = 0;
	socklen_t len = sizeof(error);

	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&at, sizeof(at)) && errno != EINPROGRESS) {
		result("connect without blocking", -1);
		close(fd);
		return -1;
	}
	if (!wait_for(fd, POLLOUT))
		scarce_fault("a connect has no end");
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
	fcntl(fd, F_SETFL, 0);
	if (error == 0)
		return fd;
	errno = error;
	result("connect without blocking", -1);
	close(fd);
	return -1;
}

static int connect_blocking(in_port_t port)
{
	struct sockaddr_in at = loopback(port);
	int fd = make_socket(SOCK_STREAM);

	if (fd < 0)
		return -1;
	if (result("connect", connect(fd, (struct sockaddr *)&at, sizeof(at))) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Fills `text` with bytes, sends them, and verifies them at the other end. Returns 0 on errors. */
static int transfer(const char *call, int from, int to)
{
	static char sent[MESSAGE_LEN], received[MESSAGE_LEN];
	size_t got = 0;

	for (size_t at = 0; at < sizeof(sent); at++)
		sent[at] = (char)(at * 31 + (size_t)from);
	if (result(call, send(from, sent, sizeof(sent), MSG_NOSIGNAL)) != sizeof(sent))
		return 0;
	while (got < sizeof(received)) {
		ssize_t part;

		if (!wait_for(to, POLLIN))
			scarce_fault("bytes that were sent do not arrive");
		part = result("recv", recv(to, received + got, sizeof(received) - got, 0));
		if (part <= 0)
			return 0;
		got += (size_t)part;
	}
	if (memcmp(sent, received, sizeof(sent)))
		scarce_fault("wrong bytes");
	return 1;
}

static void by_vector(struct connection *pair)
{
	char bytes[8] = "1234567", got[8] = "";
	struct iovec parts[] = {{bytes, 3}, {bytes + 3, 5}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};

	if (result("sendmsg", sendmsg(pair->here, &message, MSG_NOSIGNAL)) != 8)
		return;
	parts[0].iov_base = got;
	parts[1].iov_base = got + 3;
	if (result("readv", readv(pair->there, parts, 2)) > 0 && got[0] != '1')
		scarce_fault("wrong bytes");
}

static void by_sets(struct connection *pair)
{
	struct epoll_event event = {.events = EPOLLIN};
	int set = (int)result("epoll_create1", epoll_create1(EPOLL_CLOEXEC));
	struct timeval limit = {20, 0};
	fd_set readable;
	char byte = 'x';

	if (set < 0)
		return;
	if (result("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, pair->there, &event))) {
		close(set);
		return;
	}
	if (result("write", write(pair->here, &byte, 1)) == 1) {
		FD_ZERO(&readable);
		FD_SET(pair->there, &readable);
		if (result("epoll_wait", epoll_wait(set, &event, 1, 20000)) == 0 ||
		    result("select", select(pair->there + 1, &readable, NULL, NULL, &limit)) == 0)
			scarce_fault("a wait has no end");
		result("read", read(pair->there, &byte, 1));
	}
	result("epoll_ctl", epoll_ctl(set, EPOLL_CTL_DEL, pair->there, &event));
	close(set);
}

/* A child sends a byte. Its memory is as scarce as the parent's. */
static void by_a_child(struct connection *pair)
{
	pid_t child = (pid_t)result("fork", fork());
	char byte = 'c';

	if (child == 0)
		_exit(send(pair->here, &byte, 1, MSG_NOSIGNAL) != 1);
	if (child > 0) {
		int status;

		if (waitpid(child, &status, 0) != child || WIFSIGNALED(status))
			scarce_fault("a child died");
		if (status == 0 && !wait_for(pair->there, POLLIN))
			scarce_fault("a byte of a child does not arrive");
		if (status == 0)
			result("recv from a child", recv(pair->there, &byte, 1, 0));
	}
}

static void by_duplicates(struct connection *pair)
{
	int copy = (int)result("dup", dup(pair->here));

	if (copy < 0)
		return;
	if (result("dup2", dup2(pair->there, 200)) == 200) {
		transfer("send by a duplicate", copy, 200);
		close(200);
	}
	close(copy);
}

static void names_and_options(struct connection *pair)
{
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	int on = 1;

	result("getpeername", getpeername(pair->here, (struct sockaddr *)&at, &len));
	len = sizeof(on);
	result("setsockopt", setsockopt(pair->here, IPPROTO_TCP, TCP_NODELAY, &on, len));
	result("setsockopt", setsockopt(pair->there, IPPROTO_TCP, TCP_NODELAY, &on, len));
	result("getsockopt", getsockopt(pair->there, SOL_SOCKET, SO_RCVBUF, &on, &len));
}

/*
 * Waits until the listener has the connection. Returns 0 if the acceptor had no memory for it: its
 * program does not see the connection, and the initiator's has an error.
 */
static int arrives(int listener, int here)
{
	struct pollfd ends[] = {{listener, POLLIN, 0}, {here, POLLIN, 0}};
	char byte;

	if (result("poll", poll(ends, 2, 20000)) == 0)
		scarce_fault("a connection does not arrive");
	if (ends[0].revents == 0 && ends[1].revents != 0 &&
	    result("connection without an acceptor", recv(here, &byte, 1, 0)) >= 0)
		scarce_fault("a connection that nobody accepts has no error");
	return ends[0].revents != 0;
}

/* One connection from its begin to its end. */
static void use(int listener, int here)
{
	struct connection pair = {.here = here};
	char byte;

	if (here < 0)
		return;
	if (!arrives(listener, here)) {
		close(here);
		return;
	}
	pair.there = accept_waiting(listener);
	if (pair.there >= 0) {
		names_and_options(&pair);
		if (transfer("send", pair.here, pair.there) &&
		    transfer("send of the acceptor", pair.there, pair.here)) {
			by_vector(&pair);
			by_sets(&pair);
			by_duplicates(&pair);
			by_a_child(&pair);
		}
		result("shutdown", shutdown(pair.here, SHUT_WR));
		if (wait_for(pair.there, POLLIN))
			result("recv at the end", recv(pair.there, &byte, 1, 0));
		result("close", close(pair.there));
	}
	result("close", close(pair.here));
}

static void walk(void)
{
	in_port_t port;
	int listener = listen_somewhere(&port);

	if (listener < 0)
		return;
	use(listener, connect_blocking(port));
	use(listener, connect_without_blocking(port));
	close(listener);
}

int main(int argc, char **argv)
{
	return scarce_main(argc, argv, walk);
}
