/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * DAT 2.0: the declarations for user-space and kernel consumers. Programs include <dat2/udat.h>.
 */
#ifndef _DAT_H_
#define _DAT_H_

#include <dat2/dat_error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef DAT_UINT32 DAT_RETURN;

#define DAT_NAME_MAX_LENGTH 256

typedef char *DAT_NAME_PTR;

typedef enum dat_boolean { DAT_FALSE = 0, DAT_TRUE = 1 } DAT_BOOLEAN;

/* An attribute as a pair of strings. */
typedef struct dat_named_attr {
	const char *name;
	const char *value;
} DAT_NAMED_ATTR;

/* Eight bytes of the consumer's choice that are returned unchanged. */
typedef union dat_context {
	DAT_PVOID as_ptr;
	DAT_UINT64 as_64;
	DAT_UVERYLONG as_index;
} DAT_CONTEXT;

typedef DAT_CONTEXT DAT_DTO_COOKIE;
typedef DAT_CONTEXT DAT_RMR_COOKIE;

/* Microseconds. */
typedef DAT_UINT32 DAT_TIMEOUT;
#define DAT_TIMEOUT_INFINITE ((DAT_TIMEOUT)~0)

/* ---- Handles ---- */

typedef DAT_PVOID DAT_HANDLE;
typedef DAT_HANDLE DAT_CR_HANDLE;
typedef DAT_HANDLE DAT_EP_HANDLE;
typedef DAT_HANDLE DAT_EVD_HANDLE;
typedef DAT_HANDLE DAT_IA_HANDLE;
typedef DAT_HANDLE DAT_LMR_HANDLE;
typedef DAT_HANDLE DAT_PSP_HANDLE;
typedef DAT_HANDLE DAT_PZ_HANDLE;
typedef DAT_HANDLE DAT_RMR_HANDLE;
typedef DAT_HANDLE DAT_RSP_HANDLE;
typedef DAT_HANDLE DAT_SRQ_HANDLE;
typedef DAT_HANDLE DAT_CSP_HANDLE;

#define DAT_HANDLE_NULL ((DAT_HANDLE)0)

/* ---- Addresses, lengths, keys ---- */

typedef DAT_SOCK_ADDR *DAT_IA_ADDRESS_PTR;
typedef DAT_UINT64 DAT_CONN_QUAL; /* host byte order */
typedef DAT_UINT64 DAT_PORT_QUAL; /* host byte order */
typedef DAT_UINT64 DAT_VLEN;
typedef DAT_UINT64 DAT_VADDR;
typedef DAT_UINT32 DAT_SEG_LENGTH;
typedef DAT_UINT32 DAT_LMR_CONTEXT;
typedef DAT_UINT32 DAT_RMR_CONTEXT;

/* Special counts. */
#define DAT_VALUE_UNKNOWN (((DAT_COUNT)~0) - 1)
#define DAT_WATERMARK_INFINITE ((DAT_COUNT)~0)
#define DAT_HW_DEFAULT DAT_WATERMARK_INFINITE
#define DAT_SRQ_LW_DEFAULT 0x0

/* ---- Flags ---- */

/* Completion flags of a posted operation, or the defaults of an endpoint. */
typedef enum dat_completion_flags {
	DAT_COMPLETION_DEFAULT_FLAG = 0,                 /* a completion that wakes waiters */
	DAT_COMPLETION_SUPPRESS_FLAG = 0x01,             /* no event on success */
	/* the peer's matching receive wakes a waiter configured for solicited waits */
	DAT_COMPLETION_SOLICITED_WAIT_FLAG = 0x02,
	DAT_COMPLETION_UNSIGNALLED_FLAG = 0x04,          /* the event does not wake a waiter */
	DAT_COMPLETION_BARRIER_FENCE_FLAG = 0x08,        /* wait for earlier RDMA reads first */
	/* waiters are woken by the threshold of their wait */
	DAT_COMPLETION_EVD_THRESHOLD_FLAG = 0x10,
	/* wait for earlier LMR invalidations first */
	DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG = 0x20,
	/* of dat-rs, for Sends: the sender copies the payload where the provider has a choice */
	DAT_RS_COMPLETION_INLINE_FLAG = 0x40000000
} DAT_COMPLETION_FLAGS;

/* The operation that completed. */
typedef enum dat_dtos {
	DAT_DTO_SEND = 0,                    /* send */
	DAT_DTO_RDMA_WRITE = 1,              /* RDMA write */
	DAT_DTO_RDMA_READ = 2,               /* RDMA read */
	DAT_DTO_RECEIVE = 3,                 /* receive */
	/* receive of a message that invalidated a memory window */
	DAT_DTO_RECEIVE_WITH_INVALIDATE = 4,
	DAT_DTO_BIND_MW = 5,                 /* bind of a memory window */
	DAT_DTO_LMR_FMR = 6,                 /* fast memory registration */
	DAT_DTO_LMR_INVALIDATE = 7,          /* local invalidation */
	DAT_DTO_EXTENSION_BASE = 8           /* first number left to extensions */
} DAT_DTOS;

/* Quality of service. */
typedef enum dat_qos {
	DAT_QOS_BEST_EFFORT = 0,
	DAT_QOS_HIGH_THROUGHPUT = 1,
	DAT_QOS_LOW_LATENCY = 2,
	DAT_QOS_ECONOMY = 4,
	DAT_QOS_PREMIUM = 8
} DAT_QOS;

/* Flags of dat_ep_connect. */
typedef enum dat_connect_flags {
	DAT_CONNECT_DEFAULT_FLAG = 0,            /* one path */
	DAT_CONNECT_MULTIPATH_FLAG = 1,          /* several paths if possible */
	DAT_CONNECT_MULTIPATH_REQUIRED_FLAG = 2  /* several paths or failure */
} DAT_CONNECT_FLAGS;

#define DAT_CONNECT_MULTIPATH_REQUESTED_FLAG DAT_CONNECT_MULTIPATH_FLAG

/* Flags of dat_ia_close and dat_ep_disconnect. */
typedef enum dat_close_flags {
	DAT_CLOSE_ABRUPT_FLAG = 0,   /* at once */
	/* after posted requests are done; for an IA, only if it has no objects */
	DAT_CLOSE_GRACEFUL_FLAG = 1
} DAT_CLOSE_FLAGS;

#define DAT_CLOSE_DEFAULT DAT_CLOSE_ABRUPT_FLAG

/* Event streams that an EVD accepts. */
typedef enum dat_evd_flags {
	DAT_EVD_SOFTWARE_FLAG = 0x001,   /* software events */
	DAT_EVD_CR_FLAG = 0x010,         /* connection requests */
	DAT_EVD_DTO_FLAG = 0x020,        /* completions of data transfers */
	DAT_EVD_CONNECTION_FLAG = 0x040, /* connection events */
	DAT_EVD_RMR_BIND_FLAG = 0x080,   /* completions of RMR binds */
	DAT_EVD_ASYNC_FLAG = 0x100,      /* asynchronous errors */
	DAT_EVD_DEFAULT_FLAG = 0x1F0,    /* everything but software events */
	DAT_EVD_EXTENSION_BASE = 0x200   /* first bit left to extensions */
} DAT_EVD_FLAGS;

/* The side that supplies the endpoint of an incoming connection. */
typedef enum dat_psp_flags {
	DAT_PSP_CONSUMER_FLAG = 0, /* the consumer, with dat_cr_accept */
	DAT_PSP_PROVIDER_FLAG = 1  /* the provider, with the connection request */
} DAT_PSP_FLAGS;

/* Permitted accesses to memory. */
typedef enum dat_mem_priv_flags {
	DAT_MEM_PRIV_NONE_FLAG = 0,            /* nothing */
	DAT_MEM_PRIV_LOCAL_READ_FLAG = 0x01,   /* the local adapter may read */
	DAT_MEM_PRIV_REMOTE_READ_FLAG = 0x02,  /* the peer may read */
	DAT_MEM_PRIV_LOCAL_WRITE_FLAG = 0x10,  /* the local adapter may write */
	DAT_MEM_PRIV_REMOTE_WRITE_FLAG = 0x20, /* the peer may write */
	DAT_MEM_PRIV_ALL_FLAG = 0x33,          /* everything but extensions */
	DAT_MEM_PRIV_EXTENSION_BASE = 0x40     /* first bit left to extensions */
} DAT_MEM_PRIV_FLAGS;

#define DAT_MEM_PRIV_READ_FLAG \
	((DAT_MEM_PRIV_FLAGS)(DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG))
#define DAT_MEM_PRIV_WRITE_FLAG \
	((DAT_MEM_PRIV_FLAGS)(DAT_MEM_PRIV_LOCAL_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG))

/* Kind of the addresses in triplets. */
typedef enum dat_va_type {
	DAT_VA_TYPE_VA = 0, /* virtual addresses */
	DAT_VA_TYPE_ZB = 1  /* offsets from the start of the region */
} DAT_VA_TYPE;

/* The endpoints that may use an RMR context. */
typedef enum dat_rmr_scope {
	DAT_RMR_SCOPE_EP = 0,  /* one endpoint */
	DAT_RMR_SCOPE_PZ = 1,  /* the endpoints of one protection zone */
	DAT_RMR_SCOPE_ANY = 2  /* either */
} DAT_RMR_SCOPE;

/* The owner of a segment list after posting. */
typedef enum dat_iov_ownership {
	DAT_IOV_CONSUMER = 0,       /* the consumer's */
	DAT_IOV_PROVIDER_NOMOD = 1, /* the provider's until completion, unmodified */
	DAT_IOV_PROVIDER_MOD = 2    /* the provider's until completion, maybe modified */
} DAT_IOV_OWNERSHIP;

/* Policy by which the provider creates endpoints for connection requests. */
typedef enum dat_ep_creator_for_psp {
	DAT_PSP_CREATES_EP_NEVER = 0,   /* never */
	DAT_PSP_CREATES_EP_IFASKED = 1, /* when the service point asks for it */
	DAT_PSP_CREATES_EP_ALWAYS = 2   /* always */
} DAT_EP_CREATOR_FOR_PSP;

/* Family of extensions. */
typedef enum dat_extension {
	DAT_EXTENSION_NONE = 0, /* none */
	DAT_EXTENSION_IB = 1,   /* InfiniBand */
	DAT_EXTENSION_IW = 2    /* iWARP */
} DAT_EXTENSION;

#define DAT_IB_EXTENSION DAT_EXTENSION_IB
#define DAT_IW_EXTENSION DAT_EXTENSION_IW

/* Load balancing of related providers. */
typedef DAT_UINT32 DAT_HA_LB;
#define DAT_HA_LB_NONE ((DAT_HA_LB)0)
#define DAT_HA_LB_INTERCOMM ((DAT_HA_LB)1)
#define DAT_HA_LB_INTRACOMM ((DAT_HA_LB)2)

/* Bits of extension operations that load a provider by name, and that release it. */
#define DAT_OPEN_EXTENSION_BASE 0x1000
#define DAT_CLOSE_EXTENSION_BASE 0x2000

/* ---- Memory ---- */

typedef struct dat_lmr_triplet {
	DAT_VADDR virtual_address;
	DAT_SEG_LENGTH segment_length;
	DAT_LMR_CONTEXT lmr_context;
} DAT_LMR_TRIPLET;

typedef struct dat_rmr_triplet {
	DAT_VADDR virtual_address;
	DAT_SEG_LENGTH segment_length;
	DAT_RMR_CONTEXT rmr_context;
} DAT_RMR_TRIPLET;

typedef struct dat_rmr_param {
	DAT_IA_HANDLE ia_handle;
	DAT_PZ_HANDLE pz_handle;
	DAT_LMR_TRIPLET lmr_triplet;
	DAT_MEM_PRIV_FLAGS mem_priv;
	DAT_RMR_CONTEXT rmr_context;
	DAT_RMR_SCOPE rmr_scope;
	DAT_VA_TYPE va_type;
} DAT_RMR_PARAM;

typedef enum dat_rmr_param_mask {
	DAT_RMR_FIELD_IA_HANDLE = 1,
	DAT_RMR_FIELD_PZ_HANDLE = 2,
	DAT_RMR_FIELD_LMR_TRIPLET = 4,
	DAT_RMR_FIELD_MEM_PRIV = 8,
	DAT_RMR_FIELD_RMR_CONTEXT = 0x10,
	DAT_RMR_FIELD_RMR_SCOPE = 0x20,
	DAT_RMR_FIELD_VA_TYPE = 0x40,
	DAT_RMR_FIELD_ALL = 0x7F
} DAT_RMR_PARAM_MASK;

/* Completed in <dat2/udat.h>. */
typedef struct dat_provider_attr DAT_PROVIDER_ATTR;
typedef struct dat_evd_param DAT_EVD_PARAM;
typedef struct dat_lmr_param DAT_LMR_PARAM;
typedef struct dat_ia_attr DAT_IA_ATTR;

/* ---- Interface adapters ---- */

typedef DAT_UINT64 DAT_IA_ATTR_MASK;
typedef DAT_UINT64 DAT_PROVIDER_ATTR_MASK;

#define DAT_IA_FIELD_NONE                                   UINT64_C(0)
#define DAT_IA_FIELD_IA_ADAPTER_NAME                        UINT64_C(1)
#define DAT_IA_FIELD_IA_VENDOR_NAME                         UINT64_C(2)
#define DAT_IA_FIELD_IA_HARDWARE_MAJOR_VERSION              UINT64_C(4)
#define DAT_IA_FIELD_IA_HARDWARE_MINOR_VERSION              UINT64_C(8)
#define DAT_IA_FIELD_IA_FIRMWARE_MAJOR_VERSION              UINT64_C(0x10)
#define DAT_IA_FIELD_IA_FIRMWARE_MINOR_VERSION              UINT64_C(0x20)
#define DAT_IA_FIELD_IA_ADDRESS_PTR                         UINT64_C(0x40)
#define DAT_IA_FIELD_IA_MAX_EPS                             UINT64_C(0x80)
#define DAT_IA_FIELD_IA_MAX_DTO_PER_EP                      UINT64_C(0x100)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_IN             UINT64_C(0x200)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_OUT            UINT64_C(0x400)
#define DAT_IA_FIELD_IA_MAX_EVDS                            UINT64_C(0x800)
#define DAT_IA_FIELD_IA_MAX_EVD_QLEN                        UINT64_C(0x1000)
#define DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_DTO            UINT64_C(0x2000)
#define DAT_IA_FIELD_IA_MAX_LMRS                            UINT64_C(0x4000)
#define DAT_IA_FIELD_IA_MAX_LMR_BLOCK_SIZE                  UINT64_C(0x8000)
#define DAT_IA_FIELD_IA_MAX_LMR_VIRTUAL_ADDRESS             UINT64_C(0x00010000)
#define DAT_IA_FIELD_IA_MAX_PZS                             UINT64_C(0x00020000)
#define DAT_IA_FIELD_IA_MAX_MESSAGE_SIZE                    UINT64_C(0x00040000)
#define DAT_IA_FIELD_IA_MAX_MTU_SIZE                        UINT64_C(0x00040000)
#define DAT_IA_FIELD_IA_MAX_RDMA_SIZE                       UINT64_C(0x00080000)
#define DAT_IA_FIELD_IA_MAX_RMRS                            UINT64_C(0x00100000)
#define DAT_IA_FIELD_IA_MAX_RMR_TARGET_ADDRESS              UINT64_C(0x00200000)
#define DAT_IA_FIELD_IA_MAX_SRQS                            UINT64_C(0x00400000)
#define DAT_IA_FIELD_IA_MAX_EP_PER_SRQ                      UINT64_C(0x00800000)
#define DAT_IA_FIELD_IA_MAX_RECV_PER_SRQ                    UINT64_C(0x01000000)
#define DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_RDMA_READ      UINT64_C(0x02000000)
#define DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_RDMA_WRITE     UINT64_C(0x04000000)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_IN                    UINT64_C(0x08000000)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_OUT                   UINT64_C(0x10000000)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_IN_GUARANTEED  UINT64_C(0x20000000)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_OUT_GUARANTEED UINT64_C(0x40000000)
#define DAT_IA_FIELD_IA_ZB_SUPPORTED                        UINT64_C(0x80000000)
#define DAT_IA_FIELD_IA_EXTENSIONS_SUPPORTED                UINT64_C(0x000100000000)

#define DAT_IA_ALL DAT_IA_FIELD_ALL

/* Older names of members of the attributes. */
#define max_mtu_size max_message_size
#define max_rdma_read_per_ep max_rdma_read_per_ep_in

/* ---- Endpoints ---- */

/* Service of an endpoint. */
typedef enum dat_service_type {
	DAT_SERVICE_TYPE_RC = 0,             /* reliable connection */
	DAT_SERVICE_TYPE_EXTENSION_BASE = 1  /* first number left to extensions */
} DAT_SERVICE_TYPE;

/* A limit of zero selects the provider's value. */
typedef struct dat_ep_attr {
	DAT_SERVICE_TYPE service_type;
	DAT_SEG_LENGTH max_message_size;
	DAT_SEG_LENGTH max_rdma_size;
	DAT_QOS qos;
	DAT_COMPLETION_FLAGS recv_completion_flags;
	DAT_COMPLETION_FLAGS request_completion_flags;
	DAT_COUNT max_recv_dtos;
	DAT_COUNT max_request_dtos;
	DAT_COUNT max_recv_iov;
	DAT_COUNT max_request_iov;
	DAT_COUNT max_rdma_read_in;
	DAT_COUNT max_rdma_read_out;
	DAT_COUNT srq_soft_hw;
	DAT_COUNT max_rdma_read_iov;
	DAT_COUNT max_rdma_write_iov;
	DAT_COUNT ep_transport_specific_count;
	DAT_NAMED_ATTR *ep_transport_specific;
	DAT_COUNT ep_provider_specific_count;
	DAT_NAMED_ATTR *ep_provider_specific;
} DAT_EP_ATTR;

/* State of an endpoint. */
typedef enum dat_ep_state {
	DAT_EP_STATE_UNCONNECTED = 0,                  /* ready to connect or to accept */
	DAT_EP_STATE_UNCONFIGURED_UNCONNECTED = 1,     /* unconnected, attributes not yet given */
	/* given to a reserved or socket service point */
	DAT_EP_STATE_RESERVED = 2,
	DAT_EP_STATE_UNCONFIGURED_RESERVED = 3,        /* reserved, attributes not yet given */
	/* belongs to a connection request that the consumer has to answer */
	DAT_EP_STATE_PASSIVE_CONNECTION_PENDING = 4,
	DAT_EP_STATE_UNCONFIGURED_PASSIVE = 5,         /* as above, attributes not yet given */
	DAT_EP_STATE_ACTIVE_CONNECTION_PENDING = 6,    /* dat_ep_connect is in progress */
	/* made by the provider for a connection request */
	DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING = 7,
	DAT_EP_STATE_UNCONFIGURED_TENTATIVE = 8,       /* as above, attributes not yet given */
	DAT_EP_STATE_CONNECTED = 9,                    /* connected */
	DAT_EP_STATE_DISCONNECT_PENDING = 10,          /* dat_ep_disconnect is in progress */
	/* the connection is over; dat_ep_reset makes the endpoint usable again */
	DAT_EP_STATE_DISCONNECTED = 11,
	DAT_EP_STATE_COMPLETION_PENDING = 12,          /* accepted; the handshake is not finished */
	DAT_EP_STATE_CONNECTED_SINGLE_PATH = 13,       /* connected over one path of several */
	DAT_EP_STATE_CONNECTED_MULTI_PATH = 14         /* connected over several paths */
} DAT_EP_STATE;

#define DAT_EP_STATE_ERROR DAT_EP_STATE_DISCONNECTED

typedef struct dat_ep_param {
	DAT_IA_HANDLE ia_handle;
	DAT_EP_STATE ep_state;
	DAT_COMM comm;
	DAT_IA_ADDRESS_PTR local_ia_address_ptr;
	DAT_PORT_QUAL local_port_qual;
	DAT_IA_ADDRESS_PTR remote_ia_address_ptr;
	DAT_PORT_QUAL remote_port_qual;
	DAT_PZ_HANDLE pz_handle;
	DAT_EVD_HANDLE recv_evd_handle;
	DAT_EVD_HANDLE request_evd_handle;
	DAT_EVD_HANDLE connect_evd_handle;
	DAT_SRQ_HANDLE srq_handle;
	DAT_EP_ATTR ep_attr;
} DAT_EP_PARAM;

typedef DAT_UINT64 DAT_EP_PARAM_MASK;

#define DAT_EP_FIELD_IA_HANDLE                        UINT64_C(1)
#define DAT_EP_FIELD_EP_STATE                         UINT64_C(2)
#define DAT_EP_FIELD_COMM                             UINT64_C(4)
#define DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR             UINT64_C(8)
#define DAT_EP_FIELD_LOCAL_PORT_QUAL                  UINT64_C(0x10)
#define DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR            UINT64_C(0x20)
#define DAT_EP_FIELD_REMOTE_PORT_QUAL                 UINT64_C(0x40)
#define DAT_EP_FIELD_PZ_HANDLE                        UINT64_C(0x80)
#define DAT_EP_FIELD_RECV_EVD_HANDLE                  UINT64_C(0x100)
#define DAT_EP_FIELD_REQUEST_EVD_HANDLE               UINT64_C(0x200)
#define DAT_EP_FIELD_CONNECT_EVD_HANDLE               UINT64_C(0x400)
#define DAT_EP_FIELD_SRQ_HANDLE                       UINT64_C(0x800)
#define DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE             UINT64_C(0x1000)
#define DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE         UINT64_C(0x2000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE            UINT64_C(0x4000)
#define DAT_EP_FIELD_EP_ATTR_QOS                      UINT64_C(0x8000)
#define DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS    UINT64_C(0x00010000)
#define DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS UINT64_C(0x00020000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS            UINT64_C(0x00040000)
#define DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS         UINT64_C(0x00080000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV             UINT64_C(0x00100000)
#define DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV          UINT64_C(0x00200000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN         UINT64_C(0x00400000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT        UINT64_C(0x00800000)
#define DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW              UINT64_C(0x01000000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV        UINT64_C(0x02000000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV       UINT64_C(0x04000000)
#define DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR       UINT64_C(0x08000000)
#define DAT_EP_FIELD_EP_ATTR_TRANSPORT_SPECIFIC_ATTR  UINT64_C(0x10000000)
#define DAT_EP_FIELD_EP_ATTR_NUM_PROVIDER_ATTR        UINT64_C(0x20000000)
#define DAT_EP_FIELD_EP_ATTR_PROVIDER_SPECIFIC_ATTR   UINT64_C(0x40000000)
#define DAT_EP_FIELD_EP_ATTR_ALL                      UINT64_C(0x7FFFF000)
#define DAT_EP_FIELD_ALL                              UINT64_C(0x7FFFFFFF)

/* ---- Shared receive queues ---- */

typedef struct dat_srq_attr {
	DAT_COUNT max_recv_dtos;
	DAT_COUNT max_recv_iov;
	DAT_COUNT low_watermark;
} DAT_SRQ_ATTR;

typedef enum dat_srq_state {
	DAT_SRQ_STATE_ERROR = 0,       /* broken */
	DAT_SRQ_STATE_OPERATIONAL = 1, /* in use */
	DAT_SRQ_STATE_SHUTDOWN = 2     /* takes no new endpoints */
} DAT_SRQ_STATE;

typedef struct dat_srq_param {
	DAT_IA_HANDLE ia_handle;
	DAT_SRQ_STATE srq_state;
	DAT_PZ_HANDLE pz_handle;
	DAT_COUNT max_recv_dtos;
	DAT_COUNT max_recv_iov;
	DAT_COUNT low_watermark;
	DAT_COUNT available_dto_count;
	DAT_COUNT outstanding_dto_count;
} DAT_SRQ_PARAM;

typedef enum dat_srq_param_mask {
	DAT_SRQ_FIELD_IA_HANDLE = 1,
	DAT_SRQ_FIELD_SRQ_STATE = 2,
	DAT_SRQ_FIELD_PZ_HANDLE = 4,
	DAT_SRQ_FIELD_MAX_RECV_DTO = 8,
	DAT_SRQ_FIELD_MAX_RECV_IOV = 0x10,
	DAT_SRQ_FIELD_LOW_WATERMARK = 0x20,
	DAT_SRQ_FIELD_AVAILABLE_DTO_COUNT = 0x40,
	DAT_SRQ_FIELD_OUTSTANDING_DTO_COUNT = 0x80,
	DAT_SRQ_FIELD_ALL = 0xFF
} DAT_SRQ_PARAM_MASK;

/* ---- Protection zones, service points, connection requests ---- */

typedef struct dat_pz_param {
	DAT_IA_HANDLE ia_handle;
} DAT_PZ_PARAM;

typedef enum dat_pz_param_mask {
	DAT_PZ_FIELD_ALL = 1,
	DAT_PZ_FIELD_IA_HANDLE = 1
} DAT_PZ_PARAM_MASK;

typedef struct dat_psp_param {
	DAT_IA_HANDLE ia_handle;
	DAT_CONN_QUAL conn_qual;
	DAT_EVD_HANDLE evd_handle;
	DAT_PSP_FLAGS psp_flags;
} DAT_PSP_PARAM;

typedef enum dat_psp_param_mask {
	DAT_PSP_FIELD_IA_HANDLE = 1,
	DAT_PSP_FIELD_CONN_QUAL = 2,
	DAT_PSP_FIELD_EVD_HANDLE = 4,
	DAT_PSP_FIELD_PSP_FLAGS = 8,
	DAT_PSP_FIELD_ALL = 0xF
} DAT_PSP_PARAM_MASK;

typedef struct dat_rsp_param {
	DAT_IA_HANDLE ia_handle;
	DAT_CONN_QUAL conn_qual;
	DAT_EVD_HANDLE evd_handle;
	DAT_EP_HANDLE ep_handle;
} DAT_RSP_PARAM;

typedef enum dat_rsp_param_mask {
	DAT_RSP_FIELD_IA_HANDLE = 1,
	DAT_RSP_FIELD_CONN_QUAL = 2,
	DAT_RSP_FIELD_EVD_HANDLE = 4,
	DAT_RSP_FIELD_EP_HANDLE = 8,
	DAT_RSP_FIELD_ALL = 0xF
} DAT_RSP_PARAM_MASK;

typedef struct dat_csp_param {
	DAT_IA_HANDLE ia_handle;
	DAT_COMM *comm;
	DAT_IA_ADDRESS_PTR address_ptr;
	DAT_EVD_HANDLE evd_handle;
} DAT_CSP_PARAM;

typedef enum dat_csp_param_mask {
	DAT_CSP_FIELD_IA_HANDLE = 1,
	DAT_CSP_FIELD_COMM = 2,
	DAT_CSP_FIELD_IA_ADDRESS = 4,
	DAT_CSP_FIELD_EVD_HANDLE = 8,
	DAT_CSP_FIELD_ALL = 0xF
} DAT_CSP_PARAM_MASK;

typedef struct dat_cr_param {
	DAT_IA_ADDRESS_PTR remote_ia_address_ptr;
	DAT_PORT_QUAL remote_port_qual;
	DAT_COUNT private_data_size;
	DAT_PVOID private_data;
	DAT_EP_HANDLE local_ep_handle;
} DAT_CR_PARAM;

typedef enum dat_cr_param_mask {
	DAT_CR_FIELD_REMOTE_IA_ADDRESS_PTR = 1,
	DAT_CR_FIELD_REMOTE_PORT_QUAL = 2,
	DAT_CR_FIELD_PRIVATE_DATA_SIZE = 4,
	DAT_CR_FIELD_PRIVATE_DATA = 8,
	DAT_CR_FIELD_LOCAL_EP_HANDLE = 0x10,
	DAT_CR_FIELD_ALL = 0x1F
} DAT_CR_PARAM_MASK;

/* ---- Events ---- */

/* The result of an operation. */
typedef enum dat_dto_completion_status {
	DAT_DTO_SUCCESS = 0,                /* done */
	DAT_DTO_ERR_FLUSHED = 1,            /* not done because the connection ended first */
	DAT_DTO_ERR_LOCAL_LENGTH = 2,       /* the message does not fit the local buffer */
	DAT_DTO_ERR_LOCAL_EP = 3,           /* the local endpoint failed */
	DAT_DTO_ERR_LOCAL_PROTECTION = 4,   /* the local memory does not permit the access */
	DAT_DTO_ERR_BAD_RESPONSE = 5,       /* the peer sent an unexpected answer */
	DAT_DTO_ERR_REMOTE_ACCESS = 6,      /* the remote memory does not permit the access */
	DAT_DTO_ERR_REMOTE_RESPONDER = 7,   /* the peer could not complete the operation */
	DAT_DTO_ERR_TRANSPORT = 8,          /* the transport failed */
	DAT_DTO_ERR_RECEIVER_NOT_READY = 9, /* the peer had no receive posted */
	DAT_DTO_ERR_PARTIAL_PACKET = 10,    /* only a part of a message was received */
	DAT_RMR_OPERATION_FAILED = 11,      /* the bind failed */
	DAT_DTO_ERR_LOCAL_MM_ERROR = 12     /* memory management failed locally */
} DAT_DTO_COMPLETION_STATUS;

typedef DAT_DTO_COMPLETION_STATUS DAT_RMR_BIND_COMPLETION_STATUS;

#define DAT_DTO_LENGTH_ERROR DAT_DTO_ERR_LOCAL_LENGTH
#define DAT_DTO_FAILURE DAT_DTO_ERR_FLUSHED
#define DAT_RMR_BIND_SUCCESS DAT_DTO_SUCCESS
#define DAT_RMR_BIND_FAILURE DAT_DTO_ERR_FLUSHED

typedef struct dat_dto_completion_event_data {
	DAT_EP_HANDLE ep_handle;
	DAT_DTO_COOKIE user_cookie;
	DAT_DTO_COMPLETION_STATUS status;
	DAT_SEG_LENGTH transfered_length;
	DAT_DTOS operation;
	DAT_RMR_CONTEXT rmr_context;
} DAT_DTO_COMPLETION_EVENT_DATA;

typedef struct dat_rmr_bind_completion_event_data {
	DAT_RMR_HANDLE rmr_handle;
	DAT_RMR_COOKIE user_cookie;
	DAT_RMR_BIND_COMPLETION_STATUS status;
} DAT_RMR_BIND_COMPLETION_EVENT_DATA;

typedef union dat_sp_handle {
	DAT_RSP_HANDLE rsp_handle;
	DAT_PSP_HANDLE psp_handle;
	DAT_CSP_HANDLE csp_handle;
} DAT_SP_HANDLE;

typedef struct dat_cr_arrival_event_data {
	DAT_SP_HANDLE sp_handle;
	DAT_IA_ADDRESS_PTR local_ia_address_ptr;
	DAT_CONN_QUAL conn_qual;
	DAT_CR_HANDLE cr_handle;
	DAT_BOOLEAN truncate_flag;
} DAT_CR_ARRIVAL_EVENT_DATA;

typedef struct dat_connection_event_data {
	DAT_EP_HANDLE ep_handle;
	DAT_COUNT private_data_size;
	DAT_PVOID private_data;
} DAT_CONNECTION_EVENT_DATA;

typedef struct dat_asynch_error_event_data {
	DAT_HANDLE dat_handle;
	DAT_COUNT reason;
} DAT_ASYNCH_ERROR_EVENT_DATA;

/* Reasons of asynchronous errors; the numbers start again for each kind of object. */
typedef enum ia_async_error_reason {
	DAT_IA_CATASTROPHIC_ERROR = 0,
	DAT_IA_OTHER_ERROR = 1
} DAT_IA_ASYNC_ERROR_REASON;

typedef enum ep_async_error_reason {
	DAT_EP_TRANSFER_TO_ERROR = 0,
	DAT_EP_OTHER_ERROR = 1,
	DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT = 2
} DAT_EP_ASYNC_ERROR_REASON;

typedef enum evd_async_error_reason {
	DAT_EVD_OVERFLOW_ERROR = 0,
	DAT_EVD_OTHER_ERROR = 1
} DAT_EVD_ASYNC_ERROR_REASON;

typedef enum srq_async_error_reason {
	DAT_SRQ_TRANSFER_TO_ERROR = 0,
	DAT_SRQ_OTHER_ERROR = 1,
	DAT_SRQ_LOW_WATERMARK_EVENT = 2
} DAT_SRQ_ASYNC_ERROR_REASON;

typedef enum lmr_async_error_reason {
	DAT_LMR_OTHER_ERROR = 0
} DAT_LMR_ASYNC_ERROR_REASON;

typedef enum rmr_async_error_reason {
	DAT_RMR_OTHER_ERROR = 0
} DAT_RMR_ASYNC_ERROR_REASON;

typedef enum pz_async_error_reason {
	DAT_PZ_OTHER_ERROR = 0
} DAT_PZ_ASYNC_ERROR_REASON;

typedef struct dat_software_event_data {
	DAT_PVOID pointer;
} DAT_SOFTWARE_EVENT_DATA;

/* Kind of event. */
typedef enum dat_event_number {
	/* a data transfer is done; see dto_completion_event_data */
	DAT_DTO_COMPLETION_EVENT = 0x00001,
	/* a bind is done; see rmr_completion_event_data */
	DAT_RMR_BIND_COMPLETION_EVENT = 0x01001,
	/* a peer requests a connection; see cr_arrival_event_data */
	DAT_CONNECTION_REQUEST_EVENT = 0x02001,
	/* the connection is established; for this and the following seven see connect_event_data */
	DAT_CONNECTION_EVENT_ESTABLISHED = 0x04001,
	DAT_CONNECTION_EVENT_PEER_REJECTED = 0x04002,           /* the peer's consumer rejected */
	/* the request did not reach the peer's consumer: no listener, backlog, protocol mismatch */
	DAT_CONNECTION_EVENT_NON_PEER_REJECTED = 0x04003,
	/* an accepted connection could not be established */
	DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR = 0x04004,
	/* the connection was closed by either side */
	DAT_CONNECTION_EVENT_DISCONNECTED = 0x04005,
	DAT_CONNECTION_EVENT_BROKEN = 0x04006,                  /* the connection failed */
	/* the time for connecting ran out */
	DAT_CONNECTION_EVENT_TIMED_OUT = 0x04007,
	DAT_CONNECTION_EVENT_UNREACHABLE = 0x04008,             /* there is no route to the peer */
	/* an EVD lost events; this and the following four: see asynch_error_event_data */
	DAT_ASYNC_ERROR_EVD_OVERFLOW = 0x08001,
	DAT_ASYNC_ERROR_IA_CATASTROPHIC = 0x08002,              /* the IA is unusable */
	/* an EP is broken, or has left its shared receive queue */
	DAT_ASYNC_ERROR_EP_BROKEN = 0x08003,
	DAT_ASYNC_ERROR_TIMED_OUT = 0x08004,                    /* a timeout inside the provider */
	DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR = 0x08005,      /* a fault inside the provider */
	/* a multi-path connection is down to one path */
	DAT_HA_DOWN_TO_1 = 0x08101,
	/* a multi-path connection has several paths again */
	DAT_HA_UP_TO_MULTI_PATH = 0x08102,
	/* posted by the consumer; see software_event_data */
	DAT_SOFTWARE_EVENT = 0x10001,
	/* first number of extension events of no particular family */
	DAT_EXTENSION_EVENT = 0x20000,
	/* first number of IB extension events */
	DAT_IB_EXTENSION_RANGE_BASE = 0x40000,
	/* first number of iWARP extension events */
	DAT_IW_EXTENSION_RANGE_BASE = 0x80000
} DAT_EVENT_NUMBER;

/* The event number selects the member. */
typedef union dat_event_data {
	DAT_DTO_COMPLETION_EVENT_DATA dto_completion_event_data;
	DAT_RMR_BIND_COMPLETION_EVENT_DATA rmr_completion_event_data;
	DAT_CR_ARRIVAL_EVENT_DATA cr_arrival_event_data;
	DAT_CONNECTION_EVENT_DATA connect_event_data;
	DAT_ASYNCH_ERROR_EVENT_DATA asynch_error_event_data;
	DAT_SOFTWARE_EVENT_DATA software_event_data;
} DAT_EVENT_DATA;

typedef struct dat_event {
	DAT_EVENT_NUMBER event_number;
	DAT_EVD_HANDLE evd_handle;
	DAT_EVENT_DATA event_data;
	DAT_UINT64 event_extension_data[8];
} DAT_EVENT;

/* The key under which a provider is registered. */
typedef struct dat_provider_info {
	char ia_name[DAT_NAME_MAX_LENGTH];
	DAT_UINT32 dapl_version_major;
	DAT_UINT32 dapl_version_minor;
	DAT_BOOLEAN is_thread_safe;
} DAT_PROVIDER_INFO;

#ifdef __cplusplus
}
#endif

#endif /* _DAT_H_ */
