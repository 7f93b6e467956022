/*
 * Calls for events: CNOs with a descriptor or an agent, unsignalled and solicited completions,
 * signals during a wait, and counters.
 */
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include "pair.h"

#include <netinet/in.h>

#include <dat2/dat_ib_extensions.h>
#include <dat2/dat_rs_counters.h>

/* The time in which a wrong wake-up would be noticed. */
#define QUIET_MS 200

static int readable(int fd, int timeout_ms)
{
	struct pollfd set = { .fd = fd, .events = POLLIN };

	return poll(&set, 1, timeout_ms) == 1;
}

static void send_flagged(struct pair *pair, DAT_UINT64 cookie, DAT_COMPLETION_FLAGS flags)
{
	DAT_LMR_TRIPLET part = kit_part(&pair->active, 0, PART);

	must("dat_ep_post_send",
	     dat_ep_post_send(pair->active.ep, 1, &part, cookie_of(cookie), flags));
}

/* The CNO's descriptor becomes readable when a message is received, without a waiter in DAT. */
static void cno_descriptor(void)
{
	struct pair pair;
	DAT_CNO_PARAM param;
	DAT_CNO_HANDLE cno;
	DAT_EVD_HANDLE evd;
	DAT_EVENT event;
	DAT_FD fd;

	pair_open(&pair);
	must("dat_cno_fd_create", dat_cno_fd_create(pair.passive.ia, &fd, &cno));
	must("dat_cno_query", dat_cno_query(cno, DAT_CNO_FIELD_ALL, &param));
	expect(param.proxy_type == DAT_PROXY_TYPE_FD && param.proxy.fd == fd);
	must("dat_evd_modify_cno", dat_evd_modify_cno(pair.passive.recv_evd, cno));
	pair_connect(&pair);
	must_refuse("dat_cno_trigger", dat_cno_trigger(cno, &evd), DAT_QUEUE_EMPTY,
		    DAT_NO_SUBTYPE);
	expect(evd == DAT_HANDLE_NULL && !readable(fd, 0));
	for (unsigned round = 0; round < 3; round++) {
		post_recv(&pair.passive, 0, PART);
		send_part(&pair.active, 0, PART, WAIT_MS);
		expect(readable(fd, WAIT_MS));
		must("dat_cno_trigger", dat_cno_trigger(cno, &evd));
		expect(evd == pair.passive.recv_evd);
		expect(!readable(fd, 0));
		must("dat_evd_dequeue", dat_evd_dequeue(evd, &event));
		expect(event.event_number == DAT_DTO_COMPLETION_EVENT);
		must_refuse("dat_evd_dequeue", dat_evd_dequeue(evd, &event), DAT_QUEUE_EMPTY,
			    DAT_NO_SUBTYPE);
	}
	must_refuse("dat_cno_free", dat_cno_free(cno), DAT_INVALID_STATE,
		    DAT_INVALID_STATE_CNO_IN_USE);
	must("dat_evd_modify_cno", dat_evd_modify_cno(pair.passive.recv_evd, DAT_HANDLE_NULL));
	must("dat_cno_free", dat_cno_free(cno));
	expect(lseek(fd, 0, SEEK_CUR) == -1);
	pair_close(&pair);
}

struct agent {
	sem_t called;
	DAT_EVD_HANDLE evd;
	unsigned calls;
};

static void on_event(DAT_PVOID instance_data, DAT_EVD_HANDLE evd)
{
	struct agent *agent = instance_data;

	agent->evd = evd;
	agent->calls++;
	sem_post(&agent->called);
}

/* An agent is called for one trigger, and again only after the agent was set again. */
static void cno_agent(void)
{
	struct pair pair;
	struct agent agent = { .calls = 0 };
	DAT_OS_WAIT_PROXY_AGENT proxy = { .instance_data = &agent, .proxy_agent_func = on_event };
	DAT_CNO_HANDLE cno;
	DAT_EVD_HANDLE evd;
	DAT_EVENT event;

	sem_init(&agent.called, 0, 0);
	pair_open(&pair);
	must("dat_cno_create", dat_cno_create(pair.passive.ia, proxy, &cno));
	must("dat_evd_modify_cno", dat_evd_modify_cno(pair.passive.recv_evd, cno));
	pair_connect(&pair);
	for (unsigned round = 1; round <= 2; round++) {
		post_recv(&pair.passive, 0, PART);
		send_part(&pair.active, 0, PART, WAIT_MS);
		sem_wait(&agent.called);
		expect(agent.evd == pair.passive.recv_evd && agent.calls == round);
		must("dat_cno_wait", dat_cno_wait(cno, WAIT_MS * 1000, &evd));
		must("dat_evd_dequeue", dat_evd_dequeue(evd, &event));
		/* This dequeue arms the next trigger. */
		must_refuse("dat_evd_dequeue", dat_evd_dequeue(evd, &event), DAT_QUEUE_EMPTY,
			    DAT_NO_SUBTYPE);
		if (round == 1)
			must("dat_cno_modify_agent", dat_cno_modify_agent(cno, proxy));
	}
	post_recv(&pair.passive, 0, PART);
	send_part(&pair.active, 0, PART, WAIT_MS);
	must("dat_cno_wait", dat_cno_wait(cno, WAIT_MS * 1000, &evd));
	usleep(QUIET_MS * 1000);
	expect(agent.calls == 2);
	must("dat_evd_modify_cno", dat_evd_modify_cno(pair.passive.recv_evd, DAT_HANDLE_NULL));
	must("dat_cno_free", dat_cno_free(cno));
	pair_close(&pair);
}

/* Another thread sends two messages with a pause between, the second with these flags. */
struct sender {
	pthread_t thread;
	struct pair *pair;
	DAT_COMPLETION_FLAGS second;
};

static void *send_two(void *argument)
{
	struct sender *sender = argument;

	/* The waiter is asleep at this time. */
	usleep(QUIET_MS * 1000);
	send_flagged(sender->pair, 1, DAT_COMPLETION_SUPPRESS_FLAG);
	usleep(QUIET_MS * 1000);
	send_flagged(sender->pair, 2, DAT_COMPLETION_SUPPRESS_FLAG | sender->second);
	return NULL;
}

/*
 * Returns 1 if `wanted` further events are queued when a waiter returns from a wait during two
 * messages: one if the first message did not wake the waiter, none if it did. On a busy machine the
 * waiter may check before it sleeps, or run after both messages, so one round of five is enough.
 */
static int finds_behind(DAT_COUNT wanted, struct pair *pair, DAT_COMPLETION_FLAGS first_recv,
			DAT_COMPLETION_FLAGS second_send)
{
	int found = 0;

	for (unsigned round = 0; round < 5 && !found; round++) {
		struct sender sender = { .pair = pair, .second = second_send };
		DAT_COUNT more;
		DAT_EVENT event;

		for (size_t at = 0; at < 2; at++) {
			DAT_LMR_TRIPLET part = kit_part(&pair->passive, at * PART, PART);

			must("dat_ep_post_recv",
			     dat_ep_post_recv(pair->passive.ep, 1, &part, cookie_of(at),
					      at ? DAT_COMPLETION_DEFAULT_FLAG : first_recv));
		}
		expect(pthread_create(&sender.thread, NULL, send_two, &sender) == 0);
		must("dat_evd_wait",
		     dat_evd_wait(pair->passive.recv_evd, WAIT_MS * 1000, 1, &event, &more));
		expect(event.event_data.dto_completion_event_data.user_cookie.as_64 == 0);
		found = more == wanted;
		pthread_join(sender.thread, NULL);
		expect_event(pair->passive.recv_evd, DAT_DTO_COMPLETION_EVENT, &event);
		expect(event.event_data.dto_completion_event_data.user_cookie.as_64 == 1);
	}
	return found;
}

/* An unsignalled event is queued, but only the next event ends a wait; both are queued then. */
static void unsignalled(void)
{
	struct pair pair;

	pair_open(&pair);
	pair_connect(&pair);
	expect(finds_behind(1, &pair, DAT_COMPLETION_UNSIGNALLED_FLAG, DAT_COMPLETION_DEFAULT_FLAG));
	expect(finds_behind(0, &pair, DAT_COMPLETION_DEFAULT_FLAG, DAT_COMPLETION_DEFAULT_FLAG));
	pair_close(&pair);
}

/*
 * Waiters of a queue for solicited events sleep until a solicited send. The event before it is
 * queued then. The first endpoint of a queue determines the queue's kind, so the queue is new.
 */
static void solicited(void)
{
	struct pair pair;
	struct kit *passive = &pair.passive;
	DAT_EP_PARAM param;
	DAT_COUNT more;
	DAT_EVENT event;

	pair_open(&pair);
	must("dat_ep_query", dat_ep_query(passive->ep, DAT_EP_FIELD_ALL, &param));
	must("dat_ep_free", dat_ep_free(passive->ep));
	must("dat_evd_free", dat_evd_free(passive->recv_evd));
	passive->recv_evd = make_evd(passive, DAT_EVD_DTO_FLAG);
	param.ep_attr.recv_completion_flags = DAT_COMPLETION_SOLICITED_WAIT_FLAG;
	must("dat_ep_create",
	     dat_ep_create(passive->ia, passive->pz, passive->recv_evd, passive->request_evd,
			   passive->connect_evd, &param.ep_attr, &passive->ep));
	pair_connect(&pair);
	must_refuse("dat_evd_wait",
		    dat_evd_wait(passive->recv_evd, QUIET_MS * 1000, 2, &event, &more),
		    DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
	expect(finds_behind(1, &pair, DAT_COMPLETION_DEFAULT_FLAG,
			    DAT_COMPLETION_SOLICITED_WAIT_FLAG));
	pair_close(&pair);
}

static void on_alarm(int signal)
{
	(void)signal;
}

/* A signal handler ends a wait for completions, and no wait for other events. */
static void interrupted(void)
{
	struct itimerval often = { { 0, 10000 }, { 0, 10000 } }, never = { { 0, 0 }, { 0, 0 } };
	struct pair pair;
	DAT_EVENT event;
	DAT_COUNT more;
	DAT_RETURN code;

	pair_open(&pair);
	pair_connect(&pair);
	signal(SIGALRM, on_alarm);
	expect(setitimer(ITIMER_REAL, &often, NULL) == 0);
	code = dat_evd_wait(pair.passive.recv_evd, 1000 * WAIT_MS, 1, &event, &more);
	expect(code == DAT_INTERRUPTED_CALL);
	code = dat_evd_wait(pair.passive.connect_evd, 100000, 1, &event, &more);
	expect(DAT_GET_TYPE(code) == DAT_TIMEOUT_EXPIRED);
	expect(setitimer(ITIMER_REAL, &never, NULL) == 0);
	one_message(&pair, 1);
	pair_close(&pair);
}

static DAT_UINT64 counter(DAT_HANDLE handle, int index)
{
	DAT_UINT64 value = ~(DAT_UINT64)0;

	must("dat_ib_query_counters", dat_ib_query_counters(handle, index, &value, 0));
	return value;
}

/* The counters that one message changes, on its endpoints, queues and adapters. */
static void counters(void)
{
	struct pair pair;
	DAT_UINT64 all[DCNT_IA_ALL_COUNTERS];
	DAT_UINT64 ways[DCNT_RS_COUNT];

	pair_open(&pair);
	pair_connect(&pair);
	one_message(&pair, 1);
	expect(counter(pair.active.ep, DCNT_EP_POST_SEND) == 1);
	expect(counter(pair.active.ep, DCNT_EP_POST_SEND_DATA) == PART);
	expect(counter(pair.passive.ep, DCNT_EP_POST_RECV) == 1);
	expect(counter(pair.passive.ep, DCNT_EP_RECV) == 1);
	expect(counter(pair.passive.ep, DCNT_EP_RECV_DATA) == PART);
	expect(counter(pair.passive.recv_evd, DCNT_EVD_WAIT) == 1);
	must("dat_ib_query_counters",
	     dat_ib_query_counters(pair.passive.ia, DCNT_IA_ALL_COUNTERS, all, 1));
	expect(all[DCNT_IA_CM_PASSIVE_EST] == 1 && all[DCNT_IA_SP_CR_ACCEPTED] == 1);
	expect(all[DCNT_IA_CM_ACTIVE_EST] == 0 && all[DCNT_IA_CM_REQ_RX] == 1);
	expect(counter(pair.passive.ia, DCNT_IA_CM_REQ_RX) == 0);
	must("dat_ib_query_counters",
	     dat_ib_query_counters(pair.active.ep, DCNT_RS_ALL_COUNTERS, ways, 0));
	expect(ways[0] == counter(pair.active.ep, DCNT_RS_TCP_SENT));
	must("dat_ib_print_counters",
	     dat_ib_print_counters(pair.active.ep, DCNT_EP_ALL_COUNTERS, 0));
	must_refuse("dat_ib_query_counters",
		    dat_ib_query_counters(pair.active.ep, DCNT_EP_ALL_COUNTERS + 1, all, 0),
		    DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
	pair_close(&pair);
}

static const struct trial TRIALS[] = {
	{ "cno-descriptor", cno_descriptor },
	{ "cno-agent", cno_agent },
	{ "unsignalled", unsignalled },
	{ "solicited", solicited },
	{ "counters", counters },
	{ "interrupted", interrupted },
};

TRIAL_MAIN(TRIALS)
