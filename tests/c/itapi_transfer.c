/*
 * IT-API: data transfer, memory regions and windows, shared receive queues.
 */
#include "itapi_kit.h"

/* Messages in both directions, with and without completions, of several segments and of none. */
static void sends(void)
{
	struct pair pair;
	it_lmr_triplet_t segments[2];
	it_event_t event;

	pair_open(&pair);
	pair_connect(&pair);
	strcpy(pair.active.buffer, "request");
	post_recv(&pair.passive, 0, 64, 10);
	post_send(&pair.active, 0, 8, 11, NOTIFIED);
	event = completed(pair.passive.recv, IT_DTO_RC_RECV_CMPL_EVENT, pair.passive.ep, 10,
			  IT_DTO_SUCCESS);
	expect(event.dto_cmpl.transferred_length == 8);
	expect(!strcmp(pair.passive.buffer, "request"));
	completed(pair.active.request, IT_DTO_SEND_CMPL_EVENT, pair.active.ep, 11, IT_DTO_SUCCESS);
	segments[0] = part(&pair.passive, 100, 3);
	segments[1] = part(&pair.passive, 200, 4);
	memcpy(pair.passive.buffer + 100, "ans", 3);
	memcpy(pair.passive.buffer + 200, "wer", 4);
	post_recv(&pair.active, 0, 64, 12);
	must(it_post_send(pair.passive.ep, segments, 2, 13, NOTIFIED));
	event = completed(pair.active.recv, IT_DTO_RC_RECV_CMPL_EVENT, pair.active.ep, 12,
			  IT_DTO_SUCCESS);
	expect(event.dto_cmpl.transferred_length == 7 && !strcmp(pair.active.buffer, "answer"));
	/* Without IT_COMPLETION_FLAG a success has no event: the next event is that of cookie 15. */
	post_recv(&pair.passive, 0, 64, 0);
	post_recv(&pair.passive, 0, 64, 0);
	post_send(&pair.active, 0, 8, 14, (it_dto_flags_t)0);
	must(it_post_send(pair.active.ep, NULL, 0, 15, NOTIFIED));
	completed(pair.active.request, IT_DTO_SEND_CMPL_EVENT, pair.active.ep, 15, IT_DTO_SUCCESS);
	next(pair.passive.recv);
	event = next_of(pair.passive.recv, IT_DTO_RC_RECV_CMPL_EVENT);
	expect(event.dto_cmpl.transferred_length == 0);
	answers(IT_ERR_QUEUE_EMPTY, it_evd_dequeue(pair.passive.recv, &event));
	pair_disconnect(&pair);
	pair_close(&pair);
}

/* A completion without notification wakes no waiter and can be dequeued. */
static void unnotified(void)
{
	struct pair pair;
	it_event_t event;

	pair_open(&pair);
	pair_connect(&pair);
	post_recv(&pair.passive, 0, 64, 0);
	post_send(&pair.active, 0, 8, 1, IT_COMPLETION_FLAG);
	next(pair.passive.recv);
	while (it_evd_dequeue(pair.active.request, &event) == IT_ERR_QUEUE_EMPTY)
		;
	expect(event.dto_cmpl.cookie == 1 && event.dto_cmpl.dto_status == IT_DTO_SUCCESS);
	pair_close(&pair);
}

/* Posts that are refused, each with its status. */
static void refused(void)
{
	struct pair pair;
	it_lmr_triplet_t segment, many[8];
	int posted = 0;

	pair_open(&pair);
	segment = part(&pair.active, 0, 8);
	answers(IT_ERR_INVALID_EP_STATE, it_post_send(pair.active.ep, &segment, 1, 0, NOTIFIED));
	pair_connect(&pair);
	answers(IT_ERR_INVALID_EP, it_post_send(NULL, &segment, 1, 0, NOTIFIED));
	answers(IT_ERR_INVALID_EP,
		it_post_recv((it_handle_t)pair.active.pz, &segment, 1, 0, NOTIFIED));
	answers(IT_ERR_FAULT, it_post_send(pair.active.ep, NULL, 1, 0, NOTIFIED));
	answers(IT_ERR_INVALID_DTO_FLAGS,
		it_post_send(pair.active.ep, &segment, 1, 0, (it_dto_flags_t)0x100));
	answers(IT_ERR_OP_NOT_SUPPORTED,
		it_post_rdma_read(pair.active.ep, &segment, 1, 0,
				  (it_dto_flags_t)(NOTIFIED | IT_UNLINK_LOCAL_SINK), 0, 0));
	for (int index = 0; index < 8; index++)
		many[index] = segment;
	answers(IT_ERR_INVALID_NUM_SEGMENTS,
		it_post_send(pair.active.ep, many, 8, 0, NOTIFIED));
	answers(IT_ERR_INVALID_NUM_SEGMENTS,
		it_post_send(pair.active.ep, many, (size_t)-1, 0, NOTIFIED));
	segment.length = (it_length_t)1 << 32;
	answers(IT_ERR_INVALID_LENGTH, it_post_send(pair.active.ep, &segment, 1, 0, NOTIFIED));
	segment = part(&pair.active, 0, 8);
	segment.lmr = (it_lmr_handle_t)(void *)pair.active.ep;
	answers(IT_ERR_INVALID_LMR, it_post_send(pair.active.ep, &segment, 1, 0, NOTIFIED));
	segment = part(&pair.active, 0, 8);
	answers(IT_ERR_RANGE, it_post_rdma_write(pair.active.ep, &segment, 1, 0, NOTIFIED, 0,
						 (it_rmr_context_t)1 << 32));
	answers(IT_ERR_INVALID_NUM_SEGMENTS,
		it_post_rdma_read_to_rmr(pair.active.ep, NULL, 0, 0, NOTIFIED, 0, 0));
	while (it_post_recv(pair.active.ep, &segment, 1, 0, NOTIFIED) == IT_SUCCESS)
		expect(++posted < 10000);
	expect(posted >= 16);
	answers(IT_ERR_TOO_MANY_POSTS,
		it_post_recv(pair.active.ep, &segment, 1, 0, NOTIFIED));
	pair_close(&pair);
}

/* RDMA Write, then Read, of a peer whose program does nothing. */
static void rdma(void)
{
	struct pair pair;
	it_lmr_triplet_t segment;
	it_rdma_addr_t address;

	pair_open(&pair);
	pair_connect(&pair);
	address = it_make_rdma_addr_absolute(pair.passive.buffer + 1000);
	segment = part(&pair.active, 0, 6);
	memcpy(pair.active.buffer, "write", 6);
	must(it_post_rdma_write(pair.active.ep, &segment, 1, 20, NOTIFIED, address,
				pair.passive.context));
	completed(pair.active.request, IT_DTO_RDMA_WRITE_CMPL_EVENT, pair.active.ep, 20,
		  IT_DTO_SUCCESS);
	segment = part(&pair.active, 500, 6);
	must(it_post_rdma_read(pair.active.ep, &segment, 1, 21,
			       (it_dto_flags_t)(NOTIFIED | IT_BARRIER_FENCE_FLAG), address,
			       pair.passive.context));
	completed(pair.active.request, IT_DTO_RDMA_READ_CMPL_EVENT, pair.active.ep, 21,
		  IT_DTO_SUCCESS);
	expect(!strcmp(pair.active.buffer + 500, "write"));
	expect(!strcmp(pair.passive.buffer + 1000, "write"));
	/* The connection does not survive an access beyond the region. */
	must(it_post_rdma_read(pair.active.ep, &segment, 1, 22, NOTIFIED, address + BUFFER_LEN,
			       pair.passive.context));
	completed(pair.active.request, IT_DTO_RDMA_READ_CMPL_EVENT, pair.active.ep, 22,
		  IT_DTO_ERR_REMOTE_ACCESS);
	next_of(pair.active.cm_msg, IT_CM_MSG_CONN_BROKEN_EVENT);
	expect(state(pair.active.ep) == IT_EP_STATE_NONOPERATIONAL);
	pair_close(&pair);
}

/* Atomics return the former value. */
static void atomics(void)
{
	struct pair pair;
	it_lmr_triplet_t result;
	it_rdma_addr_t address;
	uint64_t *former, *target;

	pair_open(&pair);
	pair_connect(&pair);
	former = (uint64_t *)(void *)pair.active.buffer;
	target = (uint64_t *)(void *)pair.passive.buffer;
	*target = 40;
	result = part(&pair.active, 0, 8);
	address = it_make_rdma_addr_absolute(target);
	must(it_post_atomic(pair.active.ep, IT_FETCH_AND_ADD, 2, 0, &result, 30, NOTIFIED, address,
			    pair.passive.context));
	completed(pair.active.request, IT_DTO_FETCH_ADD_CMPL_EVENT, pair.active.ep, 30,
		  IT_DTO_SUCCESS);
	expect(*former == 40 && *target == 42);
	must(it_post_atomic(pair.active.ep, IT_COMPARE_AND_SWAP, 7, 42, &result, 31, NOTIFIED,
			    address, pair.passive.context));
	completed(pair.active.request, IT_DTO_CMP_SWAP_CMPL_EVENT, pair.active.ep, 31,
		  IT_DTO_SUCCESS);
	expect(*former == 42 && *target == 7);
	must(it_post_atomic(pair.active.ep, IT_COMPARE_AND_SWAP, 9, 8, &result, 32, NOTIFIED,
			    address, pair.passive.context));
	completed(pair.active.request, IT_DTO_CMP_SWAP_CMPL_EVENT, pair.active.ep, 32,
		  IT_DTO_SUCCESS);
	expect(*former == 7 && *target == 7);
	answers(IT_ERR_INVALID_ATOMIC_OP,
		it_post_atomic(pair.active.ep, (it_atomic_op_t)2, 0, 0, &result, 0, NOTIFIED,
			       address, pair.passive.context));
	pair_close(&pair);
}

static it_rmr_context_t linked(struct pair *pair, it_rmr_handle_t rmr, size_t offset, size_t len)
{
	it_rmr_context_t context;

	must(it_rmr_link(rmr, pair->passive.lmr, pair->passive.buffer + offset, len,
			 IT_ADDR_MODE_ABSOLUTE, (it_mem_priv_t)(IT_PRIV_REMOTE), pair->passive.ep,
			 40, NOTIFIED, &context));
	completed(pair->passive.request, IT_RMR_LINK_CMPL_EVENT, pair->passive.ep, 40,
		  IT_DTO_SUCCESS);
	return context;
}

/* A window is linked, used, and unlinked by its owner; then the peer's access fails. */
static void window(it_rmr_type_t type)
{
	struct pair pair;
	it_lmr_triplet_t segment;
	it_rmr_handle_t rmr;
	it_rmr_param_t param;
	it_rmr_context_t context;
	it_rdma_addr_t address;
	it_ia_info_t *info;

	pair_open(&pair);
	pair_connect(&pair);
	must(it_ia_query(pair.passive.ia, &info));
	expect(info->rmr_types_supported & type);
	it_ia_info_free(info);
	must(it_rmr_create20(pair.passive.pz, type, &rmr));
	must(it_rmr_query(rmr, IT_RMR_PARAM_ALL, &param));
	expect(!param.linked && param.type == type && param.pz == pair.passive.pz);
	context = linked(&pair, rmr, 4096, 16);
	must(it_rmr_query(rmr, IT_RMR_PARAM_ALL, &param));
	expect(param.linked && param.rmr_context == context && param.lmr == pair.passive.lmr);
	expect(param.addr == pair.passive.buffer + 4096 && param.length == 16);
	answers(IT_ERR_LMR_BUSY, it_lmr_free(pair.passive.lmr));
	address = it_make_rdma_addr_absolute(pair.passive.buffer + 4096);
	strcpy(pair.active.buffer, "by window");
	segment = part(&pair.active, 0, 10);
	must(it_post_rdma_write(pair.active.ep, &segment, 1, 41, NOTIFIED, address, context));
	must(it_post_rdma_read(pair.active.ep, &segment, 1, 42, NOTIFIED, address, context));
	next_of(pair.active.request, IT_DTO_RDMA_WRITE_CMPL_EVENT);
	next_of(pair.active.request, IT_DTO_RDMA_READ_CMPL_EVENT);
	expect(!strcmp(pair.passive.buffer + 4096, "by window"));
	must(it_rmr_unlink(rmr, pair.passive.ep, 43, NOTIFIED));
	completed(pair.passive.request, IT_RMR_LINK_CMPL_EVENT, pair.passive.ep, 43,
		  IT_DTO_SUCCESS);
	must(it_post_rdma_read(pair.active.ep, &segment, 1, 44, NOTIFIED, address, context));
	completed(pair.active.request, IT_DTO_RDMA_READ_CMPL_EVENT, pair.active.ep, 44,
		  IT_DTO_ERR_REMOTE_ACCESS);
	must(it_rmr_free(rmr));
	answers(IT_ERR_INVALID_RMR, it_rmr_free(rmr));
	pair_close(&pair);
}

static void narrow_window(void)
{
	window(IT_RMR_TYPE_NARROW);
}

static void wide_window(void)
{
	window(IT_RMR_TYPE_WIDE);
}

/* The peer's message unlinks a window, and the completion names it. */
static void send_and_unlink(void)
{
	struct pair pair;
	it_lmr_triplet_t segment;
	it_rmr_handle_t rmr;
	it_rmr_param_t param;
	it_rmr_context_t context;
	it_event_t event;

	pair_open(&pair);
	pair_connect(&pair);
	must(it_rmr_create20(pair.passive.pz, IT_RMR_TYPE_NARROW, &rmr));
	context = linked(&pair, rmr, 0, 64);
	post_recv(&pair.passive, 100, 64, 50);
	segment = part(&pair.active, 0, 4);
	must(it_post_send_and_unlink(pair.active.ep, &segment, 1, 51, NOTIFIED, context));
	event = completed(pair.passive.recv, IT_DTO_RC_RECV_CMPL_EVENT, pair.passive.ep, 50,
			  IT_DTO_SUCCESS);
	expect(event.dto_cmpl.unlinked_mr_handle == (it_handle_t)rmr);
	must(it_rmr_query(rmr, IT_RMR_PARAM_LINKED, &param));
	expect(!param.linked);
	must(it_rmr_free(rmr));
	pair_close(&pair);
}

/* A read whose sink is a window. */
static void read_to_rmr(void)
{
	struct pair pair;
	it_rmr_triplet_t sink;
	it_rmr_handle_t rmr;

	pair_open(&pair);
	pair_connect(&pair);
	must(it_rmr_create20(pair.passive.pz, IT_RMR_TYPE_WIDE, &rmr));
	linked(&pair, rmr, 0, 64);
	strcpy(pair.active.buffer, "source");
	sink.rmr = rmr;
	sink.addr.abs = pair.passive.buffer;
	sink.length = 7;
	must(it_post_rdma_read_to_rmr(pair.passive.ep, &sink, 1, 60, NOTIFIED,
				      it_make_rdma_addr_absolute(pair.active.buffer),
				      pair.active.context));
	completed(pair.passive.request, IT_DTO_RDMA_READ_CMPL_EVENT, pair.passive.ep, 60,
		  IT_DTO_SUCCESS);
	expect(!strcmp(pair.passive.buffer, "source"));
	must(it_rmr_free(rmr));
	pair_close(&pair);
}

/* Regions: parameters, relative addresses, new privileges, memory that is shared. */
static void regions(void)
{
	struct pair pair;
	it_lmr_handle_t lmr, other;
	it_rmr_context_t context;
	it_lmr_triplet_t segment;
	it_lmr_param_t param;
	it_iobl_t list;

	pair_open(&pair);
	pair_connect(&pair);
	must(it_lmr_create20(pair.passive.pz, pair.passive.buffer, 64, IT_ADDR_MODE_RELATIVE,
			     (it_mem_priv_t)(IT_PRIV_LOCAL | IT_PRIV_REMOTE_READ), IT_LMR_FLAG_NONE,
			     0, &lmr, &context));
	must(it_lmr_query(lmr, IT_LMR_PARAM_ALL, &param));
	expect(param.ia == pair.passive.ia && param.pz == pair.passive.pz && param.length == 64);
	expect(param.addr_mode == IT_ADDR_MODE_RELATIVE && param.rmr_context == context);
	expect(param.actual_length >= 64 && param.linked);
	strcpy(pair.passive.buffer + 8, "relative");
	segment = part(&pair.active, 0, 9);
	must(it_post_rdma_read(pair.active.ep, &segment, 1, 1, NOTIFIED,
			       it_make_rdma_addr_relative(8), context));
	completed(pair.active.request, IT_DTO_RDMA_READ_CMPL_EVENT, pair.active.ep, 1,
		  IT_DTO_SUCCESS);
	expect(!strcmp(pair.active.buffer, "relative"));
	segment.lmr = lmr;
	segment.addr.rel = 0;
	must(it_lmr_flush_to_mem(&segment, 1));
	must(it_lmr_refresh_from_mem(&segment, 1));
	param.privs = IT_PRIV_LOCAL;
	must(it_lmr_modify(lmr, IT_LMR_PARAM_MEM_PRIV, &param));
	must(it_lmr_query(lmr, IT_LMR_PARAM_ALL, &param));
	expect(param.privs == IT_PRIV_LOCAL);
	answers(IT_ERR_INVALID_MASK, it_lmr_modify(lmr, IT_LMR_PARAM_LENGTH, &param));
	must(it_lmr_create10(pair.passive.pz, pair.passive.buffer, 64, IT_PRIV_LOCAL,
			     IT_LMR_FLAG_SHARED, 5, &other, NULL));
	must(it_lmr_free(other));
	answers(IT_ERR_PRIV_OPS_UNAVAILABLE,
		it_lmr_create21(pair.passive.pz, NULL, &list, 64, IT_ADDR_MODE_ABSOLUTE,
				IT_PRIV_LOCAL, IT_LMR_FLAG_NONE, 0, &other, NULL));
	answers(IT_ERR_INVALID_PRIVS,
		it_lmr_create10(pair.passive.pz, pair.passive.buffer, 64, (it_mem_priv_t)0x40,
				IT_LMR_FLAG_NONE, 0, &other, NULL));
	answers(IT_ERR_INVALID_ADDRESS,
		it_lmr_create10(pair.passive.pz, (void *)8, 64, IT_PRIV_LOCAL, IT_LMR_FLAG_NONE, 0,
				&other, NULL));
	answers(IT_ERR_INVALID_PZ,
		it_lmr_create10(NULL, pair.passive.buffer, 64, IT_PRIV_LOCAL, IT_LMR_FLAG_NONE, 0,
				&other, NULL));
	answers(IT_ERR_PZ_BUSY, it_pz_free(pair.passive.pz));
	must(it_lmr_free(lmr));
	answers(IT_ERR_INVALID_LMR, it_lmr_free(lmr));
	pair_close(&pair);
}

/* A shared receive queue: receives, completions, parameters, and the low watermark's event. */
static void shared_queue(void)
{
	struct pair pair;
	it_ep_attributes_t attr = attributes();
	it_evd_handle_t affiliated;
	it_lmr_triplet_t segment;
	it_srq_handle_t srq;
	it_srq_param_t param;
	it_event_t event;

	pair_open(&pair);
	affiliated = make_sevd(pair.passive.ia, IT_ASYNC_AFF_EVENT_STREAM, NO_AEVD);
	must(it_srq_create(pair.passive.pz, 2, 8, &srq));
	must(it_srq_query(srq, IT_SRQ_PARAM_ALL, &param));
	expect(param.max_recv_dtos == 8 && param.max_recv_segs == 2 && !param.low_watermark);
	must(it_ep_free(pair.passive.ep));
	attr.max_recv_dtos = 0;
	attr.srv.rc.srq = NULL;
	answers(IT_ERR_INVALID_SRQ,
		it_ep_rc_create(pair.passive.pz, pair.passive.request, pair.passive.recv,
				pair.passive.cm_msg, IT_EP_SRQ, &attr, &pair.passive.ep));
	attr.srv.rc.srq = srq;
	must(it_ep_rc_create(pair.passive.pz, pair.passive.request, pair.passive.recv,
			     pair.passive.cm_msg, IT_EP_SRQ, &attr, &pair.passive.ep));
	pair_connect(&pair);
	segment = part(&pair.passive, 0, 64);
	answers(IT_ERR_INVALID_EP_STATE,
		it_post_recv(pair.passive.ep, &segment, 1, 0, NOTIFIED));
	must(it_post_recv(srq, &segment, 1, 70, NOTIFIED));
	must(it_post_recv(srq, &segment, 1, 71, NOTIFIED));
	param.low_watermark = 2;
	param.max_recv_dtos = 16;
	must(it_srq_modify(srq,
			   (it_srq_param_mask_t)(IT_SRQ_PARAM_LOW_WATERMARK |
						 IT_SRQ_PARAM_MAX_RECV_DTO),
			   &param));
	answers(IT_ERR_INVALID_MASK, it_srq_modify(srq, IT_SRQ_PARAM_PZ, &param));
	answers(IT_ERR_SRQ_BUSY, it_srq_free(srq));
	post_send(&pair.active, 0, 8, 72, NOTIFIED);
	completed(pair.passive.recv, IT_DTO_RC_RECV_CMPL_EVENT, pair.passive.ep, 70,
		  IT_DTO_SUCCESS);
	event = next_of(affiliated, IT_ASYNC_AFF_SRQ_LOW_WATERMARK);
	expect(event.aff_async.cause.srq == srq);
	/* The end of the endpoint's receives is no event of IT-API. */
	pair_disconnect(&pair);
	answers(IT_ERR_TIMEOUT_EXPIRED, it_evd_wait(affiliated, QUIET_US, &event, NULL));
	must(it_ep_free(pair.passive.ep));
	must(it_srq_free(srq));
	pair.passive.ep = make_ep(&pair.passive);
	must(it_evd_free(affiliated));
	pair_close(&pair);
}

static const struct trial trials[] = {
	{ "sends", sends },
	{ "unnotified", unnotified },
	{ "refused", refused },
	{ "rdma", rdma },
	{ "atomics", atomics },
	{ "narrow-window", narrow_window },
	{ "wide-window", wide_window },
	{ "send-and-unlink", send_and_unlink },
	{ "read-to-rmr", read_to_rmr },
	{ "regions", regions },
	{ "shared-queue", shared_queue },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	return run_trial(argc, argv, trials);
}
