/*
 * Every function of the C interface with live handles and invalid arguments: missing out-pointers,
 * negative and huge lengths, numbers that no enum has, and states that do not permit the call. Each
 * row has the only correct return code, class bit included.
 *
 * usage: bad_arguments Prints each returned code, one line for each wrong code, and a last line
 * with the counts; exits with 1 if a code was wrong.
 */
#include <limits.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "pair.h"

#include <dat2/dat_ib_extensions.h>
#include <dat2/dat_registry.h>

#define ERROR(type, subtype) (DAT_CLASS_ERROR | (type) | (subtype))
#define ARG(n) ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1 + (n) - 1)
#define HANDLE(name) ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE##name)
#define STATE(name) ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_##name)
#define UNREGISTERED ERROR(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED)
#define FULL ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY)
/* Some calls return their codes without class bit; docs/calls names them. */
#define PLAIN(code) ((code) & ~DAT_CLASS_ERROR)
#define NONE DAT_HANDLE_NULL
/* A value that is no handle. */
#define NO_HANDLE ((DAT_HANDLE)0x10)

static struct pair pair;
static DAT_EP_HANDLE idle, asking;
static DAT_CNO_HANDLE cno;
static DAT_SRQ_HANDLE srq;
static DAT_RMR_HANDLE rmr;
static DAT_CR_HANDLE cr;
static DAT_EVD_HANDLE software;
static DAT_HANDLE out;
static DAT_LMR_TRIPLET part;
static DAT_RMR_TRIPLET remote;
static DAT_EVENT event;
static DAT_COUNT count;
static DAT_DTO_COOKIE cookie;
static char data[1024];

#define IA pair.active.ia
#define PZ pair.active.pz
#define EP pair.active.ep
#define LMR pair.active.lmr
#define RECV pair.active.recv_evd
#define CONN pair.active.connect_evd
#define REQ pair.active.cr_evd
#define ADDRESS ia_address(&pair.passive)
#define QUAL pair.qualifier

static DAT_RETURN make_evd_of(DAT_COUNT len, DAT_EVD_FLAGS flags, DAT_EVD_HANDLE *to)
{
	return dat_evd_create(IA, len, NONE, flags, to);
}

static DAT_RETURN make_ep_of(int messages, int segments)
{
	DAT_EP_ATTR attr = {
		.service_type = DAT_SERVICE_TYPE_RC,
		.qos = DAT_QOS_BEST_EFFORT,
		.max_recv_dtos = messages,
		.max_request_dtos = messages,
		.max_recv_iov = segments,
		.max_request_iov = segments,
	};

	return dat_ep_create(IA, PZ, RECV, RECV, CONN, &attr, &out);
}

static DAT_RETURN make_lmr(DAT_MEM_TYPE type, DAT_VLEN len, DAT_MEM_PRIV_FLAGS rights,
			   DAT_VA_TYPE va, DAT_LMR_HANDLE *to)
{
	DAT_REGION_DESCRIPTION region = { .for_va = data };
	DAT_LMR_CONTEXT lmr_context;
	DAT_RMR_CONTEXT rmr_context;

	return dat_lmr_create(IA, type, region, len, PZ, rights, va, to, &lmr_context,
			      &rmr_context, NULL, NULL);
}

static DAT_RETURN connect_with(DAT_SOCK_ADDR *to, DAT_TIMEOUT timeout, DAT_COUNT len, void *from,
			       DAT_QOS qos, DAT_CONNECT_FLAGS flags)
{
	return dat_ep_connect(idle, to, QUAL, timeout, len, from, qos, flags);
}

static DAT_RETURN bind_with(DAT_SEG_LENGTH len, DAT_MEM_PRIV_FLAGS rights, DAT_VA_TYPE va)
{
	DAT_LMR_TRIPLET range = part;
	DAT_RMR_CONTEXT context;

	range.segment_length = len;
	return dat_rmr_bind(rmr, LMR, &range, rights, va, EP, cookie, 0, &context);
}

static DAT_RETURN make_srq(DAT_COUNT receives, DAT_COUNT segments, DAT_SRQ_HANDLE *to)
{
	DAT_SRQ_ATTR attr = { receives, segments, 0 };

	return dat_srq_create(IA, PZ, &attr, to);
}

static DAT_RETURN post_event(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number)
{
	memset(&event, 0, sizeof(event));
	event.event_number = number;
	return dat_evd_post_se(evd, &event);
}

static DAT_RETURN make_csp(DAT_COMM *comm, DAT_IA_ADDRESS_PTR address, DAT_CSP_HANDLE *to)
{
	return dat_csp_create(IA, comm, address, REQ, to);
}

static unsigned calls, wrong;

static void check(const char *call, const char *with, DAT_RETURN ret, unsigned expected)
{
	const char *major = "", *minor = "";

	calls++;
	if (ret == expected) {
		dat_strerror(ret, &major, &minor);
		if (expected)
			printf("PROVOKED %s %s %s\n", call, major, minor);
		return;
	}
	wrong++;
	printf("%s with %s answered 0x%08x instead of 0x%08x\n", call, with, (unsigned)ret, expected);
}

/* A row: the call, its arguments, the expected code. */
#define ROW(call, args, expected) check(#call, #args, call args, expected)

static void adapter_rows(void)
{
	DAT_IA_ATTR ia_attr;
	DAT_EVD_HANDLE evd = NONE, foreign = RECV, elsewhere = DAT_EVD_ASYNC_EXISTS;
	DAT_IA_HANDLE ia;

	ROW(dat_ia_openv, (NULL, 8, &evd, &ia, 2, 0, 0), ARG(1));
	ROW(dat_ia_openv, ("no such adapter", 8, &evd, &ia, 2, 0, 0), UNREGISTERED);
	ROW(dat_ia_openv, ("iwarp-lo", 8, &evd, &ia, 99, 0, 0), UNREGISTERED);
	ROW(dat_ia_openv, ("iwarp-lo", 8, &evd, &ia, 2, 99, 0), UNREGISTERED);
	ROW(dat_ia_openv, ("iwarp-lo", 8, &evd, &ia, 2, 0, 1), UNREGISTERED);
	ROW(dat_ia_openv, ("iwarp-lo", -1, &evd, &ia, 2, 0, 0), ARG(2));
	ROW(dat_ia_openv, ("iwarp-lo", 0, &evd, &ia, 2, 0, 0), ARG(2));
	ROW(dat_ia_openv, ("iwarp-lo", 8, NULL, &ia, 2, 0, 0), ARG(3));
	ROW(dat_ia_openv, ("iwarp-lo", 8, &evd, NULL, 2, 0, 0), HANDLE(_IA));
	ROW(dat_ia_openv, ("iwarp-lo", 8, &foreign, &ia, 2, 0, 0), HANDLE(_EVD_ASYNC));
	ROW(dat_ia_query, (IA, NULL, ~(DAT_IA_ATTR_MASK)0, &ia_attr, 0, NULL), ARG(3));
	ROW(dat_ia_query, (IA, NULL, DAT_IA_ALL, NULL, 0, NULL), ARG(4));
	ROW(dat_ia_query, (IA, NULL, 0, NULL, DAT_PROVIDER_FIELD_ALL, NULL), ARG(6));
	ROW(dat_ia_close, (IA, 77), ARG(2));
	ROW(dat_ia_close, (IA, DAT_CLOSE_GRACEFUL_FLAG), STATE(IA_IN_USE));
	ROW(dat_ia_openv, ("iwarp-lo", 8, &elsewhere, &ia, 2, 0, 0), DAT_SUCCESS);
	ROW(dat_ia_close, (ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
	ROW(dat_ia_close, (ia, DAT_CLOSE_GRACEFUL_FLAG), HANDLE(_IA));
	ROW(dat_set_consumer_context, (NONE, (DAT_CONTEXT){ .as_64 = 1 }), HANDLE(1));
	ROW(dat_get_consumer_context, (EP, NULL), ARG(2));
	ROW(dat_get_handle_type, (EP, NULL), ARG(2));
	ROW(dat_extension_op, (EP, 0x70000000), PLAIN(DAT_NOT_IMPLEMENTED));
	ROW(dat_extension_op, (EP, INT_MIN), PLAIN(DAT_NOT_IMPLEMENTED));
	ROW(dat_extension_op, (NO_HANDLE, INT_MIN), HANDLE(1));
}

static void registry_rows(void)
{
	DAT_HA_RELATIONSHIP relation = DAT_HA_FALSE;
	const char *major, *minor;

	ROW(dat_registry_list_providers, (-1, &count, NULL), ARG(1));
	ROW(dat_registry_list_providers, (0, NULL, NULL), ARG(2));
	ROW(dat_registry_list_providers, (4, &count, NULL), ARG(3));
	ROW(dat_registry_providers_related, (NULL, "iwarp-lo", NULL), ARG(1));
	ROW(dat_registry_providers_related, ("iwarp-lo", "nobody", &relation), UNREGISTERED);
	ROW(dat_registry_providers_related, ("iwarp-lo", "iwarp-lo", &relation), DAT_SUCCESS);
	expect(relation == DAT_HA_UNKNOWN);
	ROW(dat_registry_add_provider, (NULL, NULL), ARG(1));
	ROW(dat_registry_remove_provider, (NULL, NULL), ARG(1));
	ROW(dat_strerror, (0x3ffe0000, &major, &minor), PLAIN(DAT_INVALID_PARAMETER));
	ROW(dats_get_ia_handle, (IA, NULL), ARG(2));
	ROW(dat_strerror, (0x80050000, NULL, NULL), 0);
}

static void cno_rows(void)
{
	DAT_CNO_PARAM param;
	DAT_CNO_HANDLE watched;
	DAT_FD fd;

	ROW(dat_cno_create, (IA, DAT_OS_WAIT_PROXY_AGENT_NULL, NULL), ARG(3));
	ROW(dat_cno_fd_create, (IA, NULL, &out), ARG(2));
	ROW(dat_cno_fd_create, (IA, &fd, NULL), ARG(3));
	ROW(dat_cno_modify_agent, (EP, DAT_OS_WAIT_PROXY_AGENT_NULL), HANDLE(_CNO));
	ROW(dat_cno_query, (cno, ~0u, &param), 0);
	ROW(dat_cno_query, (cno, DAT_CNO_FIELD_ALL, NULL), ARG(3));
	ROW(dat_cno_wait, (cno, 0, NULL), ARG(3));
	ROW(dat_cno_wait, (cno, 0, &out), PLAIN(DAT_QUEUE_EMPTY));
	ROW(dat_cno_trigger, (cno, NULL), ARG(2));
	ROW(dat_cno_fd_create, (IA, &fd, &watched), DAT_SUCCESS);
	ROW(dat_cno_trigger, (watched, &out), PLAIN(DAT_QUEUE_EMPTY));
	expect(out == NONE);
	ROW(dat_cno_modify_agent, (watched, DAT_OS_WAIT_PROXY_AGENT_NULL),
	    ERROR(DAT_INVALID_STATE, 0));
	ROW(dat_cno_free, (watched), DAT_SUCCESS);
	ROW(dat_cno_wait, (watched, 0, &out), PLAIN(HANDLE(_CNO)));
}

static void evd_rows(void)
{
	DAT_EVD_PARAM param;
	DAT_EVD_HANDLE evd;

	check("dat_evd_create", "length 0", make_evd_of(0, DAT_EVD_DTO_FLAG, &evd), ARG(2));
	check("dat_evd_create", "length -1", make_evd_of(-1, DAT_EVD_DTO_FLAG, &evd), ARG(2));
	check("dat_evd_create", "length 2^31-1", make_evd_of(INT_MAX, DAT_EVD_DTO_FLAG, &evd),
	      ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEVD));
	check("dat_evd_create", "all flags", make_evd_of(8, ~0u, &evd), ARG(4));
	check("dat_evd_create", "flags that exclude each other",
	      make_evd_of(8, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG, &evd), ARG(4));
	check("dat_evd_create", "no place", make_evd_of(8, DAT_EVD_DTO_FLAG, NULL), ARG(5));
	ROW(dat_evd_query, (RECV, DAT_EVD_FIELD_ALL, NULL), ARG(3));
	ROW(dat_evd_query, (RECV, ~0u, &param), ARG(2));
	ROW(dat_evd_modify_cno, (RECV, EP), HANDLE(_CNO));
	ROW(dat_evd_wait, (RECV, 0, 0, &event, &count), ARG(3));
	ROW(dat_evd_wait, (RECV, 0, -1, &event, &count), ARG(3));
	ROW(dat_evd_wait, (RECV, 0, INT_MAX, &event, &count), ARG(3));
	ROW(dat_evd_wait, (RECV, 0, 1, NULL, &count), ARG(4));
	ROW(dat_evd_wait, (RECV, 0, 1, &event, NULL), ARG(5));
	ROW(dat_evd_wait, (RECV, 0, 1, &event, &count), PLAIN(DAT_TIMEOUT_EXPIRED));
	ROW(dat_evd_wait, (REQ, 0, 1, &event, &count), ERROR(DAT_TIMEOUT_EXPIRED, 0));
	ROW(dat_evd_dequeue, (RECV, NULL), ARG(2));
	ROW(dat_evd_dequeue, (RECV, &event), PLAIN(DAT_QUEUE_EMPTY));
	ROW(dat_evd_dequeue, (REQ, &event), ERROR(DAT_QUEUE_EMPTY, 0));
	ROW(dat_evd_resize, (RECV, 0), ARG(2));
	ROW(dat_evd_resize, (RECV, -1), ARG(2));
	ROW(dat_evd_resize, (RECV, INT_MAX), ARG(2));
	ROW(dat_evd_post_se, (software, NULL), ARG(2));
	check("dat_evd_post_se", "another event", post_event(software, DAT_DTO_COMPLETION_EVENT),
	      ARG(2));
	check("dat_evd_post_se", "no such event", post_event(software, INT_MAX), ARG(2));
	check("dat_evd_post_se", "another EVD", post_event(RECV, DAT_SOFTWARE_EVENT), ARG(1));
	ROW(dat_evd_free, (RECV), STATE(EVD_IN_USE));
}

static void ep_rows(void)
{
	DAT_EP_PARAM param;

	memset(&param, 0, sizeof(param));
	ROW(dat_ep_create, (IA, PZ, RECV, RECV, CONN, NULL, NULL), ARG(7));
	ROW(dat_ep_create, (IA, PZ, CONN, RECV, CONN, NULL, &out), HANDLE(_EVD_RECV));
	ROW(dat_ep_create, (IA, PZ, RECV, CONN, CONN, NULL, &out), HANDLE(_EVD_REQUEST));
	ROW(dat_ep_create, (IA, PZ, RECV, RECV, RECV, NULL, &out), HANDLE(_EVD_CONN));
	ROW(dat_ep_create, (IA, PZ, RECV, RECV, CONN, (DAT_EP_ATTR *)1, &out), ARG(6));
	check("dat_ep_create", "2^31-1 messages", make_ep_of(INT_MAX, 1), PLAIN(ARG(6)));
	check("dat_ep_create", "2^31-1 segments", make_ep_of(4, INT_MAX), PLAIN(ARG(6)));
	check("dat_ep_create", "-1 messages", make_ep_of(-1, 1), PLAIN(ARG(6)));
	ROW(dat_ep_create_with_srq, (IA, PZ, RECV, RECV, CONN, EP, NULL, &out), HANDLE(_SRQ));
	ROW(dat_ep_create_with_srq, (IA, PZ, RECV, RECV, CONN, srq, NULL, NULL), ARG(8));
	ROW(dat_ep_query, (EP, DAT_EP_FIELD_ALL, NULL), ARG(3));
	ROW(dat_ep_modify, (idle, DAT_EP_FIELD_PZ_HANDLE, NULL), ARG(3));
	ROW(dat_ep_modify, (idle, DAT_EP_FIELD_IA_HANDLE, &param), ARG(2));
	ROW(dat_ep_modify, (idle, DAT_EP_FIELD_EP_STATE, &param), ARG(2));
	ROW(dat_ep_modify, (EP, DAT_EP_FIELD_PZ_HANDLE, &param), STATE(EP_CONNECTED));
	ROW(dat_ep_disconnect, (EP, 77), ARG(2));
	ROW(dat_ep_disconnect, (idle, DAT_CLOSE_ABRUPT_FLAG), STATE(EP_UNCONNECTED));
	ROW(dat_ep_reset, (EP), STATE(EP_CONNECTED));
	ROW(dat_ep_get_status, (NONE, NULL, NULL, NULL), HANDLE(_EP));
	ROW(dat_ep_recv_query, (EP, NULL, NULL), 0);
	ROW(dat_ep_set_watermark, (EP, -7, 1), ARG(2));
	ROW(dat_ep_set_watermark, (EP, 1, -7), ARG(3));
	ROW(dat_ep_set_watermark, (EP, 1, 1), STATE(EP_RECV_WATERMARK));
}

static void connect_rows(void)
{
	DAT_SOCK_ADDR *address = ADDRESS;
	const DAT_TIMEOUT time = 1000000;
	DAT_SOCK_ADDR strange = *address;

	check("dat_ep_connect", "no address", connect_with(NULL, time, 0, NULL, 0, 0), ARG(2));
	strange.sa_family = 99;
	check("dat_ep_connect", "a strange address", connect_with(&strange, time, 0, NULL, 0, 0),
	      ERROR(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNSUPPORTED));
	check("dat_ep_connect", "no time", connect_with(address, 0, 0, NULL, 0, 0), ARG(4));
	check("dat_ep_connect", "-1 bytes", connect_with(address, time, -1, data, 0, 0), ARG(5));
	check("dat_ep_connect", "2^31-1 bytes", connect_with(address, time, INT_MAX, data, 0, 0),
	      ARG(5));
	check("dat_ep_connect", "no bytes", connect_with(address, time, 4, NULL, 0, 0), ARG(6));
	check("dat_ep_connect", "a service", connect_with(address, time, 0, NULL, 0x77, 0),
	      ERROR(DAT_MODEL_NOT_SUPPORTED, 0));
	check("dat_ep_connect", "flags", connect_with(address, time, 0, NULL, 0, 0x77),
	      ERROR(DAT_MODEL_NOT_SUPPORTED, 0));
	ROW(dat_ep_connect, (EP, address, QUAL, time, 0, NULL, 0, 0), STATE(EP_CONNECTED));
	ROW(dat_ep_connect, (idle, address, 0, time, 0, NULL, 0, 0),
	    ERROR(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNSUPPORTED));
	ROW(dat_ep_dup_connect, (idle, EP, 0, 0, NULL, 0), ARG(3));
	ROW(dat_ep_dup_connect, (idle, idle, time, 0, NULL, 0), STATE(EP_UNCONNECTED));
	ROW(dat_ep_dup_connect, (idle, EP, time, -1, data, 0), ARG(4));
	ROW(dat_ep_dup_connect, (idle, EP, time, 0, NULL, DAT_QOS_PREMIUM),
	    ERROR(DAT_MODEL_NOT_SUPPORTED, 0));
	ROW(dat_ep_common_connect, (idle, NULL, time, 0, NULL), ARG(2));
	ROW(dat_ep_common_connect, (idle, address, time, 0, NULL),
	    ERROR(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED));
	ROW(dat_ep_common_connect, (idle, address, time, -1, data), ARG(4));
	ROW(dat_cr_query, (cr, DAT_CR_FIELD_ALL, NULL), ARG(3));
	ROW(dat_cr_accept, (cr, NONE, 0, NULL), HANDLE(_EP));
	ROW(dat_cr_accept, (cr, EP, 0, NULL), HANDLE(_EP));
	ROW(dat_cr_accept, (cr, pair.passive.ep, 0, NULL), PLAIN(DAT_INVALID_STATE));
	ROW(dat_cr_accept, (cr, pair.passive.ep, -1, data), ARG(3));
	ROW(dat_cr_accept, (cr, pair.passive.ep, INT_MAX, data), ARG(3));
	ROW(dat_cr_accept, (cr, pair.passive.ep, 4, NULL), ARG(4));
	ROW(dat_cr_reject, (cr, -1, data), ARG(2));
	ROW(dat_cr_reject, (cr, 4, NULL), ARG(3));
	ROW(dat_cr_handoff, (cr, 1), ARG(2));
}

static void post_rows(void)
{
	DAT_RMR_TRIPLET small = remote;

	small.segment_length = 1;
	ROW(dat_ep_post_send, (EP, -1, &part, cookie, 0), ARG(2));
	ROW(dat_ep_post_send, (EP, INT_MAX, &part, cookie, 0), ARG(2));
	ROW(dat_ep_post_send, (EP, 1, NULL, cookie, 0), ARG(3));
	ROW(dat_ep_post_send, (EP, 1, &part, cookie, ~0u), ARG(5));
	ROW(dat_ep_post_send, (idle, 1, &part, cookie, 0), STATE(EP_UNCONNECTED));
	ROW(dat_ep_post_recv, (EP, -1, &part, cookie, 0), ARG(2));
	ROW(dat_ep_post_recv, (EP, INT_MAX, &part, cookie, 0), ARG(2));
	ROW(dat_ep_post_recv, (EP, 1, NULL, cookie, 0), ARG(3));
	ROW(dat_ep_post_recv, (EP, 1, &part, cookie, ~0u), ARG(5));
	ROW(dat_ep_post_rdma_read, (EP, -1, &part, cookie, &remote, 0), ARG(2));
	ROW(dat_ep_post_rdma_read, (EP, 1, NULL, cookie, &remote, 0), ARG(3));
	ROW(dat_ep_post_rdma_read, (EP, 1, &part, cookie, NULL, 0), ARG(5));
	ROW(dat_ep_post_rdma_read, (EP, 1, &part, cookie, &small, 0), ERROR(DAT_LENGTH_ERROR, 0));
	ROW(dat_ep_post_rdma_write, (EP, INT_MAX, &part, cookie, &remote, 0), ARG(2));
	ROW(dat_ep_post_rdma_write, (EP, 1, NULL, cookie, &remote, 0), ARG(3));
	ROW(dat_ep_post_rdma_write, (EP, 1, &part, cookie, NULL, 0), ARG(5));
	ROW(dat_ep_post_rdma_write, (EP, 1, &part, cookie, &small, 0), ERROR(DAT_LENGTH_ERROR, 0));
	ROW(dat_ep_post_send_with_invalidate, (EP, -1, &part, cookie, 0, 1, 1), ARG(2));
	ROW(dat_ep_post_send_with_invalidate, (EP, 1, NULL, cookie, 0, 1, 1), ARG(3));
	ROW(dat_ep_post_rdma_read_to_rmr, (EP, NULL, cookie, &remote, 0), ARG(2));
	ROW(dat_ep_post_rdma_read_to_rmr, (EP, &remote, cookie, NULL, 0), ARG(4));
	ROW(dat_ep_post_rdma_read_to_rmr, (EP, &remote, cookie, &small, 0),
	    ERROR(DAT_LENGTH_ERROR, 0));
	ROW(dat_ib_post_fetch_and_add, (EP, 2, &part, cookie, &small, 0),
	    ERROR(DAT_LENGTH_ERROR, 0));
	ROW(dat_srq_post_recv, (srq, -1, &part, cookie), ARG(2));
	ROW(dat_srq_post_recv, (srq, INT_MAX, &part, cookie), ARG(2));
	ROW(dat_srq_post_recv, (srq, 1, NULL, cookie), ARG(3));
}

static void memory_rows(void)
{
	const DAT_MEM_PRIV_FLAGS all = DAT_MEM_PRIV_ALL_FLAG;
	DAT_LMR_PARAM lmr_param;
	DAT_RMR_PARAM rmr_param;
	DAT_PZ_PARAM pz_param;
	DAT_LMR_HANDLE lmr;
	DAT_RMR_CONTEXT context;

	check("dat_lmr_create", "no such type", make_lmr(0x77, 64, all, 0, &lmr), ARG(2));
	check("dat_lmr_create", "the whole of memory",
	      make_lmr(DAT_MEM_TYPE_VIRTUAL, ~(DAT_VLEN)0, all, 0, &lmr),
	      ERROR(DAT_LENGTH_ERROR, 0));
	check("dat_lmr_create", "all rights", make_lmr(DAT_MEM_TYPE_VIRTUAL, 64, ~0u, 0, &lmr),
	      ARG(6));
	check("dat_lmr_create", "no such addressing",
	      make_lmr(DAT_MEM_TYPE_VIRTUAL, 64, all, 0x77, &lmr), ARG(7));
	check("dat_lmr_create", "no place", make_lmr(DAT_MEM_TYPE_VIRTUAL, 64, all, 0, NULL), ARG(7));
	check("dat_lmr_create", "memory that nobody mapped",
	      make_lmr(DAT_MEM_TYPE_VIRTUAL, (DAT_VLEN)1 << 46, all, 0, &lmr),
	      ERROR(DAT_INVALID_PARAMETER, 0));
	check("dat_lmr_create", "remote rights without local ones",
	      make_lmr(DAT_MEM_TYPE_VIRTUAL, 64, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, 0, &lmr),
	      ERROR(DAT_INVALID_PARAMETER, 0));
	ROW(dat_lmr_query, (LMR, DAT_LMR_FIELD_ALL, NULL), ARG(3));
	ROW(dat_lmr_query, (LMR, ~0u, &lmr_param), ARG(2));
	ROW(dat_lmr_sync_rdma_read, (IA, NULL, 1), ARG(2));
	ROW(dat_lmr_sync_rdma_read, (IA, &part, 0), 0);
	ROW(dat_lmr_sync_rdma_write, (IA, NULL, 1), ARG(2));
	ROW(dat_lmr_sync_rdma_write, (IA, &part, ~(DAT_VLEN)0), ARG(3));
	ROW(dat_lmr_sync_rdma_write, (IA, &part, 1), DAT_SUCCESS);
	ROW(dat_rmr_create, (PZ, NULL), ARG(2));
	ROW(dat_rmr_create_for_ep, (PZ, NULL), ARG(2));
	ROW(dat_rmr_query, (rmr, DAT_RMR_FIELD_ALL, NULL), ARG(3));
	ROW(dat_rmr_query, (rmr, DAT_RMR_FIELD_LMR_TRIPLET, &rmr_param), ARG(2));
	check("dat_rmr_bind", "more than the region", bind_with(~(DAT_SEG_LENGTH)0, all, 0), ARG(2));
	check("dat_rmr_bind", "all rights", bind_with(16, ~0u, 0), ARG(4));
	check("dat_rmr_bind", "no such addressing", bind_with(16, all, 0x77), ARG(5));
	ROW(dat_rmr_bind, (rmr, LMR, NULL, all, 0, EP, cookie, 0, NULL), ARG(3));
	ROW(dat_rmr_bind, (rmr, LMR, &part, all, 0, EP, cookie, 0, NULL), ARG(9));
	ROW(dat_rmr_bind, (rmr, LMR, &part, all, 0, idle, cookie, 0, &context),
	    STATE(EP_UNCONNECTED));
	ROW(dat_pz_create, (IA, NULL), ARG(2));
	ROW(dat_pz_query, (PZ, DAT_PZ_FIELD_ALL, NULL), ARG(3));
	ROW(dat_pz_query, (PZ, ~0u, &pz_param), ARG(2));
	ROW(dat_pz_free, (PZ), STATE(PZ_IN_USE));
	check("dat_srq_create", "no receives", make_srq(0, 1, &srq), ARG(3));
	check("dat_srq_create", "2^31-1 receives", make_srq(INT_MAX, 1, &out), ARG(3));
	check("dat_srq_create", "-1 segments", make_srq(4, -1, &out), ARG(3));
	check("dat_srq_create", "no place", make_srq(4, 1, NULL), ARG(4));
	ROW(dat_srq_query, (srq, DAT_SRQ_FIELD_ALL, NULL), ARG(3));
	ROW(dat_srq_resize, (srq, -1), ERROR(DAT_INVALID_STATE, 0));
	ROW(dat_srq_resize, (srq, INT_MAX), ARG(2));
	ROW(dat_srq_set_lw, (srq, -1), ARG(2));
	ROW(dat_srq_set_lw, (srq, INT_MAX), ARG(2));
}

static void service_rows(void)
{
	DAT_SOCK_ADDR *address = ia_address(&pair.active);
	DAT_CONN_QUAL qual;
	DAT_COMM comm = {
		.domain = AF_INET,
		.type = SOCK_STREAM,
		.protocol = IPPROTO_TCP,
	};

	ROW(dat_psp_create, (IA, 9, RECV, DAT_PSP_CONSUMER_FLAG, &out), HANDLE(_EVD_CR));
	ROW(dat_psp_create, (IA, 9, REQ, 77, &out), ARG(4));
	ROW(dat_psp_create, (IA, 9, REQ, DAT_PSP_CONSUMER_FLAG, NULL), ARG(5));
	ROW(dat_psp_create, (IA, QUAL, REQ, DAT_PSP_CONSUMER_FLAG, &out),
	    ERROR(DAT_CONN_QUAL_IN_USE, 0));
	ROW(dat_psp_create, (IA, 0, REQ, DAT_PSP_CONSUMER_FLAG, &out), ARG(2));
	ROW(dat_rsp_create, (IA, QUAL, idle, REQ, &out), ERROR(DAT_CONN_QUAL_IN_USE, 0));
	ROW(dat_psp_create_any, (IA, NULL, REQ, DAT_PSP_CONSUMER_FLAG, &out), ARG(2));
	ROW(dat_psp_create_any, (IA, &qual, REQ, 77, &out), ARG(4));
	ROW(dat_psp_create_any, (IA, &qual, REQ, DAT_PSP_CONSUMER_FLAG, NULL), ARG(5));
	ROW(dat_psp_query, (pair.psp, DAT_PSP_FIELD_ALL, NULL), ARG(3));
	ROW(dat_rsp_create, (IA, 9, EP, REQ, &out), STATE(EP_CONNECTED));
	ROW(dat_rsp_create, (IA, 9, idle, RECV, &out), HANDLE(_EVD_CR));
	ROW(dat_rsp_create, (IA, 9, idle, REQ, NULL), ARG(5));
	ROW(dat_rsp_query, (NONE, DAT_RSP_FIELD_ALL, NULL), HANDLE(_RSP));
	check("dat_csp_create", "no transport", make_csp(NULL, address, &out), ARG(2));
	check("dat_csp_create", "no address", make_csp(&comm, NULL, &out), ARG(3));
	check("dat_csp_create", "no place", make_csp(&comm, address, NULL), ARG(5));
	comm.type = SOCK_DGRAM;
	check("dat_csp_create", "datagrams", make_csp(&comm, address, &out),
	      ERROR(DAT_COMM_NOT_SUPPORTED, 0));
	ROW(dat_csp_query, (NONE, DAT_CSP_FIELD_ALL, NULL), HANDLE(_CSP));
}

static void counter_rows(void)
{
	DAT_UINT64 value;

	ROW(dat_ib_query_counters, (LMR, 0, &value, 0), ARG(1));
	ROW(dat_ib_query_counters, (EP, 999, &value, 0), ARG(2));
	ROW(dat_ib_query_counters, (EP, 0, (DAT_UINT64 *)NULL, 0), ARG(3));
	ROW(dat_ib_start_counter, (IA, 3), ARG(2));
}

static void handle_rows(void)
{
	DAT_LMR_PARAM lmr_param;
	DAT_RMR_PARAM rmr_param;
	DAT_PZ_PARAM pz_param;
	DAT_PSP_PARAM psp_param;

	ROW(dat_lmr_query, (NONE, 1, &lmr_param), HANDLE(_LMR));
	ROW(dat_rmr_query, (NONE, 1, &rmr_param), HANDLE(_RMR));
	ROW(dat_pz_query, (NONE, 1, &pz_param), HANDLE(_PZ));
	ROW(dat_psp_query, (NONE, 1, &psp_param), HANDLE(_PSP));
}

static void event_state_rows(void)
{
	DAT_EVD_HANDLE evd;
	DAT_RETURN ret = DAT_SUCCESS;

	must("dat_evd_set_unwaitable", dat_evd_set_unwaitable(software));
	ROW(dat_evd_wait, (software, 0, 1, &event, &count), STATE(EVD_UNWAITABLE));
	for (int at = 0; at < 10000 && ret == DAT_SUCCESS; at++)
		ret = post_event(software, DAT_SOFTWARE_EVENT);
	check("dat_evd_post_se", "a full queue", ret, ERROR(DAT_QUEUE_FULL, 0));
	ROW(dat_evd_resize, (software, 1), ERROR(DAT_INVALID_STATE, 0));
	must("dat_evd_create", dat_evd_create(IA, 4, cno, DAT_EVD_SOFTWARE_FLAG, &evd));
	ROW(dat_cno_free, (cno), STATE(CNO_IN_USE));
	must("dat_evd_free", dat_evd_free(evd));
}

static void shared_state_rows(void)
{
	DAT_EP_HANDLE ep = make_ep(&pair.active, srq);

	ROW(dat_srq_free, (srq), STATE(SRQ_IN_USE));
	ROW(dat_ep_post_recv, (ep, 1, &part, cookie, 0), STATE(SRQ_IN_USE));
	must("dat_ep_free", dat_ep_free(ep));
}

static void reserved_state_rows(void)
{
	DAT_SOCK_ADDR *address = ADDRESS;
	DAT_RSP_HANDLE rsp;

	must("dat_rsp_create", dat_rsp_create(IA, 0x6b6b, idle, REQ, &rsp));
	ROW(dat_rsp_query, (rsp, DAT_RSP_FIELD_ALL, NULL), ARG(3));
	ROW(dat_ep_free, (idle), STATE(EP_RESERVED));
	ROW(dat_ep_reset, (idle), STATE(EP_RESERVED));
	ROW(dat_ep_connect, (idle, address, QUAL, 1000, 0, NULL, 0, 0), STATE(EP_RESERVED));
	must("dat_rsp_free", dat_rsp_free(rsp));
}

/* `asking` has sent its request, which is not answered yet. */
static void pending_state_rows(void)
{
	DAT_SOCK_ADDR *address = ADDRESS;

	ROW(dat_ep_connect, (asking, address, QUAL, 1000, 0, NULL, 0, 0), STATE(EP_ACTCONNPENDING));
	ROW(dat_ep_reset, (asking), STATE(EP_ACTCONNPENDING));
}

static void unfinished_state_rows(void)
{
	DAT_SOCK_ADDR *address = ADDRESS;
	DAT_EP_HANDLE bare;

	must("dat_ep_create", dat_ep_create(IA, NONE, NONE, NONE, CONN, NULL, &bare));
	ROW(dat_ep_connect, (bare, address, QUAL, 1000, 0, NULL, 0, 0), STATE(EP_NOTREADY));
	ROW(dat_ep_post_recv, (bare, 1, &part, cookie, 0), STATE(EP_NOTREADY));
	must("dat_ep_free", dat_ep_free(bare));
	must("dat_ep_create", dat_ep_create(IA, NONE, NONE, NONE, NONE, NULL, &bare));
	ROW(dat_ep_connect, (bare, address, QUAL, 1000, 0, NULL, 0, 0), HANDLE(_EVD_CONN));
	must("dat_ep_free", dat_ep_free(bare));
}

/* The provider's endpoint of a request. */
static void tentative_state_rows(void)
{
	DAT_CR_ARRIVAL_EVENT_DATA arrival;
	DAT_CR_PARAM param;
	DAT_PSP_HANDLE psp;
	DAT_CONN_QUAL qual;
	DAT_CR_HANDLE request;
	DAT_EP_HANDLE other = make_ep(&pair.active, NONE);

	must("dat_psp_create_any", dat_psp_create_any(pair.passive.ia, &qual, pair.passive.cr_evd,
						      DAT_PSP_PROVIDER_FLAG, &psp));
	must("dat_ep_connect", dat_ep_connect(other, ADDRESS, qual, WAIT_MS * 1000, 0, NULL, 0, 0));
	request = next_request(&pair.passive, &arrival);
	must("dat_cr_query", dat_cr_query(request, DAT_CR_FIELD_ALL, &param));
	ROW(dat_ep_free, (param.local_ep_handle), STATE(EP_TENTCONNPENDING));
	ROW(dat_cr_accept, (request, idle, 0, NULL), HANDLE(_EP));
	must("dat_cr_reject", dat_cr_reject(request, 0, NULL));
	must("dat_psp_free", dat_psp_free(psp));
}

/* `asking` receives the reject. */
static void disconnected_state_rows(void)
{
	DAT_SOCK_ADDR *address = ADDRESS;

	must("dat_cr_reject", dat_cr_reject(cr, 0, NULL));
	expect_event(CONN, DAT_CONNECTION_EVENT_PEER_REJECTED, &event);
	ROW(dat_ep_connect, (asking, address, QUAL, 1000, 0, NULL, 0, 0), STATE(EP_DISCONNECTED));
	ROW(dat_ep_dup_connect, (idle, asking, 1000, 0, NULL, 0), STATE(EP_DISCONNECTED));
	ROW(dat_cr_reject, (cr, 0, NULL), HANDLE(_CR));
}

/* A reserved endpoint, for which a request was received. */
static void passive_state_rows(void)
{
	const DAT_CONN_QUAL qual = 0x6c6c;
	DAT_CR_ARRIVAL_EVENT_DATA arrival;
	DAT_EP_HANDLE ep = make_ep(&pair.passive, NONE), other = make_ep(&pair.active, NONE);
	DAT_CR_HANDLE request;
	DAT_RSP_HANDLE rsp;

	must("dat_rsp_create",
	     dat_rsp_create(pair.passive.ia, qual, ep, pair.passive.cr_evd, &rsp));
	must("dat_ep_connect", dat_ep_connect(other, ADDRESS, qual, WAIT_MS * 1000, 0, NULL, 0, 0));
	request = next_request(&pair.passive, &arrival);
	ROW(dat_ep_free, (ep), STATE(EP_PASSCONNPENDING));
	must("dat_cr_reject", dat_cr_reject(request, 0, NULL));
	must("dat_rsp_free", dat_rsp_free(rsp));
}

static void full_queue_rows(void)
{
	DAT_EP_HANDLE ep = make_ep(&pair.active, NONE);
	DAT_RETURN ret = DAT_SUCCESS;

	for (int at = 0; at < 100000 && ret == DAT_SUCCESS; at++)
		ret = dat_ep_post_recv(ep, 1, &part, cookie, 0);
	check("dat_ep_post_recv", "a full queue", ret, FULL);
	must("dat_ep_free", dat_ep_free(ep));
	for (ret = DAT_SUCCESS; ret == DAT_SUCCESS;)
		ret = dat_srq_post_recv(srq, 1, &part, cookie);
	check("dat_srq_post_recv", "a full queue", ret, FULL);
}

static void prepare(void)
{
	DAT_CR_ARRIVAL_EVENT_DATA arrival;

	pair_open(&pair);
	pair_connect(&pair);
	idle = make_ep(&pair.active, NONE);
	asking = make_ep(&pair.active, NONE);
	begin_connect(&pair, asking);
	cr = next_request(&pair.passive, &arrival);
	must("dat_cno_create", dat_cno_create(IA, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
	must("dat_rmr_create", dat_rmr_create(PZ, &rmr));
	must("dat_srq_create", make_srq(4, 1, &srq));
	must("dat_evd_create", make_evd_of(4, DAT_EVD_SOFTWARE_FLAG, &software));
	part = kit_part(&pair.active, 0, 64);
	remote.virtual_address = (DAT_VADDR)(uintptr_t)pair.passive.buffer;
	remote.segment_length = 64;
	remote.rmr_context = pair.passive.rmr_context;
}

int main(void)
{
	/* The output is line buffered, so messages of a sanitizer are between lines. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	prepare();
	adapter_rows();
	registry_rows();
	cno_rows();
	evd_rows();
	ep_rows();
	connect_rows();
	post_rows();
	memory_rows();
	service_rows();
	counter_rows();
	handle_rows();
	event_state_rows();
	shared_state_rows();
	reserved_state_rows();
	pending_state_rows();
	disconnected_state_rows();
	passive_state_rows();
	unfinished_state_rows();
	tentative_state_rows();
	full_queue_rows();
	/* The connection must still work. */
	one_message(&pair, 1);
	must("dat_ia_close", dat_ia_close(pair.active.ia, DAT_CLOSE_ABRUPT_FLAG));
	must("dat_ia_close", dat_ia_close(pair.passive.ia, DAT_CLOSE_ABRUPT_FLAG));
	printf("%u calls with bad arguments, %u wrong answers\n", calls, wrong);
	return wrong != 0;
}
