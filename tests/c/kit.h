/*
 * Shared by the test programs: opening an interface adapter, one endpoint with its queues, one
 * registered buffer. Lines on standard output are the result, which the suites check.
 */
#ifndef STACK_TESTS_KIT_H
#define STACK_TESTS_KIT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <dat2/udat.h>

#include "words.h"

#define QUEUE_LEN 64
#define BUFFER_LEN (256 * 1024)
#define ALL_PRIVILEGES                                                                            \
	(DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG |                           \
	 DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG)

struct kit {
	DAT_IA_HANDLE ia;
	DAT_EVD_HANDLE async_evd, cr_evd, connect_evd, recv_evd, request_evd;
	DAT_PZ_HANDLE pz;
	DAT_EP_HANDLE ep;
	DAT_LMR_HANDLE lmr;
	DAT_LMR_CONTEXT lmr_context;
	DAT_RMR_CONTEXT rmr_context;
	char *buffer;
};

static inline void abort_with(const char *why)
{
	printf("ABORTED %s\n", why);
	exit(1);
}

/* If set, a program polls queues instead of blocking on them. */
static int kit_polls;

static inline unsigned long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (unsigned long long)now.tv_sec * 1000 + (unsigned long long)now.tv_nsec / 1000000;
}

static inline DAT_RETURN poll_event(DAT_EVD_HANDLE evd, unsigned timeout_ms, DAT_EVENT *event)
{
	unsigned long long end = now_ms() + timeout_ms;
	DAT_RETURN ret;

	do {
		ret = dat_evd_dequeue(evd, event);
	} while (DAT_GET_TYPE(ret) == DAT_QUEUE_EMPTY && now_ms() < end);
	return ret;
}

/* Waits for one event. A signal handler does not end the wait. */
static inline DAT_RETURN wait_event(DAT_EVD_HANDLE evd, unsigned timeout_ms, DAT_EVENT *event)
{
	long long end = now_ms() + timeout_ms, left = timeout_ms;
	DAT_COUNT more;
	DAT_RETURN ret;

	do {
		ret = dat_evd_wait(evd, (DAT_TIMEOUT)left * 1000, 1, event, &more);
		left = end - now_ms();
	} while (DAT_GET_TYPE(ret) == DAT_INTERRUPTED_CALL && left > 0);
	return ret;
}

/* Waits for one event. Returns 1, or prints the return value of the failed wait and returns 0. */
static inline int next_event(DAT_EVD_HANDLE evd, unsigned timeout_ms, DAT_EVENT *event)
{
	DAT_RETURN ret;

	if (kit_polls)
		ret = poll_event(evd, timeout_ms, event);
	else
		ret = wait_event(evd, timeout_ms, event);
	if (ret != DAT_SUCCESS) {
		print_failure("dat_evd_wait", ret);
		return 0;
	}
	return 1;
}

static inline DAT_EVD_HANDLE make_evd(struct kit *kit, DAT_EVD_FLAGS flags)
{
	DAT_EVD_HANDLE evd;

	must("dat_evd_create", dat_evd_create(kit->ia, QUEUE_LEN, DAT_HANDLE_NULL, flags, &evd));
	return evd;
}

static inline void kit_open(struct kit *kit, const char *ia_name)
{
	DAT_REGION_DESCRIPTION region;
	DAT_VLEN registered_len;
	DAT_VADDR registered_address;

	memset(kit, 0, sizeof(*kit));
	must("dat_ia_open", dat_ia_open((char *)ia_name, 8, &kit->async_evd, &kit->ia));
	must("dat_pz_create", dat_pz_create(kit->ia, &kit->pz));
	kit->cr_evd = make_evd(kit, DAT_EVD_CR_FLAG);
	kit->connect_evd = make_evd(kit, DAT_EVD_CONNECTION_FLAG);
	kit->recv_evd = make_evd(kit, DAT_EVD_DTO_FLAG);
	kit->request_evd = make_evd(kit, DAT_EVD_DTO_FLAG);
	must("dat_ep_create", dat_ep_create(kit->ia, kit->pz, kit->recv_evd, kit->request_evd,
					    kit->connect_evd, NULL, &kit->ep));
	kit->buffer = calloc(1, BUFFER_LEN);
	if (!kit->buffer)
		abort_with("out of memory");
	region.for_va = kit->buffer;
	must("dat_lmr_create",
	     dat_lmr_create(kit->ia, DAT_MEM_TYPE_VIRTUAL, region, BUFFER_LEN, kit->pz,
			    ALL_PRIVILEGES, DAT_VA_TYPE_VA, &kit->lmr, &kit->lmr_context,
			    &kit->rmr_context, &registered_len, &registered_address));
}

/* Frees all objects in the order that DAT requires. */
static inline void kit_free(struct kit *kit)
{
	must("dat_ep_free", dat_ep_free(kit->ep));
	must("dat_lmr_free", dat_lmr_free(kit->lmr));
	must("dat_evd_free", dat_evd_free(kit->request_evd));
	must("dat_evd_free", dat_evd_free(kit->recv_evd));
	must("dat_evd_free", dat_evd_free(kit->connect_evd));
	must("dat_evd_free", dat_evd_free(kit->cr_evd));
	must("dat_pz_free", dat_pz_free(kit->pz));
	must("dat_ia_close", dat_ia_close(kit->ia, DAT_CLOSE_GRACEFUL_FLAG));
	free(kit->buffer);
}

/* Frees all objects and reports success. */
static inline void kit_close(struct kit *kit)
{
	kit_free(kit);
	printf("DONE\n");
}

static inline DAT_LMR_TRIPLET kit_part(struct kit *kit, size_t offset, size_t len)
{
	return (DAT_LMR_TRIPLET){
		.virtual_address = (DAT_VADDR)(uintptr_t)(kit->buffer + offset),
		.segment_length = (DAT_SEG_LENGTH)len,
		.lmr_context = kit->lmr_context,
	};
}

/* Waits for one successful completion and returns its length. */
static inline size_t completion(DAT_EVD_HANDLE evd, unsigned timeout_ms, const char *what)
{
	DAT_EVENT event;
	DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;

	if (!next_event(evd, timeout_ms, &event) || event.event_number != DAT_DTO_COMPLETION_EVENT)
		abort_with(what);
	if (dto->status != DAT_DTO_SUCCESS) {
		printf("STATUS %s %d\n", what, (int)dto->status);
		exit(1);
	}
	return (size_t)dto->transfered_length;
}

static inline void post_recv(struct kit *kit, size_t offset, size_t len)
{
	DAT_LMR_TRIPLET part = kit_part(kit, offset, len);
	DAT_DTO_COOKIE cookie = { .as_64 = offset };

	must("dat_ep_post_recv",
	     dat_ep_post_recv(kit->ep, 1, &part, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static inline void send_part(struct kit *kit, size_t offset, size_t len, unsigned timeout_ms)
{
	DAT_LMR_TRIPLET part = kit_part(kit, offset, len);
	DAT_DTO_COOKIE cookie = { .as_64 = offset };

	must("dat_ep_post_send",
	     dat_ep_post_send(kit->ep, 1, &part, cookie, DAT_COMPLETION_DEFAULT_FLAG));
	completion(kit->request_evd, timeout_ms, "send");
}

/* Fills a buffer with bytes that depend on the seed and the position. */
static inline void fill(char *to, size_t len, unsigned seed)
{
	for (size_t at = 0; at < len; at++)
		to[at] = (char)(at * 31 + seed * 7 + 1);
}

static inline void verify(const char *what, const char *from, size_t len, unsigned seed)
{
	for (size_t at = 0; at < len; at++) {
		if (from[at] != (char)(at * 31 + seed * 7 + 1)) {
			printf("CORRUPT %s %u at byte %zu\n", what, seed, at);
			exit(1);
		}
	}
}

#endif
