/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Opening, closing, listing and registering, row by row. The argument "ofa" omits the rows in which
 * this library differs from OFA's by design, so that one program can test both.
 */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "provider.h"

struct provider_log provider_log_of_program;

#define NOT_REGISTERED (DAT_CLASS_ERROR | DAT_PROVIDER_NOT_FOUND | DAT_NAME_NOT_REGISTERED)
#define INVALID_IA (DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_IA)
#define INVALID_ARG(n) (DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG##n)

static struct provider_log *plog = &provider_log_of_program;

static DAT_RETURN open_ia(const char *name, DAT_IA_HANDLE *ia)
{
	DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;

	return dat_ia_open((DAT_NAME_PTR)name, 8, &evd, ia);
}

static int is_provider(struct dl_phdr_info *object, size_t size, void *unused)
{
	(void)size;
	(void)unused;
	return strstr(object->dlpi_name, "libtest-provider") != NULL;
}

static int provider_is_loaded(void)
{
	return dl_iterate_phdr(is_provider, NULL);
}

static void opening_checks_name_and_pointer(void)
{
	char long_name[300];
	DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
	DAT_IA_HANDLE ia = DAT_HANDLE_NULL;

	memset(long_name, 'n', sizeof long_name);
	long_name[256] = '\0';
	CHECK_RETURN(open_ia(NULL, &ia), INVALID_ARG(1));
	CHECK_RETURN(open_ia(long_name, &ia), INVALID_ARG(1));
	long_name[255] = '\0';
	CHECK_RETURN(open_ia(long_name, &ia), NOT_REGISTERED);
	CHECK_RETURN(dat_ia_open((DAT_NAME_PTR)"good", 8, &evd, NULL), INVALID_IA);
}

static void opening_matches_the_whole_key(void)
{
	DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
	DAT_IA_HANDLE ia = DAT_HANDLE_NULL;
	DAT_NAME_PTR name = (DAT_NAME_PTR) "good";

	CHECK_RETURN(open_ia("unknown", &ia), NOT_REGISTERED);
	CHECK_RETURN(open_ia("goo", &ia), NOT_REGISTERED);
	CHECK_RETURN(dat_ia_openv(name, 8, &evd, &ia, 1, 0, DAT_FALSE), NOT_REGISTERED);
	CHECK_RETURN(dat_ia_openv(name, 8, &evd, &ia, 2, 1, DAT_FALSE), NOT_REGISTERED);
	CHECK_RETURN(dat_ia_openv(name, 8, &evd, &ia, 2, 0, DAT_TRUE), NOT_REGISTERED);
	CHECK_RETURN(open_ia("nondefault", &ia), NOT_REGISTERED);
	CHECK_RETURN(open_ia("kernel", &ia), NOT_REGISTERED);
	CHECK(plog->inits == 0);
}

static void a_library_lives_from_first_open_to_last_close(void)
{
	DAT_IA_HANDLE first = DAT_HANDLE_NULL, second = DAT_HANDLE_NULL;

	CHECK_RETURN(open_ia("good", &first), DAT_SUCCESS);
	CHECK(plog->inits == 1);
	CHECK(strcmp(plog->last_init, "good") == 0);
	CHECK(strcmp(plog->last_params, "ok with blanks") == 0);
	CHECK_RETURN(open_ia("good", &second), DAT_SUCCESS);
	CHECK(plog->inits == 1);
	CHECK(first == (DAT_IA_HANDLE)1);
	CHECK(second == (DAT_IA_HANDLE)2);
	CHECK(provider_is_loaded());
	CHECK_RETURN(dat_ia_close(first, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
	CHECK(plog->finis == 0);
	CHECK_RETURN(dat_ia_close(first, DAT_CLOSE_GRACEFUL_FLAG), INVALID_IA);
	CHECK_RETURN(open_ia("good", &first), DAT_SUCCESS);
	CHECK(first == (DAT_IA_HANDLE)1);
	CHECK_RETURN(dat_ia_close(first, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
	CHECK_RETURN(dat_ia_close(second, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
	CHECK(plog->finis == 1);
	CHECK(!provider_is_loaded());
	CHECK_RETURN(open_ia("good", &first), DAT_SUCCESS);
	CHECK(plog->inits == 2);
	CHECK_RETURN(dat_ia_close(first, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
	CHECK(plog->finis == 2);
	CHECK(plog->opens == plog->closes);
}

static void closing_refuses_handles_that_are_not_open_and_returns_errors(void)
{
	DAT_IA_HANDLE ia = DAT_HANDLE_NULL, raw = DAT_HANDLE_NULL;

	CHECK_RETURN(dat_ia_close(DAT_HANDLE_NULL, DAT_CLOSE_ABRUPT_FLAG), INVALID_IA);
	CHECK_RETURN(dat_ia_close((DAT_IA_HANDLE)17, DAT_CLOSE_ABRUPT_FLAG), INVALID_IA);
	CHECK_RETURN(dat_ia_close((DAT_IA_HANDLE)64, DAT_CLOSE_ABRUPT_FLAG), INVALID_IA);
	CHECK_RETURN(open_ia("good", &ia), DAT_SUCCESS);
	CHECK_RETURN(dat_ia_close(ia, (DAT_CLOSE_FLAGS)5), INVALID_ARG(2));
	CHECK_RETURN(dats_get_ia_handle(ia, &raw), DAT_SUCCESS);
	CHECK_RETURN(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
}

static void integers_and_pointers_translate(void)
{
	DAT_IA_HANDLE ia = DAT_HANDLE_NULL, raw = DAT_HANDLE_NULL, back = DAT_HANDLE_NULL;

	CHECK_RETURN(open_ia("good", &ia), DAT_SUCCESS);
	CHECK_RETURN(dats_get_ia_handle(ia, &raw), DAT_SUCCESS);
	CHECK((unsigned long)raw > 4096);
	CHECK_RETURN(dats_get_ia_handle(raw, &back), DAT_SUCCESS);
	CHECK(back == ia);
	CHECK_RETURN(dats_get_ia_handle(DAT_HANDLE_NULL, &back), INVALID_IA);
	CHECK_RETURN(dats_get_ia_handle((DAT_IA_HANDLE)2, &back), INVALID_IA);
	CHECK_RETURN(dats_get_ia_handle((DAT_IA_HANDLE)&back, &back), INVALID_IA);
	CHECK_RETURN(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
	CHECK_RETURN(dats_get_ia_handle(raw, &back), INVALID_IA);
}

static void seventy_opens_get_seventy_integers(void)
{
	DAT_IA_HANDLE ia[70];
	int n;

	for (n = 0; n < 70; n++) {
		CHECK_RETURN(open_ia("good", &ia[n]), DAT_SUCCESS);
		CHECK(ia[n] == DAT_UL_TO_IA_HANDLE((unsigned long)n + 1));
	}
	for (n = 0; n < 70; n++)
		CHECK_RETURN(dat_ia_close(ia[n], DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
}

static void a_failing_open_returns_the_error_and_releases_the_provider(void)
{
	DAT_IA_HANDLE ia = DAT_HANDLE_NULL;
	int finis = plog->finis;

	CHECK_RETURN(open_ia("fail-open", &ia),
		     DAT_CLASS_ERROR | DAT_INSUFFICIENT_RESOURCES | DAT_RESOURCE_DEVICE);
	CHECK(ia == ARG_PTR(99));
	CHECK(plog->finis == finis + 1);
}

static void the_first_library_that_loads_is_used(void)
{
	DAT_IA_HANDLE ia = DAT_HANDLE_NULL;

	CHECK_RETURN(open_ia("fallback", &ia), DAT_SUCCESS);
	CHECK(strcmp(plog->last_params, "ok second") == 0);
	CHECK_RETURN(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
	CHECK_RETURN(open_ia("missing", &ia), NOT_REGISTERED);
}

static void closing_with_a_failing_query_closes_nothing(void)
{
	DAT_IA_HANDLE ia = DAT_HANDLE_NULL, raw;
	int closes = plog->closes;

	CHECK_RETURN(open_ia("fail-query", &ia), DAT_SUCCESS);
	CHECK_RETURN(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_CLASS_ERROR | DAT_INTERNAL_ERROR);
	CHECK(plog->closes == closes);
	CHECK_RETURN(dats_get_ia_handle(ia, &raw), DAT_SUCCESS);
}

static void a_provider_that_reports_another_key_is_closed_with_an_error(void)
{
	DAT_IA_HANDLE ia = DAT_HANDLE_NULL, raw;
	int closes = plog->closes;

	CHECK_RETURN(open_ia("other-key", &ia), DAT_SUCCESS);
	CHECK_RETURN(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), NOT_REGISTERED);
	CHECK(plog->closes == closes + 1);
	CHECK_RETURN(dats_get_ia_handle(ia, &raw), INVALID_IA);
}

static void listing_follows_the_file(void)
{
	static const char *const expected[] = { "good",	      "fail-open",  "fallback",	 "missing",
						"fail-query", "other-key",  "no-register", "bad-handle",
						"reenter",    "no-extensions" };
	enum { EXPECTED = sizeof expected / sizeof expected[0] };
	DAT_PROVIDER_INFO info[EXPECTED + 4], *list[EXPECTED + 4];
	DAT_COUNT count = -1;
	int n;

	for (n = 0; n < EXPECTED + 4; n++)
		list[n] = &info[n];
	CHECK_RETURN(dat_registry_list_providers(4, NULL, list), INVALID_ARG(2));
	CHECK_RETURN(dat_registry_list_providers(0, &count, NULL), INVALID_ARG(1));
	CHECK(count == EXPECTED);
	CHECK_RETURN(dat_registry_list_providers(4, &count, NULL), INVALID_ARG(3));
	CHECK_RETURN(dat_registry_list_providers(EXPECTED + 4, &count, list), DAT_SUCCESS);
	CHECK(count == EXPECTED);
	for (n = 0; n < EXPECTED; n++) {
		CHECK(strcmp(info[n].ia_name, expected[n]) == 0);
		CHECK(info[n].dapl_version_major == 2 && info[n].dapl_version_minor == 0);
		CHECK(info[n].is_thread_safe == DAT_FALSE);
	}
	CHECK_RETURN(dat_registry_list_providers(2, &count, list), DAT_SUCCESS);
	CHECK(count == 2);
	list[1] = NULL;
	CHECK_RETURN(dat_registry_list_providers(2, &count, list), INVALID_ARG(3));
}

static DAT_RETURN dynamic_open(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *evd,
			       DAT_IA_HANDLE *ia);
static DAT_RETURN dynamic_query(DAT_IA_HANDLE ia, DAT_EVD_HANDLE *evd, DAT_IA_ATTR_MASK ia_mask,
				DAT_IA_ATTR *ia_attr, DAT_PROVIDER_ATTR_MASK mask,
				DAT_PROVIDER_ATTR *attr);
static DAT_RETURN dynamic_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags);

static DAT_PROVIDER dynamic_provider;
static DAT_PROVIDER *dynamic_object = &dynamic_provider;

static DAT_RETURN dynamic_open(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *evd,
			       DAT_IA_HANDLE *ia)
{
	(void)name;
	(void)qlen;
	(void)evd;
	*ia = &dynamic_object;
	return DAT_SUCCESS;
}

static DAT_RETURN dynamic_query(DAT_IA_HANDLE ia, DAT_EVD_HANDLE *evd, DAT_IA_ATTR_MASK ia_mask,
				DAT_IA_ATTR *ia_attr, DAT_PROVIDER_ATTR_MASK mask,
				DAT_PROVIDER_ATTR *attr)
{
	(void)ia;
	(void)evd;
	if (ia_mask)
		memset(ia_attr, 0, sizeof *ia_attr);
	if (mask) {
		memset(attr, 0, sizeof *attr);
		attr->dapl_version_major = 2;
	}
	return DAT_SUCCESS;
}

static DAT_RETURN dynamic_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags)
{
	(void)ia;
	(void)flags;
	return DAT_SUCCESS;
}

static void a_program_can_register_its_own_provider(void)
{
	DAT_PROVIDER_INFO info = { "dynamic", 2, 0, DAT_FALSE };
	DAT_IA_HANDLE ia = DAT_HANDLE_NULL;
	DAT_COUNT before = 0, after = 0;

	dynamic_provider.device_name = "dynamic";
	dynamic_provider.ia_open_func = dynamic_open;
	dynamic_provider.ia_query_func = dynamic_query;
	dynamic_provider.ia_close_func = dynamic_close;
	dat_registry_list_providers(0, &before, NULL);
	CHECK_RETURN(dat_registry_remove_provider(&dynamic_provider, &info), NOT_REGISTERED);
	CHECK_RETURN(dat_registry_add_provider(&dynamic_provider, &info), DAT_SUCCESS);
	CHECK_RETURN(dat_registry_add_provider(&dynamic_provider, &info),
		     DAT_CLASS_ERROR | DAT_PROVIDER_ALREADY_REGISTERED);
	dat_registry_list_providers(0, &after, NULL);
	CHECK(before == after);
	CHECK_RETURN(open_ia("dynamic", &ia), DAT_SUCCESS);
	CHECK_RETURN(dat_registry_remove_provider(&dynamic_provider, &info),
		     DAT_CLASS_ERROR | DAT_PROVIDER_IN_USE);
	/* The IA is closed, although the code reports that the file does not have it. */
	CHECK_RETURN(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), NOT_REGISTERED);
	CHECK_RETURN(dat_registry_remove_provider(&dynamic_provider, &info), DAT_SUCCESS);
	CHECK_RETURN(open_ia("dynamic", &ia), NOT_REGISTERED);
}

static void text_of_codes(void)
{
	const char *major = NULL, *minor = NULL;

	CHECK_RETURN(dat_strerror(DAT_SUCCESS, &major, &minor), DAT_SUCCESS);
	CHECK(strcmp(major, "DAT_SUCCESS") == 0 && strcmp(minor, "") == 0);
	CHECK_RETURN(dat_strerror(INVALID_IA, &major, &minor), DAT_SUCCESS);
	CHECK(strcmp(major, "DAT_INVALID_HANDLE") == 0);
	CHECK(strcmp(minor, "DAT_INVALID_HANDLE_IA") == 0);
	CHECK_RETURN(dat_strerror(0x800600ff, &major, &minor), DAT_INVALID_PARAMETER);
	CHECK(strcmp(major, "DAT_INVALID_PARAMETER") == 0);
	CHECK(strcmp(minor, "unknown minor error") == 0);
	CHECK_RETURN(dat_strerror(0x80200000, &major, &minor), DAT_INVALID_PARAMETER);
	CHECK(strcmp(major, "unknown error") == 0);
}

static void differences_from_ofa(void)
{
	DAT_IA_HANDLE ia = DAT_HANDLE_NULL, raw = DAT_HANDLE_NULL;
	DAT_HA_RELATIONSHIP answer = DAT_HA_FALSE;
	DAT_PROVIDER_INFO info = { "dynamic", 2, 0, DAT_FALSE };
	int inits = plog->inits, finis = plog->finis;

	/* Null pointers crash OFA's library. */
	CHECK_RETURN(dat_registry_add_provider(NULL, &info), INVALID_ARG(1));
	CHECK_RETURN(dat_registry_add_provider(&dynamic_provider, NULL), INVALID_ARG(2));
	CHECK_RETURN(dat_registry_remove_provider(NULL, &info), INVALID_ARG(1));
	CHECK_RETURN(dat_registry_remove_provider(&dynamic_provider, NULL), INVALID_ARG(2));
	CHECK_RETURN(dat_strerror(INVALID_IA, NULL, NULL), DAT_SUCCESS);
	/* A library that does not register is unloaded, and loaded again by the next open. */
	CHECK_RETURN(open_ia("no-register", &ia), NOT_REGISTERED);
	CHECK(plog->inits == inits + 1 && plog->finis == finis + 1);
	CHECK_RETURN(open_ia("no-register", &ia), NOT_REGISTERED);
	CHECK(plog->inits == inits + 2 && plog->finis == finis + 2);
	/* A handle that does not belong to the provider is not returned. */
	CHECK_RETURN(open_ia("bad-handle", &ia), DAT_CLASS_ERROR | DAT_INTERNAL_ERROR);
	/* Init may call the registry. */
	CHECK_RETURN(open_ia("reenter", &ia), DAT_SUCCESS);
	/* The provider's own pointer is not a valid IA handle for consumers. */
	CHECK_RETURN(dats_get_ia_handle(ia, &raw), DAT_SUCCESS);
	CHECK_RETURN(dat_ia_close(raw, DAT_CLOSE_ABRUPT_FLAG), INVALID_IA);
	CHECK_RETURN(dat_ia_query(raw, NULL, 0, NULL, 0, NULL), INVALID_IA);
	CHECK_RETURN(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);

	CHECK_RETURN(dat_registry_providers_related(NULL, (DAT_NAME_PTR)"good", &answer),
		     INVALID_ARG(1));
	CHECK_RETURN(dat_registry_providers_related((DAT_NAME_PTR)"good", NULL, &answer),
		     INVALID_ARG(2));
	CHECK_RETURN(dat_registry_providers_related((DAT_NAME_PTR)"good", (DAT_NAME_PTR)"x", &answer),
		     NOT_REGISTERED);
	CHECK_RETURN(dat_registry_providers_related((DAT_NAME_PTR)"good", (DAT_NAME_PTR)"good", NULL),
		     INVALID_ARG(3));
	CHECK_RETURN(dat_registry_providers_related((DAT_NAME_PTR)"good", (DAT_NAME_PTR)"good", &answer),
		     DAT_SUCCESS);
	CHECK(answer == DAT_HA_UNKNOWN);
}

int main(int argc, char **argv)
{
	int is_ofa = argc > 1 && strcmp(argv[1], "ofa") == 0;

	opening_checks_name_and_pointer();
	opening_matches_the_whole_key();
	a_library_lives_from_first_open_to_last_close();
	closing_refuses_handles_that_are_not_open_and_returns_errors();
	integers_and_pointers_translate();
	seventy_opens_get_seventy_integers();
	a_failing_open_returns_the_error_and_releases_the_provider();
	the_first_library_that_loads_is_used();
	a_provider_that_reports_another_key_is_closed_with_an_error();
	listing_follows_the_file();
	a_program_can_register_its_own_provider();
	text_of_codes();
	if (!is_ofa)
		differences_from_ofa();
	closing_with_a_failing_query_closes_nothing();
	CHECK(plog->argument_errors == 0);
	return failures();
}
