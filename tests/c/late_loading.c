/*
 * Loads the libraries of its arguments in their order, with a thread that was created before. Then
 * all thread-local values of each library can be used in that thread and in a new one. Prints the
 * libraries whose values a new thread has to allocate.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_barrier_t loaded;
static char **libraries;
static int count;

static void fail(const char *what, const char *why)
{
	printf("FAILED %s: %s\n", what, why);
	exit(1);
}

static void touch(void)
{
	int (*touch)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "tls_user_touch");

	if (!touch || !touch(7))
		fail("tls_user_touch", "wrong value");
}

static void *early(void *none)
{
	pthread_barrier_wait(&loaded);
	touch();
	return none;
}

static int report(struct dl_phdr_info *info, size_t len, void *none)
{
	(void)len;
	(void)none;
	for (int at = 0; at < count; at++)
		if (strcmp(info->dlpi_name, libraries[at]) == 0 && info->dlpi_tls_modid &&
		    !info->dlpi_tls_data)
			printf("ALLOCATED %s\n", info->dlpi_name);
	return 0;
}

static void *late(void *none)
{
	dl_iterate_phdr(report, NULL);
	touch();
	return none;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	libraries = argv + 1;
	count = argc - 1;
	pthread_barrier_init(&loaded, NULL, 2);
	if (pthread_create(&thread, NULL, early, NULL))
		fail("pthread_create", "no thread");
	for (int at = 0; at < count; at++)
		if (!dlopen(libraries[at], RTLD_NOW | RTLD_GLOBAL))
			fail(libraries[at], dlerror());
	pthread_barrier_wait(&loaded);
	pthread_join(thread, NULL);
	if (pthread_create(&thread, NULL, late, NULL))
		fail("pthread_create", "no thread");
	pthread_join(thread, NULL);
	printf("PASSED\n");
	return 0;
}
