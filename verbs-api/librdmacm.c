/*
 * librdmacm.so.1: a filter (DT_FILTER) on libibverbs.so.1, which has the functions that this
 * project implements. The loader uses a function below only if libibverbs.so.1 has none of its
 * name. These fail as on a machine without support.
 */
#include <errno.h>

#define FAILS(name)                                                                                \
    long name(void);                                                                               \
    long name(void)                                                                                \
    {                                                                                              \
        errno = EOPNOTSUPP;                                                                        \
        return -1;                                                                                 \
    }

/* In libibverbs.so.1. */
FAILS(raccept)
FAILS(rbind)
FAILS(rclose)
FAILS(rconnect)
FAILS(rdma_accept)
FAILS(rdma_ack_cm_event)
FAILS(rdma_bind_addr)
FAILS(rdma_connect)
FAILS(rdma_create_ep)
FAILS(rdma_create_event_channel)
FAILS(rdma_create_id)
FAILS(rdma_create_qp)
FAILS(rdma_create_qp_ex)
FAILS(rdma_create_srq)
FAILS(rdma_destroy_ep)
FAILS(rdma_destroy_event_channel)
FAILS(rdma_destroy_id)
FAILS(rdma_destroy_qp)
FAILS(rdma_destroy_srq)
FAILS(rdma_disconnect)
FAILS(rdma_establish)
FAILS(rdma_event_str)
FAILS(rdma_free_devices)
FAILS(rdma_freeaddrinfo)
FAILS(rdma_get_cm_event)
FAILS(rdma_get_devices)
FAILS(rdma_get_dst_port)
FAILS(rdma_get_request)
FAILS(rdma_get_src_port)
FAILS(rdma_getaddrinfo)
FAILS(rdma_init_qp_attr)
FAILS(rdma_listen)
FAILS(rdma_migrate_id)
FAILS(rdma_reject)
FAILS(rdma_resolve_addr)
FAILS(rdma_resolve_route)
FAILS(rdma_set_option)
FAILS(rfcntl)
FAILS(rgetpeername)
FAILS(rgetsockname)
FAILS(rgetsockopt)
FAILS(riomap)
FAILS(riounmap)
FAILS(riowrite)
FAILS(rlisten)
FAILS(rpoll)
FAILS(rread)
FAILS(rreadv)
FAILS(rrecv)
FAILS(rrecvfrom)
FAILS(rrecvmsg)
FAILS(rselect)
FAILS(rsend)
FAILS(rsendmsg)
FAILS(rsendto)
FAILS(rsetsockopt)
FAILS(rshutdown)
FAILS(rsocket)
FAILS(rwrite)
FAILS(rwritev)

/* Not implemented. */
FAILS(rdma_create_srq_ex)
FAILS(rdma_get_remote_ece)
FAILS(rdma_join_multicast)
FAILS(rdma_join_multicast_ex)
FAILS(rdma_leave_multicast)
FAILS(rdma_notify)
FAILS(rdma_reject_ece)
FAILS(rdma_set_local_ece)
