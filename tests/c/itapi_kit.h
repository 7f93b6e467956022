/*
 * Shared by the programs for IT-API: both ends of a connection in one process, each with an adapter
 * of its own. The first argument of a program names a trial; without one it lists its trials.
 */
#ifndef STACK_TESTS_ITAPI_KIT_H
#define STACK_TESTS_ITAPI_KIT_H

#ifndef ITAPI_ENABLE_V20_BINDINGS
#define ITAPI_ENABLE_V21_BINDINGS
#endif

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <it_api.h>

#define WAIT_US ((uint64_t)60000000)
/* A time in which nothing is to happen. */
#define QUIET_US ((uint64_t)200000)
#define QUEUE_LEN 64
#define BUFFER_LEN (256 * 1024)
#define NOTIFIED ((it_dto_flags_t)(IT_COMPLETION_FLAG | IT_NOTIFY_FLAG))
#define NO_AEVD ((it_evd_handle_t)NULL)

#define expect(condition)                                                                         \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			printf("FAILED line %d: %s\n", __LINE__, #condition);                     \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

#define answers(status, call)                                                                     \
	do {                                                                                      \
		int answered = (int)(call);                                                       \
		if (answered != (int)(status)) {                                                  \
			printf("FAILED line %d: %s is %d, not %s\n", __LINE__, #call, answered,  \
			       #status);                                                          \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

#define must(call) answers(IT_SUCCESS, call)

struct end {
	it_ia_handle_t ia;
	it_pz_handle_t pz;
	it_evd_handle_t request, recv, cm_req, cm_msg;
	it_ep_handle_t ep;
	it_lmr_handle_t lmr;
	it_rmr_context_t context;
	char *buffer;
};

struct pair {
	struct end active, passive;
	it_listen_handle_t listener;
	it_conn_qual_t qualifier;
};

static inline const char *adapter(void)
{
	const char *name = getenv("ITAPI_ADAPTER");

	return name ? name : "iwarp-lo";
}

static inline it_evd_handle_t make_sevd(it_ia_handle_t ia, it_event_type_t stream,
					it_evd_handle_t aevd)
{
	it_evd_handle_t evd;

	must(it_evd_create(ia, stream, (it_evd_flags_t)0, QUEUE_LEN, 1, aevd, &evd, NULL));
	return evd;
}

static inline it_ep_attributes_t attributes(void)
{
	it_ep_attributes_t attr;

	memset(&attr, 0, sizeof(attr));
	attr.max_dto_payload_size = BUFFER_LEN;
	attr.max_request_dtos = 16;
	attr.max_recv_dtos = 16;
	attr.max_send_segments = 4;
	attr.max_recv_segments = 4;
	attr.srv.rc.rdma_read_enable = IT_TRUE;
	attr.srv.rc.rdma_write_enable = IT_TRUE;
	attr.srv.rc.max_rdma_read_segments = 1;
	attr.srv.rc.max_rdma_write_segments = 4;
	attr.srv.rc.rdma_read_ird = 4;
	attr.srv.rc.rdma_read_ord = 4;
	attr.srv.rc.hard_hi_watermark = IT_HARD_HI_WATERMARK_DISABLE;
	attr.srv.rc.atomics_enable = IT_TRUE;
	return attr;
}

static inline it_ep_handle_t make_ep(struct end *end)
{
	it_ep_attributes_t attr = attributes();
	it_ep_handle_t ep;

	must(it_ep_rc_create(end->pz, end->request, end->recv, end->cm_msg, IT_EP_NO_FLAG, &attr,
			     &ep));
	return ep;
}

static inline void end_open(struct end *end)
{
	memset(end, 0, sizeof(*end));
	must(it_ia_create(adapter(), 2, 1, &end->ia));
	must(it_pz_create(end->ia, &end->pz));
	end->request = make_sevd(end->ia, IT_DTO_EVENT_STREAM, NO_AEVD);
	end->recv = make_sevd(end->ia, IT_DTO_EVENT_STREAM, NO_AEVD);
	end->cm_req = make_sevd(end->ia, IT_CM_REQ_EVENT_STREAM, NO_AEVD);
	end->cm_msg = make_sevd(end->ia, IT_CM_MSG_EVENT_STREAM, NO_AEVD);
	end->ep = make_ep(end);
	end->buffer = (char *)calloc(1, BUFFER_LEN);
	expect(end->buffer);
	must(it_lmr_create21(end->pz, end->buffer, NULL, BUFFER_LEN, IT_ADDR_MODE_ABSOLUTE,
			     IT_PRIV_ALL, IT_LMR_FLAG_NONE, 0, &end->lmr, &end->context));
}

/* Frees all objects one by one, so that each must be free of users. */
static inline void end_close(struct end *end)
{
	must(it_ep_free(end->ep));
	must(it_lmr_free(end->lmr));
	must(it_evd_free(end->request));
	must(it_evd_free(end->recv));
	must(it_evd_free(end->cm_req));
	must(it_evd_free(end->cm_msg));
	must(it_pz_free(end->pz));
	must(it_ia_free(end->ia));
	free(end->buffer);
}

static inline it_event_t next(it_evd_handle_t evd)
{
	it_event_t event;

	must(it_evd_wait(evd, WAIT_US, &event, NULL));
	expect(event.any.evd == evd);
	return event;
}

static inline it_event_t next_of(it_evd_handle_t evd, it_event_type_t number)
{
	it_event_t event = next(evd);

	if (event.event_number != number) {
		printf("FAILED: event %#x instead of %#x\n", (unsigned)event.event_number,
		       (unsigned)number);
		exit(1);
	}
	return event;
}

static inline it_ep_state_rc_t state(it_ep_handle_t ep)
{
	it_ep_param_t param;

	must(it_ep_query(ep, IT_EP_PARAM_STATE, &param));
	return param.ep_state.rc;
}

static inline it_path_t path_to(struct end *from)
{
	it_net_addr_t address;
	it_ia_info_t *info;
	size_t count = 1, total;
	it_path_t path;

	must(it_ia_query(from->ia, &info));
	address = info->spigot_info[0].net_addr[0];
	it_ia_info_free(info);
	must(it_get_pathinfo(from->ia, 0, &address, &count, &total, &path));
	expect(count == 1 && total == 1);
	path.timeout = WAIT_US;
	return path;
}

static inline void pair_open(struct pair *pair)
{
	end_open(&pair->active);
	end_open(&pair->passive);
	memset(&pair->qualifier, 0, sizeof(pair->qualifier));
	pair->qualifier.type = IT_IANA_PORT;
	must(it_listen_create(pair->passive.ia, 0, pair->passive.cm_req, IT_LISTEN_NO_FLAG,
			      &pair->qualifier, &pair->listener));
	expect(pair->qualifier.conn_qual.port != 0);
}

/* Requests a connection. Returns the event of the request. */
static inline it_event_t request(struct pair *pair, const char *data, size_t len)
{
	it_path_t path = path_to(&pair->active);

	must(it_ep_connect(pair->active.ep, &path, NULL, &pair->qualifier,
			   IT_CONNECT_FLAG_TWO_WAY, (const unsigned char *)data, len));
	return next_of(pair->passive.cm_req, IT_CM_REQ_CONN_REQUEST_EVENT);
}

static inline void pair_connect(struct pair *pair)
{
	it_event_t event = request(pair, NULL, 0);

	must(it_ep_accept(pair->passive.ep, event.conn_req.cn_est_id, NULL, 0));
	event = next_of(pair->active.cm_msg, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
	expect(event.conn.ep == pair->active.ep);
	event = next_of(pair->passive.cm_msg, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
	expect(event.conn.ep == pair->passive.ep);
}

static inline void pair_disconnect(struct pair *pair)
{
	must(it_ep_disconnect(pair->active.ep, NULL, 0));
	next_of(pair->active.cm_msg, IT_CM_MSG_CONN_DISCONNECT_EVENT);
	next_of(pair->passive.cm_msg, IT_CM_MSG_CONN_DISCONNECT_EVENT);
}

static inline void pair_close(struct pair *pair)
{
	must(it_listen_free(pair->listener));
	end_close(&pair->active);
	end_close(&pair->passive);
}

static inline it_lmr_triplet_t part(struct end *end, size_t offset, size_t len)
{
	it_lmr_triplet_t triplet;

	triplet.lmr = end->lmr;
	triplet.addr.abs = end->buffer + offset;
	triplet.length = len;
	return triplet;
}

static inline void post_recv(struct end *end, size_t offset, size_t len, it_dto_cookie_t cookie)
{
	it_lmr_triplet_t segment = part(end, offset, len);

	must(it_post_recv(end->ep, &segment, 1, cookie, NOTIFIED));
}

static inline void post_send(struct end *end, size_t offset, size_t len, it_dto_cookie_t cookie,
			     it_dto_flags_t flags)
{
	it_lmr_triplet_t segment = part(end, offset, len);

	must(it_post_send(end->ep, &segment, 1, cookie, flags));
}

/* Waits for a completion and checks all members but the length. */
static inline it_event_t completed(it_evd_handle_t evd, it_event_type_t number, it_ep_handle_t ep,
				   it_dto_cookie_t cookie, it_dto_status_t status)
{
	it_event_t event = next_of(evd, number);

	expect(event.dto_cmpl.ep == ep && event.dto_cmpl.cookie == cookie);
	if (event.dto_cmpl.dto_status != status) {
		printf("FAILED: completion has status %d\n", (int)event.dto_cmpl.dto_status);
		exit(1);
	}
	return event;
}

struct trial {
	const char *name;
	void (*run)(void);
};

static inline int run_trial(int argc, char **argv, const struct trial *trials)
{
	if (argc > 1 && !*argv[1])
		argc = 1;
	for (; trials->name; trials++) {
		if (argc < 2) {
			printf("TRIAL %s\n", trials->name);
		} else if (!strcmp(argv[1], trials->name)) {
			trials->run();
			printf("PASSED\n");
			return 0;
		}
	}
	return argc < 2 ? 0 : 2;
}

#endif
