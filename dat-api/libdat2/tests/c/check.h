/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks that print and count their failures; main returns failures(). */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>

static int failure_count;
static int check_count;

#define CHECK(condition) \
	do { \
		check_count++; \
		if (!(condition)) { \
			failure_count++; \
			printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
		} \
	} while (0)

/* Checks a DAT_RETURN for an exact value. */
#define CHECK_RETURN(call, expected) \
	do { \
		DAT_RETURN check_status = (call); \
		check_count++; \
		if (check_status != (DAT_RETURN)(expected)) { \
			failure_count++; \
			printf("%s:%d: %s: got 0x%08x, expected 0x%08x\n", __FILE__, __LINE__, #call, \
			       check_status, (DAT_RETURN)(expected)); \
		} \
	} while (0)

static int failures(void)
{
	printf("%d checks, %d failures\n", check_count, failure_count);
	return failure_count != 0 || check_count == 0;
}

#endif /* CHECK_H */
