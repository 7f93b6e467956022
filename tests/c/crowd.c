/*
 * Many connections in one process.
 *
 *   crowd listen  [port=N] [count=N]             accepts `count` connections and echoes on all
 *   crowd connect [port=N] [count=N] [rounds=N]  makes `count` connections, then sends on all
 *   crowd cycles  [count=N]                      both ends: connect, accept, disconnect, free
 */
#include <arpa/inet.h>
#include <sys/resource.h>

#include "census.h"
#include "pair.h"

#define SLOT 4096
#define PATIENCE_MS 60000
#define WARM_CYCLES 200
#define SUCCESSES(event) ((event).event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS)

static unsigned port = 7471, count = 1000, rounds = 3;

struct crowd {
	struct kit kit;
	DAT_EP_HANDLE *eps;
	/* A receive slot and a send slot for each endpoint. */
	char *memory;
	DAT_LMR_HANDLE lmr;
	DAT_LMR_CONTEXT context;
};

/* The header of a message; the rest is a pattern made from its seed. */
struct head {
	uint32_t index, seed;
};

static void crowd_open(struct crowd *crowd)
{
	DAT_VLEN registered_len, len = (DAT_VLEN)count * 2 * SLOT;
	DAT_REGION_DESCRIPTION region;
	DAT_RMR_CONTEXT rmr_context;
	DAT_VADDR registered_address;
	DAT_EVD_HANDLE evds[4];

	kit_open(&crowd->kit, "iwarp-lo");
	evds[0] = crowd->kit.cr_evd;
	evds[1] = crowd->kit.connect_evd;
	evds[2] = crowd->kit.recv_evd;
	evds[3] = crowd->kit.request_evd;
	for (int at = 0; at < 4; at++)
		must("dat_evd_resize", dat_evd_resize(evds[at], (DAT_COUNT)(4 * count + 64)));
	crowd->eps = calloc(count, sizeof(*crowd->eps));
	crowd->memory = calloc(count, 2 * SLOT);
	if (!crowd->eps || !crowd->memory)
		abort_with("out of memory");
	region.for_va = crowd->memory;
	must("dat_lmr_create",
	     dat_lmr_create(crowd->kit.ia, DAT_MEM_TYPE_VIRTUAL, region, len, crowd->kit.pz,
			    ALL_PRIVILEGES, DAT_VA_TYPE_VA, &crowd->lmr, &crowd->context,
			    &rmr_context, &registered_len, &registered_address));
}

static void crowd_close(struct crowd *crowd)
{
	for (unsigned at = 0; at < count; at++)
		must("dat_ep_free", dat_ep_free(crowd->eps[at]));
	must("dat_lmr_free", dat_lmr_free(crowd->lmr));
	free(crowd->eps);
	free(crowd->memory);
	kit_free(&crowd->kit);
}

static char *recv_slot(struct crowd *crowd, unsigned index)
{
	return crowd->memory + (size_t)index * 2 * SLOT;
}

static char *send_slot(struct crowd *crowd, unsigned index)
{
	return recv_slot(crowd, index) + SLOT;
}

static DAT_LMR_TRIPLET part_of(struct crowd *crowd, char *from, size_t len)
{
	return (DAT_LMR_TRIPLET){
		.virtual_address = (DAT_VADDR)(uintptr_t)from,
		.segment_length = (DAT_SEG_LENGTH)len,
		.lmr_context = crowd->context,
	};
}

static void receive_on(struct crowd *crowd, unsigned index)
{
	DAT_LMR_TRIPLET part = part_of(crowd, recv_slot(crowd, index), SLOT);

	must("dat_ep_post_recv", dat_ep_post_recv(crowd->eps[index], 1, &part, cookie_of(index),
						  DAT_COMPLETION_DEFAULT_FLAG));
}

static void send_on(struct crowd *crowd, unsigned index, size_t len)
{
	DAT_LMR_TRIPLET part = part_of(crowd, send_slot(crowd, index), len);

	must("dat_ep_post_send", dat_ep_post_send(crowd->eps[index], 1, &part, cookie_of(index),
						  DAT_COMPLETION_DEFAULT_FLAG));
}

static void await(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number, DAT_EVENT *event)
{
	if (!next_event(evd, PATIENCE_MS, event))
		abort_with("no event");
	if (event->event_number != number) {
		printf("EVENT 0x%x instead of 0x%x\n", (unsigned)event->event_number,
		       (unsigned)number);
		exit(1);
	}
	if (number == DAT_DTO_COMPLETION_EVENT && !SUCCESSES(*event))
		abort_with("a request failed");
}

static void await_all(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number)
{
	DAT_EVENT event;

	for (unsigned at = 0; at < count; at++)
		await(evd, number, &event);
}

static unsigned index_of(const DAT_EVENT *event)
{
	return (unsigned)event->event_data.dto_completion_event_data.user_cookie.as_64;
}

static size_t length_of(unsigned index, unsigned seed)
{
	return sizeof(struct head) + (index * 37 + seed * 101) % (SLOT - sizeof(struct head));
}

static void write_message(struct crowd *crowd, unsigned index, unsigned seed)
{
	struct head head = { .index = index, .seed = seed };
	char *slot = send_slot(crowd, index);

	memcpy(slot, &head, sizeof(head));
	fill(slot + sizeof(head), length_of(index, seed) - sizeof(head), index + seed);
}

/* Checks that the message in a slot is complete, and is for this endpoint. */
static struct head read_message(const DAT_EVENT *event, const char *slot)
{
	size_t len = (size_t)event->event_data.dto_completion_event_data.transfered_length;
	struct head head;

	memcpy(&head, slot, sizeof(head));
	if (len < sizeof(head) || len != length_of(head.index, head.seed))
		abort_with("a message of the wrong length");
	verify("message", slot + sizeof(head), len - sizeof(head), head.index + head.seed);
	return head;
}

static void run_listen(struct crowd *crowd)
{
	DAT_CR_ARRIVAL_EVENT_DATA *arrival;
	DAT_PSP_HANDLE psp;
	DAT_EVENT event;

	must("dat_psp_create", dat_psp_create(crowd->kit.ia, port, crowd->kit.cr_evd,
					      DAT_PSP_CONSUMER_FLAG, &psp));
	printf("READY\n");
	for (unsigned at = 0; at < count; at++) {
		await(crowd->kit.cr_evd, DAT_CONNECTION_REQUEST_EVENT, &event);
		arrival = &event.event_data.cr_arrival_event_data;
		crowd->eps[at] = make_ep(&crowd->kit, DAT_HANDLE_NULL);
		receive_on(crowd, at);
		must("dat_cr_accept",
		     dat_cr_accept(arrival->cr_handle, crowd->eps[at], 0, NULL));
	}
	await_all(crowd->kit.connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED);
	for (unsigned at = 0; at < count * rounds; at++) {
		unsigned index;
		size_t len;

		await(crowd->kit.recv_evd, DAT_DTO_COMPLETION_EVENT, &event);
		index = index_of(&event);
		read_message(&event, recv_slot(crowd, index));
		len = (size_t)event.event_data.dto_completion_event_data.transfered_length;
		memcpy(send_slot(crowd, index), recv_slot(crowd, index), len);
		receive_on(crowd, index);
		send_on(crowd, index, len);
		await(crowd->kit.request_evd, DAT_DTO_COMPLETION_EVENT, &event);
	}
	printf("ECHOED %u messages\n", count * rounds);
	await_all(crowd->kit.connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED);
	must("dat_psp_free", dat_psp_free(psp));
}

static void one_round(struct crowd *crowd, unsigned seed)
{
	DAT_EVENT event;

	for (unsigned at = 0; at < count; at++)
		write_message(crowd, at, seed);
	for (unsigned at = 0; at < count; at++)
		send_on(crowd, at, length_of(at, seed));
	for (unsigned at = 0; at < count; at++) {
		struct head head;
		unsigned index;

		await(crowd->kit.recv_evd, DAT_DTO_COMPLETION_EVENT, &event);
		index = index_of(&event);
		head = read_message(&event, recv_slot(crowd, index));
		if (head.index != index || head.seed != seed)
			abort_with("the message of another endpoint");
		receive_on(crowd, index);
	}
	await_all(crowd->kit.request_evd, DAT_DTO_COMPLETION_EVENT);
}

static void run_connect(struct crowd *crowd)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	for (unsigned at = 0; at < count; at++) {
		crowd->eps[at] = make_ep(&crowd->kit, DAT_HANDLE_NULL);
		receive_on(crowd, at);
		must("dat_ep_connect",
		     dat_ep_connect(crowd->eps[at], (DAT_IA_ADDRESS_PTR)&address, port,
				    PATIENCE_MS * 1000, 0, NULL, DAT_QOS_BEST_EFFORT,
				    DAT_CONNECT_DEFAULT_FLAG));
	}
	await_all(crowd->kit.connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED);
	printf("CONNECTED %u\n", count);
	for (unsigned seed = 1; seed <= rounds; seed++)
		one_round(crowd, seed);
	printf("EXCHANGED %u rounds\n", rounds);
	for (unsigned at = 0; at < count; at++)
		must("dat_ep_disconnect",
		     dat_ep_disconnect(crowd->eps[at], DAT_CLOSE_GRACEFUL_FLAG));
	await_all(crowd->kit.connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED);
}

/* Creates two endpoints, connects them, and frees them. */
static void cycle(struct pair *pair, unsigned number)
{
	DAT_EP_HANDLE active = make_ep(&pair->active, DAT_HANDLE_NULL);
	DAT_EP_HANDLE passive = make_ep(&pair->passive, DAT_HANDLE_NULL);
	DAT_CLOSE_FLAGS how = number % 2 ? DAT_CLOSE_ABRUPT_FLAG : DAT_CLOSE_GRACEFUL_FLAG;
	DAT_EVENT event;

	begin_connect(pair, active);
	establish(pair, passive);
	must("dat_ep_disconnect", dat_ep_disconnect(number % 3 ? active : passive, how));
	expect_event(pair->active.connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, &event);
	expect_event(pair->passive.connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, &event);
	must("dat_ep_free", dat_ep_free(active));
	must("dat_ep_free", dat_ep_free(passive));
}

static void run_cycles(void)
{
	struct census before;
	struct pair pair;

	pair_open(&pair);
	for (unsigned at = 0; at < WARM_CYCLES; at++)
		cycle(&pair, at);
	before = census_take();
	for (unsigned at = 0; at < count; at++)
		cycle(&pair, at);
	printf("CYCLES %u\n", count);
	census_print(before);
	pair_close(&pair);
}

/* Raises the shell's limit to the system's limit. */
static void allow_many_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int main(int argc, char **argv)
{
	const char *role = argc > 1 ? argv[1] : "";
	struct census before;
	struct crowd crowd;

	setvbuf(stdout, NULL, _IOLBF, 0);
	allow_many_descriptors();
	for (int at = 2; at < argc; at++) {
		if (sscanf(argv[at], "port=%u", &port) == 1 ||
		    sscanf(argv[at], "count=%u", &count) == 1 ||
		    sscanf(argv[at], "rounds=%u", &rounds) == 1)
			continue;
		abort_with(argv[at]);
	}
	if (strcmp(role, "cycles") == 0) {
		run_cycles();
		return 0;
	}
	kit_open(&crowd.kit, "iwarp-lo");
	kit_free(&crowd.kit);
	before = census_take();
	crowd_open(&crowd);
	if (strcmp(role, "listen") == 0)
		run_listen(&crowd);
	else if (strcmp(role, "connect") == 0)
		run_connect(&crowd);
	else
		abort_with("no such role");
	crowd_close(&crowd);
	census_print(before);
	printf("DONE\n");
	return 0;
}
