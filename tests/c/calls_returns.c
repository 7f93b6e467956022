/*
 * The return values that docs/calls lists, class bit included, for refusals that need no peer.
 */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "pair.h"

#include <dat2/dat_ib_extensions.h>
#include <dat2/dat_registry.h>

/* A value that is no handle. */
#define NO_HANDLE ((DAT_HANDLE)0x10)
#define WITHOUT_CLASS(type, subtype) ((DAT_RETURN)((type) | (subtype)))
#define ERROR(type, subtype) (DAT_CLASS_ERROR | WITHOUT_CLASS(type, subtype))
#define ARGUMENT(n) ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1 + (n) - 1)
#define HANDLE(subtype) ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_##subtype)
#define STATE(subtype) ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_##subtype)

#define RETURNS(call, value) returns(#call, call, value)

static char ia_name[] = "iwarp-lo";
static const DAT_DTO_COOKIE cookie;
static struct kit one;

static struct kit *begin(void)
{
	kit_open(&one, ia_name);
	return &one;
}

static void end(struct kit *kit)
{
	kit_close(kit);
	printf("PASSED\n");
}

static void returns(const char *call, DAT_RETURN got, DAT_RETURN wanted)
{
	if (got == wanted)
		return;
	print_failure(call, got);
	printf("EXPECTED 0x%08x\n", (unsigned)wanted);
	exit(1);
}

static void registry(void)
{
	struct kit *kit = begin();
	DAT_EVD_HANDLE none = DAT_HANDLE_NULL, elsewhere = DAT_EVD_ASYNC_EXISTS;
	DAT_HA_RELATIONSHIP relation;
	const char *major, *minor;
	DAT_CONTEXT context;
	DAT_IA_HANDLE ia;
	DAT_COUNT count;

	RETURNS(dat_registry_list_providers(0, &count, NULL), ARGUMENT(1));
	expect(count > 0);
	RETURNS(dat_registry_list_providers(1, NULL, NULL), ARGUMENT(2));
	RETURNS(dat_registry_list_providers(1, &count, NULL), ARGUMENT(3));
	RETURNS(dat_registry_providers_related(ia_name, ia_name, &relation), DAT_SUCCESS);
	expect(relation == DAT_HA_UNKNOWN);
	RETURNS(dat_strerror(0x3ffe0000, &major, &minor), WITHOUT_CLASS(DAT_INVALID_PARAMETER, 0));
	expect(strcmp(minor, "") == 0);
	RETURNS(dat_ia_open((char *)"nobody", 8, &none, &ia),
		ERROR(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED));
	RETURNS(dat_ia_open(ia_name, 0, &none, &ia), ARGUMENT(2));
	RETURNS(dat_ia_open(ia_name, 8, NULL, &ia), ARGUMENT(3));
	RETURNS(dat_ia_open(ia_name, 8, &none, NULL), HANDLE(IA));
	RETURNS(dat_ia_open(ia_name, 8, &elsewhere, &ia), DAT_SUCCESS);
	RETURNS(dat_ia_close(ia, 9), ARGUMENT(2));
	RETURNS(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
	RETURNS(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), HANDLE(IA));
	RETURNS(dat_ia_close(kit->ia, DAT_CLOSE_GRACEFUL_FLAG), STATE(IA_IN_USE));
	RETURNS(dat_get_consumer_context(NO_HANDLE, &context),
		ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1));
	RETURNS(dat_get_consumer_context(kit->ep, NULL), ARGUMENT(2));
	end(kit);
}

static void events(void)
{
	struct kit *kit = begin();
	const DAT_EVD_FLAGS both = (DAT_EVD_FLAGS)(DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG);
	DAT_EVD_PARAM param;
	DAT_EVD_HANDLE evd;
	DAT_COUNT more;
	DAT_EVENT event;

	memset(&event, 0, sizeof(event));
	RETURNS(dat_evd_create(kit->ia, 0, NULL, DAT_EVD_DTO_FLAG, &evd), ARGUMENT(2));
	RETURNS(dat_evd_create(kit->ia, 0x7fffffff, NULL, DAT_EVD_DTO_FLAG, &evd),
		ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEVD));
	RETURNS(dat_evd_create(kit->ia, 8, NO_HANDLE, DAT_EVD_DTO_FLAG, &evd), HANDLE(CNO));
	RETURNS(dat_evd_create(kit->ia, 8, NULL, both, &evd), ARGUMENT(4));
	RETURNS(dat_evd_query(NO_HANDLE, DAT_EVD_FIELD_ALL, &param), HANDLE(EVD_REQUEST));
	RETURNS(dat_evd_query(kit->cr_evd, (DAT_EVD_PARAM_MASK)0x100, &param), ARGUMENT(2));
	RETURNS(dat_evd_query(kit->cr_evd, DAT_EVD_FIELD_ALL, NULL), ARGUMENT(3));
	RETURNS(dat_evd_wait(kit->cr_evd, 0, 0, &event, &more), ARGUMENT(3));
	RETURNS(dat_evd_wait(kit->cr_evd, 0, 1, NULL, &more), ARGUMENT(4));
	RETURNS(dat_evd_wait(kit->cr_evd, 0, 1, &event, NULL), ARGUMENT(5));
	RETURNS(dat_evd_wait(kit->cr_evd, 0, 1, &event, &more), ERROR(DAT_TIMEOUT_EXPIRED, 0));
	RETURNS(dat_evd_wait(kit->recv_evd, 0, 1, &event, &more),
		WITHOUT_CLASS(DAT_TIMEOUT_EXPIRED, 0));
	RETURNS(dat_evd_dequeue(kit->cr_evd, NULL), ARGUMENT(2));
	RETURNS(dat_evd_dequeue(kit->cr_evd, &event), ERROR(DAT_QUEUE_EMPTY, 0));
	RETURNS(dat_evd_dequeue(kit->recv_evd, &event), WITHOUT_CLASS(DAT_QUEUE_EMPTY, 0));
	must("dat_evd_set_unwaitable", dat_evd_set_unwaitable(kit->cr_evd));
	RETURNS(dat_evd_wait(kit->cr_evd, 0, 1, &event, &more), STATE(EVD_UNWAITABLE));
	must("dat_evd_clear_unwaitable", dat_evd_clear_unwaitable(kit->cr_evd));
	RETURNS(dat_evd_resize(kit->cr_evd, 0), ARGUMENT(2));
	RETURNS(dat_evd_post_se(kit->cr_evd, &event), ARGUMENT(1));
	RETURNS(dat_evd_free(kit->recv_evd), STATE(EVD_IN_USE));
	end(kit);
}

static void notification(void)
{
	struct kit *kit = begin();
	DAT_EVD_HANDLE evd = kit->ep;
	DAT_CNO_HANDLE cno;
	DAT_FD fd;

	RETURNS(dat_cno_fd_create(kit->ia, NULL, &cno), ARGUMENT(2));
	RETURNS(dat_cno_fd_create(kit->ia, &fd, NULL), ARGUMENT(3));
	RETURNS(dat_cno_fd_create(kit->ia, &fd, &cno), DAT_SUCCESS);
	RETURNS(dat_cno_trigger(cno, &evd), WITHOUT_CLASS(DAT_QUEUE_EMPTY, 0));
	expect(evd == DAT_HANDLE_NULL);
	RETURNS(dat_cno_wait(cno, 0, &evd), WITHOUT_CLASS(DAT_QUEUE_EMPTY, 0));
	RETURNS(dat_cno_modify_agent(cno, DAT_OS_WAIT_PROXY_AGENT_NULL),
		ERROR(DAT_INVALID_STATE, 0));
	RETURNS(dat_evd_modify_cno(kit->cr_evd, cno), DAT_SUCCESS);
	RETURNS(dat_cno_free(cno), STATE(CNO_IN_USE));
	RETURNS(dat_evd_modify_cno(kit->cr_evd, DAT_HANDLE_NULL), DAT_SUCCESS);
	RETURNS(dat_cno_free(cno), DAT_SUCCESS);
	RETURNS(dat_cno_wait(cno, 0, &evd),
		WITHOUT_CLASS(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO));
	end(kit);
}

static void endpoints(void)
{
	struct kit *kit = begin();
	struct sockaddr_in there = { .sin_family = AF_INET };
	DAT_LMR_TRIPLET part = kit_part(kit, 0, 8);
	DAT_EP_PARAM param;
	DAT_EP_HANDLE ep;
	DAT_EP_ATTR attr;

	memset(&attr, 0, sizeof(attr));
	attr.max_recv_dtos = 1 << 30;
	RETURNS(dat_ep_create(kit->ia, kit->pz, kit->recv_evd, kit->request_evd, kit->connect_evd,
			      &attr, &ep),
		WITHOUT_CLASS(DAT_INVALID_PARAMETER, DAT_INVALID_ARG6));
	RETURNS(dat_ep_create(kit->ia, kit->pz, kit->recv_evd, kit->request_evd, kit->connect_evd,
			      NULL, NULL),
		ARGUMENT(7));
	RETURNS(dat_ep_create(kit->ia, kit->pz, kit->cr_evd, kit->request_evd, kit->connect_evd,
			      NULL, &ep),
		HANDLE(EVD_RECV));
	RETURNS(dat_ep_create(kit->ia, NULL, NULL, NULL, NULL, NULL, &ep), DAT_SUCCESS);
	RETURNS(dat_ep_post_recv(ep, 1, &part, cookie, 0), STATE(EP_NOTREADY));
	RETURNS(dat_ep_connect(ep, (DAT_SOCK_ADDR *)&there, 1, 1, 0, NULL, 0, 0), HANDLE(EVD_CONN));
	RETURNS(dat_ep_free(ep), DAT_SUCCESS);
	RETURNS(dat_ep_query(kit->ep, 0, NULL), ARGUMENT(3));
	RETURNS(dat_ep_query(kit->ep, 0, &param), DAT_SUCCESS);
	RETURNS(dat_ep_modify(kit->ep, DAT_EP_FIELD_EP_STATE, &param), ARGUMENT(2));
	RETURNS(dat_ep_modify(kit->ep, DAT_EP_FIELD_PZ_HANDLE, NULL), ARGUMENT(3));
	RETURNS(dat_ep_set_watermark(kit->ep, -2, 1), ARGUMENT(2));
	RETURNS(dat_ep_set_watermark(kit->ep, 1, 1), STATE(EP_RECV_WATERMARK));
	RETURNS(dat_ep_reset(kit->ep), DAT_SUCCESS);
	RETURNS(dat_ep_disconnect(kit->ep, DAT_CLOSE_ABRUPT_FLAG), STATE(EP_UNCONNECTED));
	RETURNS(dat_ep_disconnect(kit->ep, 7), ARGUMENT(2));
	end(kit);
}

static void connections(void)
{
	struct kit *kit = begin();
	struct sockaddr_in address = { .sin_family = AF_INET };
	DAT_SOCK_ADDR *there = (DAT_SOCK_ADDR *)&address;
	DAT_EP_HANDLE ep = kit->ep;
	DAT_PSP_HANDLE psp, second;
	DAT_RSP_HANDLE rsp;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	RETURNS(dat_ep_connect(ep, NULL, 1, 9, 0, NULL, 0, 0), ARGUMENT(2));
	RETURNS(dat_ep_connect(ep, there, 1, 0, 0, NULL, 0, 0), ARGUMENT(4));
	RETURNS(dat_ep_connect(ep, there, 1, 9, 600, kit->buffer, 0, 0), ARGUMENT(5));
	RETURNS(dat_ep_connect(ep, there, 1, 9, 6, NULL, 0, 0), ARGUMENT(6));
	RETURNS(dat_ep_connect(ep, there, 1, 9, 0, NULL, 1, 0), ERROR(DAT_MODEL_NOT_SUPPORTED, 0));
	RETURNS(dat_ep_connect(ep, there, 0, 9, 0, NULL, 0, 0),
		ERROR(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNSUPPORTED));
	RETURNS(dat_ep_common_connect(ep, there, 9, 0, NULL),
		ERROR(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED));
	RETURNS(dat_ep_dup_connect(ep, ep, 0, 0, NULL, 0), ARGUMENT(3));
	RETURNS(dat_ep_dup_connect(ep, ep, 9, 0, NULL, 0), STATE(EP_UNCONNECTED));
	RETURNS(dat_psp_create(kit->ia, 0, kit->cr_evd, 0, &psp), ARGUMENT(2));
	RETURNS(dat_psp_create(kit->ia, 4444, kit->recv_evd, 0, &psp), HANDLE(EVD_CR));
	RETURNS(dat_psp_create(kit->ia, 4444, kit->cr_evd, 5, &psp), ARGUMENT(4));
	RETURNS(dat_psp_create(kit->ia, 4444, kit->cr_evd, 0, NULL), ARGUMENT(5));
	RETURNS(dat_psp_create(kit->ia, 4444, kit->cr_evd, 0, &psp), DAT_SUCCESS);
	RETURNS(dat_psp_create(kit->ia, 4444, kit->cr_evd, 0, &second),
		ERROR(DAT_CONN_QUAL_IN_USE, 0));
	RETURNS(dat_rsp_create(kit->ia, 4444, ep, kit->cr_evd, &rsp),
		ERROR(DAT_CONN_QUAL_IN_USE, 0));
	RETURNS(dat_rsp_create(kit->ia, 4445, ep, kit->cr_evd, &rsp), DAT_SUCCESS);
	RETURNS(dat_ep_free(ep), STATE(EP_RESERVED));
	RETURNS(dat_rsp_free(rsp), DAT_SUCCESS);
	RETURNS(dat_psp_free(psp), DAT_SUCCESS);
	RETURNS(dat_psp_free(psp), HANDLE(PSP));
	RETURNS(dat_cr_reject(NO_HANDLE, 0, NULL), HANDLE(CR));
	end(kit);
}

static DAT_RETURN region(struct kit *kit, DAT_MEM_TYPE type, DAT_VLEN len, unsigned privileges,
			 unsigned kind, DAT_LMR_HANDLE *lmr)
{
	DAT_REGION_DESCRIPTION where = { .for_va = kit->buffer };

	return dat_lmr_create(kit->ia, type, where, len, kit->pz, (DAT_MEM_PRIV_FLAGS)privileges,
			      (DAT_VA_TYPE)kind, lmr, NULL, NULL, NULL, NULL);
}

static void memory(void)
{
	struct kit *kit = begin();
	DAT_LMR_TRIPLET inside = kit_part(kit, 0, 8), outside = inside;
	DAT_RMR_CONTEXT context;
	DAT_RMR_PARAM param;
	DAT_RMR_HANDLE rmr;
	DAT_LMR_HANDLE lmr;

	outside.virtual_address -= 1;
	RETURNS(dat_pz_free(kit->pz), STATE(PZ_IN_USE));
	RETURNS(region(kit, 9, 1, 0x33, 0, &lmr), ARGUMENT(2));
	RETURNS(region(kit, DAT_MEM_TYPE_VIRTUAL, 1, 0x1000, 0, &lmr), ARGUMENT(6));
	RETURNS(region(kit, DAT_MEM_TYPE_VIRTUAL, 1, 0x33, 5, &lmr), ARGUMENT(7));
	RETURNS(region(kit, DAT_MEM_TYPE_VIRTUAL, 1, 0x33, 0, NULL), ARGUMENT(7));
	RETURNS(region(kit, DAT_MEM_TYPE_VIRTUAL, (DAT_VLEN)-1, 0x33, 0, &lmr),
		ERROR(DAT_LENGTH_ERROR, 0));
	RETURNS(region(kit, DAT_MEM_TYPE_VIRTUAL, 1, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, 0, &lmr),
		ERROR(DAT_INVALID_PARAMETER, 0));
	RETURNS(dat_lmr_sync_rdma_read(kit->ia, NULL, 1), ARGUMENT(2));
	RETURNS(dat_rmr_create(kit->pz, &rmr), DAT_SUCCESS);
	RETURNS(dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, &param), ARGUMENT(2));
	RETURNS(dat_rmr_bind(rmr, kit->lmr, &inside, 0x20, 0, kit->ep, cookie, 0, &context),
		STATE(EP_UNCONNECTED));
	RETURNS(dat_rmr_bind(rmr, kit->lmr, &outside, 0x20, 0, kit->ep, cookie, 0, &context),
		ARGUMENT(2));
	RETURNS(dat_rmr_bind(rmr, kit->lmr, NULL, 0x20, 0, kit->ep, cookie, 0, &context),
		ARGUMENT(3));
	RETURNS(dat_rmr_bind(rmr, kit->lmr, &inside, 0x20, 0, kit->ep, cookie, 0, NULL),
		ARGUMENT(9));
	RETURNS(dat_rmr_free(rmr), DAT_SUCCESS);
	end(kit);
}

static void transfers(void)
{
	struct kit *kit = begin();
	const DAT_RETURN is_full = ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
	DAT_LMR_TRIPLET part = kit_part(kit, 0, 8), parts[5] = { part, part, part, part, part };
	DAT_SRQ_ATTR attr = { 0, 1, 0 };
	DAT_RETURN ret = DAT_SUCCESS;
	DAT_SRQ_HANDLE srq;
	DAT_UINT64 value;
	int posted = -1;

	RETURNS(dat_ep_post_send(kit->ep, 1, &part, cookie, 0), STATE(EP_UNCONNECTED));
	RETURNS(dat_ep_post_recv(kit->ep, -1, &part, cookie, 0), ARGUMENT(2));
	RETURNS(dat_ep_post_recv(kit->ep, 5, parts, cookie, 0), ARGUMENT(2));
	RETURNS(dat_ep_post_recv(kit->ep, 1, NULL, cookie, 0), ARGUMENT(3));
	RETURNS(dat_ep_post_recv(kit->ep, 1, &part, cookie, 0x4000), ARGUMENT(5));
	for (; ret == DAT_SUCCESS; posted++)
		ret = dat_ep_post_recv(kit->ep, 1, &part, cookie, 0);
	RETURNS(ret, is_full);
	expect(posted == 16);
	RETURNS(dat_srq_create(kit->ia, kit->pz, &attr, &srq), ARGUMENT(3));
	attr.max_recv_dtos = 4;
	RETURNS(dat_srq_create(kit->ia, kit->pz, &attr, &srq), DAT_SUCCESS);
	RETURNS(dat_srq_set_lw(srq, 5), ARGUMENT(2));
	RETURNS(dat_srq_resize(srq, 0), ERROR(DAT_INVALID_STATE, 0));
	RETURNS(dat_srq_resize(srq, 0x7fffffff), ARGUMENT(2));
	RETURNS(dat_srq_free(srq), DAT_SUCCESS);
	RETURNS(dat_extension_op(kit->ep, 77), WITHOUT_CLASS(DAT_NOT_IMPLEMENTED, 0));
	RETURNS(dat_extension_op(NO_HANDLE, 77), ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1));
	RETURNS(dat_ib_query_counters(kit->lmr, 0, &value, 0), ARGUMENT(1));
	RETURNS(dat_ib_query_counters(kit->ep, 999, &value, 0), ARGUMENT(2));
	RETURNS(dat_ib_query_counters(kit->ep, 0, (DAT_UINT64 *)NULL, 0), ARGUMENT(3));
	end(kit);
}

static const struct trial TRIALS[] = {
	{ "registry", registry },
	{ "events", events },
	{ "notification", notification },
	{ "endpoints", endpoints },
	{ "connections", connections },
	{ "memory", memory },
	{ "transfers", transfers },
};

TRIAL_MAIN(TRIALS)
