/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Threads that load, use and unload one provider at the same time. */
#include <pthread.h>

#include "check.h"
#include "provider.h"

struct provider_log provider_log_of_program;

enum { THREADS = 8, ROUNDS = 200 };

static void *open_and_close(void *failed)
{
	int round;

	for (round = 0; round < ROUNDS; round++) {
		DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
		DAT_IA_HANDLE ia = DAT_HANDLE_NULL;
		DAT_PZ_HANDLE pz = DAT_HANDLE_NULL;

		if (dat_ia_open((DAT_NAME_PTR)"good", 8, &evd, &ia) != DAT_SUCCESS ||
		    dat_pz_create(ia, &pz) != DAT_SUCCESS || dat_pz_free(pz) != DAT_SUCCESS ||
		    dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG) != DAT_SUCCESS)
			*(int *)failed = 1;
	}
	return NULL;
}

int main(void)
{
	pthread_t thread[THREADS];
	int failed[THREADS] = { 0 };
	int n;

	for (n = 0; n < THREADS; n++)
		CHECK(pthread_create(&thread[n], NULL, open_and_close, &failed[n]) == 0);
	for (n = 0; n < THREADS; n++) {
		CHECK(pthread_join(thread[n], NULL) == 0);
		CHECK(!failed[n]);
	}
	CHECK(provider_log_of_program.inits == provider_log_of_program.finis);
	CHECK(provider_log_of_program.inits > 0);
	CHECK(provider_log_of_program.argument_errors == 0);
	return failures();
}
