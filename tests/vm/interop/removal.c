/*
 * A DAT consumer whose device is removed, or whose link goes down, while its endpoints transfer.
 *
 *   removal IA HOST PORT PAIRS SECONDS
 *   removal IA                  opens the adapter and creates no object on it
 *
 * SECONDS is the time in which endpoints must notice that the adapter is lost.
 *
 * The process has both ends of each connection: of every three pairs one sends, one writes, one
 * reads. Lines on standard output are the result:
 *
 *   OPEN                    the adapter without objects is open
 *   TRANSFERRING            every pair has completed transfers, and continues
 *   ASYNC NUMBER            the asynchronous event, read by a thread that slept on the EVD
 *   CONNECTED N             N endpoints had no event in that time, and the process disconnects them
 *   ENDED broken=N disconnected=N other=N flushed=N
 *                           every endpoint had one last event, and all posted work has completed
 *   LEFT ...                the objects that hang, before the process aborts
 *   CLOSED                  all objects are freed and the adapter is closed, gracefully
 *
 * After that each line of standard input, "IA HOST PORT", makes the process open an adapter and
 * move data between two endpoints:
 *
 *   MOVED IA
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../c/words.h"

#define PAIRS_MAX 8u
#define DEPTH 4u
#define RECEIVES 8u
#define QUEUE_LEN 512
#define PIECE 65536u
/* The time limit of an event, which is long enough for a busy machine. */
#define PATIENCE_S 180
#define CONNECT_US (PATIENCE_S * 1000000u)

enum { SENDS, WRITES, READS, KINDS };

struct end {
	DAT_EP_HANDLE ep;
	unsigned posted, completed, successes, flushed;
	int last_event; /* 0: connected, or not yet */
	int failed; /* a transfer failed: nothing more is posted */
};

struct adapter {
	DAT_IA_HANDLE ia;
	DAT_PZ_HANDLE pz;
	DAT_EVD_HANDLE async_evd, cr_evd, connect_evd, dto_evd;
	DAT_PSP_HANDLE psp;
	DAT_LMR_HANDLE lmr;
	DAT_LMR_CONTEXT lmr_context;
	DAT_RMR_CONTEXT rmr_context;
};

static struct adapter at;
static struct end ends[2 * PAIRS_MAX]; /* of pair i: 2 * i connects, 2 * i + 1 accepts */
static unsigned pairs, limit_s;
static atomic_uint ended;
static char *buffer; /* a source and a sink for each pair */

static _Noreturn void abort_with(const char *why)
{
	printf("ABORTED %s\n", why);
	exit(1);
}

/* ---- the adapter ---- */

static DAT_EVD_HANDLE make_evd(DAT_EVD_FLAGS flags)
{
	DAT_EVD_HANDLE evd;

	must("dat_evd_create", dat_evd_create(at.ia, QUEUE_LEN, DAT_HANDLE_NULL, flags, &evd));
	return evd;
}

static void open_adapter(const char *name, unsigned port)
{
	DAT_REGION_DESCRIPTION region = { .for_va = buffer };
	DAT_VLEN len;
	DAT_VADDR start;

	memset(&at, 0, sizeof(at));
	must("dat_ia_open", dat_ia_open((char *)name, 8, &at.async_evd, &at.ia));
	must("dat_pz_create", dat_pz_create(at.ia, &at.pz));
	at.cr_evd = make_evd(DAT_EVD_CR_FLAG);
	at.connect_evd = make_evd(DAT_EVD_CONNECTION_FLAG);
	at.dto_evd = make_evd(DAT_EVD_DTO_FLAG);
	must("dat_lmr_create",
	     dat_lmr_create(at.ia, DAT_MEM_TYPE_VIRTUAL, region, 2 * PAIRS_MAX * PIECE, at.pz,
			    DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &at.lmr, &at.lmr_context,
			    &at.rmr_context, &len, &start));
	must("dat_psp_create",
	     dat_psp_create(at.ia, port, at.cr_evd, DAT_PSP_CONSUMER_FLAG, &at.psp));
}

static void close_adapter(void)
{
	for (unsigned end = 0; end < 2 * pairs; end++)
		must("dat_ep_free", dat_ep_free(ends[end].ep));
	must("dat_psp_free", dat_psp_free(at.psp));
	must("dat_lmr_free", dat_lmr_free(at.lmr));
	must("dat_evd_free", dat_evd_free(at.dto_evd));
	must("dat_evd_free", dat_evd_free(at.connect_evd));
	must("dat_evd_free", dat_evd_free(at.cr_evd));
	must("dat_pz_free", dat_pz_free(at.pz));
	must("dat_ia_close", dat_ia_close(at.ia, DAT_CLOSE_GRACEFUL_FLAG));
}

/* ---- transfers ---- */

static DAT_LMR_TRIPLET piece(unsigned number)
{
	return (DAT_LMR_TRIPLET){
		.virtual_address = (uintptr_t)buffer + number * PIECE,
		.segment_length = PIECE,
		.lmr_context = at.lmr_context,
	};
}

static DAT_RMR_TRIPLET remote(unsigned number)
{
	return (DAT_RMR_TRIPLET){
		.virtual_address = (uintptr_t)buffer + number * PIECE,
		.segment_length = PIECE,
		.rmr_context = at.rmr_context,
	};
}

/* From the source of the pair, piece 2 * i, to its sink, piece 2 * i + 1. */
static DAT_RETURN post_transfer(unsigned pair)
{
	struct end *end = &ends[2 * pair];
	DAT_LMR_TRIPLET source = piece(2 * pair), sink = piece(2 * pair + 1);
	DAT_RMR_TRIPLET far_source = remote(2 * pair), far_sink = remote(2 * pair + 1);
	DAT_DTO_COOKIE cookie = { .as_64 = 2 * pair };

	switch (pair % KINDS) {
	case SENDS:
		return dat_ep_post_send(end->ep, 1, &source, cookie, DAT_COMPLETION_DEFAULT_FLAG);
	case WRITES:
		return dat_ep_post_rdma_write(end->ep, 1, &source, cookie, &far_sink,
					      DAT_COMPLETION_DEFAULT_FLAG);
	default:
		return dat_ep_post_rdma_read(end->ep, 1, &sink, cookie, &far_source,
					     DAT_COMPLETION_DEFAULT_FLAG);
	}
}

static DAT_RETURN post_receive(unsigned pair)
{
	DAT_LMR_TRIPLET sink = piece(2 * pair + 1);
	DAT_DTO_COOKIE cookie = { .as_64 = 2 * pair + 1 };

	return dat_ep_post_recv(ends[2 * pair + 1].ep, 1, &sink, cookie,
				DAT_COMPLETION_DEFAULT_FLAG);
}

/* A connection that has just ended may refuse work, which is no failure. */
static void post(unsigned end)
{
	DAT_RETURN ret = end % 2 ? post_receive(end / 2) : post_transfer(end / 2);

	if (ret == DAT_SUCCESS)
		ends[end].posted++;
	else
		ends[end].failed = 1;
}

/* Dequeues one completion. Returns 0 at the timeout. */
static int take_completion(int reposts)
{
	DAT_DTO_COMPLETION_EVENT_DATA *data;
	DAT_EVENT event;
	DAT_COUNT more;
	struct end *end;

	if (dat_evd_wait(at.dto_evd, 100000, 1, &event, &more) != DAT_SUCCESS)
		return 0;
	if (event.event_number != DAT_DTO_COMPLETION_EVENT)
		abort_with("something other than a completion");
	data = &event.event_data.dto_completion_event_data;
	end = &ends[data->user_cookie.as_64];
	if (end->ep != data->ep_handle)
		abort_with("a completion of another endpoint");
	end->completed++;
	if (data->status == DAT_DTO_SUCCESS) {
		end->successes++;
	} else {
		end->flushed++;
		end->failed = 1;
	}
	if (reposts && !end->failed)
		post((unsigned)data->user_cookie.as_64);
	return 1;
}

/* ---- connections ---- */

static DAT_EVENT next_event(DAT_EVD_HANDLE evd, const char *what)
{
	DAT_EVENT event;
	DAT_COUNT more;

	if (dat_evd_wait(evd, CONNECT_US, 1, &event, &more) != DAT_SUCCESS)
		abort_with(what);
	return event;
}

static void make_end(unsigned number)
{
	struct end *end = &ends[number];

	memset(end, 0, sizeof(*end));
	must("dat_ep_create", dat_ep_create(at.ia, at.pz, at.dto_evd, at.dto_evd, at.connect_evd,
					    NULL, &end->ep));
}

static void connect_pair(unsigned pair, const char *host, unsigned port)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	DAT_EVENT event;

	if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
		abort_with("HOST must be an IPv4 address");
	make_end(2 * pair);
	make_end(2 * pair + 1);
	for (unsigned at = 0; at < RECEIVES; at++)
		post(2 * pair + 1);
	must("dat_ep_connect",
	     dat_ep_connect(ends[2 * pair].ep, (DAT_IA_ADDRESS_PTR)&to, port, CONNECT_US, 0, NULL,
			    DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
	event = next_event(at.cr_evd, "a request");
	must("dat_cr_accept", dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle,
					    ends[2 * pair + 1].ep, 0, NULL));
	for (int side = 0; side < 2; side++)
		if (next_event(at.connect_evd, "a connection").event_number !=
		    DAT_CONNECTION_EVENT_ESTABLISHED)
			abort_with("no connection was established");
}

/* ---- the removal ---- */

static void *await_async_event(void *unused)
{
	DAT_EVENT event;
	DAT_COUNT more;

	if (dat_evd_wait(at.async_evd, DAT_TIMEOUT_INFINITE, 1, &event, &more) == DAT_SUCCESS)
		printf("ASYNC 0x%05x\n", (unsigned)event.event_number);
	return unused;
}

static void *await_disconnects(void *unused)
{
	for (unsigned received = 0; received < 2 * pairs; received++) {
		DAT_EVENT event;
		DAT_COUNT more;
		unsigned number = 0;

		if (dat_evd_wait(at.connect_evd, DAT_TIMEOUT_INFINITE, 1, &event, &more) !=
		    DAT_SUCCESS)
			abort_with("dat_evd_wait for the end of a connection");
		while (number < 2 * pairs &&
		       ends[number].ep != event.event_data.connect_event_data.ep_handle)
			number++;
		if (number == 2 * pairs || ends[number].last_event)
			abort_with("an event of an endpoint that had ended");
		ends[number].last_event = (int)event.event_number;
		ended++;
	}
	return unused;
}

/* Waits for a thread, taking completions meanwhile. */
static void await(pthread_t thread, const char *what)
{
	for (time_t begin = time(NULL); pthread_tryjoin_np(thread, NULL);) {
		if (time(NULL) - begin > PATIENCE_S)
			abort_with(what);
		take_completion(1);
	}
}

/* An end that sends nothing does not notice the loss of its link. */
static void disconnect_remaining(void)
{
	for (time_t begin = time(NULL); time(NULL) - begin < (time_t)limit_s; take_completion(1))
		if (ended == 2 * pairs)
			return;
	printf("CONNECTED %u\n", 2 * pairs - ended);
	for (unsigned end = 0; end < 2 * pairs; end++) {
		DAT_RETURN ret = DAT_SUCCESS;

		if (!ends[end].last_event)
			ret = dat_ep_disconnect(ends[end].ep, DAT_CLOSE_ABRUPT_FLAG);
		/* The connection may have ended just now. */
		if (DAT_GET_TYPE(ret) != DAT_INVALID_STATE)
			must("dat_ep_disconnect", ret);
	}
}

static unsigned left(void)
{
	unsigned left = 0;

	for (unsigned end = 0; end < 2 * pairs; end++)
		left += ends[end].posted - ends[end].completed;
	return left;
}

static void print_left(void)
{
	for (unsigned end = 0; end < 2 * pairs; end++)
		if (ends[end].posted != ends[end].completed)
			printf("LEFT at end %u of %s: posted %u, completed %u, flushed %u, %s\n", end,
			       (const char *[]){ "sends", "writes", "reads" }[end / 2 % KINDS],
			       ends[end].posted, ends[end].completed, ends[end].flushed,
			       ends[end].failed ? "failed" : "never failed");
}

static void print_ended(void)
{
	unsigned broken = 0, disconnected = 0, other = 0, flushed = 0;

	for (unsigned end = 0; end < 2 * pairs; end++) {
		flushed += ends[end].flushed;
		if (ends[end].last_event == DAT_CONNECTION_EVENT_BROKEN)
			broken++;
		else if (ends[end].last_event == DAT_CONNECTION_EVENT_DISCONNECTED)
			disconnected++;
		else
			other++;
	}
	printf("ENDED broken=%u disconnected=%u other=%u flushed=%u\n", broken, disconnected, other,
	       flushed);
}

static void transfer_until_the_end(void)
{
	pthread_t async, end;
	unsigned started = 0;

	pthread_create(&async, NULL, await_async_event, NULL);
	pthread_create(&end, NULL, await_disconnects, NULL);
	for (unsigned pair = 0; pair < pairs; pair++)
		for (unsigned depth = 0; depth < DEPTH; depth++)
			post(2 * pair);
	for (time_t begin = time(NULL); started < pairs; take_completion(1)) {
		if (time(NULL) - begin > PATIENCE_S)
			abort_with("the transfers do not begin");
		for (started = 0; started < pairs && ends[2 * started].successes >= 2 * DEPTH; started++)
			;
	}
	printf("TRANSFERRING\n");
	await(async, "HANGS: the asynchronous EVD says nothing");
	disconnect_remaining();
	await(end, "HANGS: not every endpoint received the disconnect event");
	for (time_t begin = time(NULL); left(); take_completion(0)) {
		if (time(NULL) - begin <= PATIENCE_S)
			continue;
		print_left();
		abort_with("HANGS: work that was posted does not complete");
	}
	print_ended();
}

/* An adapter without objects reports the loss, too. */
static void open_and_listen(const char *name)
{
	must("dat_ia_open", dat_ia_open((char *)name, 8, &at.async_evd, &at.ia));
	printf("OPEN\n");
	await_async_event(NULL);
	must("dat_ia_close", dat_ia_close(at.ia, DAT_CLOSE_GRACEFUL_FLAG));
	printf("CLOSED\n");
}

/* ---- afterwards ---- */

static void move(const char *name, const char *host, unsigned port)
{
	pairs = KINDS;
	open_adapter(name, port);
	for (unsigned pair = 0; pair < pairs; pair++) {
		char *source = buffer + 2 * pair * PIECE, *sink = source + PIECE;

		memset(source, (int)(pair + 1), PIECE);
		memset(sink, 0, PIECE);
		connect_pair(pair, host, port);
		post(2 * pair);
		for (time_t begin = time(NULL); !ends[2 * pair].completed ||
						(pair == SENDS && !ends[1].completed);
		     take_completion(0))
			if (time(NULL) - begin > PATIENCE_S)
				abort_with("a transfer does not complete");
		/* The bytes of a write are placed when a later read is answered. */
		if (pair == WRITES) {
			DAT_LMR_TRIPLET sink = piece(2 * PAIRS_MAX - 1);
			DAT_RMR_TRIPLET far = remote(2 * pair + 1);
			DAT_DTO_COOKIE cookie = { .as_64 = 2 * pair };

			must("dat_ep_post_rdma_read",
			     dat_ep_post_rdma_read(ends[2 * pair].ep, 1, &sink, cookie, &far,
						   DAT_COMPLETION_DEFAULT_FLAG));
			ends[2 * pair].posted++;
			while (ends[2 * pair].completed < 2)
				take_completion(0);
		}
		if (memcmp(source, sink, PIECE) || ends[2 * pair].flushed)
			abort_with("the moved data is missing");
	}
	close_adapter();
	printf("MOVED %s\n", name);
}

int main(int argc, char **argv)
{
	char line[256], name[64], host[64];
	unsigned port;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 2) {
		open_and_listen(argv[1]);
		return 0;
	}
	pairs = argc == 6 ? (unsigned)strtoul(argv[4], NULL, 10) : 0;
	limit_s = argc == 6 ? (unsigned)strtoul(argv[5], NULL, 10) : 0;
	if (pairs == 0 || pairs > PAIRS_MAX)
		abort_with("arguments: IA HOST PORT PAIRS SECONDS, or IA");
	buffer = aligned_alloc(4096, 2 * PAIRS_MAX * PIECE);
	if (!buffer)
		abort_with("out of memory");
	memset(buffer, 1, 2 * PAIRS_MAX * PIECE);
	open_adapter(argv[1], (unsigned)strtoul(argv[3], NULL, 10));
	for (unsigned pair = 0; pair < pairs; pair++)
		connect_pair(pair, argv[2], (unsigned)strtoul(argv[3], NULL, 10));
	transfer_until_the_end();
	close_adapter();
	printf("CLOSED\n");
	while (fgets(line, sizeof(line), stdin))
		if (sscanf(line, "%63s %63s %u", name, host, &port) == 3)
			move(name, host, port);
	return 0;
}
