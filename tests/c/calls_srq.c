/* Shared receive queues: the high watermarks of their endpoints. */
#include "pair.h"

#define DEPTH 8

static DAT_SRQ_HANDLE make_srq(struct kit *kit)
{
	DAT_SRQ_ATTR attr = { .max_recv_dtos = DEPTH, .max_recv_iov = 1 };
	DAT_SRQ_HANDLE srq;

	must("dat_srq_create", dat_srq_create(kit->ia, kit->pz, &attr, &srq));
	return srq;
}

static void post_shared(struct kit *kit, DAT_SRQ_HANDLE srq, size_t at)
{
	DAT_LMR_TRIPLET part = kit_part(kit, at * PART, PART);

	must("dat_srq_post_recv", dat_srq_post_recv(srq, 1, &part, cookie_of(at)));
}

static DAT_COUNT available(DAT_SRQ_HANDLE srq)
{
	DAT_SRQ_PARAM param;

	must("dat_srq_query", dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &param));
	expect(param.srq_state == DAT_SRQ_STATE_OPERATIONAL);
	return param.available_dto_count;
}

/* A pair whose passive end receives through an SRQ. */
static DAT_SRQ_HANDLE open_shared(struct pair *pair)
{
	DAT_SRQ_HANDLE srq;

	pair_open(pair);
	srq = make_srq(&pair->passive);
	must("dat_ep_free", dat_ep_free(pair->passive.ep));
	pair->passive.ep = make_ep(&pair->passive, srq);
	return srq;
}

static void close_shared(struct pair *pair, DAT_SRQ_HANDLE srq)
{
	must_refuse("dat_srq_free", dat_srq_free(srq), DAT_INVALID_STATE,
		    DAT_INVALID_STATE_SRQ_IN_USE);
	must("dat_ep_free", dat_ep_free(pair->passive.ep));
	must("dat_srq_free", dat_srq_free(srq));
	pair->passive.ep = make_ep(&pair->passive, DAT_HANDLE_NULL);
	pair_close(pair);
}

static DAT_ASYNCH_ERROR_EVENT_DATA async_error(struct kit *kit)
{
	DAT_EVENT event;

	expect_event(kit->async_evd, DAT_ASYNC_ERROR_EP_BROKEN, &event);
	return event.event_data.asynch_error_event_data;
}

/* The soft watermark as an attribute of the endpoint; the largest watermark causes no event. */
static void soft_watermark_attribute(void)
{
	struct pair pair;
	DAT_SRQ_HANDLE srq = open_shared(&pair);
	struct kit *passive = &pair.passive;
	DAT_EP_ATTR attr = { .srq_soft_hw = 1, .max_request_dtos = 4, .max_request_iov = 1 };
	DAT_EP_PARAM param;
	DAT_EVENT event;

	for (size_t at = 0; at < DEPTH; at++)
		post_shared(passive, srq, at);
	must("dat_ep_free", dat_ep_free(passive->ep));
	must("dat_ep_create_with_srq",
	     dat_ep_create_with_srq(passive->ia, passive->pz, passive->recv_evd,
				    passive->request_evd, passive->connect_evd, srq, &attr,
				    &passive->ep));
	must("dat_ep_query", dat_ep_query(passive->ep, DAT_EP_FIELD_ALL, &param));
	expect(param.ep_attr.srq_soft_hw == 1);
	pair_connect(&pair);
	/* One receive at a time is held, which equals the watermark and does not exceed it. */
	for (size_t at = 0; at < 3; at++) {
		send_part(&pair.active, 0, PART, WAIT_MS);
		completion(passive->recv_evd, WAIT_MS, "receive");
	}
	must_refuse("dat_evd_dequeue", dat_evd_dequeue(passive->async_evd, &event),
		    DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE);
	must("dat_ep_set_watermark",
	     dat_ep_set_watermark(passive->ep, 0, DAT_WATERMARK_INFINITE));
	must("dat_ep_query", dat_ep_query(passive->ep, DAT_EP_FIELD_ALL, &param));
	expect(param.ep_attr.srq_soft_hw == 0);
	send_part(&pair.active, 0, PART, WAIT_MS);
	completion(passive->recv_evd, WAIT_MS, "receive");
	expect(async_error(passive).reason == DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT);
	close_shared(&pair, srq);
}

/* More held receives than the soft watermark cause an event, more than the hard one the end. */
static void high_watermarks(void)
{
	struct pair pair;
	DAT_SRQ_HANDLE srq = open_shared(&pair);
	DAT_ASYNCH_ERROR_EVENT_DATA error;
	DAT_LMR_TRIPLET part;
	DAT_EVENT event;

	for (size_t at = 0; at < DEPTH; at++)
		post_shared(&pair.passive, srq, at);
	must("dat_ep_set_watermark",
	     dat_ep_set_watermark(pair.passive.ep, 0, DAT_WATERMARK_INFINITE));
	pair_connect(&pair);
	send_part(&pair.active, 0, PART, WAIT_MS);
	completion(pair.passive.recv_evd, WAIT_MS, "receive");
	error = async_error(&pair.passive);
	expect(error.dat_handle == pair.passive.ep);
	expect(error.reason == DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT);
	must("dat_ep_set_watermark",
	     dat_ep_set_watermark(pair.passive.ep, DAT_WATERMARK_INFINITE, 0));
	part = kit_part(&pair.active, 0, PART);
	must("dat_ep_post_send", dat_ep_post_send(pair.active.ep, 1, &part, cookie_of(1),
						  DAT_COMPLETION_SUPPRESS_FLAG));
	expect_event(pair.passive.connect_evd, DAT_CONNECTION_EVENT_BROKEN, &event);
	expect(available(srq) == DEPTH - 1);
	close_shared(&pair, srq);
}

static const struct trial TRIALS[] = {
	{ "high-watermarks", high_watermarks },
	{ "soft-watermark-attribute", soft_watermark_attribute },
};

TRIAL_MAIN(TRIALS)
