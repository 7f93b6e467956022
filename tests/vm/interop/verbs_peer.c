/* An interop peer on verbs, connected by librdmacm. See interop.h. */
#include "interop.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#define QUEUE_LEN 64u
/* The peer may not listen yet. */
#define CONNECT_TRIES 600u
#define CONNECT_PAUSE_US 100000u

static struct rdma_event_channel *channel;
static struct rdma_cm_id *id;
static struct ibv_pd *pd;
static struct ibv_cq *send_cq, *recv_cq;
static struct ibv_mr *mr, *exposed;

static void fail(const char *what)
{
	printf("FAILED %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ---- the functions that the conversation calls ---- */

struct place my_place(void)
{
	return (struct place){ (uintptr_t)buffer, mr->rkey };
}

static struct ibv_sge part(size_t offset, size_t len)
{
	return (struct ibv_sge){ .addr = (uintptr_t)buffer + offset, .length = (uint32_t)len,
				 .lkey = mr->lkey };
}

void post_receive(size_t offset, size_t len)
{
	struct ibv_sge sge = part(offset, len);
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(id->qp, &wr, &bad))
		fail("ibv_post_recv");
}

static void post(struct ibv_send_wr *wr, size_t offset, size_t len)
{
	struct ibv_sge sge = part(offset, len);
	struct ibv_send_wr *bad;

	wr->sg_list = &sge;
	wr->num_sge = len ? 1 : 0;
	wr->send_flags = IBV_SEND_SIGNALED;
	if (ibv_post_send(id->qp, wr, &bad))
		fail("ibv_post_send");
}

void post_send(size_t offset, size_t len)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };

	post(&wr, offset, len);
}

void post_send_invalidating(size_t offset, size_t len, uint32_t key)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key };

	/* The user-space library of siw reads the STag from the field for RDMA operations. */
	wr.wr.rdma.rkey = key;
	post(&wr, offset, len);
}

static void post_rdma(enum ibv_wr_opcode opcode, size_t offset, size_t len, struct place at)
{
	struct ibv_send_wr wr = { .opcode = opcode };

	wr.wr.rdma.remote_addr = at.address;
	wr.wr.rdma.rkey = at.key;
	post(&wr, offset, len);
}

void post_write(size_t offset, size_t len, struct place to)
{
	post_rdma(IBV_WR_RDMA_WRITE, offset, len, to);
}

void post_read(size_t offset, size_t len, struct place from)
{
	post_rdma(IBV_WR_RDMA_READ, offset, len, from);
}

static struct ibv_wc completion(struct ibv_cq *cq, const char *what)
{
	struct ibv_wc wc;

	for (unsigned waited = 0; waited < PATIENCE_MS * 10; waited++) {
		int count = ibv_poll_cq(cq, 1, &wc);

		if (count < 0)
			fail("ibv_poll_cq");
		if (count == 1) {
			if (wc.status != IBV_WC_SUCCESS)
				printf("STATUS %s: %s\n", what, ibv_wc_status_str(wc.status));
			return wc;
		}
		if (waited > 50)
			usleep(100);
	}
	abort_with(what);
}

long wait_received(void)
{
	struct ibv_wc wc = completion(recv_cq, "receive");

	return wc.status == IBV_WC_SUCCESS ? (long)wc.byte_len : -1;
}

int wait_posted(void)
{
	return completion(send_cq, "operation").status != IBV_WC_SUCCESS;
}

uint32_t expose(size_t offset, size_t len)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	exposed = ibv_reg_mr(pd, buffer + offset, len, access);
	if (!exposed)
		fail("ibv_reg_mr");
	return exposed->rkey;
}

/* ---- connections ---- */

static struct rdma_cm_event *next_event(void)
{
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll(&ready, 1, PATIENCE_MS) != 1)
		abort_with("no event of the connection manager");
	if (rdma_get_cm_event(channel, &event))
		fail("rdma_get_cm_event");
	return event;
}

static void expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = next_event();

	if (event->event != type) {
		printf("EVENT %s %d\n", rdma_event_str(event->event), event->status);
		exit(1);
	}
	rdma_ack_cm_event(event);
}

void wait_for_end(void)
{
	struct rdma_cm_event *event = next_event();

	printf("EVENT %s\n", rdma_event_str(event->event));
	rdma_ack_cm_event(event);
}

static void make_queues(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };

	pd = ibv_alloc_pd(id->verbs);
	send_cq = ibv_create_cq(id->verbs, QUEUE_LEN, NULL, NULL, 0);
	recv_cq = ibv_create_cq(id->verbs, QUEUE_LEN, NULL, NULL, 0);
	if (!pd || !send_cq || !recv_cq)
		fail("creating queues");
	attr.send_cq = send_cq;
	attr.recv_cq = recv_cq;
	attr.cap.max_send_wr = attr.cap.max_recv_wr = QUEUE_LEN;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	if (rdma_create_qp(id, pd, &attr))
		fail("rdma_create_qp");
	mr = ibv_reg_mr(pd, buffer, BUFFER_LEN, access);
	if (!mr)
		fail("ibv_reg_mr");
	post_receive(INBOX, MESSAGE_LEN);
}

static void free_queues(void)
{
	rdma_destroy_qp(id);
	if (exposed)
		ibv_dereg_mr(exposed);
	exposed = NULL;
	ibv_dereg_mr(mr);
	ibv_destroy_cq(send_cq);
	ibv_destroy_cq(recv_cq);
	ibv_dealloc_pd(pd);
}

static struct rdma_conn_param parameters(unsigned char *private_data)
{
	make_private_data(private_data, set.data);
	return (struct rdma_conn_param){ .private_data = private_data,
					 .private_data_len = (uint8_t)set.data,
					 .responder_resources = (uint8_t)set.reads,
					 .initiator_depth = (uint8_t)set.reads };
}

static void run_and_disconnect(int connects)
{
	run_exchange(connects);
	if (closes(connects))
		rdma_disconnect(id);
	if (closes(0) || closes(1))
		wait_for_end();
}

static struct sockaddr_in address(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(set.port) };

	if (inet_pton(AF_INET, set.host, &address.sin_addr) != 1)
		abort_with("host= must be an IPv4 address");
	return address;
}

/* Connects once. Returns 1 if the peer has answered. */
static int connect_once(void)
{
	struct sockaddr_in to = address();
	unsigned char private_data[256];
	struct rdma_conn_param param = parameters(private_data);
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;
	int status;

	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		fail("rdma_create_id");
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, PATIENCE_MS))
		fail("rdma_resolve_addr");
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(id, PATIENCE_MS))
		fail("rdma_resolve_route");
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_queues();
	if (rdma_connect(id, &param))
		fail("rdma_connect");
	event = next_event();
	type = event->event;
	status = event->status;
	if (type == RDMA_CM_EVENT_ESTABLISHED || type == RDMA_CM_EVENT_REJECTED)
		check_private_data(event->param.conn.private_data,
				   event->param.conn.private_data_len);
	rdma_ack_cm_event(event);
	if (type == RDMA_CM_EVENT_REJECTED && status == -ECONNREFUSED)
		return 0;
	if (type != RDMA_CM_EVENT_ESTABLISHED) {
		printf("EVENT %s %d\n", rdma_event_str(type), status);
		return 1;
	}
	printf("CONNECTED\n");
	run_and_disconnect(1);
	return 1;
}

static void destroy_id(void)
{
	if (id->qp)
		free_queues();
	rdma_destroy_id(id);
}

static void run_connect(void)
{
	for (unsigned tries = 0; tries < CONNECT_TRIES; tries++) {
		int answered = connect_once();

		destroy_id();
		if (answered)
			return;
		usleep(CONNECT_PAUSE_US);
	}
	abort_with("no peer listens");
}

static void answer_request(struct rdma_cm_event *event)
{
	unsigned char private_data[256];
	struct rdma_conn_param param = parameters(private_data);

	id = event->id;
	check_private_data(event->param.conn.private_data, event->param.conn.private_data_len);
	rdma_ack_cm_event(event);
	if (set.reject) {
		if (rdma_reject(id, private_data, (uint8_t)set.data))
			fail("rdma_reject");
		printf("REJECTED\n");
		return;
	}
	make_queues();
	if (rdma_accept(id, &param))
		fail("rdma_accept");
	expect(RDMA_CM_EVENT_ESTABLISHED);
	printf("ACCEPTED\n");
	run_and_disconnect(0);
}

static void run_listen(void)
{
	struct sockaddr_in at = address();
	struct rdma_cm_id *listener;

	if (rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP))
		fail("rdma_create_id");
	if (rdma_bind_addr(listener, (struct sockaddr *)&at) || rdma_listen(listener, 8))
		fail("listening");
	printf("READY\n");
	for (unsigned time = 0; time < set.times; time++) {
		struct rdma_cm_event *event = next_event();

		if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
			abort_with(rdma_event_str(event->event));
		answer_request(event);
		destroy_id();
	}
	rdma_destroy_id(listener);
}

int main(int argc, char **argv)
{
	parse(argc, argv);
	channel = rdma_create_event_channel();
	buffer = aligned_alloc(4096, BUFFER_LEN);
	if (!channel || !buffer)
		fail("set-up");
	memset(buffer, 0, BUFFER_LEN);
	if (strcmp(set.role, "listen") == 0) {
		run_listen();
	} else if (strcmp(set.role, "connect") == 0) {
		for (unsigned time = 0; time < set.times; time++)
			run_connect();
	} else {
		abort_with("no such role");
	}
	rdma_destroy_event_channel(channel);
	printf("DONE\n");
	return 0;
}
