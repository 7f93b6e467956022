/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * DAT 2.0: the iWARP extension. A connected TCP socket becomes an RDMA connection: at the passive
 * side by a Socket Service Point (SSP), at the active side by dat_iw_socket_connect.
 *
 * The operation numbers differ from those of OFA's header, which collide with the IB extension. The
 * macros of OFA's header do not compile, so no program depends on those numbers.
 */
#ifndef _DAT_IW_EXTENSIONS_H_
#define _DAT_IW_EXTENSIONS_H_

#include <dat2/udat.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DAT_IW_EXTENSION_VERSION 201

/* Named attributes of the provider. A provider with DAT_IW_ATTR_SSP supports SSPs. */
#define DAT_EXTENSION_ATTR "DAT_EXTENSION_INTERFACE"
#define DAT_EXTENSION_ATTR_VERSION "DAT_EXTENSION_VERSION"
#define DAT_EXTENSION_ATTR_VERSION_VALUE "2.0.1"
#define DAT_IW_ATTR_SSP "DAT_IW_ATTR_SSP"

typedef enum dat_handle_iw_ext_type {
	DAT_IW_HANDLE_TYPE_SSP = DAT_HANDLE_TYPE_EXTENSION_BASE
} DAT_HANDLE_IW_EXT_TYPE;

typedef DAT_HANDLE DAT_IW_SSP_HANDLE;
typedef int DAT_IW_SOCKET;

/*
 * The socket of an SSP was lost before a connection request was received. Delivered on the SSP's
 * EVD with cr_arrival_event_data: sp_handle is the SSP, cr_handle is null.
 */
typedef enum dat_iw_event_number {
	DAT_CONNECTION_EVENT_SOCKET_DOWN = 0x80001
} DAT_IW_EVENT_NUMBER;

typedef enum dat_iw_ssp_state {
	/* the socket is attached and a connection request may be received */
	DAT_IW_SSP_STATE_OPERATIONAL = 0,
	/* a connection request was received, or the socket was lost */
	DAT_IW_SSP_STATE_NON_OPERATIONAL = 1
} DAT_IW_SSP_STATE;

typedef struct dat_iw_ssp_param {
	DAT_IA_HANDLE ia_handle;
	DAT_IW_SOCKET socket_id;
	DAT_EVD_HANDLE evd_handle;
	DAT_EP_HANDLE ep_handle;
	DAT_IW_SSP_STATE ssp_state;
} DAT_IW_SSP_PARAM;

typedef enum dat_iw_ssp_param_mask {
	DAT_IW_SSP_FIELD_IA_HANDLE = 0x01,
	DAT_IW_SSP_FIELD_SOCKET_ID = 0x02,
	DAT_IW_SSP_FIELD_EVD_HANDLE = 0x04,
	DAT_IW_SSP_FIELD_EP_HANDLE = 0x08,
	DAT_IW_SSP_FIELD_SSP_STATE = 0x10,
	DAT_IW_SSP_FIELD_ALL = 0x1F
} DAT_IW_SSP_PARAM_MASK;

typedef enum dat_iw_op {
	DAT_IW_SSP_CREATE_OP = 0x400,
	DAT_IW_SSP_FREE_OP = 0x401,
	DAT_IW_SSP_QUERY_OP = 0x402,
	DAT_IW_SOCKET_CONNECT_OP = 0x403
} DAT_IW_OP;

/*
 * Creates an SSP from a connected socket. ep_handle: an unconnected endpoint, or null: the provider
 * creates an endpoint. final_sm_msg: last bytes in streaming mode, sent before the SSP waits for
 * the peer's request for RDMA; may be null with length 0.
 */
#define dat_iw_ssp_create(ia, socket_id, ep_handle, evd_handle, final_sm_msg, final_sm_msg_len, \
			  ssp_handle) \
	dat_extension_op((DAT_IA_HANDLE)(ia), DAT_IW_SSP_CREATE_OP, (DAT_IW_SOCKET)(socket_id), \
			 (DAT_EP_HANDLE)(ep_handle), (DAT_EVD_HANDLE)(evd_handle), \
			 (DAT_PVOID)(final_sm_msg), (DAT_COUNT)(final_sm_msg_len), \
			 (DAT_IW_SSP_HANDLE *)(ssp_handle))

/* Frees an SSP. The socket belongs to the consumer again, unless a connection request has it. */
#define dat_iw_ssp_free(ssp_handle) \
	dat_extension_op((DAT_IW_SSP_HANDLE)(ssp_handle), DAT_IW_SSP_FREE_OP)

#define dat_iw_ssp_query(ssp_handle, ssp_param_mask, ssp_param) \
	dat_extension_op((DAT_IW_SSP_HANDLE)(ssp_handle), DAT_IW_SSP_QUERY_OP, \
			 (DAT_IW_SSP_PARAM_MASK)(ssp_param_mask), (DAT_IW_SSP_PARAM *)(ssp_param))

/* Connects an endpoint over a socket. The timeout is in microseconds and must not be 0. */
#define dat_iw_socket_connect(ep_handle, socket_id, timeout, private_data_size, private_data) \
	dat_extension_op((DAT_EP_HANDLE)(ep_handle), DAT_IW_SOCKET_CONNECT_OP, \
			 (DAT_IW_SOCKET)(socket_id), (DAT_TIMEOUT)(timeout), \
			 (DAT_COUNT)(private_data_size), (const void *)(private_data))

#ifdef __cplusplus
}
#endif

#endif /* _DAT_IW_EXTENSIONS_H_ */
