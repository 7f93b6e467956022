/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * DAT 2.0: types that depend on the machine, here for 64-bit Linux user space.
 */
#ifndef _DAT_PLATFORM_SPECIFIC_H_
#define _DAT_PLATFORM_SPECIFIC_H_

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Decoration of declarations; empty on Linux. */
#ifndef IN
#define IN
#endif
#ifndef OUT
#define OUT
#endif
#ifndef INOUT
#define INOUT
#endif
#ifndef DAT_API
#define DAT_API
#endif
#ifndef DAT_EXPORT
#define DAT_EXPORT extern
#endif

/* Buffer alignment in bytes that suits every provider. */
#define DAT_OPTIMAL_ALIGNMENT 256

typedef uint32_t DAT_UINT32;
typedef uint64_t DAT_UINT64;
typedef unsigned long long DAT_UVERYLONG;
typedef void *DAT_PVOID;
typedef int DAT_COUNT;	     /* signed: negative values are special */
typedef DAT_UINT64 DAT_PADDR; /* physical address */
typedef int DAT_FD;

/* IA handles of consumers are small integers. */
#define DAT_IA_HANDLE_TO_UL(a) (unsigned long)(a)
#define DAT_UL_TO_IA_HANDLE(a) (DAT_IA_HANDLE)(a)

/* A communicator, named by the arguments of socket(2). */
typedef struct dat_comm {
	int domain;
	int type;
	int protocol;
} DAT_COMM;

typedef struct sockaddr DAT_SOCK_ADDR;
typedef struct sockaddr_in6 DAT_SOCK_ADDR6;

#define DAT_AF_INET AF_INET
#define DAT_AF_INET6 AF_INET6

#endif /* _DAT_PLATFORM_SPECIFIC_H_ */
