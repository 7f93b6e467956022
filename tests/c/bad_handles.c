/*
 * Every function of the C interface with handles that are null, small, misaligned, unmapped,
 * foreign, stale, of the wrong kind or of the parent process: the call returns DAT_INVALID_HANDLE
 * and never crashes.
 *
 * usage: bad_handles IA_NAME Prints one line for each wrong code and a last line with the counts;
 * exits with 1 if a code was wrong.
 */
#include <dat2/udat.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int calls, wrong;

/* The other arguments of the calls: live objects, so that only the handle under test
   is at fault. */
static struct {
	DAT_IA_HANDLE ia;
	DAT_EVD_HANDLE async, evd, sw;
	DAT_PZ_HANDLE pz;
	DAT_EP_HANDLE ep;
	DAT_CNO_HANDLE cno;
	DAT_LMR_HANDLE lmr;
	DAT_PSP_HANDLE psp;
} live;

static char buffer[4096];
static union {
	DAT_EP_PARAM ep;
	DAT_EVD_PARAM evd;
	DAT_LMR_PARAM lmr;
	DAT_RMR_PARAM rmr;
	DAT_PZ_PARAM pz;
	DAT_PSP_PARAM psp;
	DAT_RSP_PARAM rsp;
	DAT_CR_PARAM cr;
	DAT_CNO_PARAM cno;
	DAT_SRQ_PARAM srq;
	DAT_CSP_PARAM csp;
} param;
static DAT_HANDLE out;
static DAT_EVENT event;
static DAT_COUNT count;
static DAT_LMR_TRIPLET local;
static DAT_RMR_TRIPLET remote;
static struct sockaddr_in address;
static const DAT_DTO_COOKIE cookie;
static DAT_LMR_CONTEXT lmr_context;
static DAT_RMR_CONTEXT rmr_context;
static DAT_VLEN registered_size;
static DAT_VADDR registered_address;

#define ADDRESS ((DAT_IA_ADDRESS_PTR)&address)

/* IA calls */
static DAT_RETURN ia_query(DAT_HANDLE h)
{
	DAT_IA_ATTR attr;
	return dat_ia_query(h, &out, DAT_IA_ALL, &attr, 0, NULL);
}
static DAT_RETURN ia_close(DAT_HANDLE h) { return dat_ia_close(h, DAT_CLOSE_ABRUPT_FLAG); }
static DAT_RETURN cno_create(DAT_HANDLE h)
{
	return dat_cno_create(h, DAT_OS_WAIT_PROXY_AGENT_NULL, &out);
}
static DAT_RETURN evd_create(DAT_HANDLE h)
{
	return dat_evd_create(h, 8, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &out);
}
static DAT_RETURN ep_create(DAT_HANDLE h)
{
	return dat_ep_create(h, live.pz, live.evd, live.evd, DAT_HANDLE_NULL, NULL, &out);
}
static DAT_RETURN lmr_create(DAT_HANDLE h)
{
	DAT_REGION_DESCRIPTION region = { .for_va = buffer };
	return dat_lmr_create(h, DAT_MEM_TYPE_VIRTUAL, region, sizeof buffer, live.pz,
			      DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &out, &lmr_context,
			      &rmr_context, &registered_size, &registered_address);
}
static DAT_RETURN sync_read(DAT_HANDLE h) { return dat_lmr_sync_rdma_read(h, &local, 1); }
static DAT_RETURN sync_write(DAT_HANDLE h) { return dat_lmr_sync_rdma_write(h, &local, 1); }
static DAT_RETURN psp_create(DAT_HANDLE h)
{
	return dat_psp_create(h, 0x5555, live.evd, DAT_PSP_CONSUMER_FLAG, &out);
}
static DAT_RETURN psp_create_any(DAT_HANDLE h)
{
	DAT_CONN_QUAL qual;
	return dat_psp_create_any(h, &qual, live.evd, DAT_PSP_CONSUMER_FLAG, &out);
}
static DAT_RETURN rsp_create(DAT_HANDLE h)
{
	return dat_rsp_create(h, 0x5556, live.ep, live.evd, &out);
}
static DAT_RETURN pz_create(DAT_HANDLE h) { return dat_pz_create(h, &out); }
static DAT_RETURN srq_create(DAT_HANDLE h)
{
	DAT_SRQ_ATTR attr = { 8, 1, 0 };
	return dat_srq_create(h, live.pz, &attr, &out);
}
static DAT_RETURN create_with_srq(DAT_HANDLE h)
{
	return dat_ep_create_with_srq(h, live.pz, live.evd, live.evd, DAT_HANDLE_NULL,
				      DAT_HANDLE_NULL, NULL, &out);
}

/* EP calls */
static DAT_RETURN ep_query(DAT_HANDLE h) { return dat_ep_query(h, DAT_EP_FIELD_ALL, &param.ep); }
static DAT_RETURN ep_modify(DAT_HANDLE h)
{
	memset(&param.ep, 0, sizeof param.ep);
	param.ep.pz_handle = live.pz;
	return dat_ep_modify(h, DAT_EP_FIELD_PZ_HANDLE, &param.ep);
}
static DAT_RETURN ep_connect(DAT_HANDLE h)
{
	return dat_ep_connect(h, ADDRESS, 9, 1000000, 0, NULL, DAT_QOS_BEST_EFFORT,
			      DAT_CONNECT_DEFAULT_FLAG);
}
static DAT_RETURN ep_dup_connect(DAT_HANDLE h)
{
	return dat_ep_dup_connect(h, live.ep, 1000000, 0, NULL, DAT_QOS_BEST_EFFORT);
}
static DAT_RETURN ep_disconnect(DAT_HANDLE h)
{
	return dat_ep_disconnect(h, DAT_CLOSE_ABRUPT_FLAG);
}
static DAT_RETURN post_send(DAT_HANDLE h) { return dat_ep_post_send(h, 1, &local, cookie, 0); }
static DAT_RETURN post_recv(DAT_HANDLE h) { return dat_ep_post_recv(h, 1, &local, cookie, 0); }
static DAT_RETURN post_read(DAT_HANDLE h)
{
	return dat_ep_post_rdma_read(h, 1, &local, cookie, &remote, 0);
}
static DAT_RETURN post_write(DAT_HANDLE h)
{
	return dat_ep_post_rdma_write(h, 1, &local, cookie, &remote, 0);
}
static DAT_RETURN get_status(DAT_HANDLE h)
{
	DAT_EP_STATE state;
	DAT_BOOLEAN in, request;
	return dat_ep_get_status(h, &state, &in, &request);
}
static DAT_RETURN ep_reset(DAT_HANDLE h) { return dat_ep_reset(h); }
static DAT_RETURN ep_free(DAT_HANDLE h) { return dat_ep_free(h); }
static DAT_RETURN recv_query(DAT_HANDLE h)
{
	DAT_COUNT buffers, span;
	return dat_ep_recv_query(h, &buffers, &span);
}
static DAT_RETURN set_watermark(DAT_HANDLE h) { return dat_ep_set_watermark(h, 1, 1); }

/* EVD and CNO calls */
static DAT_RETURN evd_query(DAT_HANDLE h)
{
	return dat_evd_query(h, DAT_EVD_FIELD_ALL, &param.evd);
}
static DAT_RETURN modify_cno(DAT_HANDLE h) { return dat_evd_modify_cno(h, DAT_HANDLE_NULL); }
static DAT_RETURN evd_enable(DAT_HANDLE h) { return dat_evd_enable(h); }
static DAT_RETURN evd_disable(DAT_HANDLE h) { return dat_evd_disable(h); }
static DAT_RETURN set_unwaitable(DAT_HANDLE h) { return dat_evd_set_unwaitable(h); }
static DAT_RETURN clear_unwaitable(DAT_HANDLE h) { return dat_evd_clear_unwaitable(h); }
static DAT_RETURN evd_wait(DAT_HANDLE h) { return dat_evd_wait(h, 0, 1, &event, &count); }
static DAT_RETURN evd_resize(DAT_HANDLE h) { return dat_evd_resize(h, 16); }
static DAT_RETURN evd_dequeue(DAT_HANDLE h) { return dat_evd_dequeue(h, &event); }
static DAT_RETURN post_se(DAT_HANDLE h)
{
	memset(&event, 0, sizeof event);
	event.event_number = DAT_SOFTWARE_EVENT;
	return dat_evd_post_se(h, &event);
}
static DAT_RETURN evd_free(DAT_HANDLE h) { return dat_evd_free(h); }
static DAT_RETURN modify_agent(DAT_HANDLE h)
{
	return dat_cno_modify_agent(h, DAT_OS_WAIT_PROXY_AGENT_NULL);
}
static DAT_RETURN cno_query(DAT_HANDLE h) { return dat_cno_query(h, 1, &param.cno); }
static DAT_RETURN cno_wait(DAT_HANDLE h) { return dat_cno_wait(h, 0, &out); }
static DAT_RETURN cno_free(DAT_HANDLE h) { return dat_cno_free(h); }

/* Service points, requests, memory */
static DAT_RETURN cr_query(DAT_HANDLE h) { return dat_cr_query(h, DAT_CR_FIELD_ALL, &param.cr); }
static DAT_RETURN cr_accept(DAT_HANDLE h) { return dat_cr_accept(h, live.ep, 0, NULL); }
static DAT_RETURN cr_reject(DAT_HANDLE h) { return dat_cr_reject(h, 0, NULL); }
static DAT_RETURN cr_handoff(DAT_HANDLE h) { return dat_cr_handoff(h, 1); }
static DAT_RETURN lmr_query(DAT_HANDLE h)
{
	return dat_lmr_query(h, DAT_LMR_FIELD_ALL, &param.lmr);
}
static DAT_RETURN lmr_free(DAT_HANDLE h) { return dat_lmr_free(h); }
static DAT_RETURN rmr_create(DAT_HANDLE h) { return dat_rmr_create(h, &out); }
static DAT_RETURN rmr_query(DAT_HANDLE h)
{
	return dat_rmr_query(h, DAT_RMR_FIELD_IA_HANDLE, &param.rmr);
}
static DAT_RETURN rmr_bind(DAT_HANDLE h)
{
	return dat_rmr_bind(h, live.lmr, &local, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, live.ep,
			    cookie, 0, &rmr_context);
}
static DAT_RETURN rmr_free(DAT_HANDLE h) { return dat_rmr_free(h); }
static DAT_RETURN psp_query(DAT_HANDLE h)
{
	return dat_psp_query(h, DAT_PSP_FIELD_ALL, &param.psp);
}
static DAT_RETURN psp_free(DAT_HANDLE h) { return dat_psp_free(h); }
static DAT_RETURN rsp_query(DAT_HANDLE h)
{
	return dat_rsp_query(h, DAT_RSP_FIELD_ALL, &param.rsp);
}
static DAT_RETURN rsp_free(DAT_HANDLE h) { return dat_rsp_free(h); }
static DAT_RETURN pz_query(DAT_HANDLE h) { return dat_pz_query(h, DAT_PZ_FIELD_ALL, &param.pz); }
static DAT_RETURN pz_free(DAT_HANDLE h) { return dat_pz_free(h); }
static DAT_RETURN srq_set_lw(DAT_HANDLE h) { return dat_srq_set_lw(h, 1); }
static DAT_RETURN srq_free(DAT_HANDLE h) { return dat_srq_free(h); }
static DAT_RETURN srq_query(DAT_HANDLE h)
{
	return dat_srq_query(h, DAT_SRQ_FIELD_ALL, &param.srq);
}
static DAT_RETURN srq_resize(DAT_HANDLE h) { return dat_srq_resize(h, 8); }
static DAT_RETURN srq_post_recv(DAT_HANDLE h) { return dat_srq_post_recv(h, 1, &local, cookie); }
static DAT_RETURN set_context(DAT_HANDLE h)
{
	DAT_CONTEXT context = { .as_64 = 1 };
	return dat_set_consumer_context(h, context);
}
static DAT_RETURN get_context(DAT_HANDLE h)
{
	DAT_CONTEXT context;
	return dat_get_consumer_context(h, &context);
}
static DAT_RETURN get_type(DAT_HANDLE h)
{
	DAT_HANDLE_TYPE type;
	return dat_get_handle_type(h, &type);
}
static DAT_RETURN extension_op(DAT_HANDLE h) { return dat_extension_op(h, 0x402, 1, &param); }

static DAT_RETURN cno_fd_create(DAT_HANDLE h)
{
	DAT_FD fd;
	return dat_cno_fd_create(h, &fd, &out);
}
static DAT_RETURN cno_trigger(DAT_HANDLE h) { return dat_cno_trigger(h, &out); }
static DAT_RETURN csp_create(DAT_HANDLE h)
{
	DAT_COMM comm = { .domain = AF_INET };
	return dat_csp_create(h, &comm, ADDRESS, live.evd, &out);
}
static DAT_RETURN csp_query(DAT_HANDLE h)
{
	return dat_csp_query(h, DAT_CSP_FIELD_ALL, &param.csp);
}
static DAT_RETURN csp_free(DAT_HANDLE h) { return dat_csp_free(h); }
static DAT_RETURN common_connect(DAT_HANDLE h)
{
	return dat_ep_common_connect(h, ADDRESS, 1000000, 0, NULL);
}
static DAT_RETURN send_with_invalidate(DAT_HANDLE h)
{
	return dat_ep_post_send_with_invalidate(h, 1, &local, cookie, 0, DAT_TRUE, rmr_context);
}
static DAT_RETURN read_to_rmr(DAT_HANDLE h)
{
	return dat_ep_post_rdma_read_to_rmr(h, &remote, cookie, &remote, 0);
}
static DAT_RETURN rmr_create_for_ep(DAT_HANDLE h) { return dat_rmr_create_for_ep(h, &out); }

/* Calls with a valid first handle, whose second handle is under test. */
static DAT_RETURN ep_create_pz(DAT_HANDLE h)
{
	return h == DAT_HANDLE_NULL ? DAT_INVALID_HANDLE
	       : dat_ep_create(live.ia, h, live.evd, live.evd, DAT_HANDLE_NULL, NULL, &out);
}
static DAT_RETURN ep_create_evd(DAT_HANDLE h)
{
	return h == DAT_HANDLE_NULL ? DAT_INVALID_HANDLE
	       : dat_ep_create(live.ia, live.pz, h, live.evd, DAT_HANDLE_NULL, NULL, &out);
}
static DAT_RETURN lmr_create_pz(DAT_HANDLE h)
{
	DAT_REGION_DESCRIPTION region = { .for_va = buffer };
	return dat_lmr_create(live.ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof buffer, h,
			      DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &out, &lmr_context,
			      &rmr_context, &registered_size, &registered_address);
}
static DAT_RETURN evd_create_cno(DAT_HANDLE h)
{
	return h == DAT_HANDLE_NULL ? DAT_INVALID_HANDLE
	       : dat_evd_create(live.ia, 8, h, DAT_EVD_DTO_FLAG, &out);
}
static DAT_RETURN psp_create_evd(DAT_HANDLE h)
{
	return dat_psp_create(live.ia, 0x5557, h, DAT_PSP_CONSUMER_FLAG, &out);
}
static DAT_RETURN rsp_create_ep(DAT_HANDLE h)
{
	return dat_rsp_create(live.ia, 0x5558, h, live.evd, &out);
}

/* The kinds of handles that a call accepts. A live handle of any other kind must be refused. */
enum kind { IA = 1, EP = 2, EVD = 4, CNO = 8, LMR = 16, PZ = 32, PSP = 64, NONE = 0, ANY = 127 };

static const struct {
	const char *name;
	DAT_RETURN (*call)(DAT_HANDLE);
	int takes;
} table[] = {
	{ "dat_ia_query", ia_query, IA }, { "dat_ia_close", ia_close, IA },
	{ "dat_cno_create", cno_create, IA }, { "dat_evd_create", evd_create, IA },
	{ "dat_ep_create", ep_create, IA }, { "dat_lmr_create", lmr_create, IA },
	{ "dat_lmr_sync_rdma_read", sync_read, IA }, { "dat_lmr_sync_rdma_write", sync_write, IA },
	{ "dat_psp_create", psp_create, IA }, { "dat_psp_create_any", psp_create_any, IA },
	{ "dat_rsp_create", rsp_create, IA }, { "dat_pz_create", pz_create, IA },
	{ "dat_srq_create", srq_create, IA }, { "dat_ep_create_with_srq", create_with_srq, IA },
	{ "dat_ep_query", ep_query, EP }, { "dat_ep_modify", ep_modify, EP },
	{ "dat_ep_connect", ep_connect, EP }, { "dat_ep_dup_connect", ep_dup_connect, EP },
	{ "dat_ep_disconnect", ep_disconnect, EP }, { "dat_ep_post_send", post_send, EP },
	{ "dat_ep_post_recv", post_recv, EP }, { "dat_ep_post_rdma_read", post_read, EP },
	{ "dat_ep_post_rdma_write", post_write, EP }, { "dat_ep_get_status", get_status, EP },
	{ "dat_ep_reset", ep_reset, EP }, { "dat_ep_recv_query", recv_query, EP },
	{ "dat_ep_set_watermark", set_watermark, EP }, { "dat_ep_free", ep_free, EP },
	{ "dat_evd_query", evd_query, EVD }, { "dat_evd_modify_cno", modify_cno, EVD },
	{ "dat_evd_enable", evd_enable, EVD }, { "dat_evd_disable", evd_disable, EVD },
	{ "dat_evd_set_unwaitable", set_unwaitable, EVD },
	{ "dat_evd_clear_unwaitable", clear_unwaitable, EVD },
	{ "dat_evd_wait", evd_wait, EVD }, { "dat_evd_resize", evd_resize, EVD },
	{ "dat_evd_dequeue", evd_dequeue, EVD }, { "dat_evd_post_se", post_se, EVD },
	{ "dat_evd_free", evd_free, EVD }, { "dat_cno_modify_agent", modify_agent, CNO },
	{ "dat_cno_query", cno_query, CNO }, { "dat_cno_wait", cno_wait, CNO },
	{ "dat_cno_free", cno_free, CNO }, { "dat_cr_query", cr_query, NONE },
	{ "dat_cr_accept", cr_accept, NONE }, { "dat_cr_reject", cr_reject, NONE },
	{ "dat_cr_handoff", cr_handoff, NONE }, { "dat_lmr_query", lmr_query, LMR },
	{ "dat_lmr_free", lmr_free, LMR }, { "dat_rmr_create", rmr_create, PZ },
	{ "dat_rmr_query", rmr_query, NONE }, { "dat_rmr_bind", rmr_bind, NONE },
	{ "dat_rmr_free", rmr_free, NONE }, { "dat_psp_query", psp_query, PSP },
	{ "dat_psp_free", psp_free, PSP }, { "dat_rsp_query", rsp_query, NONE },
	{ "dat_rsp_free", rsp_free, NONE }, { "dat_pz_query", pz_query, PZ },
	{ "dat_pz_free", pz_free, PZ }, { "dat_srq_set_lw", srq_set_lw, NONE },
	{ "dat_srq_free", srq_free, NONE }, { "dat_srq_query", srq_query, NONE },
	{ "dat_srq_resize", srq_resize, NONE }, { "dat_srq_post_recv", srq_post_recv, NONE },
	{ "dat_set_consumer_context", set_context, ANY },
	{ "dat_get_consumer_context", get_context, ANY },
	{ "dat_get_handle_type", get_type, ANY }, { "dat_extension_op", extension_op, ANY },
	{ "dat_cno_fd_create", cno_fd_create, IA }, { "dat_cno_trigger", cno_trigger, CNO },
	{ "dat_csp_create", csp_create, IA }, { "dat_csp_query", csp_query, NONE },
	{ "dat_csp_free", csp_free, NONE }, { "dat_ep_common_connect", common_connect, EP },
	{ "dat_ep_post_send_with_invalidate", send_with_invalidate, EP },
	{ "dat_ep_post_rdma_read_to_rmr", read_to_rmr, EP },
	{ "dat_rmr_create_for_ep", rmr_create_for_ep, PZ },
	{ "dat_ep_create, pz", ep_create_pz, PZ }, { "dat_ep_create, recv evd", ep_create_evd,
			EVD },
	{ "dat_lmr_create, pz", lmr_create_pz, PZ }, { "dat_evd_create, cno", evd_create_cno, CNO },
	{ "dat_psp_create, evd", psp_create_evd, EVD }, { "dat_rsp_create, ep", rsp_create_ep, EP },
};

static void expect_refused(size_t i, const char *what, DAT_HANDLE h)
{
	DAT_RETURN ret = table[i].call(h);

	calls++;
	if (DAT_GET_TYPE(ret) != DAT_INVALID_HANDLE) {
		wrong++;
		printf("%s with %s handle %p answered 0x%08x\n", table[i].name, what, h, ret);
	}
}

static void must(const char *what, DAT_RETURN ret)
{
	if (ret != DAT_SUCCESS) {
		printf("%s failed: 0x%08x\n", what, ret);
		exit(2);
	}
}

static void open_all(char *name)
{
	live.async = DAT_HANDLE_NULL;
	must("dat_ia_open", dat_ia_open(name, 8, &live.async, &live.ia));
	must("pz", dat_pz_create(live.ia, &live.pz));
	must("evd", dat_evd_create(live.ia, 16, DAT_HANDLE_NULL,
				   DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG | DAT_EVD_CR_FLAG,
						&live.evd));
	must("software evd", dat_evd_create(live.ia, 16, DAT_HANDLE_NULL,
					    DAT_EVD_SOFTWARE_FLAG | DAT_EVD_CONNECTION_FLAG,
							&live.sw));
	must("cno", dat_cno_create(live.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &live.cno));
	must("ep", dat_ep_create(live.ia, live.pz, live.evd, live.evd, live.sw, NULL, &live.ep));
	must("lmr", lmr_create(live.ia));
	live.lmr = out;
	must("psp", dat_psp_create(live.ia, 0x6a6a, live.evd, DAT_PSP_CONSUMER_FLAG, &live.psp));
	local.virtual_address = (DAT_VADDR)(uintptr_t)buffer;
	local.segment_length = 16;
	local.lmr_context = lmr_context;
	remote.virtual_address = local.virtual_address;
	remote.segment_length = 16;
	remote.rmr_context = rmr_context;
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

static void garbage_handles(void)
{
	static char zeros[256] __attribute__((aligned(64)));
	static void *pointers_to_zeros[32] __attribute__((aligned(64)));
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t i, k;

	munmap(page, 8192);
	for (i = 0; i < 32; i++)
		pointers_to_zeros[i] = zeros;
	for (i = 0; i < sizeof table / sizeof *table; i++) {
		const struct { const char *what; void *h; } bad[] = {
			{ "a null", NULL }, { "an integer as", (void *)63 },
			{ "a larger integer as", (void *)4096 }, { "a misaligned",
					(char *)live.ep + 1 },
			{ "an unmapped", page }, { "a zeroed object as", zeros },
			{ "a foreign object as", pointers_to_zeros }, { "code as",
					(void *)&open_all },
			{ "an all-ones", (void *)-1 }, { "a kernel address as",
					(void *)0xffff800000000000 },
			{ "a non-canonical", (void *)0x00ff000000000000 },
			{ "a neighbouring slot as", (char *)live.ep + 64 * 1024 },
		};
		for (k = 0; k < sizeof bad / sizeof *bad; k++)
			expect_refused(i, bad[k].what, bad[k].h);
	}
}

static void wrong_kinds(void)
{
	const struct { const char *what; DAT_HANDLE h; int kind; } objects[] = {
		{ "an IA", live.ia, IA }, { "an EP", live.ep, EP }, { "an EVD", live.evd, EVD },
		{ "a CNO", live.cno, CNO }, { "an LMR", live.lmr, LMR }, { "a PZ", live.pz, PZ },
		{ "a PSP", live.psp, PSP },
	};
	size_t i, k;

	for (i = 0; i < sizeof table / sizeof *table; i++)
		for (k = 0; k < sizeof objects / sizeof *objects; k++)
			if (!(table[i].takes & objects[k].kind))
				expect_refused(i, objects[k].what, objects[k].h);
}

static void stale_handles(void)
{
	DAT_HANDLE stale[8];
	const char *what[] = { "a freed PSP", "a freed LMR", "a freed EP", "a freed EVD",
			       "a freed software EVD", "a freed CNO", "a freed PZ" };
	DAT_PZ_HANDLE pz = live.pz;
	size_t i, k;

	must("psp_free", dat_psp_free(stale[0] = live.psp));
	must("lmr_free", dat_lmr_free(stale[1] = live.lmr));
	must("ep_free", dat_ep_free(stale[2] = live.ep));
	must("evd_free", dat_evd_free(stale[3] = live.evd));
	must("software evd_free", dat_evd_free(stale[4] = live.sw));
	must("cno_free", dat_cno_free(stale[5] = live.cno));
	must("pz_free", dat_pz_free(stale[6] = pz));
	/* New objects of every kind, for which a faulty handle table would reuse slots. */
	must("pz", dat_pz_create(live.ia, &live.pz));
	must("evd", dat_evd_create(live.ia, 16, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG |
			DAT_EVD_CR_FLAG, &live.evd));
	must("cno", dat_cno_create(live.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &live.cno));
	must("ep", dat_ep_create(live.ia, live.pz, live.evd, live.evd, DAT_HANDLE_NULL, NULL,
			&live.ep));
	for (i = 0; i < sizeof table / sizeof *table; i++)
		for (k = 0; k < 7; k++)
			expect_refused(i, what[k], stale[k]);
}

/* The child of a fork: the handles of its parent are invalid, and it opens adapters of its own. */
static void handles_of_the_parent(char *name)
{
	const DAT_HANDLE parents[] = { live.ep, live.evd, live.sw, live.cno, live.lmr, live.pz,
				       live.psp, live.ia };
	DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
	DAT_IA_HANDLE ia;
	int status = -1;
	pid_t child;
	size_t i, k;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		alarm(30);
		for (i = 0; i < sizeof table / sizeof *table; i++)
			for (k = 0; k < sizeof parents / sizeof *parents; k++)
				expect_refused(i, "a parent's", parents[k]);
		must("the child's dat_ia_open", dat_ia_open(name, 8, &async, &ia));
		must("the child's dat_ia_close", dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
		exit(wrong != 0);
	}
	calls++;
	if (waitpid(child, &status, 0) != child || status != 0) {
		wrong++;
		printf("the child with the handles of its parent ended with 0x%x\n", status);
	}
}

int main(int argc, char **argv)
{
	DAT_IA_HANDLE ia;
	size_t i;

	if (argc != 2) {
		fprintf(stderr, "usage: bad_handles IA_NAME\n");
		return 2;
	}
	open_all(argv[1]);
	garbage_handles();
	wrong_kinds();
	handles_of_the_parent(argv[1]);
	stale_handles();
	ia = live.ia;
	must("ia_close", dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
	for (i = 0; i < sizeof table / sizeof *table; i++)
		expect_refused(i, "a closed IA as", ia);
	printf("%d calls with bad handles, %d wrong answers\n", calls, wrong);
	return wrong != 0;
}
