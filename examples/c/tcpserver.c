/*
 * An existing TCP server and its client, converted to RDMA: a line is sent, and the answer is the
 * line in capitals. Clients that do not ask for RDMA are served over TCP as before.
 *
 *   tcpserver IA            (the server: one client over TCP, then one over RDMA)
 *   tcpserver IA ADDRESS    (the client: the same questions over TCP, then over RDMA)
 *
 * The conversion is between the two marks. Of the rest, only the code that sends and receives
 * messages differs between TCP and RDMA.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <sys/socket.h>
#include <unistd.h>

#include "example.h"

#include <dat2/dat_iw_extensions.h>

#define LINE_LEN MESSAGE_LEN
#define CLIENTS 2

static const char *const questions[] = { "hello", "how are you" };
#define QUESTIONS (sizeof(questions) / sizeof(questions[0]))

static void write_all(int fd, const char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t written = send(fd, bytes, len, MSG_NOSIGNAL);

		check(written > 0, "the peer accepts bytes");
		bytes += written;
		len -= (size_t)written;
	}
}

/* Reads a line without its end. Returns 0 at the end of the stream. */
static int read_line(int fd, char *line)
{
	for (size_t at = 0; at < LINE_LEN; at++) {
		ssize_t count = recv(fd, line + at, 1, 0);

		check(count >= 0, "the peer sends bytes");
		if (count == 0)
			return 0;
		if (line[at] == '\n') {
			line[at] = '\0';
			return 1;
		}
	}
	check(0, "the line is not too long");
	return 0;
}

static void write_line(int fd, const char *text)
{
	char line[LINE_LEN + 2];
	int len = snprintf(line, sizeof(line), "%s\n", text);

	check(len > 0 && (size_t)len < sizeof(line), "the line is not too long");
	write_all(fd, line, (size_t)len);
}

static void capitalise(char *text)
{
	for (; *text; text++)
		*text = (char)toupper((unsigned char)*text);
}

/* ------------------------------------------------------------ conversion: begin */

/* The server: answers the line "RDMA" of a client. Returns 1 if there is an RDMA connection now;
 * otherwise the socket is a TCP connection as before. */
static int accept_rdma(struct example *ex, int fd)
{
	DAT_IW_SSP_HANDLE ssp;
	DAT_EVENT event;
	DAT_COUNT more;
	int converted = 0;

	post_recv(ex, 0);
	if (dat_iw_ssp_create(ex->ia, fd, ex->ep, ex->cr_evd, "RDMA go\n", 8, &ssp) != DAT_SUCCESS) {
		write_line(fd, "RDMA no");
		return 0;
	}
	if (dat_evd_wait(ex->cr_evd, PATIENCE_US, 1, &event, &more) == DAT_SUCCESS &&
	    event.event_number == DAT_CONNECTION_REQUEST_EVENT) {
		DAT_CR_HANDLE cr = event.event_data.cr_arrival_event_data.cr_handle;

		must("dat_cr_accept", dat_cr_accept(cr, DAT_HANDLE_NULL, 0, NULL));
		converted = next_event(ex->connect_evd, "the connection").event_number ==
			    DAT_CONNECTION_EVENT_ESTABLISHED;
	}
	must("dat_iw_ssp_free", dat_iw_ssp_free(ssp));
	return converted;
}

/* The client: asks for RDMA. Returns 1 if there is an RDMA connection now. */
static int ask_for_rdma(struct example *ex, int fd)
{
	char line[LINE_LEN];

	write_line(fd, "RDMA");
	if (!read_line(fd, line) || strcmp(line, "RDMA go") != 0)
		return 0;
	post_recv(ex, 0);
	return dat_iw_socket_connect(ex->ep, fd, PATIENCE_US, 0, NULL) == DAT_SUCCESS &&
	       next_event(ex->connect_evd, "the connection").event_number ==
		       DAT_CONNECTION_EVENT_ESTABLISHED;
}

/* -------------------------------------------------------------- conversion: end */

static void serve_tcp(int fd, char *line)
{
	unsigned count = 0;

	do {
		capitalise(line);
		write_line(fd, line);
		count++;
	} while (read_line(fd, line));
	close(fd);
	printf("answered %u lines over TCP\n", count);
}

static void serve_rdma(struct example *ex)
{
	for (unsigned count = 0; count < QUESTIONS; count++) {
		char text[MESSAGE_LEN + 1] = "";

		memcpy(text, received(ex), MESSAGE_LEN);
		post_recv(ex, 0);
		capitalise(text);
		send_text(ex, text);
	}
	expect(ex->connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, "the end");
	printf("answered %zu messages over RDMA\n", QUESTIONS);
}

static void serve(struct example *ex)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(SERVICE) };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	char line[LINE_LEN];

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	check(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0, "the port is free");
	check(listen(listener, 8) == 0, "the socket listens");
	for (int client = 0; client < CLIENTS; client++) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		check(fd >= 0 && read_line(fd, line), "a client sends a line");
		if (strcmp(line, "RDMA") == 0 && accept_rdma(ex, fd))
			serve_rdma(ex);
		else
			serve_tcp(fd, line);
	}
	close(listener);
}

static int connect_tcp(const char *host)
{
	struct sockaddr_in address = address_of(host);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_port = htons(SERVICE);
	check(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "the server listens");
	return fd;
}

static void run_client(struct example *ex, const char *host)
{
	int fd = connect_tcp(host);
	char line[LINE_LEN];

	for (size_t at = 0; at < QUESTIONS; at++) {
		write_line(fd, questions[at]);
		check(read_line(fd, line), "the server answers");
		printf("over TCP: %s\n", line);
	}
	close(fd);

	fd = connect_tcp(host);
	check(ask_for_rdma(ex, fd), "the connection is converted");
	for (size_t at = 0; at < QUESTIONS; at++) {
		send_text(ex, questions[at]);
		printf("over RDMA: %.*s\n", (int)MESSAGE_LEN, received(ex));
		post_recv(ex, 0);
	}
	disconnect(ex);
}

int main(int argc, char **argv)
{
	return run(argc, argv, serve, run_client);
}
