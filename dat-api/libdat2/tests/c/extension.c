/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* dat_extension_op: the choice of the provider for an operation, and passing its arguments. */
#include <string.h>

#include "check.h"
#include "provider.h"

struct provider_log provider_log_of_program;

#define NOT_REGISTERED (DAT_CLASS_ERROR | DAT_PROVIDER_NOT_FOUND | DAT_NAME_NOT_REGISTERED)
#define INVALID_IA (DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_IA)
#define INVALID_1 (DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE1)
#define NO_EXTENSIONS (DAT_CLASS_ERROR | DAT_NOT_IMPLEMENTED)

static struct provider_log *plog = &provider_log_of_program;

static DAT_IA_HANDLE open_ia(const char *name)
{
	DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
	DAT_IA_HANDLE ia = DAT_HANDLE_NULL;

	CHECK_RETURN(dat_ia_open((DAT_NAME_PTR)name, 8, &evd, &ia), DAT_SUCCESS);
	return ia;
}

static void operations_are_refused_before_an_ia_with_extensions_was_open(void)
{
	DAT_IA_HANDLE ia = open_ia("no-extensions"), raw = DAT_HANDLE_NULL;

	CHECK_RETURN(dat_extension_op(ia, TEST_OP_SUM), NO_EXTENSIONS);
	CHECK_RETURN(dats_get_ia_handle(ia, &raw), DAT_SUCCESS);
	CHECK_RETURN(dat_extension_op(raw, TEST_OP_CLOSE), NO_EXTENSIONS);
	CHECK_RETURN(dat_extension_op(raw, TEST_OP_OPEN, "good", &raw), NO_EXTENSIONS);
	CHECK_RETURN(dat_extension_op(DAT_HANDLE_NULL, TEST_OP_SUM), INVALID_1);
	CHECK(plog->extension_ops == 0);
	CHECK_RETURN(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
}

static void open_operations_load_a_provider_by_name(void)
{
	char long_name[257];
	DAT_IA_HANDLE raw = DAT_HANDLE_NULL, stray = DAT_HANDLE_NULL;
	int finis = plog->finis;
	const char *name = "good";

	memset(long_name, 'n', sizeof long_name - 1);
	long_name[256] = '\0';
	CHECK_RETURN(dat_extension_op(NULL, TEST_OP_OPEN, NULL, &raw),
		     DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_ARG3);
	CHECK_RETURN(dat_extension_op(NULL, TEST_OP_OPEN, long_name, &raw),
		     DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG1);
	CHECK_RETURN(dat_extension_op(NULL, TEST_OP_OPEN, "unknown", &raw), NOT_REGISTERED);
	CHECK_RETURN(dat_extension_op(NULL, TEST_OP_OPEN, name, &raw), DAT_SUCCESS);
	CHECK(plog->last_extension_handle == (DAT_HANDLE)name);
	CHECK((unsigned long)raw > 4096);
	/* The handle is a pointer of the provider and not an IA handle. */
	CHECK_RETURN(dats_get_ia_handle(raw, &stray), INVALID_IA);

	CHECK_RETURN(dat_extension_op(NULL, TEST_OP_CLOSE), INVALID_IA);
	CHECK_RETURN(dat_extension_op(raw, TEST_OP_CLOSE), DAT_SUCCESS);
	CHECK(plog->last_extension_handle == raw);
	CHECK(plog->finis == finis + 1);
	/* A failing open releases the provider again. */
	CHECK_RETURN(dat_extension_op(NULL, TEST_OP_OPEN | 0x800, "good", &raw), DAT_NOT_IMPLEMENTED);
	CHECK(plog->finis == finis + 2);
}

static void arguments_are_passed_as_a_list(void)
{
	DAT_IA_HANDLE ia = open_ia("good"), raw = DAT_HANDLE_NULL;
	DAT_PZ_HANDLE pz = DAT_HANDLE_NULL;
	unsigned long long sum = 0;
	DAT_CONTEXT context;

	context.as_64 = 300;
	CHECK_RETURN(dat_extension_op(ia, TEST_OP_SUM, 1, 20ULL, context, 4000, 50000, 600000, &sum),
		     DAT_SUCCESS);
	CHECK(sum == 654321);
	CHECK_RETURN(dats_get_ia_handle(ia, &raw), DAT_SUCCESS);
	CHECK(plog->last_extension_handle == raw);
	CHECK(plog->last_extension_op == TEST_OP_SUM);
	CHECK_RETURN(dat_pz_create(ia, &pz), DAT_SUCCESS);
	CHECK_RETURN(dat_extension_op(pz, TEST_OP_SUM, 1, 20ULL, context, 4000, 50000, 600000, &sum),
		     DAT_SUCCESS);
	CHECK(plog->last_extension_handle == pz);
	CHECK_RETURN(dat_extension_op(pz, 0x55), DAT_NOT_IMPLEMENTED);
	CHECK_RETURN(dat_extension_op(NULL, TEST_OP_SUM), INVALID_1);
	CHECK_RETURN(dat_pz_free(pz), DAT_SUCCESS);
	CHECK_RETURN(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
}

static void bad_handles_are_refused(void)
{
	unsigned long word = 0;

	CHECK_RETURN(dat_extension_op((DAT_HANDLE)17, TEST_OP_SUM), INVALID_1);
	CHECK_RETURN(dat_extension_op((DAT_HANDLE)&word, TEST_OP_SUM), INVALID_1);
	CHECK_RETURN(dat_extension_op((DAT_HANDLE)~0UL, TEST_OP_SUM), INVALID_1);
	CHECK_RETURN(dat_extension_op((DAT_HANDLE)17, TEST_OP_CLOSE), INVALID_IA);
	CHECK_RETURN(dat_extension_op((DAT_HANDLE)&word, TEST_OP_CLOSE), INVALID_IA);
}

int main(int argc, char **argv)
{
	operations_are_refused_before_an_ia_with_extensions_was_open();
	open_operations_load_a_provider_by_name();
	arguments_are_passed_as_a_list();
	if (argc < 2 || strcmp(argv[1], "ofa") != 0)
		bad_handles_are_refused();
	CHECK(plog->argument_errors == 0);
	return failures();
}
