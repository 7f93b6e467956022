/*
 * The common part of the examples: one interface adapter with one endpoint, its queues and one
 * registered buffer; checked calls; waiting for events.
 *
 * Every example contains both sides: `NAME IA` serves one client, `NAME IA ADDRESS` is the client.
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dat2/udat.h>

#define SERVICE 4711u
#define PATIENCE_US (30u * 1000 * 1000)
#define QUEUE_LEN 64

/* The buffer: slots for received messages, one for sent messages, and room for data. */
#define MESSAGE_LEN 64u
#define INBOX(slot) ((slot) * MESSAGE_LEN)
#define OUTBOX INBOX(16u)
#define DATA 4096u
#define DATA_LEN (64u * 1024)

struct example {
	DAT_IA_HANDLE ia;
	DAT_PZ_HANDLE pz;
	DAT_EVD_HANDLE async_evd, cr_evd, connect_evd, recv_evd, request_evd;
	DAT_EP_HANDLE ep;
	DAT_LMR_HANDLE lmr;
	DAT_LMR_CONTEXT lmr_context;
	DAT_RMR_CONTEXT rmr_context;
	char *buffer;
};

/* The memory that a peer may access, as it is sent: in network byte order. */
struct offer {
	uint64_t address;
	uint32_t length;
	uint32_t context;
};

static inline void must(const char *call, DAT_RETURN ret)
{
	const char *major = "", *minor = "";

	if (ret == DAT_SUCCESS)
		return;
	dat_strerror(ret, &major, &minor);
	fflush(stdout);
	fprintf(stderr, "%s: %s %s (0x%08x)\n", call, major, minor, (unsigned)ret);
	exit(EXIT_FAILURE);
}

static inline void check(int holds, const char *what)
{
	if (holds)
		return;
	fflush(stdout);
	fprintf(stderr, "check failed: %s\n", what);
	exit(EXIT_FAILURE);
}

static inline DAT_EVENT next_event(DAT_EVD_HANDLE evd, const char *what)
{
	DAT_EVENT event;
	DAT_COUNT more;

	must(what, dat_evd_wait(evd, PATIENCE_US, 1, &event, &more));
	return event;
}

static inline DAT_EVENT expect(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number, const char *what)
{
	DAT_EVENT event = next_event(evd, what);

	if (event.event_number != number)
		fprintf(stderr, "event 0x%x\n", (unsigned)event.event_number);
	check(event.event_number == number, what);
	return event;
}

/* Waits for one completion, which must be successful. */
static inline DAT_DTO_COMPLETION_EVENT_DATA completed(DAT_EVD_HANDLE evd, const char *what)
{
	DAT_EVENT event = expect(evd, DAT_DTO_COMPLETION_EVENT, what);

	check(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, what);
	return event.event_data.dto_completion_event_data;
}

static inline DAT_LMR_TRIPLET part(struct example *ex, size_t offset, size_t len)
{
	return (DAT_LMR_TRIPLET){
		.virtual_address = (DAT_VADDR)(uintptr_t)(ex->buffer + offset),
		.segment_length = (DAT_SEG_LENGTH)len,
		.lmr_context = ex->lmr_context,
	};
}

static inline void post_recv(struct example *ex, unsigned slot)
{
	DAT_LMR_TRIPLET segment = part(ex, INBOX(slot), MESSAGE_LEN);
	DAT_DTO_COOKIE cookie = { .as_64 = slot };

	must("dat_ep_post_recv",
	     dat_ep_post_recv(ex->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

/* Waits for a message, which is stored in the slot that its cookie names. */
static inline char *received(struct example *ex)
{
	return ex->buffer + INBOX(completed(ex->recv_evd, "a message").user_cookie.as_64);
}

static inline void send_bytes(struct example *ex, DAT_EP_HANDLE ep, const void *bytes, size_t len)
{
	DAT_LMR_TRIPLET segment = part(ex, OUTBOX, len);
	DAT_DTO_COOKIE cookie = { .as_64 = 0 };

	memcpy(ex->buffer + OUTBOX, bytes, len);
	must("dat_ep_post_send",
	     dat_ep_post_send(ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
	completed(ex->request_evd, "a Send");
}

static inline void send_text(struct example *ex, const char *text)
{
	send_bytes(ex, ex->ep, text, strlen(text) + 1);
}

static inline void send_offer(struct example *ex, size_t offset, size_t len,
			      DAT_RMR_CONTEXT context)
{
	struct offer offer = {
		.address = htobe64((uintptr_t)(ex->buffer + offset)),
		.length = htobe32((uint32_t)len),
		.context = htobe32(context),
	};

	send_bytes(ex, ex->ep, &offer, sizeof(offer));
}

static inline DAT_RMR_TRIPLET received_offer(struct example *ex)
{
	struct offer offer;
	DAT_RMR_TRIPLET remote;

	memcpy(&offer, received(ex), sizeof(offer));
	memset(&remote, 0, sizeof(remote));
	remote.virtual_address = be64toh(offer.address);
	remote.segment_length = be32toh(offer.length);
	remote.rmr_context = be32toh(offer.context);
	return remote;
}

static inline DAT_EVD_HANDLE make_evd(struct example *ex, DAT_EVD_FLAGS flags)
{
	DAT_EVD_HANDLE evd;

	must("dat_evd_create", dat_evd_create(ex->ia, QUEUE_LEN, DAT_HANDLE_NULL, flags, &evd));
	return evd;
}

static inline void open_example(struct example *ex, char *name)
{
	DAT_EVD_FLAGS requests = (DAT_EVD_FLAGS)(DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG);
	DAT_REGION_DESCRIPTION region;
	DAT_VLEN granted;
	DAT_VADDR start;

	memset(ex, 0, sizeof(*ex));
	must("dat_ia_open", dat_ia_open(name, 8, &ex->async_evd, &ex->ia));
	must("dat_pz_create", dat_pz_create(ex->ia, &ex->pz));
	ex->cr_evd = make_evd(ex, DAT_EVD_CR_FLAG);
	ex->connect_evd = make_evd(ex, DAT_EVD_CONNECTION_FLAG);
	ex->recv_evd = make_evd(ex, DAT_EVD_DTO_FLAG);
	ex->request_evd = make_evd(ex, requests);
	must("dat_ep_create", dat_ep_create(ex->ia, ex->pz, ex->recv_evd, ex->request_evd,
					    ex->connect_evd, NULL, &ex->ep));
	ex->buffer = calloc(1, DATA + DATA_LEN);
	check(ex->buffer != NULL, "there is memory");
	region.for_va = ex->buffer;
	must("dat_lmr_create",
	     dat_lmr_create(ex->ia, DAT_MEM_TYPE_VIRTUAL, region, DATA + DATA_LEN, ex->pz,
			    DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &ex->lmr, &ex->lmr_context,
			    &ex->rmr_context, &granted, &start));
}

static inline void close_example(struct example *ex)
{
	must("dat_ep_free", dat_ep_free(ex->ep));
	must("dat_lmr_free", dat_lmr_free(ex->lmr));
	must("dat_evd_free", dat_evd_free(ex->request_evd));
	must("dat_evd_free", dat_evd_free(ex->recv_evd));
	must("dat_evd_free", dat_evd_free(ex->connect_evd));
	must("dat_evd_free", dat_evd_free(ex->cr_evd));
	must("dat_pz_free", dat_pz_free(ex->pz));
	must("dat_ia_close", dat_ia_close(ex->ia, DAT_CLOSE_GRACEFUL_FLAG));
	free(ex->buffer);
}

static inline struct sockaddr_in address_of(const char *host)
{
	struct sockaddr_in address = { .sin_family = AF_INET };

	check(inet_pton(AF_INET, host, &address.sin_addr) == 1, "that is an IPv4 address");
	return address;
}

static inline void connect_to(struct example *ex, const char *host)
{
	struct sockaddr_in address = address_of(host);

	must("dat_ep_connect",
	     dat_ep_connect(ex->ep, (DAT_IA_ADDRESS_PTR)&address, SERVICE, PATIENCE_US, 0, NULL,
			    DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
	expect(ex->connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, "the connection");
}

/* Waits for one client and accepts it with `ep`; null means the endpoint in the request. */
static inline void accept_one(struct example *ex, DAT_EP_HANDLE ep)
{
	DAT_EVENT event = expect(ex->cr_evd, DAT_CONNECTION_REQUEST_EVENT, "a request");
	DAT_CR_HANDLE cr = event.event_data.cr_arrival_event_data.cr_handle;

	must("dat_cr_accept", dat_cr_accept(cr, ep, 0, NULL));
	expect(ex->connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, "the connection");
}

static inline void serve_one(struct example *ex)
{
	DAT_PSP_HANDLE psp;

	must("dat_psp_create",
	     dat_psp_create(ex->ia, SERVICE, ex->cr_evd, DAT_PSP_CONSUMER_FLAG, &psp));
	accept_one(ex, ex->ep);
	must("dat_psp_free", dat_psp_free(psp));
}

static inline void disconnect(struct example *ex)
{
	must("dat_ep_disconnect", dat_ep_disconnect(ex->ep, DAT_CLOSE_GRACEFUL_FLAG));
	expect(ex->connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, "the end");
}

static inline int run(int argc, char **argv, void (*serve)(struct example *),
		      void (*run_client)(struct example *, const char *))
{
	struct example ex;

	if (argc != 2 && argc != 3) {
		fprintf(stderr, "usage: %s IA [ADDRESS]\n", argv[0]);
		return EXIT_FAILURE;
	}
	open_example(&ex, argv[1]);
	if (argc == 3)
		run_client(&ex, argv[2]);
	else
		serve(&ex);
	close_example(&ex);
	return EXIT_SUCCESS;
}

#endif
