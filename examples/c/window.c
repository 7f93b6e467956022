/*
 * A memory window: the server exposes a small part of its memory for one job, and the client's last
 * message revokes the access (Send with Invalidate).
 *
 *   window IA            (the server)
 *   window IA ADDRESS    (the client)
 */
#define _GNU_SOURCE
#include "example.h"

#define WINDOW_LEN 256u

static const char JOB[] = "written through the window";

/* Binds the window to a part of the memory. Its context is valid from the completion on. */
static DAT_RMR_CONTEXT bind_window(struct example *ex, DAT_RMR_HANDLE rmr)
{
	DAT_LMR_TRIPLET bound = part(ex, DATA, WINDOW_LEN);
	DAT_RMR_COOKIE cookie = { .as_64 = 2 };
	DAT_RMR_CONTEXT context;
	DAT_EVENT event;

	must("dat_rmr_bind",
	     dat_rmr_bind(rmr, ex->lmr, &bound, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_VA,
			  ex->ep, cookie, DAT_COMPLETION_DEFAULT_FLAG, &context));
	event = expect(ex->request_evd, DAT_RMR_BIND_COMPLETION_EVENT, "the bind");
	check(event.event_data.rmr_completion_event_data.status == DAT_RMR_BIND_SUCCESS,
	      "the window is bound");
	return context;
}

static void serve(struct example *ex)
{
	DAT_DTO_COMPLETION_EVENT_DATA last;
	DAT_RMR_CONTEXT context;
	DAT_RMR_HANDLE rmr;

	must("dat_rmr_create", dat_rmr_create(ex->pz, &rmr));
	post_recv(ex, 0);
	post_recv(ex, 1);
	serve_one(ex);
	check(strcmp(received(ex), "hello") == 0, "the client greets");
	context = bind_window(ex, rmr);
	send_offer(ex, DATA, WINDOW_LEN, context);

	last = completed(ex->recv_evd, "the last message");
	check(last.operation == DAT_DTO_RECEIVE_WITH_INVALIDATE, "the message invalidates a window");
	check(last.rmr_context == context, "it is this one");
	printf("the client wrote \"%s\" and invalidated the window\n", ex->buffer + DATA);
	expect(ex->connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, "the end");
	must("dat_rmr_free", dat_rmr_free(rmr));
}

static void run_client(struct example *ex, const char *host)
{
	DAT_LMR_TRIPLET job = part(ex, DATA, sizeof(JOB)), last = part(ex, OUTBOX, 1);
	DAT_DTO_COOKIE cookie = { .as_64 = 1 };
	DAT_RMR_TRIPLET window;

	post_recv(ex, 0);
	connect_to(ex, host);
	send_text(ex, "hello");
	window = received_offer(ex);

	memcpy(ex->buffer + DATA, JOB, sizeof(JOB));
	must("dat_ep_post_rdma_write",
	     dat_ep_post_rdma_write(ex->ep, 1, &job, cookie, &window, DAT_COMPLETION_DEFAULT_FLAG));
	completed(ex->request_evd, "an RDMA Write");
	must("dat_ep_post_send_with_invalidate",
	     dat_ep_post_send_with_invalidate(ex->ep, 1, &last, cookie, DAT_COMPLETION_DEFAULT_FLAG,
					      DAT_TRUE, window.rmr_context));
	completed(ex->request_evd, "a Send");
	printf("wrote %zu bytes through the window and invalidated it\n", sizeof(JOB));
	disconnect(ex);
}

int main(int argc, char **argv)
{
	return run(argc, argv, serve, run_client);
}
