/*
 * IT-API: one message in each direction, a thousand times.
 *
 *   itapi IA            (the server)
 *   itapi IA ADDRESS    (the client)
 *
 * All events of an end come from one aggregate event dispatcher (AEVD).
 */
#define ITAPI_ENABLE_V21_BINDINGS

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <it_api.h>

#define SERVICE 4711
#define PATIENCE_US (30u * 1000 * 1000)
#define QUEUE_LEN 64
#define ROUNDS 1000u
#define RECEIVES 4u
#define NOTIFIED ((it_dto_flags_t)(IT_COMPLETION_FLAG | IT_NOTIFY_FLAG))

struct end {
	it_ia_handle_t ia;
	it_pz_handle_t pz;
	it_evd_handle_t aevd, requests, connections, completions;
	it_ep_handle_t ep;
	it_lmr_handle_t lmr;
	/* A place for each posted receive, and one for the message to send. */
	unsigned numbers[RECEIVES + 1];
};

static void must(const char *call, it_status_t status)
{
	if (status == IT_SUCCESS)
		return;
	fprintf(stderr, "%s: status %d\n", call, (int)status);
	exit(EXIT_FAILURE);
}

static it_event_t expect(struct end *end, it_event_type_t number, const char *what)
{
	it_event_t event;

	must(what, it_evd_wait(end->aevd, PATIENCE_US, &event, NULL));
	if (event.event_number != number) {
		fprintf(stderr, "%s: event 0x%x\n", what, (unsigned)event.event_number);
		exit(EXIT_FAILURE);
	}
	return event;
}

static it_evd_handle_t member(struct end *end, it_event_type_t stream)
{
	it_evd_handle_t evd;

	must("it_evd_create", it_evd_create(end->ia, stream, IT_EVD_OVERFLOW_DEFAULT, QUEUE_LEN, 1,
					    end->aevd, &evd, NULL));
	return evd;
}

static it_lmr_triplet_t place(struct end *end, unsigned index)
{
	it_lmr_triplet_t segment = { .lmr = end->lmr, .length = sizeof(end->numbers[0]) };

	segment.addr.abs = &end->numbers[index];
	return segment;
}

static void post_recv(struct end *end, unsigned index)
{
	it_lmr_triplet_t segment = place(end, index);

	must("it_post_recv", it_post_recv(end->ep, &segment, 1, index, NOTIFIED));
}

static void open_end(struct end *end, const char *name)
{
	it_ep_attributes_t attr = {
		.max_dto_payload_size = sizeof(unsigned),
		.max_request_dtos = RECEIVES,
		.max_recv_dtos = RECEIVES,
		.max_send_segments = 1,
		.max_recv_segments = 1,
		.srv.rc.hard_hi_watermark = IT_HARD_HI_WATERMARK_DISABLE,
	};

	must("it_ia_create", it_ia_create(name, 2, 1, &end->ia));
	must("it_pz_create", it_pz_create(end->ia, &end->pz));
	must("it_evd_create", it_evd_create(end->ia, IT_AEVD_NOTIFICATION_EVENT_STREAM,
					    IT_EVD_OVERFLOW_DEFAULT, 0, 0, NULL, &end->aevd, NULL));
	end->requests = member(end, IT_CM_REQ_EVENT_STREAM);
	end->connections = member(end, IT_CM_MSG_EVENT_STREAM);
	end->completions = member(end, IT_DTO_EVENT_STREAM);
	must("it_ep_rc_create",
	     it_ep_rc_create(end->pz, end->completions, end->completions, end->connections,
			     IT_EP_NO_FLAG, &attr, &end->ep));
	must("it_lmr_create",
	     it_lmr_create(end->pz, end->numbers, NULL, sizeof(end->numbers), IT_ADDR_MODE_ABSOLUTE,
			   IT_PRIV_LOCAL, IT_LMR_FLAG_NONE, 0, &end->lmr, NULL));
	/* A message needs a posted receive, so receives are posted before the connection exists. */
	for (unsigned index = 0; index < RECEIVES; index++)
		post_recv(end, index);
}

static void send_number(struct end *end, unsigned number)
{
	it_lmr_triplet_t segment = place(end, RECEIVES);

	end->numbers[RECEIVES] = number;
	/* A success has no event: the answer of the peer shows that the message was received. */
	must("it_post_send", it_post_send(end->ep, &segment, 1, 0, (it_dto_flags_t)0));
}

static unsigned receive_number(struct end *end)
{
	it_event_t event = expect(end, IT_DTO_RC_RECV_CMPL_EVENT, "a message");
	unsigned index = (unsigned)event.dto_cmpl.cookie, number;

	if (event.dto_cmpl.dto_status != IT_DTO_SUCCESS) {
		fprintf(stderr, "a receive has status %d\n", (int)event.dto_cmpl.dto_status);
		exit(EXIT_FAILURE);
	}
	number = end->numbers[index];
	post_recv(end, index);
	return number;
}

static void serve(struct end *end)
{
	it_conn_qual_t service = { .type = IT_IANA_PORT };
	it_listen_handle_t listener;
	it_event_t event;

	service.conn_qual.port = htons(SERVICE);
	must("it_listen_create", it_listen_create(end->ia, 0, end->requests,
						  IT_LISTEN_CONN_QUAL_INPUT, &service, &listener));
	event = expect(end, IT_CM_REQ_CONN_REQUEST_EVENT, "a request");
	must("it_ep_accept", it_ep_accept(end->ep, event.conn_req.cn_est_id, NULL, 0));
	expect(end, IT_CM_MSG_CONN_ESTABLISHED_EVENT, "the connection");
	for (unsigned round = 0; round < ROUNDS; round++)
		send_number(end, receive_number(end) + 1);
	/* Events of different streams have no order, so an end of the connection here could overtake
	 * the last answer. The client ends it, and the receives that remain are flushed. */
	do
		must("the end", it_evd_wait(end->aevd, PATIENCE_US, &event, NULL));
	while (event.event_number != IT_CM_MSG_CONN_DISCONNECT_EVENT &&
	       event.event_number != IT_CM_MSG_CONN_BROKEN_EVENT);
	printf("answered %u messages\n", ROUNDS);
}

static void run_client(struct end *end, const char *host)
{
	it_conn_qual_t service = { .type = IT_IANA_PORT };
	it_path_t path = { .timeout = PATIENCE_US };
	unsigned number = 0;

	service.conn_qual.port = htons(SERVICE);
	path.remote.iwarp.ip_vers = IT_IP_VERS_IPV4;
	if (inet_pton(AF_INET, host, &path.remote.iwarp.raddr.ipv4) != 1) {
		fprintf(stderr, "%s is no IPv4 address\n", host);
		exit(EXIT_FAILURE);
	}
	must("it_ep_connect", it_ep_connect(end->ep, &path, NULL, &service,
					    IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
	expect(end, IT_CM_MSG_CONN_ESTABLISHED_EVENT, "the connection");
	for (unsigned round = 0; round < ROUNDS; round++) {
		send_number(end, number);
		number = receive_number(end);
	}
	must("it_ep_disconnect", it_ep_disconnect(end->ep, NULL, 0));
	printf("the number is %u after %u round trips\n", number, ROUNDS);
}

int main(int argc, char **argv)
{
	struct end end;

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: itapi IA [ADDRESS]\n");
		return EXIT_FAILURE;
	}
	memset(&end, 0, sizeof(end));
	open_end(&end, argv[1]);
	if (argc == 2)
		serve(&end);
	else
		run_client(&end, argv[2]);
	must("it_ia_free", it_ia_free(end.ia));
	return EXIT_SUCCESS;
}
