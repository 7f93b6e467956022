/*
 * The protocol of rping, librdmacm's ping, in a DAT consumer, for the original at the other end.
 *
 *   rping_dat server IA PORT COUNT          prints READY, serves one client until it disconnects
 *   rping_dat client IA PORT COUNT HOST SIZE
 *
 * In each round, the client sends the location of a text, the server reads the text with an RDMA
 * Read and answers, the client sends the location of its sink, and the server writes the text there
 * with an RDMA Write and answers. Every message has 16 bytes: an address, a key and a length. This
 * program checks every byte of the text. PINGED COUNT is the last line after a success.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../c/words.h"

#define PATIENCE_US 50000000u
/*
 * The server's last message can be received before the call that posted it has returned, because
 * siw's kernel thread reads the send queue itself. That call fails if the connection is closed by
 * then, and rping exits with an error. So the client waits before it closes.
 */
#define CLOSE_DELAY_US 1000000u
#define TEXT_MAX (1u << 20)
#define QUEUE_LEN 16
#define RECEIVES 2u
#define FIRST_LETTER 65u
#define LAST_LETTER 122u

/* The location of a text, big-endian. */
struct place {
	uint64_t address;
	uint32_t key, length;
};

/* The registered memory. */
struct area {
	struct place inbox[RECEIVES], outbox;
	char text[TEXT_MAX], copy[TEXT_MAX];
};

static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;
static DAT_EP_HANDLE ep;
static DAT_EVD_HANDLE async_evd, cr_evd, connect_evd, recv_evd, request_evd;
static DAT_LMR_HANDLE lmr;
static DAT_LMR_CONTEXT lmr_context;
static DAT_RMR_CONTEXT rmr_context;
static struct area *area;
static unsigned received;

static _Noreturn void abort_with(const char *why)
{
	printf("ABORTED %s\n", why);
	exit(1);
}

static DAT_EVENT next_event(DAT_EVD_HANDLE evd, const char *what)
{
	DAT_EVENT event;
	DAT_COUNT more;

	if (dat_evd_wait(evd, PATIENCE_US, 1, &event, &more) != DAT_SUCCESS)
		abort_with(what);
	return event;
}

/* ---- messages and transfers ---- */

static DAT_LMR_TRIPLET part(void *from, size_t len)
{
	return (DAT_LMR_TRIPLET){
		.virtual_address = (uintptr_t)from,
		.segment_length = len,
		.lmr_context = lmr_context,
	};
}

static DAT_RMR_TRIPLET remote(struct place at, size_t len)
{
	return (DAT_RMR_TRIPLET){
		.virtual_address = at.address,
		.segment_length = len,
		.rmr_context = at.key,
	};
}

static void finish(DAT_EVD_HANDLE evd, const char *what, size_t len)
{
	DAT_EVENT event = next_event(evd, what);
	DAT_DTO_COMPLETION_EVENT_DATA *data = &event.event_data.dto_completion_event_data;

	if (event.event_number != DAT_DTO_COMPLETION_EVENT || data->status != DAT_DTO_SUCCESS) {
		printf("STATUS %s: %d\n", what, (int)data->status);
		exit(1);
	}
	if (data->transfered_length != len)
		abort_with(what);
}

static void post_receive(unsigned box)
{
	DAT_LMR_TRIPLET to = part(&area->inbox[box], sizeof(struct place));
	DAT_DTO_COOKIE cookie = { .as_64 = box };

	must("dat_ep_post_recv",
	     dat_ep_post_recv(ep, 1, &to, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

/* Receives complete in the order in which they were posted. */
static struct place receive_text(void)
{
	unsigned box = received++ % RECEIVES;
	struct place place;

	finish(recv_evd, "a message", sizeof(place));
	place = area->inbox[box];
	post_receive(box);
	return (struct place){ be64toh(place.address), be32toh(place.key), be32toh(place.length) };
}

/* With a null text, the message only confirms an operation. */
static void send_place(char *text, size_t len)
{
	DAT_LMR_TRIPLET from = part(&area->outbox, sizeof(area->outbox));
	DAT_DTO_COOKIE cookie = { .as_64 = 0 };

	area->outbox = (struct place){ htobe64((uintptr_t)text), htobe32(text ? rmr_context : 0),
				       htobe32((uint32_t)len) };
	must("dat_ep_post_send",
	     dat_ep_post_send(ep, 1, &from, cookie, DAT_COMPLETION_DEFAULT_FLAG));
	finish(request_evd, "a send", sizeof(area->outbox));
}

static void read_text(struct place from)
{
	DAT_LMR_TRIPLET sink = part(area->text, from.length);
	DAT_RMR_TRIPLET source = remote(from, from.length);
	DAT_DTO_COOKIE cookie = { .as_64 = 0 };

	must("dat_ep_post_rdma_read",
	     dat_ep_post_rdma_read(ep, 1, &sink, cookie, &source, DAT_COMPLETION_DEFAULT_FLAG));
	finish(request_evd, "an RDMA Read", from.length);
}

static void write_text(struct place to, size_t len)
{
	DAT_LMR_TRIPLET source = part(area->text, len);
	DAT_RMR_TRIPLET target = remote(to, len);
	DAT_DTO_COOKIE cookie = { .as_64 = 0 };

	must("dat_ep_post_rdma_write",
	     dat_ep_post_rdma_write(ep, 1, &source, cookie, &target, DAT_COMPLETION_DEFAULT_FLAG));
	finish(request_evd, "an RDMA Write", len);
}

/* ---- the text ---- */

/* rping's text of a round: its number, then letters; each round begins with the next letter. */
static void make_text(char *to, unsigned round, size_t len)
{
	unsigned letters = LAST_LETTER - FIRST_LETTER + 1;
	size_t head = (size_t)snprintf(to, len, "rdma-ping-%u: ", round);

	for (size_t at = head; at < len; at++)
		to[at] = (char)(FIRST_LETTER + (round + (at - head)) % letters);
	to[len - 1] = 0;
}

static void check_text(const char *what, const char *text, unsigned round, size_t len)
{
	static char expected[TEXT_MAX];

	make_text(expected, round, len);
	for (size_t at = 0; at < len; at++) {
		if (text[at] == expected[at])
			continue;
		printf("CORRUPT %s of round %u at byte %zu of %zu\n", what, round, at, len);
		exit(1);
	}
}

static void serve(unsigned rounds)
{
	for (unsigned round = 0; round < rounds; round++) {
		struct place text = receive_text();

		if (text.length < 32 || text.length > TEXT_MAX)
			abort_with("a text of an impossible length");
		memset(area->text, 0, text.length);
		read_text(text);
		check_text("what was read", area->text, round, text.length);
		send_place(NULL, 0);
		write_text(receive_text(), text.length);
		send_place(NULL, 0);
	}
}

static void ping(unsigned rounds, size_t len)
{
	for (unsigned round = 0; round < rounds; round++) {
		make_text(area->text, round, len);
		memset(area->copy, 0, len);
		send_place(area->text, len);
		receive_text();
		send_place(area->copy, len);
		receive_text();
		check_text("what was written", area->copy, round, len);
	}
}

/* ---- the connection ---- */

static DAT_EVD_HANDLE make_evd(DAT_EVD_FLAGS flags)
{
	DAT_EVD_HANDLE evd;

	must("dat_evd_create", dat_evd_create(ia, QUEUE_LEN, DAT_HANDLE_NULL, flags, &evd));
	return evd;
}

static void open_adapter(const char *name)
{
	DAT_REGION_DESCRIPTION region = { .for_va = area };
	DAT_VLEN len;
	DAT_VADDR start;

	must("dat_ia_open", dat_ia_open((char *)name, 8, &async_evd, &ia));
	must("dat_pz_create", dat_pz_create(ia, &pz));
	cr_evd = make_evd(DAT_EVD_CR_FLAG);
	connect_evd = make_evd(DAT_EVD_CONNECTION_FLAG);
	recv_evd = make_evd(DAT_EVD_DTO_FLAG);
	request_evd = make_evd(DAT_EVD_DTO_FLAG);
	must("dat_lmr_create",
	     dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof(*area), pz,
			    DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr, &lmr_context, &rmr_context,
			    &len, &start));
	must("dat_ep_create",
	     dat_ep_create(ia, pz, recv_evd, request_evd, connect_evd, NULL, &ep));
	for (unsigned box = 0; box < RECEIVES; box++)
		post_receive(box);
}

static void await_connection(DAT_EVENT_NUMBER wanted, const char *what)
{
	DAT_EVENT event = next_event(connect_evd, what);

	if (event.event_number == wanted)
		return;
	printf("EVENT 0x%05x instead of %s\n", (unsigned)event.event_number, what);
	exit(1);
}

static void accept_client(unsigned port)
{
	DAT_PSP_HANDLE psp;
	DAT_EVENT event;

	must("dat_psp_create", dat_psp_create(ia, port, cr_evd, DAT_PSP_CONSUMER_FLAG, &psp));
	printf("READY\n");
	fflush(stdout);
	event = next_event(cr_evd, "a client");
	must("dat_cr_accept",
	     dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, ep, 0, NULL));
	await_connection(DAT_CONNECTION_EVENT_ESTABLISHED, "a connection");
	must("dat_psp_free", dat_psp_free(psp));
}

static void connect_to(const char *host, unsigned port)
{
	struct sockaddr_in to = { .sin_family = AF_INET };

	if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
		abort_with("HOST must be an IPv4 address");
	must("dat_ep_connect",
	     dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&to, port, PATIENCE_US, 0, NULL,
			    DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
	await_connection(DAT_CONNECTION_EVENT_ESTABLISHED, "a connection");
}

int main(int argc, char **argv)
{
	int is_server = argc == 5 && strcmp(argv[1], "server") == 0;
	unsigned rounds;

	if (!is_server && (argc != 7 || strcmp(argv[1], "client") != 0))
		abort_with("arguments: server IA PORT COUNT, or client IA PORT COUNT HOST SIZE");
	rounds = (unsigned)strtoul(argv[4], NULL, 10);
	area = aligned_alloc(4096, (sizeof(*area) + 4095) / 4096 * 4096);
	if (!area)
		abort_with("out of memory");
	open_adapter(argv[2]);
	if (is_server) {
		accept_client((unsigned)strtoul(argv[3], NULL, 10));
		serve(rounds);
	} else {
		connect_to(argv[5], (unsigned)strtoul(argv[3], NULL, 10));
		ping(rounds, strtoul(argv[6], NULL, 10));
		usleep(CLOSE_DELAY_US);
		must("dat_ep_disconnect", dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG));
	}
	await_connection(DAT_CONNECTION_EVENT_DISCONNECTED, "the end");
	must("dat_ia_close", dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
	printf("PINGED %u\n", rounds);
	return 0;
}
