/*
 * The operations of peer.c, in addition to exchanging messages, when a peer is to misbehave.
 */
#ifndef STACK_TESTS_FAULTS_H
#define STACK_TESTS_FAULTS_H

#include <errno.h>
#include <signal.h>
#include <sys/time.h>

#include "kit.h"

/* The number of requests that a flood keeps outstanding. */
#define FLOOD_DEPTH 8
/* The address of the memory that a raw peer announces. */
#define FETCH_STAG 0x11223344
#define FETCH_ADDRESS 0x1000

static inline void on_alarm(int number)
{
	(void)number;
}

/* Sends a signal at this interval in microseconds; the handler interrupts system calls. 0: none. */
static inline void storm(int period_us)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval every = { .it_interval.tv_usec = period_us,
				   .it_value.tv_usec = period_us };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
}

static inline void pause_for(unsigned ms)
{
	struct timespec left = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	while (ms && nanosleep(&left, &left) && errno == EINTR)
		;
}

/*
 * Makes the process allocate its permanent resources: libraries, the thread stacks that the C
 * library keeps, buffers. The resources that are counted after this must not grow.
 */
static inline void warm_up(struct kit *kit, const char *ia_name)
{
	DAT_CONN_QUAL qualifier;
	DAT_PSP_HANDLE psp;

	kit_open(kit, ia_name);
	must("dat_psp_create_any", dat_psp_create_any(kit->ia, &qualifier, kit->cr_evd,
						      DAT_PSP_CONSUMER_FLAG, &psp));
	must("dat_psp_free", dat_psp_free(psp));
	kit_free(kit);
}

static inline void post_one_send(struct kit *kit, size_t offset, unsigned size)
{
	DAT_LMR_TRIPLET part = kit_part(kit, offset, size);
	DAT_DTO_COOKIE cookie = { .as_64 = offset };

	must("dat_ep_post_send",
	     dat_ep_post_send(kit->ep, 1, &part, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

/* Sends messages after the peer's first message, and waits until all have completed or failed. */
static inline void flood(struct kit *kit, unsigned messages, unsigned size, unsigned timeout_ms)
{
	unsigned posted = 0, ended = 0, good = 0;
	size_t area = 64 * 1024;
	DAT_EVENT event;

	completion(kit->recv_evd, timeout_ms, "the first message");
	fill(kit->buffer + area, size, 7);
	while (ended < messages) {
		for (; posted < messages && posted - ended < FLOOD_DEPTH; posted++)
			post_one_send(kit, area, size);
		if (posted == FLOOD_DEPTH && !ended)
			printf("FLOODING\n");
		if (!next_event(kit->request_evd, timeout_ms, &event))
			abort_with("a send that does not end");
		ended++;
		good += event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS;
	}
	printf("FLOODED %u good, %u failed\n", good, ended - good);
}

static inline void fetch(struct kit *kit, unsigned size)
{
	DAT_LMR_TRIPLET sink = kit_part(kit, 0, size);
	DAT_RMR_TRIPLET source = {
		.rmr_context = FETCH_STAG,
		.virtual_address = FETCH_ADDRESS,
		.segment_length = size,
	};
	DAT_DTO_COOKIE cookie = { .as_64 = 1 };

	must("dat_ep_post_rdma_read",
	     dat_ep_post_rdma_read(kit->ep, 1, &sink, cookie, &source,
				   DAT_COMPLETION_DEFAULT_FLAG));
}

#endif
