/*
 * The calls of sdp_dat.h, with both ends of a connection in one process. The first argument names a
 * trial; without one the program lists its trials.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sdp_dat.h>

#define WAIT_MS 60000

#define expect(condition)                                                                         \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			printf("FAILED line %d: %s (errno %d)\n", __LINE__, #condition, errno);   \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

#define fails(number, call) expect((errno = 0, (call)) == -1 && errno == (number))

static struct sockaddr_in loopback(unsigned port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return address;
}

static const struct sockaddr *any_of(const struct sockaddr_in *address)
{
	return (const struct sockaddr *)address;
}

static short polled(sdpd_t socket, short events, int timeout)
{
	struct pollfd fd = { .fd = sdpd_fd(socket), .events = events };

	expect(fd.fd >= 0);
	expect(poll(&fd, 1, timeout) >= 0);
	return fd.revents;
}

static sdpd_t listening(struct sockaddr_in *address)
{
	socklen_t len = sizeof(*address);
	sdpd_t listener = sdpd_socket(AF_INET, SOCK_STREAM, 0);

	*address = loopback(0);
	expect(listener >= 0);
	expect(!sdpd_bind(listener, any_of(address), sizeof(*address)));
	expect(!sdpd_listen(listener, 8));
	expect(!sdpd_getsockname(listener, (struct sockaddr *)address, &len));
	expect(len == sizeof(*address) && address->sin_port != 0);
	return listener;
}

/* Begins to connect; the call cannot wait, because this thread accepts. */
static sdpd_t connecting(const struct sockaddr_in *address)
{
	sdpd_t client = sdpd_socket(AF_INET_SDP, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_SDP);

	fails(EINPROGRESS, sdpd_connect(client, any_of(address), sizeof(*address)));
	return client;
}

struct pair {
	sdpd_t listener, client, server;
};

static struct pair connected(void)
{
	struct sockaddr_in address;
	struct pair pair = { .listener = listening(&address) };

	pair.client = connecting(&address);
	pair.server = sdpd_accept(pair.listener, NULL, NULL);
	expect(pair.server >= 0);
	expect(polled(pair.client, POLLOUT, WAIT_MS) == POLLOUT);
	expect(!sdpd_fcntl(pair.client, F_SETFL, 0));
	return pair;
}

static void finish(struct pair *pair)
{
	expect(!sdpd_close(pair->client));
	expect(!sdpd_close(pair->server));
	expect(!sdpd_close(pair->listener));
}

/* Every byte arrives in both directions, and then the end of the stream. */
static void bytes(void)
{
	static char sent[3 << 20], received[3 << 20];
	struct pair pair = connected();
	size_t out = 0, in = 0;

	for (size_t at = 0; at < sizeof(sent); at++)
		sent[at] = (char)(at * 13 + at / 257);
	expect(!sdpd_fcntl(pair.client, F_SETFL, O_NONBLOCK));
	while (in < sizeof(sent)) {
		ssize_t count = sdpd_send(pair.client, sent + out, sizeof(sent) - out, 0);

		expect(count >= 0 || errno == EAGAIN);
		out += count > 0 ? (size_t)count : 0;
		expect(polled(pair.server, POLLIN, WAIT_MS) & POLLIN);
		count = sdpd_recv(pair.server, received + in, sizeof(received) - in, MSG_DONTWAIT);
		expect(count > 0 || errno == EAGAIN);
		in += count > 0 ? (size_t)count : 0;
	}
	expect(!memcmp(sent, received, sizeof(sent)));
	expect(sdpd_send(pair.server, "back", 4, 0) == 4);
	expect(!sdpd_shutdown(pair.server, SHUT_WR));
	expect(!sdpd_fcntl(pair.client, F_SETFL, 0));
	expect(sdpd_recv(pair.client, received, 4, MSG_WAITALL) == 4);
	expect(!memcmp(received, "back", 4));
	expect(sdpd_recv(pair.client, received, 4, 0) == 0);
	fails(EPIPE, sdpd_send(pair.server, "x", 1, 0));
	finish(&pair);
}

/* A descriptor shows a socket's readiness, and loses no connection that is not accepted. */
static void descriptors(void)
{
	struct sockaddr_in address;
	sdpd_t listener = listening(&address), clients[3], servers[3];
	char byte;

	expect(polled(listener, POLLIN, 0) == 0);
	for (int at = 0; at < 3; at++)
		clients[at] = connecting(&address);
	expect(!sdpd_fcntl(listener, F_SETFL, O_NONBLOCK));
	for (int at = 0; at < 3; at++) {
		do {
			expect(polled(listener, POLLIN, WAIT_MS) == POLLIN);
			servers[at] = sdpd_accept(listener, NULL, NULL);
			expect(servers[at] >= 0 || errno == EAGAIN);
		} while (servers[at] < 0);
		/* A former value of O_NONBLOCK is not inherited. */
		expect(sdpd_fcntl(servers[at], F_GETFL, 0) == O_RDWR);
	}
	fails(EAGAIN, sdpd_accept(listener, NULL, NULL));
	expect(polled(listener, POLLIN, 0) == 0);
	for (int at = 0; at < 3; at++)
		expect(polled(clients[at], POLLIN | POLLOUT, WAIT_MS) == POLLOUT);
	expect(polled(servers[0], POLLIN, 0) == 0);
	/* The order of the clients at the listener is not fixed, so each sends its number. */
	for (int at = 0; at < 3; at++)
		expect(sdpd_send(clients[at], "abc" + at, 1, 0) == 1);
	for (int at = 0, seen = 0; at < 3; at++) {
		expect(polled(servers[at], POLLIN, WAIT_MS) == POLLIN);
		expect(sdpd_recv(servers[at], &byte, 1, 0) == 1);
		expect(byte >= 'a' && byte <= 'c' && !(seen & 1 << (byte - 'a')));
		seen |= 1 << (byte - 'a');
		expect(polled(servers[at], POLLIN, 0) == 0);
		expect(!sdpd_close(servers[at]));
	}
	for (int at = 0; at < 3; at++) {
		expect(polled(clients[at], POLLRDHUP, WAIT_MS) & POLLRDHUP);
		expect(!sdpd_close(clients[at]));
	}
	expect(!sdpd_close(listener));
}

/* Flags of send and receive. */
static void flags(void)
{
	struct pair pair = connected();
	char text[8] = "";

	fails(EAGAIN, sdpd_recv(pair.server, text, 8, MSG_DONTWAIT));
	fails(EAGAIN, sdpd_recv(pair.server, text, 8, MSG_DONTWAIT | MSG_PEEK));
	expect(sdpd_send(pair.client, "abcd", 4, MSG_NOSIGNAL | MSG_DONTWAIT) == 4);
	expect(sdpd_recv(pair.server, text, 4, MSG_PEEK | MSG_WAITALL) == 4);
	expect(sdpd_recv(pair.server, text, 2, MSG_PEEK) == 2 && !memcmp(text, "ab", 2));
	expect(sdpd_recv(pair.server, text, 8, 0) == 4 && !memcmp(text, "abcd", 4));
	expect(sdpd_send(pair.client, "e!", 2, MSG_OOB) == 2);
	expect(polled(pair.server, POLLPRI, WAIT_MS) == POLLPRI);
	expect(sdpd_recv(pair.server, text, 1, MSG_OOB) == 1 && text[0] == '!');
	expect(sdpd_recv(pair.server, text, 8, 0) == 1 && text[0] == 'e');
	fails(EINVAL, sdpd_recv(pair.server, text, 1, MSG_OOB));
	fails(EOPNOTSUPP, sdpd_recv(pair.server, text, 1, MSG_ERRQUEUE));
	fails(EOPNOTSUPP, sdpd_send(pair.client, text, 1, MSG_CONFIRM));
	expect(sdpd_send(pair.client, NULL, 0, 0) == 0);
	expect(sdpd_recv(pair.server, NULL, 0, 0) == 0);
	fails(EFAULT, sdpd_send(pair.client, NULL, 1, 0));
	fails(EFAULT, sdpd_recv(pair.server, NULL, 1, 0));
	finish(&pair);
}

static int number_of(sdpd_t socket, int level, int name)
{
	socklen_t len = sizeof(int);
	int value = -2;

	expect(!sdpd_getsockopt(socket, level, name, &value, &len));
	expect(len == sizeof(int));
	return value;
}

/* Options before and after a connection; a listener's are inherited. */
static void options(void)
{
	struct sockaddr_in address;
	struct pair pair = { .listener = listening(&address) };
	struct timeval time = { .tv_usec = 20000 }, other = { 0 };
	struct linger linger = { .l_onoff = 1, .l_linger = 7 };
	socklen_t len = sizeof(other);
	int one = 1;
	char byte;

	expect(number_of(pair.listener, SOL_SOCKET, SO_ACCEPTCONN) == 1);
	expect(!sdpd_setsockopt(pair.listener, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	expect(!sdpd_setsockopt(pair.listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
	pair.client = connecting(&address);
	pair.server = sdpd_accept(pair.listener, NULL, NULL);
	linger.l_linger = 0;
	len = sizeof(linger);
	expect(!sdpd_getsockopt(pair.server, SOL_SOCKET, SO_LINGER, &linger, &len));
	expect(linger.l_onoff == 1 && linger.l_linger == 7);
	linger.l_onoff = 0;
	expect(!sdpd_setsockopt(pair.server, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	expect(number_of(pair.server, IPPROTO_TCP, TCP_NODELAY) == 1);
	expect(number_of(pair.server, SOL_SOCKET, SO_ACCEPTCONN) == 0);
	expect(number_of(pair.server, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
	expect(number_of(pair.server, SOL_SOCKET, SO_DOMAIN) == AF_INET);
	expect(number_of(pair.server, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_SDP);
	expect(number_of(pair.server, SOL_SOCKET, SO_ERROR) == 0);
	expect(!sdpd_setsockopt(pair.server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	expect(!sdpd_setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
	len = sizeof(other);
	expect(!sdpd_getsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &other, &len));
	expect(other.tv_sec == 0 && other.tv_usec == 20000);
	fails(EAGAIN, sdpd_recv(pair.server, &byte, 1, 0));
	fails(ENOPROTOOPT, sdpd_setsockopt(pair.server, SOL_SOCKET, SO_BROADCAST, &one, sizeof(one)));
	fails(EINVAL, sdpd_setsockopt(pair.server, SOL_SOCKET, SO_SNDBUF, &one, 3));
	fails(EFAULT, sdpd_setsockopt(pair.server, SOL_SOCKET, SO_SNDBUF, NULL, 4));
	fails(EFAULT, sdpd_getsockopt(pair.server, SOL_SOCKET, SO_SNDBUF, &one, NULL));
	finish(&pair);
}

/* The addresses of both ends. */
static void names(void)
{
	struct pair pair = connected();
	struct sockaddr_in of_client, of_server;
	struct sockaddr_in6 mapped = { .sin6_family = AF_INET6 };
	socklen_t len = sizeof(of_client);
	sdpd_t client;

	expect(!sdpd_getpeername(pair.client, (struct sockaddr *)&of_server, &len));
	len = sizeof(of_client);
	expect(!sdpd_getsockname(pair.listener, (struct sockaddr *)&of_client, &len));
	expect(!memcmp(&of_client, &of_server, sizeof(of_client)));
	len = sizeof(of_client);
	expect(!sdpd_getpeername(pair.server, (struct sockaddr *)&of_client, &len));
	expect(of_client.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	fails(EFAULT, sdpd_getsockname(pair.server, NULL, &len));
	/* A socket of AF_INET6 reaches an IPv4 address that is mapped, and reports mapped ones. */
	mapped.sin6_port = of_server.sin_port;
	expect(inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr) == 1);
	client = sdpd_socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
	fails(EINPROGRESS, sdpd_connect(client, (struct sockaddr *)&mapped, sizeof(mapped)));
	expect(!sdpd_close(pair.server));
	pair.server = sdpd_accept(pair.listener, (struct sockaddr *)&of_client, &len);
	expect(pair.server >= 0 && len == sizeof(of_client));
	memset(&mapped, 0, sizeof(mapped));
	len = sizeof(mapped);
	expect(!sdpd_getpeername(client, (struct sockaddr *)&mapped, &len));
	expect(len == sizeof(mapped) && IN6_IS_ADDR_V4MAPPED(&mapped.sin6_addr));
	expect(!sdpd_close(client));
	finish(&pair);
}

/* A connect without a listener fails, and a blocking socket may connect again. */
static void refused(void)
{
	struct sockaddr_in address, free_port;
	sdpd_t listener = listening(&address), unused = listening(&free_port);
	sdpd_t client = sdpd_socket(AF_INET, SOCK_STREAM, 0), other;

	expect(!sdpd_close(unused));
	fails(ECONNREFUSED, sdpd_connect(client, any_of(&free_port), sizeof(free_port)));
	other = connecting(&free_port);
	/* The descriptor shows the end and the error one after the other. */
	expect(polled(other, POLLOUT, WAIT_MS) != 0);
	expect(number_of(other, SOL_SOCKET, SO_ERROR) == ECONNREFUSED);
	expect(number_of(other, SOL_SOCKET, SO_ERROR) == 0);
	expect(!sdpd_close(other));
	expect(!sdpd_fcntl(client, F_SETFL, O_NONBLOCK));
	fails(EINPROGRESS, sdpd_connect(client, any_of(&address), sizeof(address)));
	other = sdpd_accept(listener, NULL, NULL);
	expect(other >= 0);
	expect(polled(client, POLLOUT, WAIT_MS) == POLLOUT);
	fails(EISCONN, sdpd_connect(client, any_of(&address), sizeof(address)));
	fails(EADDRINUSE, ({
		      sdpd_t second = sdpd_socket(AF_INET, SOCK_STREAM, 0);

		      expect(!sdpd_bind(second, any_of(&address), sizeof(address)));
		      sdpd_listen(second, 1);
	      }));
	expect(!sdpd_close(other));
	expect(!sdpd_close(client));
	expect(!sdpd_close(listener));
}

/* Numbers that are no sockets, and calls in a wrong state. */
static void handles(void)
{
	struct sockaddr_in address = loopback(0), foreign = loopback(4711);
	struct sockaddr *to = (struct sockaddr *)&address;
	socklen_t len = sizeof(address);
	sdpd_t fresh = sdpd_socket(AF_INET, SOCK_STREAM, 0);
	sdpd_t closed = sdpd_socket(AF_INET, SOCK_STREAM, 0);
	int value = 0;

	expect(fresh > 0 && !sdpd_close(closed));
	sdpd_t bad[] = { closed, -1, 0, 1, 2, INT64_MAX, INT64_MIN, (int64_t)(intptr_t)&value, ~fresh };

	for (size_t at = 0; at < sizeof(bad) / sizeof(bad[0]); at++) {
		fails(EBADF, sdpd_bind(bad[at], to, len));
		fails(EBADF, sdpd_connect(bad[at], to, len));
		fails(EBADF, sdpd_listen(bad[at], 1));
		fails(EBADF, sdpd_accept(bad[at], to, &len));
		fails(EBADF, sdpd_send(bad[at], &value, 1, 0));
		fails(EBADF, sdpd_recv(bad[at], &value, 1, 0));
		fails(EBADF, sdpd_shutdown(bad[at], SHUT_WR));
		fails(EBADF, sdpd_getsockopt(bad[at], SOL_SOCKET, SO_ERROR, &value, &len));
		fails(EBADF, sdpd_setsockopt(bad[at], SOL_SOCKET, SO_SNDBUF, &value, 4));
		fails(EBADF, sdpd_getsockname(bad[at], to, &len));
		fails(EBADF, sdpd_getpeername(bad[at], to, &len));
		fails(EBADF, sdpd_fcntl(bad[at], F_GETFL, 0));
		fails(EBADF, sdpd_fd(bad[at]));
		fails(EBADF, sdpd_close(bad[at]));
	}
	fails(ENOTCONN, sdpd_send(fresh, &value, 1, 0));
	fails(ENOTCONN, sdpd_recv(fresh, &value, 1, 0));
	fails(ENOTCONN, sdpd_shutdown(fresh, SHUT_RDWR));
	fails(ENOTCONN, sdpd_getpeername(fresh, to, &len));
	fails(ENOTCONN, sdpd_fd(fresh));
	fails(EINVAL, sdpd_accept(fresh, NULL, NULL));
	fails(EFAULT, sdpd_bind(fresh, NULL, len));
	fails(EINVAL, sdpd_bind(fresh, any_of(&foreign), 4));
	foreign.sin_addr.s_addr = htonl(0xc0000201);
	fails(EADDRNOTAVAIL, sdpd_bind(fresh, any_of(&foreign), sizeof(foreign)));
	fails(EINVAL, sdpd_fcntl(fresh, F_GETFD, 0));
	fails(EAFNOSUPPORT, sdpd_socket(AF_UNIX, SOCK_STREAM, 0));
	fails(ESOCKTNOSUPPORT, sdpd_socket(AF_INET, SOCK_DGRAM, 0));
	fails(EPROTONOSUPPORT, sdpd_socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
	expect(!sdpd_close(fresh));
}

/* A program that ends without closing its socket does not lose what it has sent. */
static void ending(void)
{
	static char text[1 << 20];
	struct sockaddr_in address;
	sdpd_t listener, server;
	int gate[2], status;
	pid_t child;

	/* The child makes its first socket itself: sockets are not inherited. */
	expect(!pipe(gate));
	child = fork();
	expect(child >= 0);
	if (child == 0) {
		sdpd_t client;
		size_t sent = 0;

		expect(read(gate[0], &address, sizeof(address)) == sizeof(address));
		client = sdpd_socket(AF_INET, SOCK_STREAM, 0);
		expect(!sdpd_connect(client, any_of(&address), sizeof(address)));
		while (sent < sizeof(text)) {
			ssize_t count = sdpd_send(client, text, sizeof(text) - sent, 0);

			expect(count > 0);
			sent += (size_t)count;
		}
		exit(0);
	}
	listener = listening(&address);
	expect(write(gate[1], &address, sizeof(address)) == sizeof(address));
	server = sdpd_accept(listener, NULL, NULL);
	expect(server >= 0);
	expect(sdpd_recv(server, text, sizeof(text), MSG_WAITALL) == sizeof(text));
	expect(sdpd_recv(server, text, 1, 0) == 0);
	/* The exit waits for the end of the connection in both directions. */
	expect(!sdpd_close(server));
	expect(waitpid(child, &status, 0) == child && status == 0);
	expect(!sdpd_close(listener));
}

static const struct trial {
	const char *name;
	void (*run)(void);
} trials[] = {
	{ "bytes", bytes },   { "descriptors", descriptors }, { "flags", flags },
	{ "options", options }, { "names", names },	      { "refused", refused },
	{ "handles", handles }, { "ending", ending },
};

int main(int argc, char **argv)
{
	for (size_t at = 0; at < sizeof(trials) / sizeof(trials[0]); at++) {
		if (argc < 2) {
			printf("TRIAL %s\n", trials[at].name);
		} else if (!strcmp(argv[1], trials[at].name)) {
			trials[at].run();
			printf("PASSED\n");
		}
	}
	return 0;
}
