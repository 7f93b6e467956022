/*
 * The IB extension: an RDMA Write that wakes the server with four bytes of immediate data, and
 * atomic operations on a word of the server's.
 *
 *   extension IA            (the server)
 *   extension IA ADDRESS    (the client)
 */
#define _GNU_SOURCE
#include "example.h"

#include <dat2/dat_ib_extensions.h>

#define IMMEDIATE 0x600dcafeu
#define START 40u

/* Memory for atomics needs a separate privilege when it is registered. */
static DAT_RMR_CONTEXT register_word(struct example *ex, DAT_LMR_HANDLE *lmr)
{
	DAT_MEM_PRIV_FLAGS privileges =
		(DAT_MEM_PRIV_FLAGS)(DAT_MEM_PRIV_ALL_FLAG | DAT_IB_MEM_PRIV_REMOTE_ATOMIC);
	DAT_REGION_DESCRIPTION region = { .for_va = ex->buffer + DATA };
	DAT_LMR_CONTEXT lmr_context;
	DAT_RMR_CONTEXT rmr_context;
	DAT_VLEN granted;
	DAT_VADDR start;

	must("dat_lmr_create",
	     dat_lmr_create(ex->ia, DAT_MEM_TYPE_VIRTUAL, region, DATA_LEN, ex->pz, privileges,
			    DAT_VA_TYPE_VA, lmr, &lmr_context, &rmr_context, &granted, &start));
	return rmr_context;
}

/* A completion of the extension. */
static DAT_EVENT extended(DAT_EVD_HANDLE evd, DAT_DTOS operation, const char *what)
{
	DAT_EVENT event = expect(evd, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT, what);
	DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;

	check(dto->status == DAT_DTO_SUCCESS && dto->operation == operation, what);
	return event;
}

static void serve(struct example *ex)
{
	uint64_t start = START, word;
	DAT_IB_EXTENSION_EVENT_DATA extension;
	DAT_LMR_HANDLE lmr;
	DAT_EVENT event;

	memcpy(ex->buffer + DATA, &start, sizeof(start));
	post_recv(ex, 0);
	post_recv(ex, 1);
	serve_one(ex);
	check(strcmp(received(ex), "hello") == 0, "the client greets");
	send_offer(ex, DATA, DATA_LEN, register_word(ex, &lmr));

	event = extended(ex->recv_evd, (DAT_DTOS)DAT_IB_DTO_RECV_IMMED, "immediate data");
	memcpy(&extension, event.event_extension_data, sizeof(extension));
	memcpy(&word, ex->buffer + DATA, sizeof(word));
	printf("immediate data 0x%x; the word is %llu, and the client wrote \"%s\"\n",
	       (unsigned)extension.val.immed.data, (unsigned long long)word, ex->buffer + DATA + 64);
	expect(ex->connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, "the end");
	must("dat_lmr_free", dat_lmr_free(lmr));
}

static uint64_t result(struct example *ex)
{
	uint64_t value;

	memcpy(&value, ex->buffer + DATA, sizeof(value));
	return value;
}

static void run_client(struct example *ex, const char *host)
{
	DAT_LMR_TRIPLET before = part(ex, DATA, 8), text = part(ex, OUTBOX, 6);
	DAT_DTO_COOKIE cookie = { .as_64 = 1 };
	DAT_RMR_TRIPLET remote;

	post_recv(ex, 0);
	connect_to(ex, host);
	send_text(ex, "hello");
	remote = received_offer(ex);

	must("dat_ib_post_fetch_and_add",
	     dat_ib_post_fetch_and_add(ex->ep, 2, &before, cookie, &remote,
				       DAT_COMPLETION_DEFAULT_FLAG));
	extended(ex->request_evd, (DAT_DTOS)DAT_IB_DTO_FETCH_ADD, "an addition");
	printf("the word was %llu; added 2\n", (unsigned long long)result(ex));
	must("dat_ib_post_cmp_and_swap",
	     dat_ib_post_cmp_and_swap(ex->ep, START + 2, 7, &before, cookie, &remote,
				      DAT_COMPLETION_DEFAULT_FLAG));
	extended(ex->request_evd, (DAT_DTOS)DAT_IB_DTO_CMP_SWAP, "an exchange");
	printf("the word was %llu; now it is 7\n", (unsigned long long)result(ex));

	remote.virtual_address += 64;
	remote.segment_length -= 64;
	must("dat_ib_post_rdma_write_immed",
	     dat_ib_post_rdma_write_immed(ex->ep, 1, &text, cookie, &remote, IMMEDIATE,
					  DAT_COMPLETION_DEFAULT_FLAG));
	extended(ex->request_evd, (DAT_DTOS)DAT_IB_DTO_RDMA_WRITE_IMMED, "a Write with immediate data");
	disconnect(ex);
}

int main(int argc, char **argv)
{
	return run(argc, argv, serve, run_client);
}
