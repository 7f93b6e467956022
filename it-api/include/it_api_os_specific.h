/*
 * The part of IT-API that depends on the operating system: 64-bit Linux. it_api.h includes this
 * file.
 */
#ifndef IT_API_OS_SPECIFIC_H
#define IT_API_OS_SPECIFIC_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define IT_NO_ADDR NULL

/* The room for the name of an adapter, with its terminating zero. */
#define IT_INTERFACE_NAME_SIZE 128

#endif
