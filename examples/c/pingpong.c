/*
 * Send and Receive: one message in each direction, a thousand times.
 *
 *   pingpong IA            (the server)
 *   pingpong IA ADDRESS    (the client)
 */
#define _GNU_SOURCE
#include <time.h>

#include "example.h"

#define ROUNDS 1000
#define RECEIVES 4u

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Posts receives before the connection exists, because a message needs a posted receive. */
static void post_all(struct example *ex)
{
	for (unsigned slot = 0; slot < RECEIVES; slot++)
		post_recv(ex, slot);
}

/* Waits for a message and posts its receive again. */
static unsigned take(struct example *ex)
{
	DAT_DTO_COMPLETION_EVENT_DATA done = completed(ex->recv_evd, "a message");
	unsigned slot = (unsigned)done.user_cookie.as_64, number;

	check(done.transfered_length == sizeof(number), "the message is a number");
	memcpy(&number, ex->buffer + INBOX(slot), sizeof(number));
	post_recv(ex, slot);
	return number;
}

static void serve(struct example *ex)
{
	post_all(ex);
	serve_one(ex);
	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned number = take(ex) + 1;

		send_bytes(ex, ex->ep, &number, sizeof(number));
	}
	expect(ex->connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, "the end");
	printf("answered %d messages\n", ROUNDS);
}

static void run_client(struct example *ex, const char *host)
{
	double begin;

	post_all(ex);
	connect_to(ex, host);
	begin = now_us();
	for (unsigned round = 0; round < ROUNDS; round++) {
		send_bytes(ex, ex->ep, &round, sizeof(round));
		check(take(ex) == round + 1, "the answer is the next number");
	}
	printf("%d round trips, %.1f us each\n", ROUNDS, (now_us() - begin) / ROUNDS);
	disconnect(ex);
}

int main(int argc, char **argv)
{
	return run(argc, argv, serve, run_client);
}
