/*
 * Forks while other threads use the registry and adapters. Each child lists the providers and opens
 * an adapter of its own: no lock that a thread of the parent held may stop it. The arguments are
 * the number of children, and the names of adapters, each of which a thread opens and closes.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dat2/udat.h>

#define CHILD_SECONDS 30
#define PROVIDERS_MAX 64

static atomic_int is_over;

static int list(void)
{
	static _Thread_local DAT_PROVIDER_INFO infos[PROVIDERS_MAX];
	DAT_PROVIDER_INFO *listed[PROVIDERS_MAX];
	DAT_COUNT count;

	for (int at = 0; at < PROVIDERS_MAX; at++)
		listed[at] = &infos[at];
	return dat_registry_list_providers(PROVIDERS_MAX, &count, listed) == DAT_SUCCESS;
}

static int open_and_close(char *name)
{
	DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL, evd;
	DAT_IA_HANDLE ia;
	int made;

	if (dat_ia_open(name, 8, &async_evd, &ia) != DAT_SUCCESS)
		return 0;
	made = dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &evd) == DAT_SUCCESS;
	return dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG) == DAT_SUCCESS && made;
}

static void *open_in_turn(void *name)
{
	while (!is_over)
		if (!open_and_close(name))
			return "open";
	return NULL;
}

static void *list_in_turn(void *unused)
{
	(void)unused;
	while (!is_over)
		if (!list())
			return "list";
	return NULL;
}

/* Returns 0 if a child does not end well. */
static int runs_in_a_child(char *name)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		alarm(CHILD_SECONDS);
		_exit(!(list() && open_and_close(name)));
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 0;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		printf("a child hangs\n");
	else if (status != 0)
		printf("a child ended with status %#x\n", status);
	return status == 0;
}

int main(int argc, char **argv)
{
	int children = argc > 2 ? atoi(argv[1]) : 0, ok = children > 0, threads = argc - 1;
	pthread_t thread[8];
	void *failed;

	for (int at = 0; at < threads && ok; at++)
		if (pthread_create(&thread[at], NULL, at == 0 ? list_in_turn : open_in_turn,
				   at == 0 ? NULL : argv[at + 1]))
			return 2;
	for (int turn = 0; turn < children && ok; turn++)
		ok = runs_in_a_child(argv[2 + turn % (argc - 2)]);
	is_over = 1;
	for (int at = 0; at < threads; at++) {
		pthread_join(thread[at], &failed);
		if (failed) {
			printf("a thread failed: %s\n", (char *)failed);
			ok = 0;
		}
	}
	printf(ok ? "PASSED\n" : "FAILED\n");
	return !ok;
}
