/*
 * An offload protocol for opsrun: connections within the host over AF_UNIX sockets.
 *
 *   make PROGRAMS=ops_unix.so
 *   echo "protocol $PWD/ops_unix.so priority=5" >rules
 *   opsrun --rules rules PROGRAM
 *
 * A service is an abstract name that contains its address. A client binds its socket to a name with
 * the addresses of both ends, which the server reads when it accepts. Any process of the host may
 * take such a name: a protocol for use would check who its peers are.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include <ops_protocol.h>

/* The addresses in the name of a client's socket. */
struct ends {
	struct sockaddr_in6 client, service;
};

static const char PREFIX[] = "ops-unix";

/* Makes an abstract name of the prefix, a letter and bytes. */
static socklen_t name_of(struct sockaddr_un *name, char kind, const void *bytes, size_t len)
{
	memset(name, 0, sizeof(*name));
	name->sun_family = AF_UNIX;
	memcpy(name->sun_path + 1, PREFIX, sizeof(PREFIX));
	name->sun_path[1 + sizeof(PREFIX)] = kind;
	memcpy(name->sun_path + 2 + sizeof(PREFIX), bytes, len);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 2 + sizeof(PREFIX) + len);
}

/* The part of an address that is in a name. The rest of an IPv4 address is zero. */
static struct sockaddr_in6 part_of(const struct sockaddr_storage *address)
{
	struct sockaddr_in6 part;

	memcpy(&part, address, sizeof(part));
	return part;
}

/* An object of this protocol is no more than the number of its descriptor, which is not 0. */
static int fd_of(void *object)
{
	return (int)(intptr_t)object;
}

static int make_object(void **object, int *descriptor)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	*object = (void *)(intptr_t)fd;
	*descriptor = fd;
	return fd < 0 ? -errno : 0;
}

/* Connects to the service of this address, or of all addresses of its family. */
static int connect_to(int fd, struct sockaddr_in6 service)
{
	struct sockaddr_un name;
	socklen_t len = name_of(&name, 's', &service, sizeof(service));

	if (!connect(fd, (struct sockaddr *)&name, len))
		return 0;
	if (service.sin6_family == AF_INET)
		((struct sockaddr_in *)&service)->sin_addr.s_addr = 0;
	else
		service.sin6_addr = in6addr_any;
	len = name_of(&name, 's', &service, sizeof(service));
	if (!connect(fd, (struct sockaddr *)&name, len))
		return 0;
	/* The service has a full backlog, or is not offered: TCP is used. */
	return errno == EAGAIN ? -ECONNREFUSED : -errno;
}

static int unix_connect(const struct ops_target *to, void **connection, int *descriptor)
{
	struct ends ends = { part_of(&to->local), part_of(&to->service) };
	struct sockaddr_un name;
	socklen_t len = name_of(&name, 'c', &ends, sizeof(ends));
	int result = make_object(connection, descriptor);

	if (result)
		return result;
	if (bind(*descriptor, (struct sockaddr *)&name, len))
		result = -errno;
	else
		result = connect_to(*descriptor, part_of(&to->mapped));
	if (result)
		close(*descriptor);
	return result;
}

/* A connection of AF_UNIX exists when connect() has returned. */
static int unix_connected(void *connection)
{
	(void)connection;
	return 1;
}

static int unix_listen(const struct sockaddr_storage *at, int backlog, void **listener,
		       int *descriptor)
{
	struct sockaddr_in6 service = part_of(at);
	struct sockaddr_un name;
	socklen_t len = name_of(&name, 's', &service, sizeof(service));
	int result = make_object(listener, descriptor);

	if (result)
		return result;
	if (bind(*descriptor, (struct sockaddr *)&name, len) || listen(*descriptor, backlog)) {
		result = -errno;
		close(*descriptor);
	}
	return result;
}

static int unix_accept(void *listener, void **connection, int *descriptor,
		       struct ops_names *names)
{
	struct sockaddr_un name, expected;
	socklen_t len = sizeof(name);
	struct ends ends;
	int fd = accept4(fd_of(listener), (struct sockaddr *)&name, &len,
			 SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return errno == EAGAIN ? 0 : -errno;
	/* A peer with another name is no client of this protocol. */
	memcpy(&ends, name.sun_path + 2 + sizeof(PREFIX), sizeof(ends));
	if (len != name_of(&expected, 'c', &ends, sizeof(ends)) || memcmp(&name, &expected, len)) {
		close(fd);
		return 0;
	}
	memcpy(&names->local, &ends.service, sizeof(ends.service));
	memcpy(&names->peer, &ends.client, sizeof(ends.client));
	*connection = (void *)(intptr_t)fd;
	*descriptor = fd;
	return 1;
}

static ssize_t unix_send(void *connection, const struct iovec *parts, int count)
{
	struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count };
	ssize_t sent = sendmsg(fd_of(connection), &message, MSG_NOSIGNAL);

	return sent < 0 ? -errno : sent;
}

static ssize_t unix_receive(void *connection, const struct iovec *parts, int count, int peek)
{
	struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count };
	ssize_t received = recvmsg(fd_of(connection), &message, peek ? MSG_PEEK : 0);

	return received < 0 ? -errno : received;
}

static int unix_shutdown(void *connection, int how)
{
	return shutdown(fd_of(connection), how) ? -errno : 0;
}

static void unix_close(void *connection, int aborts)
{
	(void)aborts;
	close(fd_of(connection));
}

static void unix_unlisten(void *listener)
{
	close(fd_of(listener));
}

/* Routes do not matter to this protocol. */
static void unix_changed(uint32_t what)
{
	if (getenv("OPS_UNIX_VERBOSE"))
		fprintf(stderr, "ops_unix: the network has changed: %#x\n", (unsigned)what);
}

const struct ops_protocol *ops_protocol(void)
{
	static const struct ops_protocol protocol = {
		OPS_PROTOCOL_VERSION, sizeof(protocol), "unix",	      0,	   0,
		unix_connect,	      unix_connected,	unix_listen,  unix_accept, unix_unlisten,
		unix_send,	      unix_receive,	unix_shutdown, unix_close, unix_changed,
	};

	return &protocol;
}
