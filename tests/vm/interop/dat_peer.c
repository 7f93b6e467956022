/* An interop peer on DAT. See interop.h. */
#include "interop.h"
#include "../../c/words.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <dat2/dat_iw_extensions.h>

#define QUEUE_LEN 64

static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;
static DAT_EP_HANDLE ep;
static DAT_EVD_HANDLE async_evd, cr_evd, connect_evd, recv_evd, request_evd;
static DAT_LMR_HANDLE lmr;
static DAT_LMR_CONTEXT lmr_context;
static DAT_RMR_CONTEXT rmr_context;
static DAT_RMR_HANDLE rmr;

static DAT_EVENT next_event(DAT_EVD_HANDLE evd, const char *what)
{
	DAT_EVENT event;
	DAT_COUNT more;

	if (dat_evd_wait(evd, PATIENCE_MS * 1000, 1, &event, &more) != DAT_SUCCESS)
		abort_with(what);
	return event;
}

/* ---- the functions that the conversation calls ---- */

struct place my_place(void)
{
	return (struct place){ (uintptr_t)buffer, rmr_context };
}

static DAT_LMR_TRIPLET part(size_t offset, size_t len)
{
	return (DAT_LMR_TRIPLET){
		.virtual_address = (uintptr_t)buffer + offset,
		.segment_length = len,
		.lmr_context = lmr_context,
	};
}

static DAT_RMR_TRIPLET remote(struct place at, size_t len)
{
	return (DAT_RMR_TRIPLET){
		.virtual_address = at.address,
		.segment_length = len,
		.rmr_context = at.key,
	};
}

void post_receive(size_t offset, size_t len)
{
	DAT_LMR_TRIPLET to = part(offset, len);
	DAT_DTO_COOKIE cookie = { .as_64 = offset };

	must("dat_ep_post_recv",
	     dat_ep_post_recv(ep, 1, &to, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

void post_send(size_t offset, size_t len)
{
	DAT_LMR_TRIPLET from = part(offset, len);
	DAT_DTO_COOKIE cookie = { .as_64 = offset };

	must("dat_ep_post_send",
	     dat_ep_post_send(ep, 1, &from, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

void post_send_invalidating(size_t offset, size_t len, uint32_t key)
{
	DAT_LMR_TRIPLET from = part(offset, len);
	DAT_DTO_COOKIE cookie = { .as_64 = offset };

	must("dat_ep_post_send_with_invalidate",
	     dat_ep_post_send_with_invalidate(ep, 1, &from, cookie, DAT_COMPLETION_DEFAULT_FLAG,
					      DAT_TRUE, key));
}

void post_write(size_t offset, size_t len, struct place to)
{
	DAT_LMR_TRIPLET from = part(offset, len);
	DAT_RMR_TRIPLET target = remote(to, len);
	DAT_DTO_COOKIE cookie = { .as_64 = offset };

	must("dat_ep_post_rdma_write",
	     dat_ep_post_rdma_write(ep, 1, &from, cookie, &target, DAT_COMPLETION_DEFAULT_FLAG));
}

void post_read(size_t offset, size_t len, struct place from)
{
	DAT_LMR_TRIPLET sink = part(offset, len);
	DAT_RMR_TRIPLET source = remote(from, len);
	DAT_DTO_COOKIE cookie = { .as_64 = offset };

	must("dat_ep_post_rdma_read",
	     dat_ep_post_rdma_read(ep, 1, &sink, cookie, &source, DAT_COMPLETION_DEFAULT_FLAG));
}

static DAT_DTO_COMPLETION_EVENT_DATA completion(DAT_EVD_HANDLE evd, const char *what)
{
	DAT_EVENT event = next_event(evd, what);
	DAT_DTO_COMPLETION_EVENT_DATA data = event.event_data.dto_completion_event_data;

	if (event.event_number != DAT_DTO_COMPLETION_EVENT)
		abort_with(what);
	if (data.status != DAT_DTO_SUCCESS)
		printf("STATUS %s: %d\n", what, (int)data.status);
	return data;
}

long wait_received(void)
{
	DAT_DTO_COMPLETION_EVENT_DATA data = completion(recv_evd, "receive");

	if (data.operation == DAT_DTO_RECEIVE_WITH_INVALIDATE)
		printf("RECEIVED WITH INVALIDATE\n");
	return data.status == DAT_DTO_SUCCESS ? (long)data.transfered_length : -1;
}

int wait_posted(void)
{
	return completion(request_evd, "operation").status != DAT_DTO_SUCCESS;
}

uint32_t expose(size_t offset, size_t len)
{
	DAT_LMR_TRIPLET range = part(offset, len);
	DAT_RMR_COOKIE cookie = { .as_64 = 0 };
	DAT_RMR_CONTEXT context;

	must("dat_rmr_create", dat_rmr_create(pz, &rmr));
	must("dat_rmr_bind",
	     dat_rmr_bind(rmr, lmr, &range, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_VA, ep,
			  cookie, DAT_COMPLETION_DEFAULT_FLAG, &context));
	if (next_event(request_evd, "a bind").event_number != DAT_RMR_BIND_COMPLETION_EVENT)
		abort_with("the bind failed");
	return context;
}

/* ---- connections ---- */

void wait_for_end(void)
{
	printf("EVENT %s\n", event_name(next_event(connect_evd, "the end").event_number));
}

static DAT_EVD_HANDLE make_evd(DAT_EVD_FLAGS flags)
{
	DAT_EVD_HANDLE evd;

	must("dat_evd_create", dat_evd_create(ia, QUEUE_LEN, DAT_HANDLE_NULL, flags, &evd));
	return evd;
}

static void make_endpoint(void)
{
	DAT_EP_PARAM param;

	must("dat_ep_create",
	     dat_ep_create(ia, pz, recv_evd, request_evd, connect_evd, NULL, &ep));
	must("dat_ep_query", dat_ep_query(ep, DAT_EP_FIELD_ALL, &param));
	param.ep_attr.max_request_dtos = QUEUE_LEN;
	param.ep_attr.max_rdma_read_in = param.ep_attr.max_rdma_read_out = (DAT_COUNT)set.reads;
	must("dat_ep_modify",
	     dat_ep_modify(ep,
			   DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS |
				   DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN |
				   DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT,
			   &param));
	post_receive(INBOX, MESSAGE_LEN);
}

static void free_endpoint(void)
{
	DAT_EVENT event;

	must("dat_ep_free", dat_ep_free(ep));
	if (rmr)
		must("dat_rmr_free", dat_rmr_free(rmr));
	rmr = DAT_HANDLE_NULL;
	while (dat_evd_dequeue(recv_evd, &event) == DAT_SUCCESS)
		;
	while (dat_evd_dequeue(connect_evd, &event) == DAT_SUCCESS)
		;
}

static void open_adapter(void)
{
	DAT_EVD_FLAGS requests = (DAT_EVD_FLAGS)(DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG);
	DAT_REGION_DESCRIPTION region = { .for_va = buffer };
	DAT_VLEN len;
	DAT_VADDR start;

	must("dat_ia_open", dat_ia_open((char *)set.ia, 8, &async_evd, &ia));
	must("dat_pz_create", dat_pz_create(ia, &pz));
	cr_evd = make_evd(DAT_EVD_CR_FLAG);
	connect_evd = make_evd(DAT_EVD_CONNECTION_FLAG);
	recv_evd = make_evd(DAT_EVD_DTO_FLAG);
	request_evd = make_evd(requests);
	must("dat_lmr_create",
	     dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, BUFFER_LEN, pz, DAT_MEM_PRIV_ALL_FLAG,
			    DAT_VA_TYPE_VA, &lmr, &lmr_context, &rmr_context, &len, &start));
}

static void close_adapter(void)
{
	must("dat_lmr_free", dat_lmr_free(lmr));
	must("dat_evd_free", dat_evd_free(request_evd));
	must("dat_evd_free", dat_evd_free(recv_evd));
	must("dat_evd_free", dat_evd_free(connect_evd));
	must("dat_evd_free", dat_evd_free(cr_evd));
	must("dat_pz_free", dat_pz_free(pz));
	must("dat_ia_close", dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
}

static void live(int connects)
{
	run_exchange(connects);
	if (closes(connects))
		must("dat_ep_disconnect", dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG));
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

/* Waits for the answer to this end's request. */
static void on_answer(void)
{
	DAT_EVENT event = next_event(connect_evd, "an answer");
	DAT_CONNECTION_EVENT_DATA *data = &event.event_data.connect_event_data;

	if (event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED ||
	    event.event_number == DAT_CONNECTION_EVENT_PEER_REJECTED)
		check_private_data(data->private_data, (size_t)data->private_data_size);
	if (event.event_number != DAT_CONNECTION_EVENT_ESTABLISHED) {
		printf("EVENT %s\n", event_name(event.event_number));
		return;
	}
	printf("CONNECTED\n");
	live(1);
}

static void run_connect(void)
{
	struct sockaddr_in to = address();
	unsigned char private_data[512];

	make_private_data(private_data, set.data);
	make_endpoint();
	printf("CONNECTING\n");
	must("dat_ep_connect",
	     dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&to, set.port, PATIENCE_MS * 1000,
			    (DAT_COUNT)set.data, private_data, DAT_QOS_BEST_EFFORT,
			    DAT_CONNECT_DEFAULT_FLAG));
	on_answer();
	free_endpoint();
}

static void answer(void)
{
	DAT_EVENT event = next_event(cr_evd, "a request");
	DAT_CR_HANDLE cr = event.event_data.cr_arrival_event_data.cr_handle;
	unsigned char private_data[512];
	DAT_CR_PARAM param;

	if (event.event_number != DAT_CONNECTION_REQUEST_EVENT)
		abort_with("something other than a request");
	must("dat_cr_query", dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
	check_private_data(param.private_data, (size_t)param.private_data_size);
	make_private_data(private_data, set.data);
	if (set.reject) {
		must("dat_cr_reject", dat_cr_reject(cr, (DAT_COUNT)set.data, private_data));
		printf("REJECTED\n");
		return;
	}
	must("dat_cr_accept", dat_cr_accept(cr, param.local_ep_handle ? DAT_HANDLE_NULL : ep,
					    (DAT_COUNT)set.data, private_data));
	event = next_event(connect_evd, "the connection");
	if (event.event_number != DAT_CONNECTION_EVENT_ESTABLISHED) {
		printf("EVENT %s\n", event_name(event.event_number));
		return;
	}
	printf("ACCEPTED\n");
	live(0);
}

static void run_listen(void)
{
	DAT_PSP_HANDLE psp;

	if (set.late) {
		printf("OPEN\n");
		getchar();
	}
	must("dat_psp_create",
	     dat_psp_create(ia, set.port, cr_evd, DAT_PSP_CONSUMER_FLAG, &psp));
	printf("READY\n");
	for (unsigned time = 0; time < set.times; time++) {
		make_endpoint();
		answer();
		free_endpoint();
	}
	must("dat_psp_free", dat_psp_free(psp));
}

/* A plain listening socket accepts the connection; the SSP reads the bytes after that. */
static void run_ssp(void)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	struct sockaddr_in at = address();

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) || listen(listener, 8))
		abort_with("cannot listen");
	printf("READY\n");
	for (unsigned time = 0; time < set.times; time++) {
		int fd = accept(listener, NULL, NULL);
		DAT_IW_SSP_HANDLE ssp;

		make_endpoint();
		must("dat_iw_ssp_create", dat_iw_ssp_create(ia, fd, ep, cr_evd, NULL, 0, &ssp));
		answer();
		must("dat_iw_ssp_free", dat_iw_ssp_free(ssp));
		free_endpoint();
	}
	close(listener);
}

static void run_upgrade(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in to = address();
	unsigned char private_data[512];

	if (connect(fd, (struct sockaddr *)&to, sizeof(to)))
		abort_with("cannot connect");
	make_private_data(private_data, set.data);
	make_endpoint();
	must("dat_iw_socket_connect",
	     dat_iw_socket_connect(ep, fd, PATIENCE_MS * 1000, (DAT_COUNT)set.data, private_data));
	on_answer();
	free_endpoint();
}

int main(int argc, char **argv)
{
	parse(argc, argv);
	buffer = aligned_alloc(4096, BUFFER_LEN);
	if (!buffer)
		abort_with("out of memory");
	memset(buffer, 0, BUFFER_LEN);
	open_adapter();
	if (strcmp(set.role, "listen") == 0)
		run_listen();
	else if (strcmp(set.role, "ssp") == 0)
		run_ssp();
	else if (strcmp(set.role, "connect") == 0)
		for (unsigned time = 0; time < set.times; time++)
			run_connect();
	else if (strcmp(set.role, "upgrade") == 0)
		for (unsigned time = 0; time < set.times; time++)
			run_upgrade();
	else
		abort_with("no such role");
	close_adapter();
	printf("DONE\n");
	return 0;
}
