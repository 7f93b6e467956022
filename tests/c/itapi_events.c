/*
 * IT-API: event dispatchers, simple and aggregate, with descriptors and callbacks.
 */
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>
#include <unistd.h>

#include "itapi_kit.h"

static int readable(int fd, int timeout_ms)
{
	struct pollfd set = { .fd = fd, .events = POLLIN };

	return poll(&set, 1, timeout_ms) == 1;
}

static int mark[4];

/* Creation with bad arguments, parameters, and changes. */
static void dispatchers(void)
{
	it_evd_handle_t evd, aevd, other;
	it_evd_param_t param;
	it_ia_handle_t ia;
	int fd;

	must(it_ia_create(adapter(), 2, 1, &ia));
	answers(IT_ERR_INVALID_IA, it_evd_create(NULL, IT_DTO_EVENT_STREAM, (it_evd_flags_t)0, 8, 1,
						 NO_AEVD, &evd, NULL));
	answers(IT_ERR_INVALID_EVD_TYPE,
		it_evd_create(ia, IT_DTO_SEND_CMPL_EVENT, (it_evd_flags_t)0, 8, 1, NO_AEVD, &evd,
			      NULL));
	answers(IT_ERR_INVALID_QUEUE_SIZE,
		it_evd_create(ia, IT_DTO_EVENT_STREAM, (it_evd_flags_t)0, 0, 0, NO_AEVD, &evd,
			      NULL));
	answers(IT_ERR_RESOURCE_QUEUE_SIZE,
		it_evd_create(ia, IT_DTO_EVENT_STREAM, (it_evd_flags_t)0, (size_t)1 << 40, 1,
			      NO_AEVD, &evd, NULL));
	answers(IT_ERR_INVALID_THRESHOLD,
		it_evd_create(ia, IT_DTO_EVENT_STREAM, (it_evd_flags_t)0, 8, 9, NO_AEVD, &evd,
			      NULL));
	answers(IT_ERR_INVALID_FLAGS,
		it_evd_create(ia, IT_DTO_EVENT_STREAM, IT_EVD_DEQUEUE_NOTIFICATIONS, 8, 1, NO_AEVD,
			      &evd, NULL));
	answers(IT_ERR_OP_NOT_SUPPORTED,
		it_evd_create(ia, IT_DTO_EVENT_STREAM, IT_EVD_OVERFLOW_AUTO_RESET, 8, 1, NO_AEVD,
			      &evd, NULL));
	answers(IT_ERR_FAULT, it_evd_create(ia, IT_DTO_EVENT_STREAM, (it_evd_flags_t)0, 8, 1,
					    NO_AEVD, NULL, NULL));
	must(it_evd_create(ia, IT_AEVD_NOTIFICATION_EVENT_STREAM, IT_EVD_OVERFLOW_DEFAULT, 0, 0,
			   NO_AEVD, &aevd, NULL));
	answers(IT_ERR_AEVD_NOT_ALLOWED,
		it_evd_create(ia, IT_AEVD_NOTIFICATION_EVENT_STREAM, (it_evd_flags_t)0, 0, 0, aevd,
			      &other, NULL));
	answers(IT_ERR_MISMATCH_FD, it_evd_create(ia, IT_DTO_EVENT_STREAM, IT_EVD_CREATE_FD, 8, 1,
						  aevd, &evd, &fd));
	must(it_evd_create(ia, IT_DTO_EVENT_STREAM, (it_evd_flags_t)0, 8, 2, aevd, &evd, NULL));
	answers(IT_ERR_INVALID_AEVD, it_evd_create(ia, IT_DTO_EVENT_STREAM, (it_evd_flags_t)0, 8,
						   1, evd, &other, NULL));
	must(it_evd_query(evd, IT_EVD_PARAM_ALL, &param));
	expect(param.ia == ia && param.event_number == IT_DTO_EVENT_STREAM && param.aevd == aevd);
	expect(param.sevd_queue_size == 8 && param.sevd_threshold == 2 && param.fd == -1);
	expect(param.evd_enabled && !param.evd_callback && !param.evd_overflowed);
	must(it_evd_query(aevd, IT_EVD_PARAM_ALL, &param));
	expect(param.evd_bound && param.event_number == IT_AEVD_NOTIFICATION_EVENT_STREAM);
	answers(IT_ERR_INVALID_MASK, it_evd_query(evd, (it_evd_param_mask_t)0x1000, &param));
	answers(IT_ERR_EVD_BUSY, it_evd_free(aevd));
	param.sevd_queue_size = 32;
	param.sevd_threshold = 4;
	param.aevd = NO_AEVD;
	param.evd_enabled = IT_FALSE;
	must(it_evd_modify(evd,
			   (it_evd_param_mask_t)(IT_EVD_PARAM_QUEUE_SIZE | IT_EVD_PARAM_THRESHOLD |
						 IT_EVD_PARAM_AEVD_HANDLE | IT_EVD_PARAM_ENABLED),
			   &param));
	must(it_evd_query(evd, IT_EVD_PARAM_ALL, &param));
	expect(param.sevd_queue_size == 32 && param.sevd_threshold == 4 && !param.aevd);
	expect(!param.evd_enabled);
	answers(IT_ERR_INVALID_MASK, it_evd_modify(evd, IT_EVD_PARAM_IA, &param));
	must(it_evd_free(aevd));
	must(it_evd_free(evd));
	answers(IT_ERR_INVALID_EVD, it_evd_free(evd));
	must(it_ia_free(ia));
}

/* Software events: order, threshold, timeouts. */
static void software(void)
{
	it_evd_handle_t evd, other;
	it_evd_param_t param;
	it_event_t event;
	it_ia_handle_t ia;
	size_t nmore = 77;

	must(it_ia_create(adapter(), 2, 1, &ia));
	must(it_evd_create(ia, IT_SOFTWARE_EVENT_STREAM, (it_evd_flags_t)0, 16, 1, NO_AEVD, &evd,
			   NULL));
	answers(IT_ERR_QUEUE_EMPTY, it_evd_dequeue(evd, &event));
	answers(IT_ERR_TIMEOUT_EXPIRED, it_evd_wait(evd, 0, &event, &nmore));
	answers(IT_ERR_TIMEOUT_EXPIRED, it_evd_wait(evd, 1000, &event, &nmore));
	for (int index = 0; index < 3; index++)
		must(it_evd_post_se(evd, &mark[index]));
	must(it_evd_wait(evd, IT_TIMEOUT_INFINITE, &event, &nmore));
	expect(event.event_number == IT_SOFTWARE_EVENT && event.sw.evd == evd);
	expect(event.sw.data == &mark[0] && nmore == 2);
	must(it_evd_dequeue(evd, &event));
	expect(event.sw.data == &mark[1]);
	param.sevd_threshold = 2;
	must(it_evd_modify(evd, IT_EVD_PARAM_THRESHOLD, &param));
	/* One event is queued, and the threshold is two. */
	answers(IT_ERR_TIMEOUT_EXPIRED, it_evd_wait(evd, 1000, &event, NULL));
	must(it_evd_post_se(evd, NULL));
	must(it_evd_wait(evd, WAIT_US, &event, NULL));
	expect(event.sw.data == &mark[2]);
	must(it_evd_dequeue(evd, &event));
	expect(event.sw.data == NULL);
	other = make_sevd(ia, IT_DTO_EVENT_STREAM, NO_AEVD);
	answers(IT_ERR_INVALID_SOFT_EVD, it_evd_post_se(other, NULL));
	answers(IT_ERR_FAULT, it_evd_dequeue(evd, NULL));
	for (int index = 0; index < 10000; index++)
		if (it_evd_post_se(evd, NULL) != IT_SUCCESS)
			break;
	answers(IT_ERR_EVD_QUEUE_FULL, it_evd_post_se(evd, NULL));
	must(it_ia_free(ia));
}

/* An aggregate EVD returns the events of its members, which take turns. */
static void aggregate(void)
{
	it_evd_handle_t aevd, one, two;
	it_event_t event;
	it_ia_handle_t ia;
	int ones = 0;

	must(it_ia_create(adapter(), 2, 1, &ia));
	must(it_evd_create(ia, IT_AEVD_NOTIFICATION_EVENT_STREAM, (it_evd_flags_t)0, 0, 0, NO_AEVD,
			   &aevd, NULL));
	answers(IT_ERR_QUEUE_EMPTY, it_evd_dequeue(aevd, &event));
	one = make_sevd(ia, IT_SOFTWARE_EVENT_STREAM, aevd);
	two = make_sevd(ia, IT_SOFTWARE_EVENT_STREAM, aevd);
	for (int round = 0; round < 4; round++) {
		must(it_evd_post_se(one, &mark[round]));
		must(it_evd_post_se(two, &mark[round]));
	}
	for (int round = 0; round < 4; round++) {
		must(it_evd_wait(aevd, WAIT_US, &event, NULL));
		ones += event.any.evd == one;
		must(it_evd_dequeue(aevd, &event));
		ones += event.any.evd == one;
		expect(ones == round + 1);
	}
	answers(IT_ERR_QUEUE_EMPTY, it_evd_dequeue(aevd, &event));
	answers(IT_ERR_TIMEOUT_EXPIRED, it_evd_wait(aevd, 1000, &event, NULL));
	must(it_evd_post_se(two, &mark[0]));
	/* Events of a member can also be taken from the member. */
	must(it_evd_dequeue(two, &event));
	answers(IT_ERR_TIMEOUT_EXPIRED, it_evd_wait(aevd, 1000, &event, NULL));
	must(it_evd_free(one));
	must(it_evd_post_se(two, &mark[1]));
	must(it_evd_wait(aevd, WAIT_US, &event, NULL));
	expect(event.sw.evd == two && event.sw.data == &mark[1]);
	must(it_evd_free(two));
	must(it_evd_free(aevd));
	must(it_ia_free(ia));
}

/* With IT_EVD_DEQUEUE_NOTIFICATIONS the aggregate EVD names the member that has events. */
static void notifications(void)
{
	it_evd_handle_t aevd, one, two;
	it_event_t event;
	it_ia_handle_t ia;

	must(it_ia_create(adapter(), 2, 1, &ia));
	must(it_evd_create(ia, IT_AEVD_NOTIFICATION_EVENT_STREAM, IT_EVD_DEQUEUE_NOTIFICATIONS, 0,
			   0, NO_AEVD, &aevd, NULL));
	one = make_sevd(ia, IT_SOFTWARE_EVENT_STREAM, aevd);
	two = make_sevd(ia, IT_SOFTWARE_EVENT_STREAM, aevd);
	for (int round = 0; round < 3; round++) {
		answers(IT_ERR_QUEUE_EMPTY, it_evd_dequeue(aevd, &event));
		must(it_evd_post_se(one, &mark[0]));
		must(it_evd_post_se(two, &mark[1]));
		must(it_evd_wait(aevd, WAIT_US, &event, NULL));
		expect(event.event_number == IT_AEVD_NOTIFICATION_EVENT);
		expect(event.aevd_notify.aevd == aevd && event.aevd_notify.sevd == one);
		must(it_evd_dequeue(one, &event));
		expect(event.sw.data == &mark[0]);
		answers(IT_ERR_QUEUE_EMPTY, it_evd_dequeue(one, &event));
		must(it_evd_dequeue(aevd, &event));
		expect(event.aevd_notify.sevd == two);
		must(it_evd_dequeue(two, &event));
		answers(IT_ERR_QUEUE_EMPTY, it_evd_dequeue(two, &event));
	}
	answers(IT_ERR_TIMEOUT_EXPIRED, it_evd_wait(aevd, 1000, &event, NULL));
	must(it_ia_free(ia));
}

/* The descriptor of an EVD is readable from an event until the EVD is empty. */
static void descriptor_of(it_event_type_t stream)
{
	it_evd_handle_t evd, sevd;
	it_evd_param_t param;
	it_event_t event;
	it_ia_handle_t ia;
	int fd = -1;

	must(it_ia_create(adapter(), 2, 1, &ia));
	answers(IT_ERR_FAULT,
		it_evd_create(ia, stream, IT_EVD_CREATE_FD, 16, 1, NO_AEVD, &evd, NULL));
	must(it_evd_create(ia, stream, IT_EVD_CREATE_FD, 16, 1, NO_AEVD, &evd, &fd));
	sevd = evd;
	if (stream == IT_AEVD_NOTIFICATION_EVENT_STREAM)
		sevd = make_sevd(ia, IT_SOFTWARE_EVENT_STREAM, evd);
	must(it_evd_query(evd, IT_EVD_PARAM_FD, &param));
	expect(param.fd == fd && fd >= 0);
	for (int round = 0; round < 3; round++) {
		expect(!readable(fd, 0));
		must(it_evd_post_se(sevd, &mark[0]));
		must(it_evd_post_se(sevd, &mark[1]));
		expect(readable(fd, 10000));
		must(it_evd_dequeue(evd, &event));
		expect(event.sw.data == &mark[0] && readable(fd, 0));
		must(it_evd_dequeue(evd, &event));
		expect(event.sw.data == &mark[1]);
		answers(IT_ERR_QUEUE_EMPTY, it_evd_dequeue(evd, &event));
	}
	expect(!readable(fd, 0));
	if (sevd != evd)
		must(it_evd_free(sevd));
	must(it_evd_free(evd));
	expect(lseek(fd, 0, SEEK_CUR) == -1);
	must(it_ia_free(ia));
}

static void descriptor(void)
{
	descriptor_of(IT_SOFTWARE_EVENT_STREAM);
}

static void descriptor_of_aggregate(void)
{
	descriptor_of(IT_AEVD_NOTIFICATION_EVENT_STREAM);
}

struct calls {
	sem_t called;
	it_evd_handle_t evd;
	int events;
};

static void on_events(it_evd_handle_t evd, void *argument)
{
	struct calls *calls = (struct calls *)argument;
	it_event_t event;
	int events = 0;

	calls->evd = evd;
	while (it_evd_dequeue(evd, &event) == IT_SUCCESS)
		events++;
	__atomic_add_fetch(&calls->events, events, __ATOMIC_SEQ_CST);
	sem_post(&calls->called);
}

/* Waits until the callback has taken as many events. */
static void await_events(struct calls *calls, int events)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 60;
	while (__atomic_load_n(&calls->events, __ATOMIC_SEQ_CST) < events)
		expect(!sem_timedwait(&calls->called, &end));
	expect(__atomic_load_n(&calls->events, __ATOMIC_SEQ_CST) == events);
}

static void callback_of(it_event_type_t stream)
{
	struct calls calls = { .events = 0 };
	it_evd_handle_t evd, sevd;
	it_evd_param_t param;
	it_event_t event;
	it_ia_handle_t ia;

	sem_init(&calls.called, 0, 0);
	must(it_ia_create(adapter(), 2, 1, &ia));
	must(it_evd_create(ia, stream, (it_evd_flags_t)0, 64, 1, NO_AEVD, &evd, NULL));
	sevd = evd;
	if (stream == IT_AEVD_NOTIFICATION_EVENT_STREAM)
		sevd = make_sevd(ia, IT_SOFTWARE_EVENT_STREAM, evd);
	answers(IT_ERR_INVALID_EVD_STATE, it_evd_callback_detach(evd));
	answers(IT_ERR_FAULT, it_evd_callback_attach(evd, NULL, NULL));
	must(it_evd_callback_attach(evd, on_events, &calls));
	answers(IT_ERR_CALLBACK_EXISTS, it_evd_callback_attach(evd, on_events, &calls));
	answers(IT_ERR_CALLBACK_EXISTS, it_evd_wait(evd, 0, &event, NULL));
	must(it_evd_query(evd, IT_EVD_PARAM_CALLBACK, &param));
	expect(param.evd_callback);
	for (int round = 1; round <= 20; round++) {
		must(it_evd_post_se(sevd, NULL));
		await_events(&calls, round);
		expect(calls.evd == evd);
	}
	for (int index = 0; index < 20; index++)
		must(it_evd_post_se(sevd, NULL));
	await_events(&calls, 40);
	must(it_evd_callback_detach(evd));
	must(it_evd_post_se(sevd, NULL));
	must(it_evd_wait(evd, WAIT_US, &event, NULL));
	expect(calls.events == 40);
	/* Events that were queued before the callback cause a call. */
	if (sevd == evd) {
		must(it_evd_post_se(sevd, NULL));
		must(it_evd_callback_attach(evd, on_events, &calls));
		await_events(&calls, 41);
	}
	must(it_ia_free(ia));
}

static void callback(void)
{
	callback_of(IT_SOFTWARE_EVENT_STREAM);
}

static void callback_of_aggregate(void)
{
	callback_of(IT_AEVD_NOTIFICATION_EVENT_STREAM);
}

/* A server whose events all come from one aggregate EVD. */
static void connection_by_aggregate(void)
{
	struct pair pair;
	it_evd_handle_t aevd, members[4];
	it_evd_param_t param;
	it_event_t event;
	it_path_t path;

	pair_open(&pair);
	must(it_evd_create(pair.passive.ia, IT_AEVD_NOTIFICATION_EVENT_STREAM, (it_evd_flags_t)0, 0,
			   0, NO_AEVD, &aevd, NULL));
	members[0] = pair.passive.cm_req;
	members[1] = pair.passive.cm_msg;
	members[2] = pair.passive.recv;
	members[3] = pair.passive.request;
	param.aevd = aevd;
	for (int index = 0; index < 4; index++)
		must(it_evd_modify(members[index], IT_EVD_PARAM_AEVD_HANDLE, &param));
	path = path_to(&pair.active);
	must(it_ep_connect(pair.active.ep, &path, NULL, &pair.qualifier, IT_CONNECT_FLAG_TWO_WAY,
			   NULL, 0));
	must(it_evd_wait(aevd, WAIT_US, &event, NULL));
	expect(event.event_number == IT_CM_REQ_CONN_REQUEST_EVENT);
	post_recv(&pair.passive, 0, 64, 5);
	must(it_ep_accept(pair.passive.ep, event.conn_req.cn_est_id, NULL, 0));
	must(it_evd_wait(aevd, WAIT_US, &event, NULL));
	expect(event.event_number == IT_CM_MSG_CONN_ESTABLISHED_EVENT);
	next_of(pair.active.cm_msg, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
	post_send(&pair.active, 0, 8, 6, NOTIFIED);
	must(it_evd_wait(aevd, WAIT_US, &event, NULL));
	expect(event.event_number == IT_DTO_RC_RECV_CMPL_EVENT && event.dto_cmpl.cookie == 5);
	must(it_ep_disconnect(pair.active.ep, NULL, 0));
	must(it_evd_wait(aevd, WAIT_US, &event, NULL));
	expect(event.event_number == IT_CM_MSG_CONN_DISCONNECT_EVENT);
	expect(event.conn.ep == pair.passive.ep);
	pair_close(&pair);
}

/* An adapter has one SEVD for each asynchronous stream; an overflow is an affiliated event. */
static void asynchronous(void)
{
	it_evd_handle_t affiliated, unaffiliated, other, small;
	it_ia_info_t *info;
	it_event_t event;
	it_ia_handle_t ia;

	must(it_ia_create(adapter(), 2, 1, &ia));
	affiliated = make_sevd(ia, IT_ASYNC_AFF_EVENT_STREAM, NO_AEVD);
	unaffiliated = make_sevd(ia, IT_ASYNC_UNAFF_EVENT_STREAM, NO_AEVD);
	answers(IT_ERR_ASYNC_AFF_EVD_EXISTS,
		it_evd_create(ia, IT_ASYNC_AFF_EVENT_STREAM, (it_evd_flags_t)0, 8, 1, NO_AEVD,
			      &other, NULL));
	answers(IT_ERR_ASYNC_UNAFF_EVD_EXISTS,
		it_evd_create(ia, IT_ASYNC_UNAFF_EVENT_STREAM, (it_evd_flags_t)0, 8, 1, NO_AEVD,
			      &other, NULL));
	must(it_ia_query(ia, &info));
	expect(info->affiliated_err_evd == affiliated);
	expect(info->unaffiliated_err_evd == unaffiliated);
	it_ia_info_free(info);
	must(it_evd_create(ia, IT_SOFTWARE_EVENT_STREAM, (it_evd_flags_t)0, 4, 1, NO_AEVD, &small,
			   NULL));
	for (int index = 0; index < 10000; index++)
		if (it_evd_post_se(small, NULL) != IT_SUCCESS)
			break;
	event = next_of(affiliated, IT_ASYNC_AFF_SEVD_ENQUEUE_FAILURE);
	expect(event.aff_async.cause.sevd == small);
	answers(IT_ERR_QUEUE_EMPTY, it_evd_dequeue(unaffiliated, &event));
	must(it_evd_free(affiliated));
	affiliated = make_sevd(ia, IT_ASYNC_AFF_EVENT_STREAM, NO_AEVD);
	must(it_ia_free(ia));
	answers(IT_ERR_INVALID_EVD, it_evd_dequeue(affiliated, &event));
}

static const struct trial trials[] = {
	{ "dispatchers", dispatchers },
	{ "software", software },
	{ "aggregate", aggregate },
	{ "notifications", notifications },
	{ "descriptor", descriptor },
	{ "descriptor-of-aggregate", descriptor_of_aggregate },
	{ "callback", callback },
	{ "callback-of-aggregate", callback_of_aggregate },
	{ "connection-by-aggregate", connection_by_aggregate },
	{ "asynchronous", asynchronous },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	return run_trial(argc, argv, trials);
}
