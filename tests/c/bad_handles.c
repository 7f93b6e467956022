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

#include "words.h"

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
#define NO DAT_HANDLE_NULL

/* The kinds of handles. A live handle of a kind that a call does not accept must be refused. */
enum kind { IA = 1, EP = 2, EVD = 4, CNO = 8, LMR = 16, PZ = 32, PSP = 64, NONE = 0, ANY = 127 };

static void check(const char *call, const char *what, DAT_HANDLE h, DAT_RETURN ret)
{
	calls++;
	if (DAT_GET_TYPE(ret) != DAT_INVALID_HANDLE) {
		wrong++;
		printf("%s with %s handle %p answered 0x%08x\n", call, what, h, ret);
	}
}

/* A row: the call, the kinds of handles that it accepts, its arguments. */
#define ROW(call, takes, args)                                                                    \
	do {                                                                                      \
		if (!((takes) & kind))                                                            \
			check(#call " " #args, what, h, call args);                               \
	} while (0)

/* Passes a handle to every call; `kind` is the kind of a live object, and otherwise 0. */
static void expect_refused(const char *what, DAT_HANDLE h, enum kind kind)
{
	const DAT_REGION_DESCRIPTION region = { .for_va = buffer };
	const DAT_MEM_PRIV_FLAGS rights = DAT_MEM_PRIV_ALL_FLAG;
	const DAT_EP_PARAM changed = { .pz_handle = live.pz };
	const DAT_CONTEXT context = { .as_64 = 1 };
	DAT_EVENT posted = { .event_number = DAT_SOFTWARE_EVENT };
	DAT_COMM comm = { .domain = AF_INET };
	DAT_SRQ_ATTR srq_attr = { 8, 1, 0 };
	DAT_BOOLEAN in, request;
	DAT_COUNT buffers, span;
	DAT_CONTEXT got_context;
	DAT_HANDLE_TYPE type;
	DAT_EP_STATE state;
	DAT_CONN_QUAL qual;
	DAT_IA_ATTR attr;
	DAT_FD fd;

	ROW(dat_ia_query, IA, (h, &out, DAT_IA_ALL, &attr, 0, NULL));
	ROW(dat_ia_close, IA, (h, DAT_CLOSE_ABRUPT_FLAG));
	ROW(dat_cno_create, IA, (h, DAT_OS_WAIT_PROXY_AGENT_NULL, &out));
	ROW(dat_cno_fd_create, IA, (h, &fd, &out));
	ROW(dat_evd_create, IA, (h, 8, NO, DAT_EVD_DTO_FLAG, &out));
	ROW(dat_ep_create, IA, (h, live.pz, live.evd, live.evd, NO, NULL, &out));
	ROW(dat_ep_create_with_srq, IA, (h, live.pz, live.evd, live.evd, NO, NO, NULL, &out));
	ROW(dat_lmr_create, IA, (h, DAT_MEM_TYPE_VIRTUAL, region, sizeof buffer, live.pz, rights,
				 DAT_VA_TYPE_VA, &out, &lmr_context, &rmr_context,
				 &registered_size, &registered_address));
	ROW(dat_lmr_sync_rdma_read, IA, (h, &local, 1));
	ROW(dat_lmr_sync_rdma_write, IA, (h, &local, 1));
	ROW(dat_psp_create, IA, (h, 0x5555, live.evd, DAT_PSP_CONSUMER_FLAG, &out));
	ROW(dat_psp_create_any, IA, (h, &qual, live.evd, DAT_PSP_CONSUMER_FLAG, &out));
	ROW(dat_rsp_create, IA, (h, 0x5556, live.ep, live.evd, &out));
	ROW(dat_csp_create, IA, (h, &comm, ADDRESS, live.evd, &out));
	ROW(dat_pz_create, IA, (h, &out));
	ROW(dat_srq_create, IA, (h, live.pz, &srq_attr, &out));

	ROW(dat_ep_query, EP, (h, DAT_EP_FIELD_ALL, &param.ep));
	ROW(dat_ep_modify, EP, (h, DAT_EP_FIELD_PZ_HANDLE, &changed));
	ROW(dat_ep_connect, EP, (h, ADDRESS, 9, 1000000, 0, NULL, DAT_QOS_BEST_EFFORT,
				 DAT_CONNECT_DEFAULT_FLAG));
	ROW(dat_ep_common_connect, EP, (h, ADDRESS, 1000000, 0, NULL));
	ROW(dat_ep_dup_connect, EP, (h, live.ep, 1000000, 0, NULL, DAT_QOS_BEST_EFFORT));
	ROW(dat_ep_disconnect, EP, (h, DAT_CLOSE_ABRUPT_FLAG));
	ROW(dat_ep_post_send, EP, (h, 1, &local, cookie, 0));
	ROW(dat_ep_post_recv, EP, (h, 1, &local, cookie, 0));
	ROW(dat_ep_post_rdma_read, EP, (h, 1, &local, cookie, &remote, 0));
	ROW(dat_ep_post_rdma_write, EP, (h, 1, &local, cookie, &remote, 0));
	ROW(dat_ep_post_send_with_invalidate, EP, (h, 1, &local, cookie, 0, DAT_TRUE, rmr_context));
	ROW(dat_ep_post_rdma_read_to_rmr, EP, (h, &remote, cookie, &remote, 0));
	ROW(dat_ep_get_status, EP, (h, &state, &in, &request));
	ROW(dat_ep_reset, EP, (h));
	ROW(dat_ep_recv_query, EP, (h, &buffers, &span));
	ROW(dat_ep_set_watermark, EP, (h, 1, 1));
	ROW(dat_ep_free, EP, (h));

	ROW(dat_evd_query, EVD, (h, DAT_EVD_FIELD_ALL, &param.evd));
	ROW(dat_evd_modify_cno, EVD, (h, NO));
	ROW(dat_evd_enable, EVD, (h));
	ROW(dat_evd_disable, EVD, (h));
	ROW(dat_evd_set_unwaitable, EVD, (h));
	ROW(dat_evd_clear_unwaitable, EVD, (h));
	ROW(dat_evd_wait, EVD, (h, 0, 1, &event, &count));
	ROW(dat_evd_resize, EVD, (h, 16));
	ROW(dat_evd_dequeue, EVD, (h, &event));
	ROW(dat_evd_post_se, EVD, (h, &posted));
	ROW(dat_evd_free, EVD, (h));
	ROW(dat_cno_modify_agent, CNO, (h, DAT_OS_WAIT_PROXY_AGENT_NULL));
	ROW(dat_cno_query, CNO, (h, 1, &param.cno));
	ROW(dat_cno_wait, CNO, (h, 0, &out));
	ROW(dat_cno_trigger, CNO, (h, &out));
	ROW(dat_cno_free, CNO, (h));

	ROW(dat_cr_query, NONE, (h, DAT_CR_FIELD_ALL, &param.cr));
	ROW(dat_cr_accept, NONE, (h, live.ep, 0, NULL));
	ROW(dat_cr_reject, NONE, (h, 0, NULL));
	ROW(dat_cr_handoff, NONE, (h, 1));
	ROW(dat_psp_query, PSP, (h, DAT_PSP_FIELD_ALL, &param.psp));
	ROW(dat_psp_free, PSP, (h));
	ROW(dat_rsp_query, NONE, (h, DAT_RSP_FIELD_ALL, &param.rsp));
	ROW(dat_rsp_free, NONE, (h));
	ROW(dat_csp_query, NONE, (h, DAT_CSP_FIELD_ALL, &param.csp));
	ROW(dat_csp_free, NONE, (h));

	ROW(dat_lmr_query, LMR, (h, DAT_LMR_FIELD_ALL, &param.lmr));
	ROW(dat_lmr_free, LMR, (h));
	ROW(dat_rmr_create, PZ, (h, &out));
	ROW(dat_rmr_create_for_ep, PZ, (h, &out));
	ROW(dat_rmr_query, NONE, (h, DAT_RMR_FIELD_IA_HANDLE, &param.rmr));
	ROW(dat_rmr_bind, NONE, (h, live.lmr, &local, rights, DAT_VA_TYPE_VA, live.ep, cookie, 0,
				 &rmr_context));
	ROW(dat_rmr_free, NONE, (h));
	ROW(dat_pz_query, PZ, (h, DAT_PZ_FIELD_ALL, &param.pz));
	ROW(dat_pz_free, PZ, (h));
	ROW(dat_srq_set_lw, NONE, (h, 1));
	ROW(dat_srq_free, NONE, (h));
	ROW(dat_srq_query, NONE, (h, DAT_SRQ_FIELD_ALL, &param.srq));
	ROW(dat_srq_resize, NONE, (h, 8));
	ROW(dat_srq_post_recv, NONE, (h, 1, &local, cookie));

	ROW(dat_set_consumer_context, ANY, (h, context));
	ROW(dat_get_consumer_context, ANY, (h, &got_context));
	ROW(dat_get_handle_type, ANY, (h, &type));
	ROW(dat_extension_op, ANY, (h, 0x402, 1, &param));

	/* A valid first handle, and a second one under test. */
	ROW(dat_lmr_create, PZ, (live.ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof buffer, h, rights,
				 DAT_VA_TYPE_VA, &out, &lmr_context, &rmr_context,
				 &registered_size, &registered_address));
	ROW(dat_psp_create, EVD, (live.ia, 0x5557, h, DAT_PSP_CONSUMER_FLAG, &out));
	ROW(dat_rsp_create, EP, (live.ia, 0x5558, h, live.evd, &out));
	if (h == DAT_HANDLE_NULL)
		return;
	/* These arguments may be null. */
	ROW(dat_ep_create, PZ, (live.ia, h, live.evd, live.evd, NO, NULL, &out));
	ROW(dat_ep_create, EVD, (live.ia, live.pz, h, live.evd, NO, NULL, &out));
	ROW(dat_evd_create, CNO, (live.ia, 8, h, DAT_EVD_DTO_FLAG, &out));
}

static void open_all(char *name)
{
	DAT_REGION_DESCRIPTION region = { .for_va = buffer };

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
	must("lmr", dat_lmr_create(live.ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof buffer, live.pz,
				   DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &live.lmr, &lmr_context,
				   &rmr_context, &registered_size, &registered_address));
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

	munmap(page, 8192);
	for (size_t i = 0; i < 32; i++)
		pointers_to_zeros[i] = zeros;
	expect_refused("a null", NULL, NONE);
	expect_refused("an integer as", (void *)63, NONE);
	expect_refused("a larger integer as", (void *)4096, NONE);
	expect_refused("a misaligned", (char *)live.ep + 1, NONE);
	expect_refused("an unmapped", page, NONE);
	expect_refused("a zeroed object as", zeros, NONE);
	expect_refused("a foreign object as", pointers_to_zeros, NONE);
	expect_refused("code as", (void *)&open_all, NONE);
	expect_refused("an all-ones", (void *)-1, NONE);
	expect_refused("a kernel address as", (void *)0xffff800000000000, NONE);
	expect_refused("a non-canonical", (void *)0x00ff000000000000, NONE);
	expect_refused("a neighbouring slot as", (char *)live.ep + 64 * 1024, NONE);
}

static void wrong_kinds(void)
{
	expect_refused("an IA", live.ia, IA);
	expect_refused("an EP", live.ep, EP);
	expect_refused("an EVD", live.evd, EVD);
	expect_refused("a CNO", live.cno, CNO);
	expect_refused("an LMR", live.lmr, LMR);
	expect_refused("a PZ", live.pz, PZ);
	expect_refused("a PSP", live.psp, PSP);
}

static void stale_handles(void)
{
	DAT_HANDLE stale[7];
	const char *what[] = { "a freed PSP", "a freed LMR", "a freed EP", "a freed EVD",
			       "a freed software EVD", "a freed CNO", "a freed PZ" };

	must("psp_free", dat_psp_free(stale[0] = live.psp));
	must("lmr_free", dat_lmr_free(stale[1] = live.lmr));
	must("ep_free", dat_ep_free(stale[2] = live.ep));
	must("evd_free", dat_evd_free(stale[3] = live.evd));
	must("software evd_free", dat_evd_free(stale[4] = live.sw));
	must("cno_free", dat_cno_free(stale[5] = live.cno));
	must("pz_free", dat_pz_free(stale[6] = live.pz));
	/* New objects of every kind, for which a faulty handle table would reuse slots. */
	must("pz", dat_pz_create(live.ia, &live.pz));
	must("evd", dat_evd_create(live.ia, 16, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG |
			DAT_EVD_CR_FLAG, &live.evd));
	must("cno", dat_cno_create(live.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &live.cno));
	must("ep", dat_ep_create(live.ia, live.pz, live.evd, live.evd, DAT_HANDLE_NULL, NULL,
			&live.ep));
	for (size_t k = 0; k < 7; k++)
		expect_refused(what[k], stale[k], NONE);
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

	fflush(stdout);
	child = fork();
	if (child == 0) {
		alarm(30);
		for (size_t k = 0; k < sizeof parents / sizeof *parents; k++)
			expect_refused("a parent's", parents[k], NONE);
		must("the child's dat_ia_open", dat_ia_open(name, 8, &async, &ia));
		must("the child's dat_ia_close", dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
		fflush(stdout);
		/* Ends without a check for leaks: the child has copies of what only the threads of its
		 * parent could free. */
		execlp(wrong ? "false" : "true", "end", NULL);
		_exit(127);
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
	expect_refused("a closed IA as", ia, NONE);
	printf("%d calls with bad handles, %d wrong answers\n", calls, wrong);
	return wrong != 0;
}
