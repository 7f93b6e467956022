/*
 * Stream sockets over RDMA: the Sockets Direct Protocol (SDP) over DAT. See sdp_dat(3).
 *
 * The calls have the arguments, results and errors of the socket calls of the same names. A socket
 * is a number of 64 bits and no file descriptor.
 */
#ifndef SDP_DAT_H
#define SDP_DAT_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The families of OFED's kernel module; here they equal AF_INET and AF_INET6. */
#ifndef AF_INET_SDP
#define AF_INET_SDP 27
#endif
#ifndef AF_INET6_SDP
#define AF_INET6_SDP 28
#endif

/* The number is Solaris' PROTO_SDP. */
#ifndef IPPROTO_SDP
#define IPPROTO_SDP 257
#endif

/* Level IPPROTO_TCP: reads with room for this many bytes let the peer write into their memory. */
#ifndef SDP_ZCOPY_THRESH
#define SDP_ZCOPY_THRESH 80
#endif

/* A socket; -1 stands for an error. */
typedef int64_t sdpd_t;

sdpd_t sdpd_socket(int family, int type, int protocol);
int sdpd_bind(sdpd_t socket, const struct sockaddr *address, socklen_t len);
int sdpd_connect(sdpd_t socket, const struct sockaddr *address, socklen_t len);
int sdpd_listen(sdpd_t socket, int backlog);
sdpd_t sdpd_accept(sdpd_t socket, struct sockaddr *address, socklen_t *len);
ssize_t sdpd_send(sdpd_t socket, const void *bytes, size_t len, int flags);
ssize_t sdpd_recv(sdpd_t socket, void *bytes, size_t len, int flags);
int sdpd_shutdown(sdpd_t socket, int how);
int sdpd_close(sdpd_t socket);
int sdpd_getsockopt(sdpd_t socket, int level, int name, void *value, socklen_t *len);
int sdpd_setsockopt(sdpd_t socket, int level, int name, const void *value, socklen_t len);
int sdpd_getsockname(sdpd_t socket, struct sockaddr *address, socklen_t *len);
int sdpd_getpeername(sdpd_t socket, struct sockaddr *address, socklen_t *len);
int sdpd_fcntl(sdpd_t socket, int command, int argument);

/*
 * The descriptor for poll(2), select(2) and epoll(7) of a socket that listens, connects or is
 * connected. It belongs to the library: a program neither reads, writes nor closes it.
 */
int sdpd_fd(sdpd_t socket);

#ifdef __cplusplus
}
#endif

#endif
