/*
 * The smallest DAT program: lists the registry, opens one interface adapter, prints its attributes,
 * and closes it.
 *
 *   hello [ia name]
 *
 * Without a name, the first adapter that can be opened is used.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include <dat2/udat.h>

#define ENTRIES 64

static void print_failure(const char *call, DAT_RETURN ret)
{
	const char *major = "", *minor = "";

	dat_strerror(ret, &major, &minor);
	printf("%s: %s %s (0x%08x)\n", call, major, minor, (unsigned)ret);
}

static int greet(char *name)
{
	DAT_IA_HANDLE ia;
	DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
	DAT_IA_ATTR attr;
	DAT_PROVIDER_ATTR provider;
	char address[INET_ADDRSTRLEN] = "-";
	DAT_RETURN ret;

	ret = dat_ia_open(name, 8, &async_evd, &ia);
	if (ret != DAT_SUCCESS) {
		print_failure(name, ret);
		return 0;
	}
	ret = dat_ia_query(ia, &async_evd, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_ALL, &provider);
	if (ret != DAT_SUCCESS) {
		print_failure("dat_ia_query", ret);
	} else {
		struct sockaddr_in *sin = (struct sockaddr_in *)attr.ia_address_ptr;

		if (sin && sin->sin_family == AF_INET)
			inet_ntop(AF_INET, &sin->sin_addr, address, sizeof(address));
		printf("%s: adapter %s of %s at %s\n", name, attr.adapter_name, attr.vendor_name, address);
		printf("%s: provider %s, DAT %u.%u, up to %d endpoints, messages of up to %u bytes\n", name,
		       provider.provider_name, provider.dapl_version_major, provider.dapl_version_minor,
		       attr.max_eps, attr.max_message_size);
		for (int i = 0; i < provider.num_provider_specific_attr; i++)
			printf("%s:   %s = %s\n", name, provider.provider_specific_attr[i].name,
			       provider.provider_specific_attr[i].value);
	}
	ret = dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG);
	if (ret != DAT_SUCCESS)
		print_failure("dat_ia_close", ret);
	return 1;
}

int main(int argc, char **argv)
{
	DAT_PROVIDER_INFO info[ENTRIES], *list[ENTRIES];
	DAT_COUNT count = 0;
	DAT_RETURN ret;

	if (argc > 1)
		return greet(argv[1]) ? EXIT_SUCCESS : EXIT_FAILURE;
	for (int i = 0; i < ENTRIES; i++)
		list[i] = &info[i];
	ret = dat_registry_list_providers(ENTRIES, &count, list);
	if (ret != DAT_SUCCESS) {
		print_failure("dat_registry_list_providers", ret);
		return EXIT_FAILURE;
	}
	printf("%d interface adapters are registered\n", count);
	for (int i = 0; i < count; i++)
		if (greet(list[i]->ia_name))
			return EXIT_SUCCESS;
	printf("none of them can be opened\n");
	return EXIT_FAILURE;
}
