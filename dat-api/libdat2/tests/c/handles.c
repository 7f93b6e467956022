/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * No handle value may crash a call, and arguments are passed in order. Calls of every kind get
 * null, small integers, misaligned and unmapped addresses, and readable memory that is not an
 * object. tests/c/bad_handles.c makes every call.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "provider.h"

struct provider_log provider_log_of_program;

#define BAD(kind) (DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_##kind)
#define BAD1 (DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE1)

static const DAT_OS_WAIT_PROXY_AGENT no_agent;

/* The calls of one kind share their check. */
static void a_call_of_each_kind(DAT_HANDLE h)
{
	DAT_HANDLE out = DAT_HANDLE_NULL;

	CHECK_RETURN(dat_ia_close(h, DAT_CLOSE_ABRUPT_FLAG), BAD(IA));
	CHECK_RETURN(dat_pz_create(h, &out), BAD(IA));
	CHECK_RETURN(dat_cno_free(h), BAD(CNO));
	CHECK_RETURN(dat_evd_free(h), BAD(EVD_REQUEST));
	CHECK_RETURN(dat_srq_free(h), BAD(SRQ));
	CHECK_RETURN(dat_ep_free(h), BAD(EP));
	CHECK_RETURN(dat_cr_reject(h, 0, NULL), BAD(CR));
	CHECK_RETURN(dat_lmr_free(h), BAD(LMR));
	CHECK_RETURN(dat_rmr_free(h), BAD(RMR));
	CHECK_RETURN(dat_psp_free(h), BAD(PSP));
	CHECK_RETURN(dat_rsp_free(h), BAD(RSP));
	CHECK_RETURN(dat_csp_free(h), BAD(CSP));
	CHECK_RETURN(dat_pz_free(h), BAD(PZ));
	CHECK_RETURN(dat_get_handle_type(h, NULL), BAD1);
	CHECK(out == DAT_HANDLE_NULL);
}

static void bad_handles_are_refused(void)
{
	unsigned long words[2] = { 0, 0 };
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(page != MAP_FAILED);
	munmap(page + 4096, 4096);
	a_call_of_each_kind(DAT_HANDLE_NULL);
	a_call_of_each_kind((DAT_HANDLE)17);
	a_call_of_each_kind((DAT_HANDLE)4095);
	a_call_of_each_kind((DAT_HANDLE)4099);
	a_call_of_each_kind((DAT_HANDLE)~0UL);
	a_call_of_each_kind((DAT_HANDLE)0x8000000000000000UL);
	a_call_of_each_kind((DAT_HANDLE)0x0000800000000000UL);
	a_call_of_each_kind((DAT_HANDLE)(page + 4096));
	a_call_of_each_kind((DAT_HANDLE)page);
	a_call_of_each_kind((DAT_HANDLE)(page + 1));
	a_call_of_each_kind((DAT_HANDLE)words);
	words[0] = (unsigned long)words;
	a_call_of_each_kind((DAT_HANDLE)words);
	words[0] = 0xdead0000;
	a_call_of_each_kind((DAT_HANDLE)words);
	a_call_of_each_kind((DAT_HANDLE)a_call_of_each_kind);
	munmap(page, 4096);
	a_call_of_each_kind((DAT_HANDLE)page);
}

static void ia_handles_and_object_handles_are_not_interchangeable(DAT_IA_HANDLE ia)
{
	DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
	DAT_HANDLE out = DAT_HANDLE_NULL;
	DAT_EVENT event;

	CHECK_RETURN(dat_evd_dequeue(ia, &event), BAD(EVD_REQUEST));
	CHECK_RETURN(dat_ep_reset(ia), BAD(EP));
	CHECK_RETURN(dat_evd_create(ia, 8, NULL, DAT_EVD_DTO_FLAG, &evd), DAT_SUCCESS);
	CHECK_RETURN(dat_cno_create(evd, no_agent, &out), BAD(IA));
	CHECK(out == DAT_HANDLE_NULL);
	CHECK_RETURN(dat_evd_dequeue(evd, &event), DAT_QUEUE_EMPTY);
	CHECK_RETURN(dat_evd_free(evd), DAT_SUCCESS);
}

static void context_and_type_work_for_ias_and_objects(DAT_IA_HANDLE ia)
{
	DAT_CONTEXT in, out;
	DAT_HANDLE_TYPE type = DAT_HANDLE_TYPE_CR;
	DAT_PZ_HANDLE pz = DAT_HANDLE_NULL;

	in.as_64 = ARG_64(9);
	CHECK_RETURN(dat_set_consumer_context(ia, in), DAT_SUCCESS);
	CHECK_RETURN(dat_get_consumer_context(ia, &out), DAT_SUCCESS);
	CHECK(out.as_64 == ARG_64(9));
	CHECK_RETURN(dat_get_handle_type(ia, &type), DAT_SUCCESS);
	CHECK(type == DAT_HANDLE_TYPE_IA);
	CHECK_RETURN(dat_pz_create(ia, &pz), DAT_SUCCESS);
	CHECK_RETURN(dat_set_consumer_context(pz, in), DAT_SUCCESS);
	CHECK_RETURN(dat_get_handle_type(pz, &type), DAT_SUCCESS);
	CHECK(type == DAT_HANDLE_TYPE_PZ);
	CHECK_RETURN(dat_pz_free(pz), DAT_SUCCESS);
}

static void arguments_are_passed_in_order(DAT_IA_HANDLE ia)
{
	DAT_OS_WAIT_PROXY_AGENT agent = { ARG_PTR(1), NULL };
	DAT_CNO_HANDLE cno = DAT_HANDLE_NULL;
	DAT_EP_HANDLE ep = DAT_HANDLE_NULL;
	DAT_LMR_HANDLE lmr = DAT_HANDLE_NULL;
	DAT_PZ_HANDLE pz = DAT_HANDLE_NULL;
	DAT_RMR_HANDLE rmr = DAT_HANDLE_NULL;
	DAT_REGION_DESCRIPTION region;
	DAT_LMR_CONTEXT lmr_context = 0;
	DAT_RMR_CONTEXT rmr_context = 0;
	DAT_VLEN size = 0;
	DAT_VADDR address = 0;
	DAT_CONTEXT cookie;

	CHECK_RETURN(dat_cno_create(ia, agent, &cno), DAT_SUCCESS);
	agent.instance_data = ARG_PTR(2);
	CHECK_RETURN(dat_cno_modify_agent(cno, agent), DAT_SUCCESS);
	CHECK_RETURN(dat_cno_free(cno), DAT_SUCCESS);

	CHECK_RETURN(dat_ep_create(ia, ARG_PTR(1), ARG_PTR(2), ARG_PTR(3), ARG_PTR(4), ARG_PTR(5), &ep),
		     DAT_SUCCESS);
	CHECK_RETURN(dat_ep_connect(ep, ARG_PTR(1), ARG_64(2), ARG_32(3), 4, ARG_PTR(5),
				    DAT_QOS_PREMIUM, DAT_CONNECT_MULTIPATH_REQUIRED_FLAG), DAT_SUCCESS);
	cookie.as_64 = ARG_64(3);
	CHECK_RETURN(dat_ep_post_rdma_write(ep, 1, ARG_PTR(2), cookie, ARG_PTR(4),
					    DAT_COMPLETION_BARRIER_FENCE_FLAG), DAT_SUCCESS);
	CHECK_RETURN(dat_ep_post_send_with_invalidate(ep, 1, ARG_PTR(2), cookie,
						      DAT_COMPLETION_SUPPRESS_FLAG, DAT_TRUE, ARG_32(6)),
		     DAT_SUCCESS);
	/* A slot that is empty in the provider's table. */
	CHECK_RETURN(dat_ep_reset(ep), DAT_CLASS_ERROR | DAT_NOT_IMPLEMENTED);
	CHECK_RETURN(dat_ep_free(ep), DAT_SUCCESS);

	region.for_shared_memory.virtual_address = ARG_PTR(1);
	region.for_shared_memory.shared_memory_id = ARG_PTR(2);
	CHECK_RETURN(dat_lmr_create(ia, DAT_MEM_TYPE_SHARED_VIRTUAL, region, ARG_64(3), ARG_PTR(4),
				    DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_ZB, &lmr, &lmr_context,
				    &rmr_context, &size, &address), DAT_SUCCESS);
	CHECK(lmr_context == ARG_32(5) && rmr_context == ARG_32(6));
	CHECK(size == ARG_64(7) && address == ARG_64(8));
	CHECK_RETURN(dat_lmr_free(lmr), DAT_SUCCESS);

	CHECK_RETURN(dat_pz_create(ia, &pz), DAT_SUCCESS);
	CHECK_RETURN(dat_rmr_create(pz, &rmr), DAT_SUCCESS);
	cookie.as_64 = ARG_64(6);
	CHECK_RETURN(dat_rmr_bind(rmr, ARG_PTR(1), ARG_PTR(2), DAT_MEM_PRIV_REMOTE_READ_FLAG,
				  DAT_VA_TYPE_ZB, ARG_PTR(5), cookie, DAT_COMPLETION_UNSIGNALLED_FLAG,
				  &rmr_context), DAT_SUCCESS);
	CHECK(rmr_context == ARG_32(8));
	CHECK_RETURN(dat_rmr_free(rmr), DAT_SUCCESS);
	CHECK_RETURN(dat_pz_free(pz), DAT_SUCCESS);
}

int main(void)
{
	DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
	DAT_IA_HANDLE ia = DAT_HANDLE_NULL;

	bad_handles_are_refused();
	CHECK_RETURN(dat_ia_open((DAT_NAME_PTR)"good", 8, &evd, &ia), DAT_SUCCESS);
	bad_handles_are_refused();
	ia_handles_and_object_handles_are_not_interchangeable(ia);
	context_and_type_work_for_ias_and_objects(ia);
	arguments_are_passed_in_order(ia);
	CHECK_RETURN(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
	CHECK_RETURN(dat_ia_query(ia, NULL, 0, NULL, 0, NULL), BAD(IA));
	CHECK(provider_log_of_program.argument_errors == 0);
	return failures();
}
