/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Prints the names in the registry with their versions, one a line. */
#include <stdio.h>
#include <stdlib.h>

#include <dat2/udat.h>

int main(void)
{
	DAT_PROVIDER_INFO *info, **list;
	DAT_COUNT count = 0, n;

	dat_registry_list_providers(0, &count, NULL);
	if (count == 0)
		return 0;
	info = calloc(count, sizeof *info);
	list = calloc(count, sizeof *list);
	for (n = 0; n < count; n++)
		list[n] = &info[n];
	if (dat_registry_list_providers(count, &count, list) != DAT_SUCCESS)
		return 1;
	for (n = 0; n < count; n++)
		printf("%s %u.%u %d\n", info[n].ia_name, info[n].dapl_version_major,
		       info[n].dapl_version_minor, info[n].is_thread_safe);
	free(list);
	free(info);
	return 0;
}
