/*
 * Events in an event loop: a notification object shows its triggers on a descriptor, which poll()
 * can watch together with any others.
 *
 *   poll IA            (the server)
 *   poll IA ADDRESS    (the client)
 */
#define _GNU_SOURCE
#include <poll.h>

#include "example.h"

#define PATIENCE_MS 30000

/* The events that the loop has handled. */
struct seen {
	unsigned messages;
	int is_over;
};

static void handle(struct example *ex, const DAT_EVENT *event, struct seen *seen)
{
	const DAT_DTO_COMPLETION_EVENT_DATA *dto = &event->event_data.dto_completion_event_data;

	switch (event->event_number) {
	case DAT_CONNECTION_REQUEST_EVENT:
		printf("a client asks\n");
		must("dat_cr_accept",
		     dat_cr_accept(event->event_data.cr_arrival_event_data.cr_handle, ex->ep, 0,
				   NULL));
		break;
	case DAT_CONNECTION_EVENT_ESTABLISHED:
		printf("connected\n");
		break;
	case DAT_DTO_COMPLETION_EVENT:
		/* A receive that is still posted when the connection ends is flushed. */
		if (dto->status == DAT_DTO_SUCCESS && seen->messages++ == 0)
			printf("first message: \"%s\"\n",
			       ex->buffer + INBOX(dto->user_cookie.as_64));
		break;
	case DAT_CONNECTION_EVENT_DISCONNECTED:
		seen->is_over = 1;
		break;
	default:
		check(0, "the event is known");
	}
}

/*
 * Consumes all triggers, and all events of each queue that triggered. The next event then triggers
 * again.
 */
static void drain(struct example *ex, DAT_CNO_HANDLE cno, struct seen *seen)
{
	DAT_EVD_HANDLE evd;
	DAT_EVENT event;

	while (dat_cno_trigger(cno, &evd) == DAT_SUCCESS)
		while (dat_evd_dequeue(evd, &event) == DAT_SUCCESS)
			handle(ex, &event, seen);
}

static void serve(struct example *ex)
{
	DAT_EVD_HANDLE evds[] = { ex->cr_evd, ex->connect_evd, ex->recv_evd };
	struct seen seen = { 0, 0 };
	DAT_CNO_HANDLE cno;
	DAT_PSP_HANDLE psp;
	DAT_FD fd;

	must("dat_cno_fd_create", dat_cno_fd_create(ex->ia, &fd, &cno));
	for (unsigned i = 0; i < 3; i++)
		must("dat_evd_modify_cno", dat_evd_modify_cno(evds[i], cno));
	for (unsigned slot = 0; slot < 4; slot++)
		post_recv(ex, slot);
	must("dat_psp_create",
	     dat_psp_create(ex->ia, SERVICE, ex->cr_evd, DAT_PSP_CONSUMER_FLAG, &psp));
	while (!seen.is_over) {
		struct pollfd waiting = { .fd = fd, .events = POLLIN };

		/* Drain first: events may precede the watch of the descriptor. */
		drain(ex, cno, &seen);
		if (!seen.is_over)
			check(poll(&waiting, 1, PATIENCE_MS) == 1, "something happens in time");
	}
	printf("%u messages in all\n", seen.messages);
	for (unsigned i = 0; i < 3; i++)
		must("dat_evd_modify_cno", dat_evd_modify_cno(evds[i], DAT_HANDLE_NULL));
	must("dat_psp_free", dat_psp_free(psp));
	must("dat_cno_free", dat_cno_free(cno));
}

static void run_client(struct example *ex, const char *host)
{
	connect_to(ex, host);
	for (unsigned i = 0; i < 4; i++)
		send_text(ex, "one of four");
	printf("sent four messages\n");
	disconnect(ex);
}

int main(int argc, char **argv)
{
	return run(argc, argv, serve, run_client);
}
