/*
 * An offload protocol for programs under opsrun(1), in a shared object that a line of ops.conf(5)
 * names:
 *
 *   protocol /usr/lib/libexample.so priority=5
 *
 * The object exports ops_protocol(), which returns a table. The switch copies the table, and calls
 * its functions from any thread, several at a time; none of them may wait. A function that fails
 * returns a negative error number, such as -EAGAIN. The switch checks what a function returns, and
 * aborts a connection that returns nonsense; it cannot check what a function writes beyond its
 * arguments.
 *
 * Socket calls that a function makes reach the kernel. The object stays loaded. Some programs close
 * all descriptors from 3 on: an object whose descriptors must survive this moves them to high
 * numbers, by F_DUPFD_CLOEXEC.
 */
#ifndef OPS_PROTOCOL_H
#define OPS_PROTOCOL_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OPS_PROTOCOL_VERSION 1

/* Capabilities. */
#define OPS_REMOTE 1u		/* carries connections to other hosts too */
#define OPS_NEEDS_RULE 2u	/* carries only sockets for which a rule names the protocol */
#define OPS_NEEDS_RULE_HERE 4u	/* within the host, only sockets for which a rule names it */
#define OPS_ASKS_PEER 8u	/* is tried only if the peer's port mapper offers the service */

/* What has changed in the network: bits of the argument of `changed`. */
#define OPS_ROUTES 1u
#define OPS_ADDRESSES 2u
#define OPS_DEVICES 4u
#define OPS_MTU 8u

/* Where a socket connects. Addresses are struct sockaddr_in or struct sockaddr_in6. */
struct ops_target {
	struct sockaddr_storage service;  /* as the program has named it */
	struct sockaddr_storage mapped;	  /* where the peer offers it */
	struct sockaddr_storage local;	  /* the port is reserved in the kernel */
	struct sockaddr_storage next_hop; /* ss_family is 0 if no route was looked up */
};

/* The names of a connection. */
struct ops_names {
	struct sockaddr_storage local, peer;
};

/*
 * Each connection and each listener is an object of the protocol, with a descriptor that shows its
 * readiness as that of a socket: readable when accept, connected or receive has work, writable when
 * send has room, EPOLLRDHUP after the peer's end. The switch polls a duplicate of the descriptor.
 * An object must not be null, and is used until `unlisten` or `close`.
 */
struct ops_protocol {
	uint32_t version; /* OPS_PROTOCOL_VERSION */
	uint32_t size;	  /* sizeof(struct ops_protocol) */
	const char *name; /* in rules and listings: 1 to 15 of a-z, 0-9 and - */
	uint32_t capabilities;
	int32_t priority; /* unless the rule file has one; `sdp` has 0 */

	/* Begins to connect. */
	int (*connect)(const struct ops_target *to, void **connection, int *descriptor);
	/* 1: established; 0: not yet. -ECONNREFUSED: the peer does not offer the service. */
	int (*connected)(void *connection);
	/* Offers a service; the kernel's TCP listens at the address already. */
	int (*listen)(const struct sockaddr_storage *at, int backlog, void **listener,
		      int *descriptor);
	/* 1: there is a connection, whose peer can no longer use TCP instead; 0: none now. */
	int (*accept)(void *listener, void **connection, int *descriptor, struct ops_names *names);
	void (*unlisten)(void *listener);
	/* The number of bytes, at least 1; -EAGAIN if there is no room. */
	ssize_t (*send)(void *connection, const struct iovec *parts, int count);
	/* The number of bytes; 0 at the end of the stream; -EAGAIN if there are none now. */
	ssize_t (*receive)(void *connection, const struct iovec *parts, int count, int peek);
	/* SHUT_RD, SHUT_WR or SHUT_RDWR. */
	int (*shutdown)(void *connection, int how);
	/* Ends an object of connect or accept: in order, or at once if `aborts` is not 0. */
	void (*close)(void *connection, int aborts);
	/* May be null. Routes, addresses, devices or MTUs have changed. */
	void (*changed)(uint32_t what);
};

const struct ops_protocol *ops_protocol(void);

#ifdef __cplusplus
}
#endif

#endif
