/*
 * Ping-pong between two ranks, with the two protocols of an MPI library: a short message is copied
 * into a Send (eager), and a long one is read by its receiver from the memory of its sender
 * (rendezvous). Receives are matched by tag; a message that no receive matches yet is kept.
 *
 *   mpi IA            (rank 0)
 *   mpi IA ADDRESS    (rank 1)
 */
#define _GNU_SOURCE
#include <time.h>

#include "example.h"

#define EAGER_MAX 4096u
#define LONGEST (1u << 20)
#define SLOTS 16u
#define ROUNDS 20
#define NO_SLOT SLOTS

enum kind { EAGER = 1, READY, FINISHED };

/* The beginning of each Send, before the payload. Both ranks run on machines of one byte order, as
 * MPI ranks do. */
struct header {
	uint32_t kind;
	uint32_t tag;
	uint64_t len;
	/* The sender's memory, if the message is long. */
	uint64_t address;
	uint32_t context;
	uint32_t unused;
};

struct slot {
	struct header header;
	char payload[EAGER_MAX];
};

/* The memory of a rank, registered as a whole: the library's slots and the program's buffer. */
struct memory {
	struct slot inbox[SLOTS];
	struct slot outbox;
	char buffer[LONGEST];
};

struct rank {
	struct example *ex;
	struct memory *memory;
	DAT_LMR_HANDLE lmr;
	DAT_LMR_CONTEXT local;
	DAT_RMR_CONTEXT remote;
	/* Slots with messages that are not matched yet, the oldest first. */
	unsigned kept[SLOTS];
	unsigned kept_count;
};

static DAT_LMR_TRIPLET segment(struct rank *rank, void *address, size_t len)
{
	return (DAT_LMR_TRIPLET){
		.virtual_address = (DAT_VADDR)(uintptr_t)address,
		.segment_length = (DAT_SEG_LENGTH)len,
		.lmr_context = rank->local,
	};
}

static void post_slot(struct rank *rank, unsigned slot)
{
	DAT_LMR_TRIPLET where = segment(rank, &rank->memory->inbox[slot], sizeof(struct slot));
	DAT_DTO_COOKIE cookie = { .as_64 = slot };

	must("dat_ep_post_recv",
	     dat_ep_post_recv(rank->ex->ep, 1, &where, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void open_rank(struct rank *rank, struct example *ex)
{
	DAT_REGION_DESCRIPTION region;
	DAT_VLEN granted;
	DAT_VADDR start;

	memset(rank, 0, sizeof(*rank));
	rank->ex = ex;
	rank->memory = calloc(1, sizeof(*rank->memory));
	check(rank->memory != NULL, "there is memory");
	region.for_va = rank->memory;
	must("dat_lmr_create",
	     dat_lmr_create(ex->ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof(*rank->memory), ex->pz,
			    DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &rank->lmr, &rank->local,
			    &rank->remote, &granted, &start));
	for (unsigned slot = 0; slot < SLOTS; slot++)
		post_slot(rank, slot);
}

static void close_rank(struct rank *rank)
{
	must("dat_lmr_free", dat_lmr_free(rank->lmr));
	free(rank->memory);
}

static void send_slot(struct rank *rank, const struct header *header, const char *payload)
{
	size_t len = header->kind == EAGER ? header->len : 0;
	DAT_LMR_TRIPLET what = segment(rank, &rank->memory->outbox, sizeof(*header) + len);
	DAT_DTO_COOKIE cookie = { .as_64 = 0 };

	rank->memory->outbox.header = *header;
	memcpy(rank->memory->outbox.payload, payload, len);
	must("dat_ep_post_send",
	     dat_ep_post_send(rank->ex->ep, 1, &what, cookie, DAT_COMPLETION_DEFAULT_FLAG));
	completed(rank->ex->request_evd, "a Send");
}

/* EAGER and READY match each other, because a receiver does not know the length. */
static int matches(struct rank *rank, unsigned slot, enum kind kind, unsigned tag)
{
	const struct header *header = &rank->memory->inbox[slot].header;
	int is_end = header->kind == FINISHED;

	return header->tag == tag && is_end == (kind == FINISHED);
}

/* Returns the slot of the oldest message with the tag, or NO_SLOT if none is kept. */
static unsigned take_kept(struct rank *rank, enum kind kind, unsigned tag)
{
	for (unsigned at = 0; at < rank->kept_count; at++) {
		unsigned slot = rank->kept[at];

		if (!matches(rank, slot, kind, tag))
			continue;
		rank->kept_count--;
		memmove(&rank->kept[at], &rank->kept[at + 1],
			(rank->kept_count - at) * sizeof(rank->kept[0]));
		return slot;
	}
	return NO_SLOT;
}

/* Waits for a message with the tag. Its kind is FINISHED if `kind` is FINISHED, otherwise EAGER or
 * READY. Keeps the other messages. */
static unsigned match(struct rank *rank, enum kind kind, unsigned tag)
{
	unsigned slot = take_kept(rank, kind, tag);

	while (slot == NO_SLOT) {
		DAT_DTO_COMPLETION_EVENT_DATA done = completed(rank->ex->recv_evd, "a message");

		slot = (unsigned)done.user_cookie.as_64;
		check(done.transfered_length >= sizeof(struct header), "a message has a header");
		if (matches(rank, slot, kind, tag))
			break;
		check(rank->kept_count < SLOTS - 1, "the peer sends no more than can be kept");
		rank->kept[rank->kept_count++] = slot;
		slot = NO_SLOT;
	}
	return slot;
}

/* Sends `len` bytes of the rank's memory, and returns when they may be changed again. */
static void rank_send(struct rank *rank, char *bytes, size_t len, unsigned tag)
{
	struct header header = { .kind = len <= EAGER_MAX ? EAGER : READY, .tag = tag, .len = len };

	if (header.kind == READY) {
		header.address = (uintptr_t)bytes;
		header.context = rank->remote;
	}
	send_slot(rank, &header, bytes);
	if (header.kind == READY)
		post_slot(rank, match(rank, FINISHED, tag));
}

static void read_from_sender(struct rank *rank, const struct header *from, char *bytes)
{
	DAT_LMR_TRIPLET here = segment(rank, bytes, from->len);
	DAT_DTO_COOKIE cookie = { .as_64 = 0 };
	DAT_RMR_TRIPLET there = {
		.virtual_address = from->address,
		.segment_length = (DAT_SEG_LENGTH)from->len,
		.rmr_context = from->context,
	};

	must("dat_ep_post_rdma_read",
	     dat_ep_post_rdma_read(rank->ex->ep, 1, &here, cookie, &there,
				   DAT_COMPLETION_DEFAULT_FLAG));
	completed(rank->ex->request_evd, "an RDMA Read");
}

/* Receives the next message with the tag into the rank's memory. Returns its length. */
static size_t rank_recv(struct rank *rank, char *bytes, size_t room, unsigned tag)
{
	unsigned slot = match(rank, EAGER, tag);
	struct header header = rank->memory->inbox[slot].header;

	check(header.len <= room, "the message fits");
	if (header.kind == READY) {
		struct header end = { .kind = FINISHED, .tag = tag };

		read_from_sender(rank, &header, bytes);
		send_slot(rank, &end, "");
	} else {
		check(header.len <= EAGER_MAX, "an eager message is short");
		memcpy(bytes, rank->memory->inbox[slot].payload, header.len);
	}
	post_slot(rank, slot);
	return header.len;
}

static char pattern(size_t at, size_t len)
{
	return (char)(at * 31 + len * 7);
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Messages with two tags, received in the other order. */
static void out_of_order(struct rank *rank, int number)
{
	char *buffer = rank->memory->buffer;

	if (number == 0) {
		rank_send(rank, memcpy(buffer, "first", 6), 6, 1);
		rank_send(rank, memcpy(buffer, "second", 7), 7, 2);
		return;
	}
	check(rank_recv(rank, buffer, LONGEST, 2) == 7 && strcmp(buffer, "second") == 0, "tag 2");
	check(rank_recv(rank, buffer, LONGEST, 1) == 6 && strcmp(buffer, "first") == 0, "tag 1");
	printf("two messages were matched by their tags\n");
}

static void ping_pong(struct rank *rank, int number)
{
	char *buffer = rank->memory->buffer;

	for (size_t len = 1; len <= LONGEST; len *= 4) {
		double begin = now_us(), us;

		for (size_t at = 0; number == 0 && at < len; at++)
			buffer[at] = pattern(at, len);
		for (int round = 0; round < ROUNDS; round++) {
			if (number == 0)
				rank_send(rank, buffer, len, 3);
			check(rank_recv(rank, buffer, LONGEST, 3) == len, "the length is as sent");
			if (number == 1)
				rank_send(rank, buffer, len, 3);
		}
		us = (now_us() - begin) / ROUNDS / 2;
		for (size_t at = 0; at < len; at++)
			check(buffer[at] == pattern(at, len), "every byte is as sent");
		if (number == 0)
			printf("%8zu bytes  %-10s  %9.2f us  %8.1f MB/s\n", len,
			       len <= EAGER_MAX ? "eager" : "rendezvous", us, (double)len / us);
	}
}

static void run_rank(struct rank *rank, int number)
{
	out_of_order(rank, number);
	ping_pong(rank, number);
	printf("rank %d: every byte was as sent\n", number);
}

static void serve(struct example *ex)
{
	struct rank rank;

	open_rank(&rank, ex);
	serve_one(ex);
	run_rank(&rank, 0);
	expect(ex->connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, "the end");
	close_rank(&rank);
}

static void run_client(struct example *ex, const char *host)
{
	struct rank rank;

	open_rank(&rank, ex);
	connect_to(ex, host);
	run_rank(&rank, 1);
	disconnect(ex);
	close_rank(&rank);
}

int main(int argc, char **argv)
{
	return run(argc, argv, serve, run_client);
}
