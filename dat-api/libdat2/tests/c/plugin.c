/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Loads libdat2 with local scope, as interpreters and plug-ins do, and opens an IA. A provider that
 * does not name libdat2 among its libraries finds the registry calls only if libdat2 makes them
 * visible.
 */
#include <dlfcn.h>

#include "check.h"
#include "provider.h"

struct provider_log provider_log_of_program;

typedef DAT_RETURN (*OPEN)(const DAT_NAME_PTR, DAT_COUNT, DAT_EVD_HANDLE *, DAT_IA_HANDLE *,
			   DAT_UINT32, DAT_UINT32, DAT_BOOLEAN);
typedef DAT_RETURN (*CLOSE)(DAT_IA_HANDLE, DAT_CLOSE_FLAGS);

int main(int argc, char **argv)
{
	void *library = dlopen(argc > 1 ? argv[1] : "libdat2.so.2", RTLD_NOW | RTLD_LOCAL);
	DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
	DAT_IA_HANDLE ia = DAT_HANDLE_NULL;
	OPEN open_ia;
	CLOSE close_ia;

	CHECK(library != NULL);
	if (!library)
		return failures();
	open_ia = (OPEN)dlsym(library, "dat_ia_openv");
	close_ia = (CLOSE)dlsym(library, "dat_ia_close");
	CHECK(open_ia && close_ia);
	CHECK(dlsym(RTLD_DEFAULT, "dat_registry_add_provider") == NULL);
	CHECK_RETURN(open_ia((DAT_NAME_PTR)"good", 8, &evd, &ia, 2, 0, DAT_FALSE), DAT_SUCCESS);
	CHECK_RETURN(close_ia(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
	dlclose(library);
	CHECK(provider_log_of_program.argument_errors == 0);
	return failures();
}
