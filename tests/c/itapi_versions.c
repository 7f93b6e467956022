/*
 * IT-API: the header in each version of its bindings, and the layouts that the library has. The
 * suite compiles this file as C and as C++.
 */
#include <stdio.h>
#include <string.h>

#include <it_api.h>

#ifdef __cplusplus
#define layout(type, size) static_assert(sizeof(type) == (size), #type)
#else
#define layout(type, size) _Static_assert(sizeof(type) == (size), #type)
#endif

layout(it_conn_qual_t, 80);
layout(it_net_addr_t, 72);
layout(it_path_t, 88);
layout(it_lmr_triplet_t, 24);
layout(it_rmr_triplet_t, 24);
layout(it_interface_t, 140);
layout(it_spigot_info_t, 64);
layout(it_ia_info_t, 336);
layout(it_ep_attributes_t, 112);
layout(it_ep_param_t, 256);
layout(it_evd_param_t, 64);
layout(it_listen_param_t, 104);
layout(it_lmr_param_t, 96);
layout(it_rmr_param_t, 72);
layout(it_srq_param_t, 40);
layout(it_event_t, 272);
layout(it_dto_cmpl_event_t, 48);
layout(it_conn_request_event_t, 272);
layout(it_connection_event_t, 208);
layout(it_affiliated_event_t, 24);
layout(it_software_event_t, 24);
layout(it_unaffiliated_event_t, 32);
layout(it_aevd_notification_event_t, 24);

/* Each version's arguments of the calls that have changed, on handles that are refused. */
static int changed_calls(void)
{
	it_rmr_handle_t rmr = NULL;
	it_lmr_handle_t lmr = NULL;
	it_rmr_param_t param;
	it_status_t status;

	memset(&param, 0, sizeof(param));
#if defined(ITAPI_ENABLE_V10_BINDINGS)
	status = it_lmr_create(NULL, NULL, 0, IT_PRIV_DEFAULT, IT_LMR_FLAG_NONE, 0, &lmr, NULL);
	if (status != IT_ERR_INVALID_PZ || it_rmr_create(NULL, &rmr) != IT_ERR_INVALID_PZ)
		return 1;
	status = it_rmr_bind(NULL, NULL, NULL, 8, IT_PRIV_NONE, NULL, 0, IT_COMPLETION_FLAG, NULL);
	return status != IT_ERR_INVALID_RMR || param.bound;
#else
#ifdef ITAPI_ENABLE_V20_BINDINGS
	status = it_lmr_create(NULL, NULL, 0, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_LOCAL, IT_LMR_FLAG_NONE,
			       0, &lmr, NULL);
#else
	status = it_lmr_create(NULL, NULL, NULL, 0, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_LOCAL,
			       IT_LMR_FLAG_NONE, 0, &lmr, NULL);
#endif
	if (status != IT_ERR_INVALID_PZ)
		return 1;
	if (it_rmr_create(NULL, IT_RMR_TYPE_WIDE, &rmr) != IT_ERR_INVALID_PZ)
		return 1;
	status = it_rmr_bind(NULL, NULL, NULL, 8, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_NONE, NULL, 0,
			     IT_COMPLETION_FLAG, NULL);
	return status != IT_ERR_INVALID_RMR || param.linked;
#endif
}

/* Names of version 1.0 that are macros in every version. */
static int old_names(void)
{
	it_rc_only_attributes_t attributes;
	it_ia_info_t info;
	int object = 0;

	attributes.rdma_read_inflight_incoming = 3;
	info.ird_support = IT_TRUE;
	if (attributes.rdma_read_ird != 3 || !info.ird_ord_ia_support)
		return 1;
	if (it_make_rdma_addr(&object) != (it_rdma_addr_t)(uintptr_t)&object)
		return 1;
	if (it_rmr_unbind(NULL, NULL, 0, IT_COMPLETION_FLAG) != IT_ERR_INVALID_RMR)
		return 1;
	return it_lmr_sync_rdma_read(NULL, 1) != IT_ERR_FAULT;
}

int main(void)
{
	if (changed_calls() || old_names())
		return 1;
	printf("PASSED\n");
	return 0;
}
