/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * DAT 2.0 for user space: the header that programs include.
 */
#ifndef _UDAT_H_
#define _UDAT_H_

#include <dat2/udat_config.h>

#include <dat2/dat_platform_specific.h>

#include <dat2/dat.h>

#include <dat2/dat_vendor_specific.h>
#include <dat2/udat_vendor_specific.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef DAT_HANDLE DAT_CNO_HANDLE;

/* Kind of memory of a region description. */
typedef enum dat_mem_type {
	DAT_MEM_TYPE_VIRTUAL = 0,        /* memory of this process, by address */
	DAT_MEM_TYPE_LMR = 1,            /* the memory of another LMR */
	DAT_MEM_TYPE_SHARED_VIRTUAL = 2  /* memory shared between processes */
} DAT_MEM_TYPE;

/* Kind of object behind a handle. */
typedef enum dat_handle_type {
	DAT_HANDLE_TYPE_CR = 0,              /* connection request */
	DAT_HANDLE_TYPE_EP = 1,              /* endpoint */
	DAT_HANDLE_TYPE_EVD = 2,             /* event dispatcher */
	DAT_HANDLE_TYPE_IA = 3,              /* interface adapter */
	DAT_HANDLE_TYPE_LMR = 4,             /* local memory region */
	DAT_HANDLE_TYPE_PSP = 5,             /* public service point */
	DAT_HANDLE_TYPE_PZ = 6,              /* protection zone */
	DAT_HANDLE_TYPE_RMR = 7,             /* remote memory region */
	DAT_HANDLE_TYPE_RSP = 8,             /* reserved service point */
	DAT_HANDLE_TYPE_CNO = 9,             /* consumer notification object */
	DAT_HANDLE_TYPE_SRQ = 10,            /* shared receive queue */
	DAT_HANDLE_TYPE_CSP = 11,            /* common service point */
	DAT_HANDLE_TYPE_EXTENSION_BASE = 12  /* first number left to extensions */
} DAT_HANDLE_TYPE;

/* State of an EVD, as bits. */
typedef enum dat_evd_state {
	DAT_EVD_STATE_ENABLED = 0x01,          /* triggers its CNO */
	DAT_EVD_STATE_DISABLED = 0x02,         /* does not trigger its CNO */
	DAT_EVD_STATE_WAITABLE = 0x04,         /* dat_evd_wait is allowed */
	DAT_EVD_STATE_UNWAITABLE = 0x08,       /* dat_evd_wait is refused */
	/* completions of signalled operations wake waiters */
	DAT_EVD_STATE_CONFIG_NOTIFY = 0x10,
	DAT_EVD_STATE_CONFIG_SOLICITED = 0x20, /* completions of solicited messages wake waiters */
	DAT_EVD_STATE_CONFIG_THRESHOLD = 0x30  /* the threshold of the wait wakes waiters */
} DAT_EVD_STATE;

/* Notification of the consumer when a CNO triggers. */
typedef enum dat_proxy_type {
	DAT_PROXY_TYPE_NONE = 0,  /* none */
	DAT_PROXY_TYPE_AGENT = 1, /* by calling an agent */
	DAT_PROXY_TYPE_FD = 2     /* by a file descriptor */
} DAT_PROXY_TYPE;

/* Support for sharing protection zones. */
typedef enum dat_pz_support {
	DAT_PZ_UNIQUE = 0,    /* each endpoint has its own zone */
	DAT_PZ_SHAREABLE = 1  /* endpoints may share a zone */
} DAT_PZ_SUPPORT;

/* Passed to dat_ia_openv as the asynchronous EVD: this process already has one. */
#define DAT_EVD_ASYNC_EXISTS ((DAT_EVD_HANDLE)0x1)
/* Returned by dat_ia_query: the asynchronous EVD belongs to another instance. */
#define DAT_EVD_OUT_OF_SCOPE ((DAT_EVD_HANDLE)0x2)

/* ---- Memory ---- */

/* Name under which processes share memory. */
#define DAT_LMR_COOKIE_SIZE 40
typedef char (*DAT_LMR_COOKIE)[DAT_LMR_COOKIE_SIZE];

typedef struct dat_shared_memory {
	DAT_PVOID virtual_address;
	DAT_LMR_COOKIE shared_memory_id;
} DAT_SHARED_MEMORY;

/* The memory type selects the member. */
typedef union dat_region_description {
	DAT_PVOID for_va;
	DAT_LMR_HANDLE for_lmr_handle;
	DAT_SHARED_MEMORY for_shared_memory;
} DAT_REGION_DESCRIPTION;

struct dat_lmr_param {
	DAT_IA_HANDLE ia_handle;
	DAT_MEM_TYPE mem_type;
	DAT_REGION_DESCRIPTION region_desc;
	DAT_VLEN length;
	DAT_PZ_HANDLE pz_handle;
	DAT_MEM_PRIV_FLAGS mem_priv;
	DAT_VA_TYPE va_type;
	DAT_LMR_CONTEXT lmr_context;
	DAT_RMR_CONTEXT rmr_context;
	DAT_VLEN registered_size;
	DAT_VADDR registered_address;
};

typedef enum dat_lmr_param_mask {
	DAT_LMR_FIELD_IA_HANDLE = 1,
	DAT_LMR_FIELD_MEM_TYPE = 2,
	DAT_LMR_FIELD_REGION_DESC = 4,
	DAT_LMR_FIELD_LENGTH = 8,
	DAT_LMR_FIELD_PZ_HANDLE = 0x10,
	DAT_LMR_FIELD_MEM_PRIV = 0x20,
	DAT_LMR_FIELD_VA_TYPE = 0x40,
	DAT_LMR_FIELD_LMR_CONTEXT = 0x80,
	DAT_LMR_FIELD_RMR_CONTEXT = 0x100,
	DAT_LMR_FIELD_REGISTERED_SIZE = 0x200,
	DAT_LMR_FIELD_REGISTERED_ADDRESS = 0x400,
	DAT_LMR_FIELD_ALL = 0x7FF
} DAT_LMR_PARAM_MASK;

/* ---- Event dispatchers and consumer notification objects ---- */

/* Called by the provider when a CNO triggers: the agent's own data, the EVD that triggered. */
typedef void (*DAT_AGENT_FUNC)(DAT_PVOID instance_data, DAT_EVD_HANDLE evd);

typedef struct dat_os_wait_proxy_agent {
	DAT_PVOID instance_data;
	DAT_AGENT_FUNC proxy_agent_func;
} DAT_OS_WAIT_PROXY_AGENT;

#ifdef __cplusplus
#define DAT_OS_WAIT_PROXY_AGENT_NULL (DAT_OS_WAIT_PROXY_AGENT())
#else
#define DAT_OS_WAIT_PROXY_AGENT_NULL ((DAT_OS_WAIT_PROXY_AGENT){ (DAT_PVOID)0, (DAT_AGENT_FUNC)0 })
#endif

struct dat_evd_param {
	DAT_IA_HANDLE ia_handle;
	DAT_COUNT evd_qlen;
	DAT_EVD_STATE evd_state;
	DAT_CNO_HANDLE cno_handle;
	DAT_EVD_FLAGS evd_flags;
};

typedef enum dat_evd_param_mask {
	DAT_EVD_FIELD_IA_HANDLE = 1,
	DAT_EVD_FIELD_EVD_QLEN = 2,
	DAT_EVD_FIELD_EVD_STATE = 4,
	DAT_EVD_FIELD_CNO = 8,
	DAT_EVD_FIELD_EVD_FLAGS = 0x10,
	DAT_EVD_FIELD_ALL = 0x1F
} DAT_EVD_PARAM_MASK;

typedef struct dat_cno_param {
	DAT_IA_HANDLE ia_handle;
	DAT_PROXY_TYPE proxy_type;
	union {
		DAT_OS_WAIT_PROXY_AGENT agent;
		DAT_FD fd;
		DAT_PVOID none;
	} proxy;
} DAT_CNO_PARAM;

/* PROXY and ALL are not single bits, as in every DAT 2.0 header; providers fill all members. */
typedef enum dat_cno_param_mask {
	DAT_CNO_FIELD_IA_HANDLE = 1,
	DAT_CNO_FIELD_PROXY_TYPE = 2,
	DAT_CNO_FIELD_PROXY = 3,
	DAT_CNO_FIELD_ALL = 4
} DAT_CNO_PARAM_MASK;

/* ---- Attributes ---- */

struct dat_ia_attr {
	char adapter_name[DAT_NAME_MAX_LENGTH];
	char vendor_name[DAT_NAME_MAX_LENGTH];
	DAT_UINT32 hardware_version_major;
	DAT_UINT32 hardware_version_minor;
	DAT_UINT32 firmware_version_major;
	DAT_UINT32 firmware_version_minor;
	DAT_IA_ADDRESS_PTR ia_address_ptr;
	DAT_COUNT max_eps;
	DAT_COUNT max_dto_per_ep;
	DAT_COUNT max_rdma_read_per_ep_in;
	DAT_COUNT max_rdma_read_per_ep_out;
	DAT_COUNT max_evds;
	DAT_COUNT max_evd_qlen;
	DAT_COUNT max_iov_segments_per_dto;
	DAT_COUNT max_lmrs;
	DAT_SEG_LENGTH max_lmr_block_size;
	DAT_VADDR max_lmr_virtual_address;
	DAT_COUNT max_pzs;
	DAT_SEG_LENGTH max_message_size;
	DAT_SEG_LENGTH max_rdma_size;
	DAT_COUNT max_rmrs;
	DAT_VADDR max_rmr_target_address;
	DAT_COUNT max_srqs;
	DAT_COUNT max_ep_per_srq;
	DAT_COUNT max_recv_per_srq;
	DAT_COUNT max_iov_segments_per_rdma_read;
	DAT_COUNT max_iov_segments_per_rdma_write;
	DAT_COUNT max_rdma_read_in;
	DAT_COUNT max_rdma_read_out;
	DAT_BOOLEAN max_rdma_read_per_ep_in_guaranteed;
	DAT_BOOLEAN max_rdma_read_per_ep_out_guaranteed;
	DAT_BOOLEAN zb_supported;
	DAT_EXTENSION extension_supported;
	DAT_COUNT extension_version;
	DAT_COUNT num_transport_attr;
	DAT_NAMED_ATTR *transport_attr;
	DAT_COUNT num_vendor_attr;
	DAT_NAMED_ATTR *vendor_attr;
};

#define DAT_IA_FIELD_IA_EXTENSION          UINT64_C(0x000100000000)
#define DAT_IA_FIELD_IA_EXTENSION_VERSION  UINT64_C(0x000200000000)
#define DAT_IA_FIELD_IA_NUM_TRANSPORT_ATTR UINT64_C(0x000400000000)
#define DAT_IA_FIELD_IA_TRANSPORT_ATTR     UINT64_C(0x000800000000)
#define DAT_IA_FIELD_IA_NUM_VENDOR_ATTR    UINT64_C(0x001000000000)
#define DAT_IA_FIELD_IA_VENDOR_ATTR        UINT64_C(0x002000000000)
#define DAT_IA_FIELD_ALL                   UINT64_C(0x003FFFFFFFFF)

/* Rows and columns of evd_stream_merging_supported: software, CR, DTO, connection, bind, async. */
struct dat_provider_attr {
	char provider_name[DAT_NAME_MAX_LENGTH];
	DAT_UINT32 provider_version_major;
	DAT_UINT32 provider_version_minor;
	DAT_UINT32 dapl_version_major;
	DAT_UINT32 dapl_version_minor;
	DAT_MEM_TYPE lmr_mem_types_supported;
	DAT_IOV_OWNERSHIP iov_ownership_on_return;
	DAT_QOS dat_qos_supported;
	DAT_COMPLETION_FLAGS completion_flags_supported;
	DAT_BOOLEAN is_thread_safe;
	DAT_COUNT max_private_data_size;
	DAT_BOOLEAN supports_multipath;
	DAT_EP_CREATOR_FOR_PSP ep_creator;
	DAT_PZ_SUPPORT pz_support;
	DAT_UINT32 optimal_buffer_alignment;
	DAT_BOOLEAN evd_stream_merging_supported[6][6];
	DAT_BOOLEAN srq_supported;
	DAT_COUNT srq_watermarks_supported;
	DAT_BOOLEAN srq_ep_pz_difference_supported;
	DAT_COUNT srq_info_supported;
	DAT_COUNT ep_recv_info_supported;
	DAT_BOOLEAN lmr_sync_req;
	DAT_BOOLEAN dto_async_return_guaranteed;
	DAT_BOOLEAN rdma_write_for_rdma_read_req;
	DAT_BOOLEAN rdma_read_lmr_rmr_context_exposure;
	DAT_RMR_SCOPE rmr_scope_supported;
	DAT_BOOLEAN is_signal_safe;
	DAT_BOOLEAN ha_supported;
	DAT_HA_LB ha_loadbalancing;
	DAT_COUNT num_provider_specific_attr;
	DAT_NAMED_ATTR *provider_specific_attr;
};

#define DAT_PROVIDER_FIELD_NONE                               UINT64_C(0)
#define DAT_PROVIDER_FIELD_PROVIDER_NAME                      UINT64_C(1)
#define DAT_PROVIDER_FIELD_PROVIDER_VERSION_MAJOR             UINT64_C(2)
#define DAT_PROVIDER_FIELD_PROVIDER_VERSION_MINOR             UINT64_C(4)
#define DAT_PROVIDER_FIELD_DAPL_VERSION_MAJOR                 UINT64_C(8)
#define DAT_PROVIDER_FIELD_DAPL_VERSION_MINOR                 UINT64_C(0x10)
#define DAT_PROVIDER_FIELD_LMR_MEM_TYPE_SUPPORTED             UINT64_C(0x20)
#define DAT_PROVIDER_FIELD_IOV_OWNERSHIP                      UINT64_C(0x40)
#define DAT_PROVIDER_FIELD_DAT_QOS_SUPPORTED                  UINT64_C(0x80)
#define DAT_PROVIDER_FIELD_COMPLETION_FLAGS_SUPPORTED         UINT64_C(0x100)
#define DAT_PROVIDER_FIELD_IS_THREAD_SAFE                     UINT64_C(0x200)
#define DAT_PROVIDER_FIELD_MAX_PRIVATE_DATA_SIZE              UINT64_C(0x400)
#define DAT_PROVIDER_FIELD_SUPPORTS_MULTIPATH                 UINT64_C(0x800)
#define DAT_PROVIDER_FIELD_EP_CREATOR                         UINT64_C(0x1000)
#define DAT_PROVIDER_FIELD_PZ_SUPPORT                         UINT64_C(0x2000)
#define DAT_PROVIDER_FIELD_OPTIMAL_BUFFER_ALIGNMENT           UINT64_C(0x4000)
#define DAT_PROVIDER_FIELD_EVD_STREAM_MERGING_SUPPORTED       UINT64_C(0x8000)
#define DAT_PROVIDER_FIELD_SRQ_SUPPORTED                      UINT64_C(0x00010000)
#define DAT_PROVIDER_FIELD_SRQ_WATERMARKS_SUPPORTED           UINT64_C(0x00020000)
#define DAT_PROVIDER_FIELD_SRQ_EP_PZ_DIFFERENCE_SUPPORTED     UINT64_C(0x00040000)
#define DAT_PROVIDER_FIELD_SRQ_INFO_SUPPORTED                 UINT64_C(0x00080000)
#define DAT_PROVIDER_FIELD_EP_RECV_INFO_SUPPORTED             UINT64_C(0x00100000)
#define DAT_PROVIDER_FIELD_LMR_SYNC_REQ                       UINT64_C(0x00200000)
#define DAT_PROVIDER_FIELD_DTO_ASYNC_RETURN_GUARANTEED        UINT64_C(0x00400000)
#define DAT_PROVIDER_FIELD_RDMA_WRITE_FOR_RDMA_READ_REQ       UINT64_C(0x00800000)
#define DAT_PROVIDER_FIELD_RDMA_READ_LMR_RMR_CONTEXT_EXPOSURE UINT64_C(0x01000000)
#define DAT_PROVIDER_FIELD_RMR_SCOPE_SUPPORTED                UINT64_C(0x02000000)
#define DAT_PROVIDER_FIELD_IS_SIGNAL_SAFE                     UINT64_C(0x04000000)
#define DAT_PROVIDER_FIELD_HA_SUPPORTED                       UINT64_C(0x08000000)
#define DAT_PROVIDER_FIELD_HA_LB                              UINT64_C(0x10000000)
#define DAT_PROVIDER_FIELD_NUM_PROVIDER_SPECIFIC_ATTR         UINT64_C(0x20000000)
#define DAT_PROVIDER_FIELD_PROVIDER_SPECIFIC_ATTR             UINT64_C(0x40000000)
#define DAT_PROVIDER_FIELD_ALL                                UINT64_C(0x7FFFFFFF)

/* ---- Functions ---- */

/* Opens an IA by name. *async_evd: null to create an EVD, or an EVD to share. */
DAT_RETURN dat_ia_openv(const DAT_NAME_PTR name, DAT_COUNT async_evd_qlen,
		DAT_EVD_HANDLE *async_evd, DAT_IA_HANDLE *ia, DAT_UINT32 major, DAT_UINT32 minor,
		DAT_BOOLEAN thread_safety);

#define dat_ia_open(name, qlen, async_evd, ia) \
	dat_ia_openv((name), (qlen), (async_evd), (ia), DAT_VERSION_MAJOR, DAT_VERSION_MINOR, \
		     DAT_THREADSAFE)

/* Interface adapters. */
DAT_RETURN dat_ia_query(DAT_IA_HANDLE ia, DAT_EVD_HANDLE *async_evd, DAT_IA_ATTR_MASK ia_mask,
		DAT_IA_ATTR *ia_attr, DAT_PROVIDER_ATTR_MASK provider_mask,
		DAT_PROVIDER_ATTR *provider_attr);
DAT_RETURN dat_ia_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags);

/* Calls that take any handle. */
DAT_RETURN dat_set_consumer_context(DAT_HANDLE handle, DAT_CONTEXT context);
DAT_RETURN dat_get_consumer_context(DAT_HANDLE handle, DAT_CONTEXT *context);
DAT_RETURN dat_get_handle_type(DAT_HANDLE handle, DAT_HANDLE_TYPE *handle_type);

/* Consumer notification objects. */
DAT_RETURN dat_cno_create(DAT_IA_HANDLE ia, DAT_OS_WAIT_PROXY_AGENT agent, DAT_CNO_HANDLE *cno);
DAT_RETURN dat_cno_modify_agent(DAT_CNO_HANDLE cno, DAT_OS_WAIT_PROXY_AGENT agent);
DAT_RETURN dat_cno_query(DAT_CNO_HANDLE cno, DAT_CNO_PARAM_MASK mask, DAT_CNO_PARAM *param);
DAT_RETURN dat_cno_free(DAT_CNO_HANDLE cno);
DAT_RETURN dat_cno_wait(DAT_CNO_HANDLE cno, DAT_TIMEOUT timeout, DAT_EVD_HANDLE *evd);
DAT_RETURN dat_cno_fd_create(DAT_IA_HANDLE ia, DAT_FD *fd, DAT_CNO_HANDLE *cno);
DAT_RETURN dat_cno_trigger(DAT_CNO_HANDLE cno, DAT_EVD_HANDLE *evd);

/* Connection requests. */
DAT_RETURN dat_cr_query(DAT_CR_HANDLE cr, DAT_CR_PARAM_MASK mask, DAT_CR_PARAM *param);
DAT_RETURN dat_cr_accept(DAT_CR_HANDLE cr, DAT_EP_HANDLE ep, DAT_COUNT private_data_size,
		const DAT_PVOID private_data);
DAT_RETURN dat_cr_reject(DAT_CR_HANDLE cr, DAT_COUNT private_data_size,
		const DAT_PVOID private_data);
DAT_RETURN dat_cr_handoff(DAT_CR_HANDLE cr, DAT_CONN_QUAL handoff);

/* Event dispatchers. */
DAT_RETURN dat_evd_create(DAT_IA_HANDLE ia, DAT_COUNT min_qlen, DAT_CNO_HANDLE cno,
		DAT_EVD_FLAGS flags, DAT_EVD_HANDLE *evd);
DAT_RETURN dat_evd_query(DAT_EVD_HANDLE evd, DAT_EVD_PARAM_MASK mask, DAT_EVD_PARAM *param);
DAT_RETURN dat_evd_modify_cno(DAT_EVD_HANDLE evd, DAT_CNO_HANDLE cno);
DAT_RETURN dat_evd_enable(DAT_EVD_HANDLE evd);
DAT_RETURN dat_evd_disable(DAT_EVD_HANDLE evd);
DAT_RETURN dat_evd_wait(DAT_EVD_HANDLE evd, DAT_TIMEOUT timeout, DAT_COUNT threshold,
		DAT_EVENT *event, DAT_COUNT *nmore);
DAT_RETURN dat_evd_resize(DAT_EVD_HANDLE evd, DAT_COUNT min_qlen);
DAT_RETURN dat_evd_post_se(DAT_EVD_HANDLE evd, const DAT_EVENT *event);
DAT_RETURN dat_evd_dequeue(DAT_EVD_HANDLE evd, DAT_EVENT *event);
DAT_RETURN dat_evd_free(DAT_EVD_HANDLE evd);
DAT_RETURN dat_evd_set_unwaitable(DAT_EVD_HANDLE evd);
DAT_RETURN dat_evd_clear_unwaitable(DAT_EVD_HANDLE evd);

/* Endpoints. */
DAT_RETURN dat_ep_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, DAT_EVD_HANDLE recv_evd,
		DAT_EVD_HANDLE request_evd, DAT_EVD_HANDLE connect_evd, const DAT_EP_ATTR *attr,
		DAT_EP_HANDLE *ep);
DAT_RETURN dat_ep_query(DAT_EP_HANDLE ep, DAT_EP_PARAM_MASK mask, DAT_EP_PARAM *param);
DAT_RETURN dat_ep_modify(DAT_EP_HANDLE ep, DAT_EP_PARAM_MASK mask, const DAT_EP_PARAM *param);
DAT_RETURN dat_ep_connect(DAT_EP_HANDLE ep, DAT_IA_ADDRESS_PTR remote_address,
		DAT_CONN_QUAL conn_qual, DAT_TIMEOUT timeout, DAT_COUNT private_data_size,
		const DAT_PVOID private_data, DAT_QOS qos, DAT_CONNECT_FLAGS flags);
DAT_RETURN dat_ep_dup_connect(DAT_EP_HANDLE ep, DAT_EP_HANDLE dup_ep, DAT_TIMEOUT timeout,
		DAT_COUNT private_data_size, const DAT_PVOID private_data, DAT_QOS qos);
DAT_RETURN dat_ep_disconnect(DAT_EP_HANDLE ep, DAT_CLOSE_FLAGS flags);
DAT_RETURN dat_ep_post_send(DAT_EP_HANDLE ep, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
		DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags);
DAT_RETURN dat_ep_post_recv(DAT_EP_HANDLE ep, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
		DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags);
DAT_RETURN dat_ep_post_rdma_read(DAT_EP_HANDLE ep, DAT_COUNT num_segments,
		DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
		DAT_COMPLETION_FLAGS flags);
DAT_RETURN dat_ep_post_rdma_write(DAT_EP_HANDLE ep, DAT_COUNT num_segments,
		DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
		DAT_COMPLETION_FLAGS flags);
DAT_RETURN dat_ep_get_status(DAT_EP_HANDLE ep, DAT_EP_STATE *state, DAT_BOOLEAN *recv_idle,
		DAT_BOOLEAN *request_idle);
DAT_RETURN dat_ep_free(DAT_EP_HANDLE ep);
DAT_RETURN dat_ep_reset(DAT_EP_HANDLE ep);
DAT_RETURN dat_ep_create_with_srq(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, DAT_EVD_HANDLE recv_evd,
		DAT_EVD_HANDLE request_evd, DAT_EVD_HANDLE connect_evd, DAT_SRQ_HANDLE srq,
		const DAT_EP_ATTR *attr, DAT_EP_HANDLE *ep);
DAT_RETURN dat_ep_recv_query(DAT_EP_HANDLE ep, DAT_COUNT *nbufs_allocated,
		DAT_COUNT *bufs_alloc_span);
DAT_RETURN dat_ep_set_watermark(DAT_EP_HANDLE ep, DAT_COUNT soft_high_watermark,
		DAT_COUNT hard_high_watermark);
DAT_RETURN dat_ep_common_connect(DAT_EP_HANDLE ep, DAT_IA_ADDRESS_PTR remote_address,
		DAT_TIMEOUT timeout, DAT_COUNT private_data_size, const DAT_PVOID private_data);
DAT_RETURN dat_ep_post_send_with_invalidate(DAT_EP_HANDLE ep, DAT_COUNT num_segments,
		DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags,
		DAT_BOOLEAN invalidate, DAT_RMR_CONTEXT rmr_context);
DAT_RETURN dat_ep_post_rdma_read_to_rmr(DAT_EP_HANDLE ep, const DAT_RMR_TRIPLET *local,
		DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote, DAT_COMPLETION_FLAGS flags);

/* Local memory regions. */
DAT_RETURN dat_lmr_create(DAT_IA_HANDLE ia, DAT_MEM_TYPE mem_type, DAT_REGION_DESCRIPTION region,
		DAT_VLEN length, DAT_PZ_HANDLE pz, DAT_MEM_PRIV_FLAGS privileges,
		DAT_VA_TYPE va_type, DAT_LMR_HANDLE *lmr, DAT_LMR_CONTEXT *lmr_context,
		DAT_RMR_CONTEXT *rmr_context, DAT_VLEN *registered_size,
		DAT_VADDR *registered_address);
DAT_RETURN dat_lmr_query(DAT_LMR_HANDLE lmr, DAT_LMR_PARAM_MASK mask, DAT_LMR_PARAM *param);
DAT_RETURN dat_lmr_free(DAT_LMR_HANDLE lmr);
DAT_RETURN dat_lmr_sync_rdma_read(DAT_IA_HANDLE ia, const DAT_LMR_TRIPLET *segments,
		DAT_VLEN num_segments);
DAT_RETURN dat_lmr_sync_rdma_write(DAT_IA_HANDLE ia, const DAT_LMR_TRIPLET *segments,
		DAT_VLEN num_segments);

/* Remote memory regions. */
DAT_RETURN dat_rmr_create(DAT_PZ_HANDLE pz, DAT_RMR_HANDLE *rmr);
DAT_RETURN dat_rmr_query(DAT_RMR_HANDLE rmr, DAT_RMR_PARAM_MASK mask, DAT_RMR_PARAM *param);
DAT_RETURN dat_rmr_bind(DAT_RMR_HANDLE rmr, DAT_LMR_HANDLE lmr, const DAT_LMR_TRIPLET *lmr_triplet,
		DAT_MEM_PRIV_FLAGS privileges, DAT_VA_TYPE va_type, DAT_EP_HANDLE ep,
		DAT_RMR_COOKIE cookie, DAT_COMPLETION_FLAGS flags, DAT_RMR_CONTEXT *rmr_context);
DAT_RETURN dat_rmr_free(DAT_RMR_HANDLE rmr);
DAT_RETURN dat_rmr_create_for_ep(DAT_PZ_HANDLE pz, DAT_RMR_HANDLE *rmr);

/* Service points. */
DAT_RETURN dat_psp_create(DAT_IA_HANDLE ia, DAT_CONN_QUAL conn_qual, DAT_EVD_HANDLE evd,
		DAT_PSP_FLAGS flags, DAT_PSP_HANDLE *psp);
DAT_RETURN dat_psp_query(DAT_PSP_HANDLE psp, DAT_PSP_PARAM_MASK mask, DAT_PSP_PARAM *param);
DAT_RETURN dat_psp_free(DAT_PSP_HANDLE psp);
DAT_RETURN dat_rsp_create(DAT_IA_HANDLE ia, DAT_CONN_QUAL conn_qual, DAT_EP_HANDLE ep,
		DAT_EVD_HANDLE evd, DAT_RSP_HANDLE *rsp);
DAT_RETURN dat_rsp_query(DAT_RSP_HANDLE rsp, DAT_RSP_PARAM_MASK mask, DAT_RSP_PARAM *param);
DAT_RETURN dat_rsp_free(DAT_RSP_HANDLE rsp);
DAT_RETURN dat_psp_create_any(DAT_IA_HANDLE ia, DAT_CONN_QUAL *conn_qual, DAT_EVD_HANDLE evd,
		DAT_PSP_FLAGS flags, DAT_PSP_HANDLE *psp);
DAT_RETURN dat_csp_create(DAT_IA_HANDLE ia, DAT_COMM *comm, DAT_IA_ADDRESS_PTR address,
		DAT_EVD_HANDLE evd, DAT_CSP_HANDLE *csp);
DAT_RETURN dat_csp_query(DAT_CSP_HANDLE csp, DAT_CSP_PARAM_MASK mask, DAT_CSP_PARAM *param);
DAT_RETURN dat_csp_free(DAT_CSP_HANDLE csp);

/* Protection zones. */
DAT_RETURN dat_pz_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE *pz);
DAT_RETURN dat_pz_query(DAT_PZ_HANDLE pz, DAT_PZ_PARAM_MASK mask, DAT_PZ_PARAM *param);
DAT_RETURN dat_pz_free(DAT_PZ_HANDLE pz);

/* Shared receive queues. */
DAT_RETURN dat_srq_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, DAT_SRQ_ATTR *attr,
		DAT_SRQ_HANDLE *srq);
DAT_RETURN dat_srq_free(DAT_SRQ_HANDLE srq);
DAT_RETURN dat_srq_post_recv(DAT_SRQ_HANDLE srq, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
		DAT_DTO_COOKIE cookie);
DAT_RETURN dat_srq_query(DAT_SRQ_HANDLE srq, DAT_SRQ_PARAM_MASK mask, DAT_SRQ_PARAM *param);
DAT_RETURN dat_srq_resize(DAT_SRQ_HANDLE srq, DAT_COUNT max_recv_dtos);
DAT_RETURN dat_srq_set_lw(DAT_SRQ_HANDLE srq, DAT_COUNT low_watermark);

#if DAT_EXTENSIONS
/* Operations beyond DAT 2.0; see dat_ib_extensions.h and dat_iw_extensions.h. */
typedef int DAT_EXTENDED_OP;
DAT_RETURN dat_extension_op(DAT_HANDLE handle, DAT_EXTENDED_OP op, ...);
#endif

/* Entries of the registry file, in file order; with max 0 only their number. */
DAT_RETURN dat_registry_list_providers(DAT_COUNT max, DAT_COUNT *returned,
		DAT_PROVIDER_INFO *(list[]));

/* A code as text; both strings are constants. */
DAT_RETURN dat_strerror(DAT_RETURN value, const char **major, const char **minor);

#ifdef __cplusplus
}
#endif

#endif /* _UDAT_H_ */
