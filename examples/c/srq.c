/*
 * A shared receive queue: the server posts receives once, for all its clients, and answers each
 * message on the endpoint that received it.
 *
 *   srq IA            (the server, for three clients)
 *   srq IA ADDRESS    (a client)
 */
#define _GNU_SOURCE
#include "example.h"

#define CLIENTS 3u
#define RECEIVES 8u

static void post_shared(struct example *ex, DAT_SRQ_HANDLE srq, unsigned slot)
{
	DAT_LMR_TRIPLET segment = part(ex, INBOX(slot), MESSAGE_LEN);
	DAT_DTO_COOKIE cookie = { .as_64 = slot };

	must("dat_srq_post_recv", dat_srq_post_recv(srq, 1, &segment, cookie));
}

static void accept_all(struct example *ex, DAT_SRQ_HANDLE srq, DAT_EP_HANDLE *eps)
{
	DAT_PSP_HANDLE psp;

	must("dat_psp_create",
	     dat_psp_create(ex->ia, SERVICE, ex->cr_evd, DAT_PSP_CONSUMER_FLAG, &psp));
	for (unsigned i = 0; i < CLIENTS; i++) {
		must("dat_ep_create_with_srq",
		     dat_ep_create_with_srq(ex->ia, ex->pz, ex->recv_evd, ex->request_evd,
					    ex->connect_evd, srq, NULL, &eps[i]));
		accept_one(ex, eps[i]);
	}
	must("dat_psp_free", dat_psp_free(psp));
}

static void serve(struct example *ex)
{
	DAT_SRQ_ATTR attr = { .max_recv_dtos = RECEIVES, .max_recv_iov = 1 };
	DAT_EP_HANDLE eps[CLIENTS];
	DAT_SRQ_HANDLE srq;

	must("dat_srq_create", dat_srq_create(ex->ia, ex->pz, &attr, &srq));
	for (unsigned slot = 0; slot < RECEIVES; slot++)
		post_shared(ex, srq, slot);
	accept_all(ex, srq, eps);

	for (unsigned i = 0; i < CLIENTS; i++) {
		DAT_DTO_COMPLETION_EVENT_DATA message = completed(ex->recv_evd, "a message");
		unsigned slot = (unsigned)message.user_cookie.as_64;

		printf("a client says \"%s\"\n", ex->buffer + INBOX(slot));
		send_bytes(ex, message.ep_handle, "welcome", sizeof("welcome"));
		post_shared(ex, srq, slot);
	}
	for (unsigned i = 0; i < CLIENTS; i++)
		expect(ex->connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, "the end");
	for (unsigned i = 0; i < CLIENTS; i++)
		must("dat_ep_free", dat_ep_free(eps[i]));
	must("dat_srq_free", dat_srq_free(srq));
	printf("served %u clients from one queue\n", CLIENTS);
}

static void run_client(struct example *ex, const char *host)
{
	post_recv(ex, 0);
	connect_to(ex, host);
	send_text(ex, "hello");
	printf("the server says \"%s\"\n", received(ex));
	disconnect(ex);
}

int main(int argc, char **argv)
{
	return run(argc, argv, serve, run_client);
}
