/*
 * IT-API: a TCP connection becomes the connection of two endpoints.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "itapi_kit.h"

static void connected_sockets(int sockets[2])
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t len = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	expect(!bind(listener, (struct sockaddr *)&address, len) && !listen(listener, 1));
	expect(!getsockname(listener, (struct sockaddr *)&address, &len));
	sockets[0] = socket(AF_INET, SOCK_STREAM, 0);
	expect(!connect(sockets[0], (struct sockaddr *)&address, len));
	sockets[1] = accept(listener, NULL, NULL);
	expect(sockets[1] >= 0 && !close(listener));
}

static void receive(int socket, const char *wanted)
{
	char text[64] = { 0 };
	size_t len = strlen(wanted);

	expect(len < sizeof(text));
	expect(recv(socket, text, len, MSG_WAITALL) == (ssize_t)len && !strcmp(text, wanted));
}

/* The passive end sends its last message, the active end converts, and messages are RDMA. */
static void convert_with(const unsigned char *message, size_t len)
{
	struct pair pair;
	int sockets[2];

	pair_open(&pair);
	connected_sockets(sockets);
	must(it_socket_convert(sockets[1], pair.passive.ep, IT_SC_DEFAULT, message, len));
	expect(state(pair.passive.ep) == IT_EP_STATE_PASSIVE_WAIT_RDMA_TRANS_REQ);
	answers(IT_ERR_INVALID_EP_STATE,
		it_socket_convert(sockets[1], pair.passive.ep, IT_SC_DEFAULT, message, len));
	if (len > 0)
		receive(sockets[0], (const char *)message);
	must(it_socket_convert(sockets[0], pair.active.ep, IT_SC_DEFAULT, NULL, 0));
	next_of(pair.active.cm_msg, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
	next_of(pair.passive.cm_msg, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
	expect(state(pair.passive.ep) == IT_EP_STATE_CONNECTED);
	for (unsigned round = 0; round < 4; round++) {
		post_recv(&pair.passive, 0, 64, 1);
		post_send(&pair.active, 0, 8, 2, NOTIFIED);
		completed(pair.passive.recv, IT_DTO_RC_RECV_CMPL_EVENT, pair.passive.ep, 1,
			  IT_DTO_SUCCESS);
		completed(pair.active.request, IT_DTO_SEND_CMPL_EVENT, pair.active.ep, 2,
			  IT_DTO_SUCCESS);
	}
	pair_disconnect(&pair);
	pair_close(&pair);
}

static void convert(void)
{
	convert_with((const unsigned char *)"go ahead", 8);
}

static void convert_without_message(void)
{
	convert_with((const unsigned char *)"", 0);
}

/* A peer that closes its socket instead: the event says so, and the endpoint serves again. */
static void peer_gone(void)
{
	struct pair pair;
	it_event_t event;
	int sockets[2];

	pair_open(&pair);
	connected_sockets(sockets);
	must(it_socket_convert(sockets[1], pair.passive.ep, IT_SC_DEFAULT,
			       (const unsigned char *)"x", 1));
	receive(sockets[0], "x");
	close(sockets[0]);
	event = next_of(pair.passive.cm_msg, IT_CM_MSG_CONN_NONPEER_REJECT_EVENT);
	expect(event.conn.ep == pair.passive.ep);
	expect(state(pair.passive.ep) == IT_EP_STATE_UNCONNECTED);
	/* The socket is the program's again. */
	expect(recv(sockets[1], &event, 1, 0) == 0 && !close(sockets[1]));
	pair_connect(&pair);
	pair_disconnect(&pair);
	pair_close(&pair);
}

/* The wait for the peer ends with a disconnect or with the endpoint, and both stream again. */
static void give_up(void)
{
	struct pair pair;
	int sockets[2];

	pair_open(&pair);
	connected_sockets(sockets);
	for (int round = 0; round < 2; round++) {
		must(it_socket_convert(sockets[1], pair.passive.ep, IT_SC_DEFAULT,
				       (const unsigned char *)"last", 4));
		receive(sockets[0], "last");
		if (round == 0) {
			must(it_ep_disconnect(pair.passive.ep, NULL, 0));
			expect(state(pair.passive.ep) == IT_EP_STATE_UNCONNECTED);
		} else {
			must(it_ep_free(pair.passive.ep));
			pair.passive.ep = make_ep(&pair.passive);
		}
		expect(send(sockets[0], "still TCP", 9, 0) == 9);
		receive(sockets[1], "still TCP");
	}
	close(sockets[0]);
	close(sockets[1]);
	pair_close(&pair);
}

/* A peer that answers with other bytes: no connection, and the bytes stay readable. */
static void peer_streams(void)
{
	struct pair pair;
	int sockets[2];

	pair_open(&pair);
	connected_sockets(sockets);
	expect(send(sockets[1], "no RDMA here, this is a text", 28, 0) == 28);
	must(it_socket_convert(sockets[0], pair.active.ep, IT_SC_DEFAULT, NULL, 0));
	next_of(pair.active.cm_msg, IT_CM_MSG_CONN_NONPEER_REJECT_EVENT);
	expect(state(pair.active.ep) == IT_EP_STATE_NONOPERATIONAL);
	receive(sockets[0], "no RDMA here, this is a text");
	close(sockets[0]);
	close(sockets[1]);
	pair_close(&pair);
}

/* Sockets and arguments that cannot be converted. */
static void refused(void)
{
	struct pair pair;
	int sockets[2], file;

	pair_open(&pair);
	connected_sockets(sockets);
	file = open("/dev/null", O_RDONLY);
	answers(IT_ERR_INVALID_CONVERSION,
		it_socket_convert(file, pair.active.ep, IT_SC_DEFAULT, NULL, 0));
	answers(IT_ERR_INVALID_CONVERSION,
		it_socket_convert(-1, pair.passive.ep, IT_SC_DEFAULT, (const unsigned char *)"x", 1));
	answers(IT_ERR_OP_NOT_SUPPORTED,
		it_socket_convert(sockets[0], pair.active.ep, IT_SC_NO_REQ_REP, NULL, 0));
	answers(IT_ERR_INVALID_FLAGS,
		it_socket_convert(sockets[0], pair.active.ep, (it_sc_flags_t)2, NULL, 0));
	answers(IT_ERR_INVALID_EP,
		it_socket_convert(sockets[0], NULL, IT_SC_DEFAULT, NULL, 0));
	answers(IT_ERR_FAULT,
		it_socket_convert(sockets[0], pair.active.ep, IT_SC_DEFAULT, NULL, 5));
	expect(send(sockets[0], "untouched", 9, 0) == 9);
	receive(sockets[1], "untouched");
	close(sockets[0]);
	close(sockets[1]);
	close(file);
	pair_close(&pair);
}

static const struct trial trials[] = {
	{ "convert", convert },
	{ "convert-without-message", convert_without_message },
	{ "peer-gone", peer_gone },
	{ "give-up", give_up },
	{ "peer-streams", peer_streams },
	{ "refused", refused },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	return run_trial(argc, argv, trials);
}
