/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counters of dat-rs for dat_ib_query_counters and dat_ib_print_counters: the payload of the
 * connections of an endpoint or an IA by transport, and the reasons for which connections are on
 * TCP. OFA's library has none of these. DCNT_RS_ALL_COUNTERS selects all DCNT_RS_COUNT counters.
 */
#ifndef _DAT_RS_COUNTERS_H_
#define _DAT_RS_COUNTERS_H_

#include <dat2/dat_ib_extensions.h>

typedef enum dat_rs_counters {
	/* Segments sent over TCP */
	DCNT_RS_TCP_SENT = 0x1000,
	/* Payload sent over TCP, in bytes */
	DCNT_RS_TCP_SENT_DATA = 0x1001,
	/* Segments received over TCP */
	DCNT_RS_TCP_RECV = 0x1002,
	/* Payload received over TCP, in bytes */
	DCNT_RS_TCP_RECV_DATA = 0x1003,
	/* Segments sent through shared memory */
	DCNT_RS_RING_SENT = 0x1004,
	/* Payload sent through shared memory, in bytes */
	DCNT_RS_RING_SENT_DATA = 0x1005,
	/* Segments received through shared memory */
	DCNT_RS_RING_RECV = 0x1006,
	/* Payload received through shared memory, in bytes */
	DCNT_RS_RING_RECV_DATA = 0x1007,
	/* Segments whose payload the peer reads from the memory of this process */
	DCNT_RS_REFERENCE_SENT = 0x1008,
	/* Payload of these segments, in bytes */
	DCNT_RS_REFERENCE_SENT_DATA = 0x1009,
	/* Segments whose payload was read from the memory of the peer's process */
	DCNT_RS_REFERENCE_RECV = 0x100a,
	/* Payload of these segments, in bytes */
	DCNT_RS_REFERENCE_RECV_DATA = 0x100b,
	/* Connections whose sending direction has left TCP */
	DCNT_RS_MOVED_SENT = 0x100c,
	/* Connections whose receiving direction has left TCP */
	DCNT_RS_MOVED_RECV = 0x100d,
	/* Connections on TCP: the peer runs another implementation */
	DCNT_RS_TCP_OTHER_IMPLEMENTATION = 0x100e,
	/* Connections on TCP: too little traffic so far */
	DCNT_RS_TCP_LITTLE_TRAFFIC = 0x100f,
	/* Connections on TCP: local=off at this end */
	DCNT_RS_TCP_OFF = 0x1010,
	/* Connections on TCP: local=off at the peer */
	DCNT_RS_TCP_PEER_OFF = 0x1011,
	/* Connections on TCP: the peer is on another host or in another network namespace */
	DCNT_RS_TCP_OTHER_HOST = 0x1012,
	/* Connections on TCP: the peer has not offered shared memory */
	DCNT_RS_TCP_NOT_OFFERED = 0x1013,
	/* Connections on TCP: the peer has not answered the offer of shared memory */
	DCNT_RS_TCP_NOT_ANSWERED = 0x1014,
	/* Connections on TCP: the peer has refused shared memory */
	DCNT_RS_TCP_REFUSED = 0x1015,
	/* Connections on TCP: no descriptors or memory */
	DCNT_RS_TCP_NO_RESOURCES = 0x1016,
	/* RDMA Writes that this end has carried out in the memory of the peer's process */
	DCNT_RS_DIRECT_WRITES = 0x1017,
	/* Payload of these Writes, in bytes */
	DCNT_RS_DIRECT_WRITES_DATA = 0x1018,
	/* RDMA Reads that this end has carried out in the memory of the peer's process */
	DCNT_RS_DIRECT_READS = 0x1019,
	/* Payload of these Reads, in bytes */
	DCNT_RS_DIRECT_READS_DATA = 0x101a,
	/* All of them */
	DCNT_RS_ALL_COUNTERS = 0x101b
} DAT_RS_COUNTERS;

#define DCNT_RS_COUNT (DCNT_RS_ALL_COUNTERS - DCNT_RS_TCP_SENT)

#endif /* _DAT_RS_COUNTERS_H_ */
