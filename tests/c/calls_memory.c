/*
 * Calls for memory: windows for one endpoint, windows that the peer invalidates, regions of
 * regions, zero-based and shared memory.
 */
#include "pair.h"

#define SECOND (2 * PART)

static DAT_RMR_TRIPLET remote_part(DAT_VADDR address, DAT_RMR_CONTEXT context)
{
	return (DAT_RMR_TRIPLET){
		.virtual_address = address,
		.segment_length = PART,
		.rmr_context = context,
	};
}

static DAT_VADDR address_in(struct kit *kit, size_t offset)
{
	return (DAT_VADDR)(uintptr_t)(kit->buffer + offset);
}

/* Writes the first part of `from` to the peer and returns the completion status. */
static DAT_DTO_COMPLETION_STATUS write_part(struct kit *from, DAT_RMR_TRIPLET to)
{
	DAT_LMR_TRIPLET part = kit_part(from, 0, PART);
	DAT_EVENT event;

	must("dat_ep_post_rdma_write",
	     dat_ep_post_rdma_write(from->ep, 1, &part, cookie_of(1), &to,
				    DAT_COMPLETION_DEFAULT_FLAG));
	expect_event(from->request_evd, DAT_DTO_COMPLETION_EVENT, &event);
	return event.event_data.dto_completion_event_data.status;
}

/* Reads from the peer into the first part of `to` and returns the completion status. */
static DAT_DTO_COMPLETION_STATUS read_part(struct kit *to, DAT_RMR_TRIPLET from)
{
	DAT_LMR_TRIPLET part = kit_part(to, 0, PART);
	DAT_EVENT event;

	must("dat_ep_post_rdma_read",
	     dat_ep_post_rdma_read(to->ep, 1, &part, cookie_of(2), &from,
				   DAT_COMPLETION_DEFAULT_FLAG));
	expect_event(to->request_evd, DAT_DTO_COMPLETION_EVENT, &event);
	return event.event_data.dto_completion_event_data.status;
}

/*
 * A write may complete before the peer refuses it, because iWARP has no answer to a write. The
 * connection must break, and no byte may have changed.
 */
static void expect_refused_write(struct pair *pair, size_t offset, DAT_RMR_TRIPLET to)
{
	char *target = pair->passive.buffer + offset;
	DAT_LMR_TRIPLET part = kit_part(&pair->active, 0, PART);
	DAT_EVENT event;

	memset(target, 0x5a, PART);
	memset(pair->active.buffer, 0, PART);
	must("dat_ep_post_rdma_write",
	     dat_ep_post_rdma_write(pair->active.ep, 1, &part, cookie_of(1), &to,
				    DAT_COMPLETION_DEFAULT_FLAG));
	expect_event(pair->active.connect_evd, DAT_CONNECTION_EVENT_BROKEN, &event);
	expect_event(pair->passive.connect_evd, DAT_CONNECTION_EVENT_BROKEN, &event);
	for (size_t at = 0; at < PART; at++)
		expect(target[at] == 0x5a);
}

/* Binds `rmr` to the part of the end's buffer at `offset`; length 0 unbinds. */
static DAT_RMR_CONTEXT bind_part(struct kit *kit, DAT_RMR_HANDLE rmr, size_t offset, size_t len)
{
	DAT_LMR_TRIPLET part = kit_part(kit, offset, len);
	DAT_RMR_BIND_COMPLETION_EVENT_DATA *bound;
	DAT_RMR_CONTEXT context = 0;
	DAT_EVENT event;

	must("dat_rmr_bind",
	     dat_rmr_bind(rmr, len ? kit->lmr : DAT_HANDLE_NULL, &part,
			  DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG,
			  DAT_VA_TYPE_VA, kit->ep, cookie_of(77), DAT_COMPLETION_DEFAULT_FLAG,
			  &context));
	expect_event(kit->request_evd, DAT_RMR_BIND_COMPLETION_EVENT, &event);
	bound = &event.event_data.rmr_completion_event_data;
	expect(bound->rmr_handle == rmr && bound->user_cookie.as_64 == 77);
	expect(bound->status == DAT_RMR_BIND_SUCCESS);
	return context;
}

/* A window for one endpoint cannot be used by the peer of another endpoint. */
static void window_for_ep(void)
{
	struct pair pair;
	DAT_EP_HANDLE active, passive;
	DAT_RMR_CONTEXT context;
	DAT_RMR_HANDLE rmr;
	DAT_RMR_PARAM param;
	DAT_EVENT event;

	pair_open(&pair);
	must("dat_rmr_create_for_ep", dat_rmr_create_for_ep(pair.passive.pz, &rmr));
	pair_connect(&pair);
	active = make_ep(&pair.active, DAT_HANDLE_NULL);
	passive = make_ep(&pair.passive, DAT_HANDLE_NULL);
	begin_connect(&pair, active);
	establish(&pair, passive);
	context = bind_part(&pair.passive, rmr, 0, PART);
	must("dat_rmr_query", dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, &param));
	expect(param.rmr_scope == DAT_RMR_SCOPE_EP);
	fill(pair.active.buffer, PART, 5);
	expect(write_part(&pair.active, remote_part(address_in(&pair.passive, 0), context)) ==
	       DAT_DTO_SUCCESS);
	expect(read_part(&pair.active, remote_part(address_in(&pair.passive, 0), context)) ==
	       DAT_DTO_SUCCESS);
	verify("window", pair.passive.buffer, PART, 5);
	must("dat_ep_free", dat_ep_free(pair.active.ep));
	expect_event(pair.passive.connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, &event);
	pair.active.ep = active;
	expect_refused_write(&pair, 0, remote_part(address_in(&pair.passive, 0), context));
	must("dat_ep_free", dat_ep_free(passive));
	must("dat_rmr_free", dat_rmr_free(rmr));
	pair_close(&pair);
}

static void zero_based(void)
{
	struct pair pair;
	DAT_REGION_DESCRIPTION region;
	DAT_LMR_PARAM param;
	DAT_LMR_TRIPLET part;
	DAT_LMR_HANDLE view;

	pair_open(&pair);
	pair_connect(&pair);
	region.for_va = pair.passive.buffer;
	must("dat_lmr_create",
	     dat_lmr_create(pair.passive.ia, DAT_MEM_TYPE_VIRTUAL, region, BUFFER_LEN,
			    pair.passive.pz, ALL_PRIVILEGES, DAT_VA_TYPE_ZB, &view, NULL, NULL,
			    NULL, NULL));
	must("dat_lmr_query", dat_lmr_query(view, DAT_LMR_FIELD_ALL, &param));
	fill(pair.active.buffer, PART, 8);
	expect(write_part(&pair.active, remote_part(SECOND, param.rmr_context)) == DAT_DTO_SUCCESS);
	memset(&part, 0, sizeof(part));
	part.virtual_address = 3 * PART;
	part.segment_length = PART;
	part.lmr_context = param.lmr_context;
	must("dat_ep_post_recv", dat_ep_post_recv(pair.passive.ep, 1, &part, cookie_of(6),
						  DAT_COMPLETION_DEFAULT_FLAG));
	send_part(&pair.active, 0, PART, WAIT_MS);
	completion(pair.passive.recv_evd, WAIT_MS, "receive");
	verify("written", pair.passive.buffer + SECOND, PART, 8);
	verify("received", pair.passive.buffer + 3 * PART, PART, 8);
	/* Addresses are offsets in the region, so an address of the buffer is refused. */
	expect_refused_write(&pair, 0, remote_part(address_in(&pair.passive, 0), param.rmr_context));
	must("dat_lmr_free", dat_lmr_free(view));
	pair_close(&pair);
}

static const struct trial TRIALS[] = {
	{ "window-for-ep", window_for_ep },
	{ "zero-based", zero_based },
};

TRIAL_MAIN(TRIALS)
