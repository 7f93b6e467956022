/*
 * Address families and a protocol by which a program under opsrun(1) names the stack of a stream
 * socket. Addresses may have the family of the socket, or AF_INET and AF_INET6.
 */
#ifndef OPS_SOCKET_H
#define OPS_SOCKET_H

/* Any offload protocol. The connect fails if none can carry the connection. */
#define AF_INET_OFFLOAD 220
#define AF_INET6_OFFLOAD 221

/* The kernel's stack. */
#define AF_INET_DIRECT 222
#define AF_INET6_DIRECT 223

/* The Sockets Direct Protocol; the numbers of OFED's kernel module. */
#ifndef AF_INET_SDP
#define AF_INET_SDP 27
#endif
#ifndef AF_INET6_SDP
#define AF_INET6_SDP 28
#endif

/* The same with AF_INET or AF_INET6; the number of Solaris' PROTO_SDP. */
#ifndef IPPROTO_SDP
#define IPPROTO_SDP 257
#endif

#endif
