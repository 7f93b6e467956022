/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The record that the test provider writes; the test program defines it. */
#ifndef PROVIDER_H
#define PROVIDER_H

#include <dat2/udat.h>
#include <dat2/dat_registry.h>

struct provider_log {
	int inits;
	int finis;
	int opens;
	int closes;
	int extension_ops;
	int argument_errors; /* arguments that differ from those that the program passed */
	char last_init[256];
	char last_params[256];
	DAT_HANDLE last_extension_handle;
	int last_extension_op;
};

/* Kinds of test extension operations. */
#define TEST_OP_SUM 0x77    /* int, long, double is not used, pointer: sums into the pointer */
#define TEST_OP_OPEN 0x1001 /* IA handle pointer */
#define TEST_OP_CLOSE 0x2001

/* The values of the arguments of the by-value tests. */
#define ARG_PTR(n) ((DAT_PVOID)(0x1111000000000000ULL + (n)))
#define ARG_64(n) (0x2222000000000000ULL + (n))
#define ARG_32(n) (0x33330000U + (n))

#endif /* PROVIDER_H */
