/*
 * RDMA Write and Read: the server offers memory and does nothing; the client writes to it and reads
 * back what it has written.
 *
 *   rdma IA            (the server)
 *   rdma IA ADDRESS    (the client)
 */
#define _GNU_SOURCE
#include "example.h"

#define HALF (DATA_LEN / 2)

static void serve(struct example *ex)
{
	unsigned sum = 0;

	post_recv(ex, 0);
	post_recv(ex, 1);
	serve_one(ex);
	/* Over iWARP the client sends first. */
	check(strcmp(received(ex), "hello") == 0, "the client greets");
	send_offer(ex, DATA, HALF, ex->rmr_context);
	/* The client uses the memory until it reports that it is done. */
	check(strcmp(received(ex), "done") == 0, "the client is done");
	for (unsigned i = 0; i < HALF; i++)
		sum += (unsigned char)ex->buffer[DATA + i];
	printf("the client wrote bytes with the sum %u\n", sum);
	expect(ex->connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, "the end");
}

static void run_client(struct example *ex, const char *host)
{
	DAT_LMR_TRIPLET source = part(ex, DATA, HALF), sink = part(ex, DATA + HALF, HALF);
	DAT_DTO_COOKIE cookie = { .as_64 = 1 };
	DAT_RMR_TRIPLET remote;

	post_recv(ex, 0);
	connect_to(ex, host);
	send_text(ex, "hello");
	remote = received_offer(ex);
	printf("the server offers %u bytes\n", (unsigned)remote.segment_length);
	check(remote.segment_length == HALF, "half of the data fits");

	for (unsigned i = 0; i < HALF; i++)
		ex->buffer[DATA + i] = (char)(i * 7);
	/* The Write needs no event of its own, because the Read completes after it. */
	must("dat_ep_post_rdma_write",
	     dat_ep_post_rdma_write(ex->ep, 1, &source, cookie, &remote,
				    DAT_COMPLETION_SUPPRESS_FLAG));
	must("dat_ep_post_rdma_read",
	     dat_ep_post_rdma_read(ex->ep, 1, &sink, cookie, &remote,
				   DAT_COMPLETION_DEFAULT_FLAG));
	completed(ex->request_evd, "an RDMA Read");
	check(memcmp(ex->buffer + DATA, ex->buffer + DATA + HALF, HALF) == 0,
	      "what was read is what was written");
	printf("wrote %u bytes and read them back\n", HALF);
	send_text(ex, "done");
	disconnect(ex);
}

int main(int argc, char **argv)
{
	return run(argc, argv, serve, run_client);
}
