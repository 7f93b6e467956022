/*
 * Calls of programs that were written for OFA's providers, and that these accept: endpoints without
 * EVDs, remote segments without a length, lists with any alignment, messages before their receives.
 */
#include "pair.h"

#define POSTS 300

static DAT_EP_HANDLE ep_with(struct kit *kit, DAT_EVD_HANDLE recv, DAT_EVD_HANDLE request)
{
	DAT_EP_HANDLE ep;

	must("dat_ep_create",
	     dat_ep_create(kit->ia, kit->pz, recv, request, kit->connect_evd, NULL, &ep));
	return ep;
}

static DAT_RMR_TRIPLET remote_part(struct kit *kit, size_t offset)
{
	return (DAT_RMR_TRIPLET){
		.virtual_address = (DAT_VADDR)(uintptr_t)(kit->buffer + offset),
		.rmr_context = kit->rmr_context,
	};
}

/* Both ends without one of the EVDs for completions, or without both. */
static void without_evds(void)
{
	for (int has = 0; has < 4; has++) {
		struct pair pair;
		DAT_LMR_TRIPLET part;
		DAT_EP_HANDLE ends[2];

		pair_open(&pair);
		for (int end = 0; end < 2; end++) {
			struct kit *kit = end ? &pair.passive : &pair.active;

			ends[end] = ep_with(kit, has & 1 ? kit->recv_evd : DAT_HANDLE_NULL,
					    has & 2 ? kit->request_evd : DAT_HANDLE_NULL);
		}
		begin_connect(&pair, ends[0]);
		establish(&pair, ends[1]);
		part = kit_part(&pair.active, 0, PART);
		if (!(has & 2))
			must_refuse("dat_ep_post_send",
				    dat_ep_post_send(ends[0], 1, &part, cookie_of(1), 0),
				    DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
		if (!(has & 1))
			must_refuse("dat_ep_post_recv",
				    dat_ep_post_recv(ends[0], 1, &part, cookie_of(1), 0),
				    DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
		must("dat_ep_free", dat_ep_free(ends[0]));
		must("dat_ep_free", dat_ep_free(ends[1]));
		pair_close(&pair);
	}
}

/* Writes and reads whose remote triplets have no length. */
static void without_length(void)
{
	struct pair pair;
	DAT_LMR_TRIPLET part;
	DAT_RMR_TRIPLET remote;

	pair_open(&pair);
	pair_connect(&pair);
	fill(pair.active.buffer, PART, 3);
	part = kit_part(&pair.active, 0, PART);
	remote = remote_part(&pair.passive, PART);
	must("dat_ep_post_rdma_write",
	     dat_ep_post_rdma_write(pair.active.ep, 1, &part, cookie_of(1), &remote, 0));
	expect(completion(pair.active.request_evd, WAIT_MS, "write") == PART);
	part = kit_part(&pair.active, PART, PART);
	must("dat_ep_post_rdma_read",
	     dat_ep_post_rdma_read(pair.active.ep, 1, &part, cookie_of(2), &remote, 0));
	expect(completion(pair.active.request_evd, WAIT_MS, "read") == PART);
	verify("written", pair.passive.buffer + PART, PART, 3);
	verify("read", pair.active.buffer + PART, PART, 3);
	pair_close(&pair);
}

/* Segment lists that are aligned to 4 bytes, as in a packed structure. */
static void unaligned_list(void)
{
	struct pair pair;
	char room[4 + 2 * sizeof(DAT_LMR_TRIPLET)] __attribute__((aligned(8)));
	DAT_LMR_TRIPLET parts[2];

	pair_open(&pair);
	pair_connect(&pair);
	fill(pair.active.buffer, 2 * PART, 5);
	parts[0] = kit_part(&pair.passive, 0, PART);
	parts[1] = kit_part(&pair.passive, PART, PART);
	memcpy(room + 4, parts, sizeof(parts));
	must("dat_ep_post_recv", dat_ep_post_recv(pair.passive.ep, 2, (void *)(room + 4),
						  cookie_of(1), 0));
	parts[0] = kit_part(&pair.active, 0, PART);
	parts[1] = kit_part(&pair.active, PART, PART);
	memcpy(room + 4, parts, sizeof(parts));
	must("dat_ep_post_send", dat_ep_post_send(pair.active.ep, 2, (void *)(room + 4),
						  cookie_of(1), 0));
	memset(room, 0xff, sizeof(room));
	expect(completion(pair.active.request_evd, WAIT_MS, "send") == 2 * PART);
	expect(completion(pair.passive.recv_evd, WAIT_MS, "receive") == 2 * PART);
	verify("message", pair.passive.buffer, 2 * PART, 5);
	pair_close(&pair);
}

/* Posts until the endpoint refuses, then takes what has completed, and goes on. */
static void full_queues(void)
{
	struct pair pair;
	DAT_LMR_TRIPLET part;
	DAT_RMR_TRIPLET remote;
	DAT_EP_PARAM param;
	DAT_EVENT event;
	DAT_RETURN ret = DAT_SUCCESS;
	int posted = 0;

	pair_open(&pair);
	pair_connect(&pair);
	must("dat_ep_query", dat_ep_query(pair.active.ep, DAT_EP_FIELD_ALL, &param));
	part = kit_part(&pair.active, 0, 64);
	remote = remote_part(&pair.passive, 0);
	for (; ret == DAT_SUCCESS && posted < POSTS; posted++) {
		ret = dat_ep_post_rdma_write(pair.active.ep, 1, &part, cookie_of(posted), &remote, 0);
		/* Progress, so that completed requests are not what fills the queue. */
		dat_evd_dequeue(pair.active.connect_evd, &event);
	}
	expect(--posted == param.ep_attr.max_request_dtos);
	must_refuse("dat_ep_post_rdma_write", ret, DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
	for (int at = 0; at < POSTS; at++) {
		completion(pair.active.request_evd, WAIT_MS, "write");
		must("dat_ep_post_rdma_write", dat_ep_post_rdma_write(pair.active.ep, 1, &part,
								      cookie_of(at), &remote, 0));
	}
	for (posted = 0; posted < param.ep_attr.max_recv_dtos; posted++)
		post_recv(&pair.passive, 0, 64);
	for (int at = 0; at < posted; at++) {
		completion(pair.active.request_evd, WAIT_MS, "write");
		must("dat_ep_post_send", dat_ep_post_send(pair.active.ep, 1, &part, cookie_of(at),
							  DAT_COMPLETION_SUPPRESS_FLAG));
		dat_evd_dequeue(pair.passive.connect_evd, &event);
	}
	part = kit_part(&pair.passive, 0, 64);
	must_refuse("dat_ep_post_recv",
		    dat_ep_post_recv(pair.passive.ep, 1, &part, cookie_of(0), 0),
		    DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
	for (int at = 0; at < posted; at++) {
		expect(completion(pair.passive.recv_evd, WAIT_MS, "receive") == 64);
		post_recv(&pair.passive, 0, 64);
	}
	must_refuse("dat_evd_dequeue", dat_evd_dequeue(pair.active.async_evd, &event),
		    DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE);
	pair_close(&pair);
}

/* Messages that are sent before their receives are posted, to an endpoint and to a shared queue. */
static void late_receives(void)
{
	struct pair pair;
	DAT_SRQ_ATTR attr = { .max_recv_dtos = 4, .max_recv_iov = 1 };
	DAT_LMR_TRIPLET part;
	DAT_SRQ_HANDLE srq;
	DAT_EP_HANDLE shared, sender;

	pair_open(&pair);
	pair_connect(&pair);
	for (unsigned round = 0; round < 100; round++) {
		fill(pair.active.buffer, PART, round);
		send_part(&pair.active, 0, PART, WAIT_MS);
		post_recv(&pair.passive, 0, PART);
		expect(completion(pair.passive.recv_evd, WAIT_MS, "receive") == PART);
		verify("message", pair.passive.buffer, PART, round);
	}
	must("dat_srq_create", dat_srq_create(pair.passive.ia, pair.passive.pz, &attr, &srq));
	shared = make_ep(&pair.passive, srq);
	sender = make_ep(&pair.active, DAT_HANDLE_NULL);
	begin_connect(&pair, sender);
	establish(&pair, shared);
	part = kit_part(&pair.active, 0, PART);
	must("dat_ep_post_send", dat_ep_post_send(sender, 1, &part, cookie_of(1), 0));
	expect(completion(pair.active.request_evd, WAIT_MS, "send") == PART);
	part = kit_part(&pair.passive, PART, PART);
	must("dat_srq_post_recv", dat_srq_post_recv(srq, 1, &part, cookie_of(2)));
	expect(completion(pair.passive.recv_evd, WAIT_MS, "shared receive") == PART);
	verify("message", pair.passive.buffer + PART, PART, 99);
	must("dat_ep_free", dat_ep_free(sender));
	must("dat_ep_free", dat_ep_free(shared));
	must("dat_srq_free", dat_srq_free(srq));
	pair_close(&pair);
}

static const struct trial TRIALS[] = {
	{ "without-evds", without_evds },
	{ "without-length", without_length },
	{ "unaligned-list", unaligned_list },
	{ "full-queues", full_queues },
	{ "late-receives", late_receives },
};

TRIAL_MAIN(TRIALS)
