/*
 * A shared object for the rule file whose protocol misbehaves as the variable BAD says. Programs
 * must then use TCP, or see an error; nothing else.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../ops/include/ops_protocol.h"

static int is_bad(const char *how)
{
	const char *bad = getenv("BAD");

	return bad && !strcmp(bad, how);
}

/* One end of a pair serves as the descriptor of every object. */
static int make(void **object, int *descriptor)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends))
		return -errno;
	*object = is_bad("null") ? NULL : &ends;
	*descriptor = is_bad("descriptor") ? 1 << 20 : is_bad("negative") ? -2 : ends[0];
	if (is_bad("null") || is_bad("descriptor") || is_bad("negative"))
		close(ends[0]);
	close(ends[1]);
	return 0;
}

static int bad_connect(const struct ops_target *to, void **connection, int *descriptor)
{
	(void)to;
	if (is_bad("result"))
		return 7;
	if (is_bad("errno"))
		return -123456;
	return make(connection, descriptor);
}

static int bad_connected(void *connection)
{
	(void)connection;
	return is_bad("connected") ? 99 : 1;
}

static int bad_listen(const struct sockaddr_storage *at, int backlog, void **listener,
		      int *descriptor)
{
	(void)at;
	(void)backlog;
	return make(listener, descriptor);
}

static int bad_accept(void *listener, void **connection, int *descriptor, struct ops_names *names)
{
	(void)listener;
	(void)names;
	/* With "names" the addresses stay empty. */
	return is_bad("names") ? (make(connection, descriptor), 1) : is_bad("accept") ? -1048576 : 0;
}

static void bad_end(void *object)
{
	(void)object;
}

static ssize_t bad_send(void *connection, const struct iovec *parts, int count)
{
	(void)connection;
	(void)parts;
	(void)count;
	return is_bad("nothing") ? 0 : (ssize_t)1 << 40;
}

static ssize_t bad_receive(void *connection, const struct iovec *parts, int count, int peek)
{
	(void)peek;
	return bad_send(connection, parts, count);
}

static int bad_shutdown(void *connection, int how)
{
	(void)connection;
	(void)how;
	return 17;
}

static void bad_close(void *connection, int aborts)
{
	(void)connection;
	(void)aborts;
}

const struct ops_protocol *ops_protocol(void)
{
	static struct ops_protocol protocol = {
		OPS_PROTOCOL_VERSION, sizeof(protocol), "bad",	      0,	 9,
		bad_connect,	      bad_connected,	bad_listen,   bad_accept, bad_end,
		bad_send,	      bad_receive,	bad_shutdown, bad_close, NULL,
	};

	if (is_bad("table"))
		return NULL;
	if (is_bad("misaligned"))
		return (const struct ops_protocol *)((const char *)&protocol + 1);
	if (is_bad("version"))
		protocol.version = 2;
	if (is_bad("size"))
		protocol.size = 8;
	if (is_bad("name"))
		protocol.name = "no good name";
	if (is_bad("taken"))
		protocol.name = "sdp";
	if (is_bad("function"))
		protocol.send = NULL;
	return &protocol;
}
