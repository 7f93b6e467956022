/*
 * Walks the calls of DAT with both ends of a connection in one process. The arguments are those of
 * scarce.h. A call fails with DAT_INSUFFICIENT_RESOURCES, and no event is missing.
 */
#include <poll.h>
#include <stddef.h>

#include <dat2/udat.h>

#include "scarce.h"

#define ADAPTER "iwarp-lo"
#define WAIT_US 20000000
#define BUFFER_LEN (256 * 1024)
#define LONG_LEN (100 * 1024)
#define PRIVILEGES                                                                                \
	(DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG |                           \
	 DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG)

struct end {
	DAT_IA_HANDLE ia;
	DAT_EVD_HANDLE async_evd, cr_evd, connect_evd, recv_evd, request_evd;
	DAT_PZ_HANDLE pz;
	DAT_EP_HANDLE ep;
	DAT_LMR_CONTEXT lmr_context;
	DAT_RMR_CONTEXT rmr_context;
	char buffer[BUFFER_LEN];
};

static struct end active, passive;

/* Returns 1 if a call has succeeded. Records its failure, which must be for lack of resources. */
static int works(const char *call, DAT_RETURN ret)
{
	unsigned type = (unsigned)DAT_GET_TYPE(ret);

	if (ret == DAT_SUCCESS)
		return 1;
	scarce_refused(call, ret);
	if (type != DAT_INSUFFICIENT_RESOURCES && type != DAT_PROVIDER_NOT_FOUND) {
		dprintf(1, "CALL %s returned %#x\n", call, (unsigned)ret);
		scarce_fault("a call has the wrong error");
	}
	return 0;
}

/* Waits for an event. Returns 1 if it is the wanted one; the connection may fail instead. */
static int happens(const char *what, DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER wanted, DAT_EVENT *event)
{
	DAT_COUNT more;
	DAT_RETURN ret = dat_evd_wait(evd, WAIT_US, 1, event, &more);

	if (ret != DAT_SUCCESS) {
		dprintf(1, "EVENT %s: dat_evd_wait returned %#x\n", what, (unsigned)ret);
		scarce_fault("an event is missing");
	}
	if (event->event_number == wanted)
		return 1;
	scarce_refused(what, event->event_number);
	return 0;
}

/* Waits for a completion. Returns 1 if it reports success. */
static int completes(const char *what, DAT_EVD_HANDLE evd)
{
	DAT_EVENT event;

	if (!happens(what, evd, DAT_DTO_COMPLETION_EVENT, &event))
		return 0;
	if (event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS)
		return 1;
	scarce_refused(what, event.event_data.dto_completion_event_data.status);
	return 0;
}

static int make_evd(struct end *end, DAT_EVD_FLAGS flags, DAT_EVD_HANDLE *evd)
{
	return works("dat_evd_create", dat_evd_create(end->ia, 16, DAT_HANDLE_NULL, flags, evd));
}

static int register_buffer(struct end *end, DAT_LMR_HANDLE *lmr)
{
	DAT_REGION_DESCRIPTION region = {.for_va = end->buffer};
	DAT_VLEN len;
	DAT_VADDR address;

	return works("dat_lmr_create",
		     dat_lmr_create(end->ia, DAT_MEM_TYPE_VIRTUAL, region, BUFFER_LEN, end->pz,
				    PRIVILEGES, DAT_VA_TYPE_VA, lmr, &end->lmr_context,
				    &end->rmr_context, &len, &address));
}

static int make_ep(struct end *end, DAT_EP_HANDLE *ep)
{
	return works("dat_ep_create", dat_ep_create(end->ia, end->pz, end->recv_evd,
						    end->request_evd, end->connect_evd, NULL, ep));
}

static int open_end(struct end *end)
{
	DAT_LMR_HANDLE lmr;

	memset(end, 0, offsetof(struct end, buffer));
	if (!works("dat_ia_open", dat_ia_open(ADAPTER, 8, &end->async_evd, &end->ia))) {
		end->ia = DAT_HANDLE_NULL;
		return 0;
	}
	return works("dat_pz_create", dat_pz_create(end->ia, &end->pz)) &&
	       make_evd(end, DAT_EVD_CR_FLAG, &end->cr_evd) &&
	       make_evd(end, DAT_EVD_CONNECTION_FLAG, &end->connect_evd) &&
	       make_evd(end, DAT_EVD_DTO_FLAG, &end->recv_evd) &&
	       make_evd(end, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, &end->request_evd) &&
	       make_ep(end, &end->ep) && register_buffer(end, &lmr);
}

static void close_end(struct end *end)
{
	DAT_RETURN ret;

	if (end->ia == DAT_HANDLE_NULL)
		return;
	ret = dat_ia_close(end->ia, DAT_CLOSE_ABRUPT_FLAG);
	if (ret != DAT_SUCCESS) {
		dprintf(1, "CALL dat_ia_close returned %#x\n", (unsigned)ret);
		scarce_fault("an adapter is not closed");
	}
}

static DAT_LMR_TRIPLET part(struct end *end, size_t len)
{
	return (DAT_LMR_TRIPLET){
		.virtual_address = (DAT_VADDR)(uintptr_t)end->buffer,
		.segment_length = (DAT_SEG_LENGTH)len,
		.lmr_context = end->lmr_context,
	};
}

/* Connects, and accepts on `ep`. Returns 1 if both ends are connected. */
static int connected(DAT_EP_HANDLE from, DAT_EP_HANDLE ep, DAT_CONN_QUAL port)
{
	DAT_IA_ATTR attr;
	DAT_EVENT event;

	if (!works("dat_ia_query",
		   dat_ia_query(passive.ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL)) ||
	    !works("dat_ep_connect",
		   dat_ep_connect(from, attr.ia_address_ptr, port, WAIT_US / 4, 0, NULL,
				  DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG)))
		return 0;
	for (;;) {
		DAT_COUNT more;

		/* A request, or the failure of the connect. */
		if (dat_evd_wait(passive.cr_evd, 10000, 1, &event, &more) == DAT_SUCCESS)
			break;
		if (dat_evd_dequeue(active.connect_evd, &event) == DAT_SUCCESS) {
			scarce_refused("connecting", event.event_number);
			return 0;
		}
	}
	if (event.event_number != DAT_CONNECTION_REQUEST_EVENT ||
	    !works("dat_cr_accept",
		   dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, ep, 0, NULL)))
		return 0;
	return happens("connecting", active.connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, &event) &
	       happens("accepting", passive.connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, &event);
}

static int sent(size_t len)
{
	DAT_LMR_TRIPLET from = part(&active, len), to = part(&passive, BUFFER_LEN);
	DAT_DTO_COOKIE cookie = {.as_64 = len};

	memset(active.buffer, (int)len + 1, len);
	memset(passive.buffer, 0, len);
	if (!works("dat_ep_post_recv", dat_ep_post_recv(passive.ep, 1, &to, cookie, 0)) ||
	    !works("dat_ep_post_send", dat_ep_post_send(active.ep, 1, &from, cookie, 0)))
		return 0;
	if (!completes("send", active.request_evd) || !completes("receive", passive.recv_evd))
		return 0;
	if (memcmp(active.buffer, passive.buffer, len))
		scarce_fault("wrong bytes");
	return 1;
}

static int one_sided(size_t len)
{
	DAT_LMR_TRIPLET mine = part(&active, len);
	DAT_RMR_TRIPLET theirs = {
		.virtual_address = (DAT_VADDR)(uintptr_t)passive.buffer,
		.segment_length = (DAT_SEG_LENGTH)len,
		.rmr_context = passive.rmr_context,
	};
	DAT_DTO_COOKIE cookie = {.as_64 = len};

	memset(active.buffer, 'r', len);
	if (!works("dat_ep_post_rdma_write",
		   dat_ep_post_rdma_write(active.ep, 1, &mine, cookie, &theirs, 0)) ||
	    !completes("write", active.request_evd))
		return 0;
	memset(active.buffer, 0, len);
	if (!works("dat_ep_post_rdma_read",
		   dat_ep_post_rdma_read(active.ep, 1, &mine, cookie, &theirs, 0)) ||
	    !completes("read", active.request_evd))
		return 0;
	for (size_t at = 0; at < len; at++)
		if (active.buffer[at] != 'r')
			scarce_fault("a read has not delivered the bytes of a write");
	return 1;
}

static int windows(void)
{
	DAT_LMR_TRIPLET mine = part(&active, 4096);
	DAT_RMR_COOKIE cookie = {.as_64 = 1};
	DAT_RMR_CONTEXT context;
	DAT_RMR_HANDLE rmr;
	DAT_LMR_HANDLE lmr;
	DAT_EVENT event;

	if (!register_buffer(&active, &lmr) ||
	    !works("dat_rmr_create", dat_rmr_create(active.pz, &rmr)))
		return 0;
	mine.lmr_context = active.lmr_context;
	return works("dat_rmr_bind",
		     dat_rmr_bind(rmr, lmr, &mine, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_VA,
				  active.ep, cookie, 0, &context)) &&
	       happens("bind", active.request_evd, DAT_RMR_BIND_COMPLETION_EVENT, &event);
}

static void called(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
	(void)evd;
	atomic_store((atomic_int *)data, 1);
}

static void notifiers(void)
{
	static atomic_int was_called;
	DAT_OS_WAIT_PROXY_AGENT agent = {&was_called, called};
	DAT_CNO_HANDLE cno;
	DAT_EVD_HANDLE evd;
	DAT_FD fd;

	atomic_store(&was_called, 0);
	if (works("dat_cno_fd_create", dat_cno_fd_create(passive.ia, &fd, &cno)) &&
	    works("dat_evd_modify_cno", dat_evd_modify_cno(passive.recv_evd, cno))) {
		struct pollfd set = {fd, POLLIN, 0};

		if (sent(64) && poll(&set, 1, 0) == 1)
			dat_cno_trigger(cno, &evd);
		works("dat_evd_modify_cno", dat_evd_modify_cno(passive.recv_evd, DAT_HANDLE_NULL));
	}
	if (works("dat_cno_create", dat_cno_create(passive.ia, agent, &cno)) &&
	    works("dat_evd_modify_cno", dat_evd_modify_cno(passive.recv_evd, cno)))
		sent(64);
}

static void with_srq(DAT_CONN_QUAL port)
{
	DAT_SRQ_ATTR attr = {.max_recv_dtos = 8, .max_recv_iov = 1};
	DAT_LMR_TRIPLET to = part(&passive, BUFFER_LEN);
	DAT_DTO_COOKIE cookie = {.as_64 = 1};
	DAT_SRQ_HANDLE srq;
	DAT_EP_HANDLE from, ep;

	if (works("dat_srq_create", dat_srq_create(passive.ia, passive.pz, &attr, &srq)) &&
	    works("dat_ep_create_with_srq",
		  dat_ep_create_with_srq(passive.ia, passive.pz, passive.recv_evd,
					 passive.request_evd, passive.connect_evd, srq, NULL,
					 &ep)) &&
	    works("dat_srq_post_recv", dat_srq_post_recv(srq, 1, &to, cookie)) &&
	    make_ep(&active, &from) && connected(from, ep, port)) {
		to = part(&active, 512);
		if (works("dat_ep_post_send", dat_ep_post_send(from, 1, &to, cookie, 0)) &&
		    completes("send", active.request_evd))
			completes("receive", passive.recv_evd);
	}
}

static void service_points(void)
{
	DAT_CONN_QUAL port;
	DAT_PSP_HANDLE psp;
	DAT_RSP_HANDLE rsp;
	DAT_EP_HANDLE ep;

	if (works("dat_psp_create_any", dat_psp_create_any(passive.ia, &port, passive.cr_evd,
							   DAT_PSP_PROVIDER_FLAG, &psp)))
		works("dat_psp_free", dat_psp_free(psp));
	if (make_ep(&passive, &ep))
		works("dat_rsp_create", dat_rsp_create(passive.ia, 7001, ep, passive.cr_evd, &rsp));
}

static void use(DAT_CONN_QUAL port)
{
	DAT_EVENT event;

	if (!connected(active.ep, passive.ep, port))
		return;
	/* Enough for a connection within the host to leave TCP. */
	for (size_t len = 1; len < 200; len++)
		if (!sent(len))
			return;
	if (!sent(LONG_LEN) || !one_sided(100) || !one_sided(LONG_LEN) || !windows())
		return;
	works("dat_evd_resize", dat_evd_resize(active.request_evd, 200));
	notifiers();
	with_srq(port);
	service_points();
	works("dat_ep_disconnect", dat_ep_disconnect(active.ep, DAT_CLOSE_GRACEFUL_FLAG));
	happens("disconnect", active.connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, &event);
	works("dat_ep_reset", dat_ep_reset(active.ep));
}

static void walk(void)
{
	DAT_CONN_QUAL port;
	DAT_PSP_HANDLE psp;

	passive.ia = DAT_HANDLE_NULL;
	if (open_end(&active) && open_end(&passive) &&
	    works("dat_psp_create_any", dat_psp_create_any(passive.ia, &port, passive.cr_evd,
							   DAT_PSP_CONSUMER_FLAG, &psp)))
		use(port);
	close_end(&active);
	close_end(&passive);
}



int main(int argc, char **argv)
{
	return scarce_main(argc, argv, walk);
}
