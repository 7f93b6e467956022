/*
 * Stream sockets over RDMA without opsrun: a server that sends back what its clients send.
 *
 *   sdpecho --listen ADDRESS     (the server, until its first client has closed)
 *   sdpecho ADDRESS              (a client)
 *
 * ADDRESS is that of an adapter in dat.conf, such as 127.0.0.1 for iwarp-lo. The calls are those of
 * sockets with another prefix, and sdpd_fd() has the descriptor for poll(2).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sdp_dat.h>

#define PORT 4711
#define CLIENTS_MAX 16
#define TOTAL (4u << 20)

static char buffer[64 << 10];

static int64_t must(const char *call, int64_t result)
{
	if (result < 0) {
		perror(call);
		exit(EXIT_FAILURE);
	}
	return result;
}

/* Sends all bytes of a blocking socket. */
static void send_all(sdpd_t to, const char *bytes, size_t len)
{
	while (len > 0) {
		size_t sent = (size_t)must("sdpd_send", sdpd_send(to, bytes, len, 0));

		bytes += sent;
		len -= sent;
	}
}

/* Returns 0 when the client has closed. */
static int echo(sdpd_t client)
{
	ssize_t len = sdpd_recv(client, buffer, sizeof(buffer), MSG_DONTWAIT);

	if (len < 0 && errno == EAGAIN)
		return 1;
	if (must("sdpd_recv", len) == 0)
		return 0;
	send_all(client, buffer, (size_t)len);
	return 1;
}

static void serve(const struct sockaddr_in *address)
{
	sdpd_t sockets[1 + CLIENTS_MAX];
	struct pollfd set[1 + CLIENTS_MAX];
	nfds_t count = 1;

	sockets[0] = must("sdpd_socket", sdpd_socket(AF_INET_SDP, SOCK_STREAM | SOCK_NONBLOCK, 0));
	must("sdpd_bind", sdpd_bind(sockets[0], (const struct sockaddr *)address, sizeof(*address)));
	must("sdpd_listen", sdpd_listen(sockets[0], CLIENTS_MAX));
	for (;;) {
		for (nfds_t at = 0; at < count; at++) {
			set[at].fd = (int)must("sdpd_fd", sdpd_fd(sockets[at]));
			set[at].events = POLLIN;
		}
		must("poll", poll(set, count, -1));
		for (nfds_t at = 1; at < count; at++) {
			if (set[at].revents && !echo(sockets[at])) {
				must("sdpd_close", sdpd_close(sockets[at]));
				printf("a client has closed\n");
				return;
			}
		}
		if (set[0].revents && count <= CLIENTS_MAX) {
			sdpd_t client = sdpd_accept(sockets[0], NULL, NULL);

			if (client >= 0)
				sockets[count++] = client;
			else if (errno != EAGAIN)
				must("sdpd_accept", client);
		}
	}
}

static void run_client(const struct sockaddr_in *address)
{
	static char bytes[TOTAL], back[TOTAL];
	sdpd_t server = must("sdpd_socket", sdpd_socket(AF_INET, SOCK_STREAM, IPPROTO_SDP));

	must("sdpd_connect", sdpd_connect(server, (const struct sockaddr *)address, sizeof(*address)));
	for (unsigned at = 0; at < TOTAL; at++)
		bytes[at] = (char)(at * 7 + at / 251);
	for (unsigned at = 0; at < TOTAL; at += sizeof(buffer)) {
		send_all(server, bytes + at, sizeof(buffer));
		must("sdpd_recv", sdpd_recv(server, back + at, sizeof(buffer), MSG_WAITALL));
	}
	if (memcmp(bytes, back, TOTAL) != 0) {
		fprintf(stderr, "other bytes came back\n");
		exit(EXIT_FAILURE);
	}
	must("sdpd_close", sdpd_close(server));
	printf("%u bytes came back\n", TOTAL);
}

int main(int argc, char **argv)
{
	int listens = argc == 3 && !strcmp(argv[1], "--listen");
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	if (argc != 2 + listens || inet_pton(AF_INET, argv[argc - 1], &address.sin_addr) != 1) {
		fprintf(stderr, "usage: sdpecho [--listen] ADDRESS\n");
		return EXIT_FAILURE;
	}
	if (listens)
		serve(&address);
	else
		run_client(&address);
	return EXIT_SUCCESS;
}
