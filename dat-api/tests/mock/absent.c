/*
 * The calls of DAT 2.0 that no test of the Rust API needs: each returns "not implemented". They are
 * in a file without the DAT headers, so that one signature can be used for all of them.
 */
#define NOT_IMPLEMENTED 0xBFFF0000u

#define ABSENT(call) \
	unsigned call(void) \
	{ \
		return NOT_IMPLEMENTED; \
	}

ABSENT(dat_ia_query)
ABSENT(dat_set_consumer_context)
ABSENT(dat_get_consumer_context)
ABSENT(dat_get_handle_type)
ABSENT(dat_registry_list_providers)
ABSENT(dat_cno_modify_agent)
ABSENT(dat_cno_query)
ABSENT(dat_cno_wait)
ABSENT(dat_cr_handoff)
ABSENT(dat_evd_query)
ABSENT(dat_evd_enable)
ABSENT(dat_evd_disable)
ABSENT(dat_evd_set_unwaitable)
ABSENT(dat_evd_clear_unwaitable)
ABSENT(dat_evd_resize)
ABSENT(dat_evd_post_se)
ABSENT(dat_ep_create_with_srq)
ABSENT(dat_ep_query)
ABSENT(dat_ep_modify)
ABSENT(dat_ep_connect)
ABSENT(dat_ep_dup_connect)
ABSENT(dat_ep_post_recv)
ABSENT(dat_ep_post_rdma_read)
ABSENT(dat_ep_post_rdma_write)
ABSENT(dat_ep_reset)
ABSENT(dat_ep_recv_query)
ABSENT(dat_ep_set_watermark)
ABSENT(dat_lmr_query)
ABSENT(dat_lmr_sync_rdma_read)
ABSENT(dat_lmr_sync_rdma_write)
ABSENT(dat_rmr_query)
ABSENT(dat_psp_create)
ABSENT(dat_psp_create_any)
ABSENT(dat_psp_query)
ABSENT(dat_rsp_query)
ABSENT(dat_pz_query)
ABSENT(dat_srq_create)
ABSENT(dat_srq_set_lw)
ABSENT(dat_srq_free)
ABSENT(dat_srq_query)
ABSENT(dat_srq_resize)
ABSENT(dat_srq_post_recv)
