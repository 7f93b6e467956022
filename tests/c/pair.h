/*
 * Both ends of a connection in one process, for programs that test a single call: each end has its
 * own interface adapter, queues, buffer and endpoint.
 */
#ifndef STACK_TESTS_PAIR_H
#define STACK_TESTS_PAIR_H

#include <stdbool.h>

#include "kit.h"

#define WAIT_MS 10000
#define PART 4096

struct pair {
	struct kit active, passive;
	DAT_PSP_HANDLE psp;
	DAT_CONN_QUAL qualifier;
};

#define expect(condition)                                                                         \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			printf("FAILED line %d: %s\n", __LINE__, #condition);                     \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

/* The call must be refused with this type and subtype; class bits are not compared. */
static inline void must_refuse(const char *call, DAT_RETURN ret, unsigned type, unsigned subtype)
{
	if ((unsigned)DAT_GET_TYPE(ret) == type && (ret & DAT_SUBTYPE_MASK) == subtype)
		return;
	print_failure(call, ret);
	printf("EXPECTED 0x%08x\n", type | subtype);
	exit(1);
}

static inline DAT_SOCK_ADDR *ia_address(struct kit *kit)
{
	DAT_IA_ATTR attr;

	must("dat_ia_query", dat_ia_query(kit->ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
	return (DAT_SOCK_ADDR *)attr.ia_address_ptr;
}

/* Creates another endpoint with the queues of its end, and with an SRQ unless that is null. */
static inline DAT_EP_HANDLE make_ep(struct kit *kit, DAT_SRQ_HANDLE srq)
{
	DAT_EP_HANDLE ep;

	if (srq == DAT_HANDLE_NULL)
		must("dat_ep_create", dat_ep_create(kit->ia, kit->pz, kit->recv_evd, kit->request_evd,
						    kit->connect_evd, NULL, &ep));
	else
		must("dat_ep_create_with_srq",
		     dat_ep_create_with_srq(kit->ia, kit->pz, kit->recv_evd, kit->request_evd,
					    kit->connect_evd, srq, NULL, &ep));
	return ep;
}

/* Opens one end; binds complete on the same EVD as other requests. */
static inline void end_open(struct kit *kit)
{
	kit_open(kit, "iwarp-lo");
	must("dat_ep_free", dat_ep_free(kit->ep));
	must("dat_evd_free", dat_evd_free(kit->request_evd));
	kit->request_evd = make_evd(kit, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG);
	kit->ep = make_ep(kit, DAT_HANDLE_NULL);
}

static inline void pair_open(struct pair *pair)
{
	end_open(&pair->active);
	end_open(&pair->passive);
	must("dat_psp_create_any", dat_psp_create_any(pair->passive.ia, &pair->qualifier,
						      pair->passive.cr_evd, DAT_PSP_CONSUMER_FLAG,
						      &pair->psp));
}

static inline void expect_event(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number, DAT_EVENT *event)
{
	if (!next_event(evd, WAIT_MS, event))
		abort_with("no event");
	if (event->event_number != number) {
		printf("EVENT 0x%x instead of 0x%x\n", (unsigned)event->event_number,
		       (unsigned)number);
		exit(1);
	}
}

static inline DAT_CR_HANDLE next_request(struct kit *kit, DAT_CR_ARRIVAL_EVENT_DATA *arrival)
{
	DAT_EVENT event;

	expect_event(kit->cr_evd, DAT_CONNECTION_REQUEST_EVENT, &event);
	*arrival = event.event_data.cr_arrival_event_data;
	return arrival->cr_handle;
}

/* Accepts the next request on `ep`, and waits for the event of both ends. */
static inline void establish(struct pair *pair, DAT_EP_HANDLE ep)
{
	DAT_CR_ARRIVAL_EVENT_DATA arrival;
	DAT_CR_HANDLE cr = next_request(&pair->passive, &arrival);
	DAT_EVENT event;

	must("dat_cr_accept", dat_cr_accept(cr, ep, 0, NULL));
	expect_event(pair->active.connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, &event);
	expect_event(pair->passive.connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, &event);
}

static inline void begin_connect(struct pair *pair, DAT_EP_HANDLE ep)
{
	must("dat_ep_connect",
	     dat_ep_connect(ep, ia_address(&pair->passive), pair->qualifier, WAIT_MS * 1000, 0, NULL,
			    DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
}

static inline void pair_connect(struct pair *pair)
{
	begin_connect(pair, pair->active.ep);
	establish(pair, pair->passive.ep);
}

/* Ends the connection of the pair's original endpoints. */
static inline void pair_disconnect(struct pair *pair)
{
	DAT_EVENT event;

	must("dat_ep_disconnect", dat_ep_disconnect(pair->active.ep, DAT_CLOSE_ABRUPT_FLAG));
	expect_event(pair->active.connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, &event);
	expect_event(pair->passive.connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, &event);
}

static inline void pair_close(struct pair *pair)
{
	must("dat_psp_free", dat_psp_free(pair->psp));
	kit_close(&pair->active);
	kit_close(&pair->passive);
	printf("PASSED\n");
}

static inline DAT_DTO_COOKIE cookie_of(DAT_UINT64 value)
{
	DAT_DTO_COOKIE cookie = { .as_64 = value };

	return cookie;
}

/* Sends one message from the active end's buffer to the passive end's buffer, and verifies it. */
static inline void one_message(struct pair *pair, unsigned seed)
{
	fill(pair->active.buffer, PART, seed);
	memset(pair->passive.buffer, 0, PART);
	post_recv(&pair->passive, 0, PART);
	send_part(&pair->active, 0, PART, WAIT_MS);
	expect(completion(pair->passive.recv_evd, WAIT_MS, "receive") == PART);
	verify("message", pair->passive.buffer, PART, seed);
}

/* A named trial of a program. Without an argument, a program lists its trials. */
struct trial {
	const char *name;
	void (*run)(void);
};

static inline int run_trial(const struct trial *trials, size_t count, int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t at = 0; at < count; at++) {
		if (argc == 1) {
			printf("TRIAL %s\n", trials[at].name);
		} else if (strcmp(trials[at].name, argv[1]) == 0) {
			trials[at].run();
			return 0;
		}
	}
	if (argc != 1)
		abort_with("no such trial");
	return 0;
}

#define TRIAL_MAIN(trials)                                                                        \
	int main(int argc, char **argv)                                                           \
	{                                                                                         \
		return run_trial(trials, sizeof(trials) / sizeof((trials)[0]), argc, argv);       \
	}

#endif
